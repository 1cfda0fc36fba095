"""Formulas, run by a chip that computes in Python: frozen answers of torch, and laws."""

from __future__ import annotations

import functools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import lucerne as torch
from lucerne._src.backends.formulas.elementwise import collapsed
from lucerne._src.conformance import Case, frozen_cases
from lucerne._src.conformance.run import check
from lucerne._src.contract import primitives
from lucerne._src.ir import op as op_
from lucerne.backends import formulas

OPS = (
    "add", "div.trunc_rounding", "remainder", "pow", "where", "sigmoid", "isnan",
    "sum", "amax", "all", "argmin", "prod", "cumsum", "mm",
    "gather", "scatter_add", "index_add", "index_put", "sort", "flip", "cat",
    "nn.functional.pad.constant", "nn.functional.conv2d", "nn.functional.conv_transpose2d",
    "nn.functional.max_pool2d", "nonzero", "norm.nuc", "arange",
)  # fmt: skip
MOST = 4
"""Cases of each op and dtype: this chip computes one number at a time."""
WITHOUT = frozenset((
    "eig_factors", "ldl_apply_inverse", "ldl_packed", "draw", "draw_categories", "draw_each",
))  # fmt: skip
"""Primitives without a formula: those that need a library, and what generators of the host draw."""


@functools.cache
def cases() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in frozen_cases(torch):
        if case.op in OPS and case.dtype in ("float32", "int64", "bool", "complex64"):
            found.setdefault(case.op, []).append(case)
    return found


@pytest.mark.parametrize("name", OPS)
def test_a_formula_agrees_with_torch(name: str) -> None:
    chosen: dict[str, list[Case]] = {}
    for case in cases()[name]:
        if case.expected is not None:
            chosen.setdefault(case.dtype + case.part, []).append(case)
    problems = [
        f"{case.dtype}: {problem}"
        for group in chosen.values()
        for case in group[:MOST]
        if (problem := check(case, "slate"))
    ]
    assert not problems


def test_every_primitive_has_a_formula_but_these() -> None:
    assert {op.qualified for op in primitives() if not formulas.has(op)} == WITHOUT


@pytest.mark.parametrize("name", ["qr", "lu", "cholesky", "eigh", "solve", "svd", "fft", "irfft"])
def test_factors_give_the_matrix_back(name: str) -> None:
    """Matrices and what they are made of, on the chip alone."""
    torch.manual_seed(0)
    a = torch.randn(2, 3, 3, dtype=torch.float64).to("slate")
    symmetric = a @ a.mT + torch.eye(3, dtype=torch.float64, device="slate")
    made, want = {
        "qr": lambda: (torch.matmul(*torch.linalg.qr(a)), a),
        "lu": lambda: (functools.reduce(torch.matmul, torch.linalg.lu(a)), a),
        "cholesky": lambda: (_times_its_transpose(torch.linalg.cholesky(symmetric)), symmetric),
        "eigh": lambda: (_from_eigenvalues(*torch.linalg.eigh(symmetric)), symmetric),
        "solve": lambda: (a @ torch.linalg.solve(a, symmetric), symmetric),
        "svd": lambda: (_from_singular_values(*torch.linalg.svd(a)), a),
        "fft": lambda: (torch.fft.ifft(torch.fft.fft(a)).real, a),
        "irfft": lambda: (torch.fft.irfft2(torch.fft.rfft2(a), s=(3, 3)), a),
    }[name]()
    assert made.device.type == "slate"
    assert (made - want).abs().max().item() < 1e-12


def _times_its_transpose(x: torch.Tensor) -> torch.Tensor:
    return x @ x.mT


def _from_eigenvalues(values: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    return (vectors * values.unsqueeze(-2)) @ vectors.mT


def _from_singular_values(u: torch.Tensor, s: torch.Tensor, vh: torch.Tensor) -> torch.Tensor:
    return (u * s.unsqueeze(-2)) @ vh


def test_nonzero_counts_across_pieces() -> None:
    x = torch.arange(700) % 3 == 0
    assert torch.equal(x.to("slate").nonzero().cpu(), x.nonzero())
    assert torch.zeros(3, 0, device="slate").nonzero().shape == (0, 2)
    assert torch.tensor(True, device="slate").nonzero().shape == (1, 0)


def test_a_graph_without_a_formula_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="no formula for eig_factors"):
        torch.linalg.eigvals(torch.eye(2, device="slate"))
    assert not formulas.has(op_.get("draw"))


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 6), st.integers(0, 6)), max_size=4))
@settings(max_examples=100, deadline=None)
def test_collapsed_dimensions_visit_the_same_elements(dims: list[tuple[int, int, int]]) -> None:
    shape = [n for n, _, _ in dims]
    strides = [[a for _, a, _ in dims], [b for _, _, b in dims]]
    sizes, steps = collapsed(shape, strides)
    for before, after in zip(strides, steps, strict=True):
        assert _places(shape, before) == _places(sizes, after)


def test_neighbours_are_collapsed() -> None:
    assert collapsed((2, 3, 4), [(12, 4, 1), (12, 4, 1)]) == ([24], [[1], [1]])
    assert collapsed((2, 1, 4), [(4, 9, 1), (0, 0, 1)]) == ([2, 4], [[4, 1], [0, 1]])


def _places(shape: list[int], strides: list[int]) -> list[int]:
    return [sum(i * s for i, s in zip(at, strides, strict=True)) for at in np.ndindex(*shape)]
