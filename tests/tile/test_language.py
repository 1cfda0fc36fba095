"""Random kernels: whatever the language can say, compiled and interpreted results agree."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne as torch
from lucerne import tiles
from tests.tile.kernels import largest_difference

_UNARY = ("exp", "tanh", "sigmoid", "abs", "sqrt", "floor")
_BINARY = ("add", "sub", "mul", "maximum", "minimum", "where")
_FOLDS = ("sum", "mean", "max", "min")


def _apply(step: tuple[Any, ...], values: list[Any]) -> Any:
    """One step of a random program on blocks; small numbers stay small."""
    kind, name, i, j = step
    a, b = values[i % len(values)], values[j % len(values)]
    if kind == "unary":
        inner = tiles.abs(a) if name == "sqrt" else tiles.minimum(tiles.maximum(a, -3.0), 3.0)
        return getattr(tiles, name)(inner)
    if kind == "fold":
        return getattr(tiles, name)(a) * 0.1 + b if a.shape else a
    if kind == "scan":
        return tiles.cumsum(a) * 0.1 if a.shape else a
    if name == "where":
        return tiles.where(a > b, a, b * 0.5)
    if name in ("maximum", "minimum"):
        return getattr(tiles, name)(a, b)
    made = {"add": a + b, "sub": a - b, "mul": a * b}[name]
    return tiles.minimum(tiles.maximum(made, -9.0), 9.0)


_steps = st.one_of(
    st.tuples(st.just("unary"), st.sampled_from(_UNARY), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("binary"), st.sampled_from(_BINARY), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("fold"), st.sampled_from(_FOLDS), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("scan"), st.just(""), st.integers(0, 9), st.just(0)),
)


def _kernel(steps: list[Any], width: int) -> Any:
    """Each program works on its piece of a row, the last one on what is left of it."""

    @tiles.kernel(grid=lambda x: (x.shape[0], -(-int(x.shape[1]) // width)))
    def random_program(x: tiles.In, w: tiles.In, y: tiles.Out) -> None:
        row, j = tiles.program_id(0), tiles.program_id(1) * width
        values: list[Any] = [tiles.load(x[row, j : j + width]), tiles.load(w[j : j + width])]
        values.append(values[0] * 0 + tiles.load(w[0]))
        for step in steps:
            values.append(_apply(step, values))
        total = tiles.variable(values[0])
        for k in tiles.range(3):
            total.set(total * 0.5 + values[-1] * (k + 1))
        tiles.store(y[row, j : j + width], total + values[-2])

    return random_program


@settings(max_examples=10, deadline=None)
@given(
    st.lists(_steps, min_size=1, max_size=7),
    st.integers(1, 4),
    st.integers(1, 45),
    st.sampled_from([5, 16, 40]),
)
def test_any_program(steps: list[Any], rows: int, columns: int, width: int) -> None:
    torch.manual_seed(columns)
    x, w = torch.randn(rows, columns), torch.randn(columns)
    kernel = _kernel(steps, width)
    found = kernel(x, w)
    kernel.interpret = True
    assert largest_difference(found, kernel(x, w)) < 1e-4


@settings(max_examples=6, deadline=None)
@given(
    st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), st.sampled_from([3, 8]),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_any_product(m: int, k: int, n: int, block: int, left: bool, right: bool) -> None:
    """Products of pieces, each side as it lies or transposed."""

    @tiles.kernel(out=lambda a, b: tiles.empty((m, n)), grid=(-(-m // block), -(-n // block)))
    def product(a: tiles.In, b: tiles.In, c: tiles.Out) -> None:
        i, j = tiles.program_id(0) * block, tiles.program_id(1) * block
        total = tiles.variable(tiles.zeros((block, block)))
        for q in tiles.range(0, k, block):
            one = a[q : q + block, i : i + block].T if left else a[i : i + block, q : q + block]
            two = b[j : j + block, q : q + block].T if right else b[q : q + block, j : j + block]
            total += tiles.dot(one, two)
        tiles.store(c[i : i + block, j : j + block], total)

    torch.manual_seed(m * k * n)
    a, b = torch.randn(m, k), torch.randn(k, n)
    given_a = a.T.contiguous() if left else a
    given_b = b.T.contiguous() if right else b
    assert torch.allclose(product(given_a, given_b), a @ b, atol=1e-4)
