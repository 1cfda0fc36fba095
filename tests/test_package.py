"""What would be uploaded is noticed when it is too large, or not all there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.package import LIMIT, problems

# files and their bytes, what is wrong
FOLDERS = [
    ({"a.whl": LIMIT, "a.tar.gz": LIMIT + 1}, ""),
    ({"a.whl": LIMIT + 1, "a.tar.gz": 1}, "a.whl has 5,000,001 bytes, and 5,000,000 are allowed"),
    ({"a.whl": 1}, "1 wheels and 0 source distributions, not one each"),
    ({"a.whl": 1, "b.whl": 1, "a.tar.gz": 1}, "2 wheels and 1 source distributions, not one each"),
    ({}, "0 wheels and 0 source distributions, not one each"),
]


@pytest.mark.parametrize(("files", "wrong"), FOLDERS)
def test_problems_are_named(files: dict[str, int], wrong: str, tmp_path: Path) -> None:
    for name, size in files.items():
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    assert "; ".join(problems(tmp_path)) == wrong
