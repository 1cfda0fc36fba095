"""Control flow as ops: eager, compiled and exported against the same written out in Python."""

from __future__ import annotations

import io
from typing import Any

import pytest

import lucerne as lu
from lucerne import nn
from lucerne._src.capture.trace.pytree import flatten
from lucerne.export import export, load, save
from tests.control.rows import ROWS, Row


def _at_night(*names: str) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.nightly) for name in names]


def leaves_of(x: Any) -> list[Any]:
    found: list[Any] = []
    flatten(x, found)
    return [t for t in found if isinstance(t, lu.Tensor)]


def run(fn: Any, args: Any, gradients: bool) -> tuple[list[Any], list[Any]]:
    """Results, and the gradients of the arguments."""
    given = [x.detach().clone().requires_grad_(gradients) for x in args]
    outs = leaves_of(fn(*given))
    floats = [o for o in outs if o.requires_grad]
    if not gradients or not floats:
        return [o.detach() for o in outs], [None] * len(given)
    total = sum((o * lu.arange(1.0, o.numel() + 1).reshape(o.shape)).sum() for o in floats)
    return [o.detach() for o in outs], list(lu.autograd.grad(total, given, allow_unused=True))


def same(got: list[Any], want: list[Any]) -> None:
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        if a is None or b is None:  # a gradient of zeros is one that is not there
            left = a if b is None else b
            assert left is None or not left.any()
        else:
            assert a.dtype == b.dtype
            lu.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_comparison_notices_a_difference() -> None:
    with pytest.raises(AssertionError):
        same([lu.ones(2)], [lu.zeros(2)])
    with pytest.raises(AssertionError):
        same([None], [lu.ones(2)])


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_eager_is_the_loop_written_out(row: Row) -> None:
    for args in row.args:
        got, want = run(row.fn, args, row.gradients), run(row.plain, args, row.gradients)
        same(got[0], want[0])
        same(got[1], want[1])


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_compiled_is_eager(row: Row) -> None:
    compiled = lu.compile(row.fn, fullgraph=True, dynamic=False)
    for args in row.args:
        got, want = run(compiled, args, row.gradients), run(row.fn, args, row.gradients)
        same(got[0], want[0])
        same(got[1], want[1])
    assert len(compiled.entries) == len({tuple(tuple(x.shape) for x in a) for a in row.args})


_FEW = [r for r in ROWS if r.name in {
    "cond", "cond, closure", "cond of cond", "scan, weights", "scan with cond inside", "map",
    "while", "while with a bound",
}]  # fmt: skip


@pytest.mark.parametrize("row", _FEW, ids=lambda r: r.name)
@pytest.mark.parametrize("how", ["reference", *_at_night("eager", "bitwise")])
def test_other_ways_to_run(row: Row, how: str) -> None:
    options: dict[str, Any] = {"mode": how} if how == "bitwise" else {"backend": how}
    compiled = lu.compile(row.fn, fullgraph=True, **options)
    for args in row.args[:2]:
        got, want = run(compiled, args, row.gradients), run(row.fn, args, row.gradients)
        same(got[0], want[0])
        same(got[1], want[1])


class Module(nn.Module):
    def __init__(self, fn: Any) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return self.fn(*args)


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_exported_is_eager(row: Row) -> None:
    program = export(Module(row.fn), row.args[0], check=False)
    file = io.BytesIO()
    save(program, file)
    module = load(io.BytesIO(file.getvalue())).module()
    for args in row.args:
        if [x.shape for x in args] == [x.shape for x in row.args[0]]:
            got, want = run(module, args, row.gradients), run(row.fn, args, row.gradients)
            same(got[0], want[0])
            same(got[1], want[1])


_CHECKED = [
    "cond, two operands", "cond, a region inside", "cond of cond", "scan, weights",
    "scan with cond inside", "while with a bound",
    *_at_night(
        "cond", "cond, two results", "cond, writes inside", "scan, reverse", "scan, another dim",
        "scan, trees", "scan in scan", "map, arguments",
    ),
]  # fmt: skip


@pytest.mark.parametrize("name", _CHECKED)
def test_gradcheck(name: str) -> None:
    [row] = [r for r in ROWS if r.name == name]
    before = lu.get_default_dtype()
    lu.set_default_dtype(lu.float64)  # for what the functions make themselves
    try:
        compiled = lu.compile(_floats_of(row.fn), fullgraph=True)
        args = tuple(x.to(lu.float64).requires_grad_() for x in row.args[0])
        assert lu.autograd.gradcheck(compiled, args)
    finally:
        lu.set_default_dtype(before)


def _floats_of(fn: Any) -> Any:
    return lambda *args: tuple(o for o in leaves_of(fn(*args)) if o.is_floating_point())
