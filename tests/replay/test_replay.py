"""The net finds what it is there for: another graph, another kernel, a file too many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replay.compare import differences

FILES = {"f/001/guards.txt": "x is a tensor\n", "f/001/kernels/a.ll": "; at 0x7f0012345678\nret"}


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    "files",
    [
        FILES | {"f/001/kernels/a.ll": "; at 0x7f0012345678\nret void"},
        FILES | {"f/001/guards.txt": "x is a tensor\ny too\n"},
        FILES | {"f/002/guards.txt": ""},
        {"f/001/guards.txt": FILES["f/001/guards.txt"]},
    ],
    ids=["other", "longer", "too many", "too few"],
)
def test_a_difference_is_told(files: dict[str, str], tmp_path: Path) -> None:
    old, new = written(tmp_path / "old", FILES), written(tmp_path / "new", files)
    assert len(differences(old, new)) == len(differences(new, old)) == 1


def test_addresses_and_renamed_modules_are_no_difference(tmp_path: Path) -> None:
    old = written(tmp_path / "old", FILES | {"f/p.txt": "from lucerne.a.b\n"})
    kernel = {"f/001/kernels/a.ll": "; at 0x7fffffffffff\nret"}
    new = written(tmp_path / "new", FILES | kernel | {"f/p.txt": "from lucerne.c.d\n"})
    assert not differences(old, new, {"lucerne.a.b": "lucerne.c.d"})
    assert differences(old, new)


def test_pages_and_assembly_are_left_out(tmp_path: Path) -> None:
    new = written(tmp_path / "new", FILES | {"index.html": "", "f/001/kernels/a.s": "ret"})
    assert not differences(written(tmp_path / "old", FILES), new)
