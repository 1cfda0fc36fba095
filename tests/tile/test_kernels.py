"""Kernels of the table: compiled, interpreted and expected results agree; what else must hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne as torch
from lucerne import tiles
from tests.tile.__main__ import guarded
from tests.tile.kernels import (
    BY_NAME,
    LAYOUTS,
    TABLE,
    Row,
    column_sums,
    cross_entropy,
    largest_difference,
    matmul,
    prepared,
    rms_norm,
    rms_norm_backward,
    softmax,
)

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}


def assert_agrees(row: Row, n: int, m: int, dtype: Any, layout: str) -> None:
    """Compiled as interpreted, and as the ops of the framework have it."""
    args = prepared(row, n, m, dtype, layout)
    found = row.kernel(*args, *row.numbers)
    row.kernel.interpret = True
    try:
        told = row.kernel(*args, *row.numbers)
    finally:
        row.kernel.interpret = False
    wide = [a.double() if a.is_floating_point() else a for a in args]
    assert largest_difference(found, told) <= TOLERANCE[dtype]
    assert largest_difference(found, row.expected(*wide, *row.numbers)) <= TOLERANCE[dtype]


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_kernel(row: Row) -> None:
    for layout in ("dense", "every second"):
        assert_agrees(row, 9, 37, torch.float32, layout)


@pytest.mark.parametrize("name", ["rms_norm", "matmul", "cross_entropy"])
def test_kernel_in_bfloat16(name: str) -> None:
    assert_agrees(BY_NAME[name], 5, 20, torch.bfloat16, "dense")


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(sorted(LAYOUTS)))
def test_softmax_of_any_size(n: int, m: int, layout: str) -> None:
    assert_agrees(BY_NAME["softmax"], n, m, torch.float32, layout)


def test_assert_agrees_fails_on_a_wrong_kernel() -> None:
    wrong = Row("softmax", BY_NAME["softmax"].inputs, (), lambda x: x)
    with pytest.raises(AssertionError):
        assert_agrees(wrong, 3, 4, torch.float32, "dense")


def test_results_are_the_same_each_time_and_for_any_number_of_threads() -> None:
    args = prepared(BY_NAME["matmul"], 200, 130, torch.float32, "dense")
    first = matmul(*args)
    threads = torch.get_num_threads()
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            assert torch.equal(matmul(*args), first)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.nightly
def test_guard_pages_catch_a_planted_error() -> None:
    assert guarded(["--plant"], 16).returncode < 0


# ---- derivatives and compile --------------------------------------------------------------------


@tiles.kernel
def square(x: tiles.In, y: tiles.Out) -> None:
    row = tiles.program_id(0)
    a = tiles.load(x[row, :])
    tiles.store(y[row, :], a * a)


@square.backward
def _(grad: Any, x: Any) -> Any:
    return 2 * x * grad


def test_backward_rule() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    square(x).sum().backward()
    assert x.grad.tolist() == [[2.0, 4.0], [6.0, 8.0]]
    assert not square(x.detach()).requires_grad
    with torch.no_grad():
        assert not square(x).requires_grad


def test_compiled_function_has_the_kernel_as_a_step() -> None:
    x = torch.rand(5, 7, requires_grad=True)
    step = torch.compile(lambda x: square(x * 3).sum(), fullgraph=True)
    step(x).backward()
    assert torch.allclose(x.grad, 18 * x.detach())
    assert "tile_call" in str(step.entries[0].stages.program)
    assert not step.breaks


def test_fused_rms_norm_as_its_formula() -> None:
    g, x, w = prepared(BY_NAME["rms_norm_backward"], 21, 40, torch.float32, "dense")
    dx, dw = rms_norm_backward(g, x, w, 1e-6)
    a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
    (a * torch.rsqrt((a * a).mean(-1, keepdim=True) + 1e-6) * b).backward(g)
    assert torch.allclose(dx, a.grad, atol=1e-5)
    assert torch.allclose(dw.sum(0), b.grad, atol=1e-5)


@pytest.mark.parametrize("name", ["rms_norm", "top1"])
def test_reference_device_runs_it_in_numpy(name: str) -> None:
    row = BY_NAME[name]
    args = prepared(row, 3, 5, torch.float32, "dense")
    found = row.kernel(*[a.to("reference") for a in args], *row.numbers)
    several = tuple(found) if isinstance(found, tuple) else (found,)
    expected = row.kernel(*args, *row.numbers)
    assert largest_difference(tuple(f.cpu() for f in several), expected) < 1e-5


def test_numbers_are_given_at_each_call() -> None:
    x, w = torch.ones(2, 4), torch.ones(4)
    assert rms_norm(x, w, 0.0)[0, 0].item() == 1.0
    assert rms_norm(x, w, eps=3.0)[0, 0].item() == 0.5


def test_empty_tensors_need_no_kernel() -> None:
    assert softmax(torch.ones(0, 3)).shape == (0, 3)
    assert column_sums(torch.ones(3, 8)).tolist() == [3.0] * 8


# ---- what is refused ----------------------------------------------------------------------------


def _one(body: Any, **options: Any) -> Any:
    def kernel(x: tiles.In, y: tiles.Out) -> None:
        body(x, y)

    return tiles.kernel(kernel, **options) if not options else tiles.kernel(**options)(kernel)


def _reads_output(x: Any, y: Any) -> None:
    tiles.store(y[tiles.program_id(0), :], y[tiles.program_id(0), :] + 1)


def _beyond(x: Any, y: Any) -> None:
    tiles.store(y[tiles.program_id(0), :], x[tiles.program_id(0) + 1, :])


def _all_the_same(x: Any, y: Any) -> None:
    tiles.store(y[0, :], x[tiles.program_id(0), :])


def _whole_tensor(x: Any, y: Any) -> None:
    tiles.store(y[tiles.program_id(0), :], x + 1)


def _branches(x: Any, y: Any) -> None:
    if tiles.sum(x[tiles.program_id(0), :]) > 0:
        tiles.store(y[tiles.program_id(0), :], 1.0)


def _wrong_shapes(x: Any, y: Any) -> None:
    tiles.store(y[tiles.program_id(0), :], x[tiles.program_id(0), :2])


def _stale(x: Any, y: Any) -> None:
    total = tiles.variable(x[tiles.program_id(0), :])
    old = total.value
    total.set(old + 1)
    tiles.store(y[tiles.program_id(0), :], old)


def _nothing(x: Any, y: Any) -> None:
    tiles.load(x[tiles.program_id(0), :])


def _returns(x: Any, y: Any) -> None:
    tiles.store(x[tiles.program_id(0), :], 1.0)


def _three_axes(x: Any, y: Any) -> None:
    tiles.store(y[tiles.program_id(0), :], x[None, :, :])


REFUSED = {
    "outputs can't be read": _reads_output,
    "the index p0 + 1 goes from 1 to 4": _beyond,
    "two programs may write the same element": _all_the_same,
    "say which piece": _whole_tensor,
    "can't branch on them": _branches,
    "does not fit into a piece of y": _wrong_shapes,
    "before it was set anew": _stale,
    "nothing is ever stored": _nothing,
    "is an input": _returns,
    "at most two axes": _three_axes,
}


@pytest.mark.parametrize("text", REFUSED)
def test_wrong_kernels_say_what_and_where(text: str) -> None:
    with pytest.raises((tiles.TileError, TypeError)) as error:
        _one(REFUSED[text])(torch.ones(4, 5))
    assert text in str(error.value)
    if isinstance(error.value, tiles.TileError) and "nothing is ever" not in text:
        assert "test_kernels.py" in str(error.value)


def test_an_index_that_is_data_is_checked() -> None:
    x, target = torch.rand(3, 4), torch.tensor([0, 4, 1])
    with pytest.raises(IndexError, match="out of bounds"):
        cross_entropy(x, target)
    with pytest.raises(IndexError, match="out of bounds"):
        cross_entropy(x, torch.tensor([0, -1, 1]))
    assert cross_entropy(x, torch.tensor([0, 3, 1])).shape == (3,)


def test_interpreter_finds_elements_that_nobody_writes() -> None:
    half = _one(lambda x, y: tiles.store(y[tiles.program_id(0), :2], 1.0), interpret=True)
    with pytest.raises(RuntimeError, match="no program wrote the element"):
        half(torch.ones(2, 3))


def test_wrong_calls() -> None:
    with pytest.raises(TypeError, match="expected a Tensor for 'x'"):
        softmax(3)
    with pytest.raises(TypeError, match="missing a required argument"):
        softmax()
    with pytest.raises(TypeError, match="annotated as"):
        tiles.kernel(lambda x: None)
    with pytest.raises(TypeError, match="needs an input"):

        @tiles.kernel
        def no_output(x: tiles.In) -> None:
            tiles.load(x[0, :])

    with pytest.raises(RuntimeError, match="inside of a kernel"):
        tiles.program_id(0)
    with pytest.raises(TypeError, match="the rule of the derivative reads z"):
        softmax.backward(lambda z: z)
