"""The explanation of each classic mistake names the line, the reason and the fix."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.capture import ledger
from lucerne._src.capture.breaks.reasons import KINDS, Break, is_foreign, made
from lucerne._src.capture.trace.fake import CaptureError
from tests.capture_python.mistakes import MISTAKES, Mistake


def run(row: Mistake, **options: Any) -> Any:
    compiled = torch.compile(row.fn, dynamic=False, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for args in row.calls:
            compiled(*args)
    return compiled


@pytest.mark.parametrize("row", MISTAKES, ids=lambda row: row.name)
def test_the_line_and_the_fix_are_named(row: Mistake, capsys: Any) -> None:
    compiled = run(row)
    assert compiled.given_up is None
    if row.kind == "recompile":
        assert len(compiled.entries) == len(row.calls)
        assert row.fix in ledger.BOOKS.rows[-1].why
        return
    if not row.line:
        assert compiled.breaks == []
        return
    said = [b for b in compiled.breaks if b.kind == row.kind]
    assert said, [str(b) for b in compiled.breaks]
    assert any(f"mistakes.py:{row.number} in {row.name}" in str(b) for b in said)
    assert row.fix in said[0].fix
    assert said[0].number == KINDS[row.kind].number


@pytest.mark.parametrize(
    "row", [r for r in MISTAKES if r.line and r.kind != "changing value"], ids=lambda row: row.name
)
def test_fullgraph_raises_the_same_text(row: Mistake, capsys: Any) -> None:
    with pytest.raises(CaptureError) as raised:
        run(row, fullgraph=True)
    text = str(raised.value)
    assert f"mistakes.py:{row.number} in {row.name}" in text
    assert f"({row.kind})" in text
    assert row.fix in text


def test_there_are_at_least_25() -> None:
    assert len(MISTAKES) >= 25
    assert sum(bool(r.line) or r.kind == "recompile" for r in MISTAKES) >= 18


def test_every_kind_has_a_reason_and_a_fix() -> None:
    numbers = [k.number for k in KINDS.values()]
    assert numbers == list(range(1, len(KINDS) + 1))
    for name in KINDS:
        found = made(name, None, "this")
        assert found.reason
        assert found.fix
        assert "{" not in str(found)


def test_a_break_tells_where() -> None:
    found = made("print", (run.__code__, 7))
    assert isinstance(found, Break)
    assert "test_mistakes.py:7 in run" in str(found)
    assert found.code_name == "run"
    assert made("print", None).at((run.__code__, 8)).place == (run.__code__, 8)
    assert found.at((run.__code__, 9)).place == (run.__code__, 7)


def test_what_is_foreign() -> None:
    assert is_foreign(print)
    assert not is_foreign(torch.sin)
    assert not is_foreign({}.get)
