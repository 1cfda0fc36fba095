"""Dumps: every stage's text in a folder, readable again, complete or absent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.base.config import config
from lucerne._src.capture.report import dump
from lucerne._src.ir.text import parse
from tests.explain.scenes import norms
from tests.explain.test_page import Checker

STAGES = ("capture", "functionalize", "fold", "simplify", "cse", "dead")


def dumped(folder: Path, fn: Any = norms, **options: Any) -> Path:
    compiled = torch.compile(fn, options={"dump": str(folder), **options})
    compiled(torch.ones(4, 4))
    return folder / fn.__name__ / "001"


def test_every_stage_is_there_and_reads_back(tmp_path: Path) -> None:
    home = dumped(tmp_path)
    names = [p.name for p in sorted(home.glob("[0-9]*.txt"))]
    assert [n[3:-4] for n in names if n[3:-4] in STAGES] == list(STAGES)
    for name in names:
        text = (home / name).read_text().rstrip("\n")
        assert str(parse(text)) == text, name
    assert (home / "program.txt").read_text().startswith("program(")
    assert "from " in (home / "groups.txt").read_text()
    assert "x is float32[4, 4] on cpu" in (home / "guards.txt").read_text()


def test_the_index_leads_to_every_file(tmp_path: Path) -> None:
    home = dumped(tmp_path)
    listed = re.findall(r'href="([^"]+)"', (home / "index.html").read_text())
    there = {p.relative_to(home).as_posix() for p in home.rglob("*") if p.is_file()}
    assert set(listed) == there - {"index.html"}
    assert re.findall(r'href="([^"]+)"', (tmp_path / "index.html").read_text()) == [
        "norms/001/index.html"
    ]
    for file in (home / "index.html", tmp_path / "index.html"):
        found = Checker()
        found.feed(file.read_text())
        assert not found.open


def test_each_compile_has_its_folder(tmp_path: Path) -> None:
    dumped(tmp_path)
    dumped(tmp_path)
    assert sorted(p.name for p in (tmp_path / "norms").iterdir()) == ["001", "002"]


def test_odd_names(tmp_path: Path) -> None:
    def outer() -> Any:
        return lambda x: x / 2

    made = outer()
    torch.compile(made, options={"dump": str(tmp_path)})(torch.ones(2))
    [folder] = [p for p in tmp_path.iterdir() if p.is_dir()]
    assert re.fullmatch(r"[\w.-]+", folder.name)


def test_of_the_process(tmp_path: Path) -> None:
    config.dump = str(tmp_path)
    try:
        torch.compile(norms)(torch.ones(5, 5))
    finally:
        config.dump = ""
    assert (tmp_path / "norms" / "001" / "index.html").exists()


def test_machine_code_on_request(tmp_path: Path) -> None:
    home = dumped(tmp_path, dump_kernels=True)
    text = (home / "kernels" / "000.ll").read_text()
    assert "define " in text
    assert (home / "kernels" / "000.s").read_text().strip()
    assert not (dumped(tmp_path / "b") / "kernels").exists()


def test_a_file_is_complete_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a" / "file.txt"
    dump.write(target, "old")

    def fail(self: Path, other: Path) -> None:
        raise OSError("no room")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no room"):
        dump.write(target, "new")
    assert target.read_text() == "old"
    assert [p.name for p in target.parent.iterdir()] == ["file.txt"]
