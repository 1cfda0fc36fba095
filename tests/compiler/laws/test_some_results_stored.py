"""Programs found on disk go back from some of their results as captured ones do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lucerne
from tests.capture_stored.bench import HELD, Bench


def _heads(x: Any, w: Any) -> Any:
    """A constant is read in the backward pass; the second result's gradient is infinite at 0."""
    h = x * 2
    return (h * HELD).tanh().sum() + (h * h).sum(), x.sqrt(), lucerne.round(w), h * w


@pytest.mark.parametrize("mode", ["default", "bitwise"])
@pytest.mark.parametrize("result", [0, 2, 3])
def test_found_program(
    mode: str, result: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path / "programs", monkeypatch)

    def gradients(compiled: bool, want: str = "") -> list[Any]:
        x, w = (lucerne.linspace(0.0, 3.0, 6).requires_grad_() for _ in range(2))
        out, how = bench.ask(_heads, x, w, mode=mode) if compiled else (_heads(x, w), "")
        assert how == want
        out[result].sum().backward()
        return [None if t.grad is None else t.grad.tolist() for t in (x, w)]

    eager = gradients(compiled=False)
    for how in ("miss", "hit"):
        found = gradients(compiled=True, want=how)
        for a, b in zip(found, eager, strict=True):
            assert a == b if mode == "bitwise" or b is None else a == pytest.approx(b, 1e-5)


def test_what_has_no_plain_form_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control flow in the pass: the program is stored all the same."""
    bench = Bench(tmp_path / "programs", monkeypatch)

    def fn(p: Any, x: Any) -> Any:
        return lucerne.cond(p, lambda x: x.sin(), lambda x: x.cos(), (x,)), x * 2

    for how in ("miss", "hit"):
        x = lucerne.ones(3).requires_grad_()
        out, found = bench.ask(fn, lucerne.tensor(True), x)
        assert found == how
        out[1].sum().backward()
        assert x.grad.tolist() == [2.0, 2.0, 2.0]
