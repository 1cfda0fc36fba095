"""Tensors as text: PyTorch's repr character for character."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lucerne._src.tensor.format import (
    OPTIONS,
    PrintOptions,
    add_suffixes,
    contents_text,
    get_printoptions,
    printoptions,
    set_printoptions,
    tensor_text,
)

inf, nan = math.inf, math.nan
NARROW = ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")


def noise(*shape: int, scale: float = 1.0) -> Any:
    return (np.random.RandomState(0).randn(*shape) * scale).astype(np.float32)


def f32(*values: float) -> Any:
    return np.array(values, np.float32)


VALUES: dict[str, Any] = {
    "scalar": np.float32(1.5),
    "whole scalar": np.float32(3),
    "zero scalar": np.float32(0),
    "negative zero": f32(-0.0, 0.0),
    "nan scalar": np.float32(nan),
    "int scalar": np.int64(-7),
    "bool scalar": np.bool_(True),
    "complex scalar": np.complex64(1 - 2j),
    "fixed": f32(1.5, -2.25, 3.125),
    "rounds": f32(0.00005, 0.99995, 1.23456789),
    "whole floats": f32(1, -20, 300),
    "whole with nan": f32(1, nan, -inf, 400),
    "only nan": f32(nan, nan),
    "only inf": f32(inf, -inf),
    "zeros": f32(0, 0, 0),
    "zeros and nan": f32(0, nan),
    "tiny": f32(1e-5, 1),
    "just not tiny": f32(1e-4, 0.05),
    "ratio 1000": f32(0.001, 1.0),
    "ratio beyond": f32(0.0009, 1.0),
    "huge": f32(2e8, 1),
    "1e8": f32(1e8, 1e6),
    "huge whole": f32(1e10, 1e9),
    "science with nan": f32(1e-10, nan, inf, -1),
    "subnormal": f32(1e-45, 1),
    "largest": f32(3.4028235e38),
    "double range": np.array([1e300, 1e-300]),
    "double": np.array([0.1, 1 / 3]),
    "double subnormal": np.array([5e-324, 1e308]),
    "ints": np.array([1, -200, 30]),
    "int extremes": np.array([-(2**63), 2**63 - 1]),
    "uint8": np.array([0, 255], np.uint8),
    "int8": np.array([-128, 127], np.int8),
    "int16": np.array([[1, 2]], np.int16),
    "int32": np.array([[[7]]], np.int32),
    "uint16": np.array([65535], np.uint16),
    "uint64": np.array([2**64 - 1], np.uint64),
    "bools": np.array([[True, False], [False, False]]),
    "complex": np.array([1 + 2j, -0.5 - 1j], np.complex64),
    "complex whole and fixed": np.array([1 + 0.5j, 20 - 0.25j], np.complex64),
    "complex science": np.array([1e-9 + 1j, 1 - 1e9j], np.complex64),
    "complex nan": np.array([complex(nan, -inf), complex(-0.0, -0.0)], np.complex64),
    "complex matrix": noise(3, 8).view(np.complex64),
    "complex long": noise(30).view(np.complex64),
    "complex128": np.array([1.5 + 2.25j]),
    "line": np.arange(10),
    "two lines": np.arange(25),
    "many lines": noise(60),
    "exactly 1000": np.arange(1000),
    "summary": np.arange(1001),
    "summary of floats": noise(5000),
    "summary of a matrix": noise(100, 100),
    "summary of a tall matrix": noise(2000, 2),
    "summary of a wide matrix": noise(2, 2000),
    "summary of a cube": noise(20, 10, 9),
    "summary in four dimensions": noise(8, 7, 6, 5),
    "summary hides the large one": np.concatenate([noise(600), f32(1e12), noise(600)]),
    "summary of bools": noise(40, 40) > 0,
    "summary of complex": noise(40, 80).view(np.complex64),
    "matrix": noise(3, 4),
    "wide matrix": noise(2, 30),
    "cube": noise(2, 3, 4),
    "four dimensions": noise(2, 2, 2, 2),
    "six dimensions": noise(1, 2, 1, 2, 1, 2),
    "column": noise(5, 1),
    "empty": f32(),
    "empty matrix": np.empty((0, 3), np.float32),
    "empty cube": np.empty((2, 0, 3), np.float32),
    "empty ints": np.empty(0, np.int64),
    "empty bools": np.empty((3, 0), np.bool_),
    "empty complex": np.empty(0, np.complex64),
    "empty double": np.empty((1, 0)),
}

OPTION_SETS: list[dict[str, Any]] = [
    {"precision": 2},
    {"precision": 10},
    {"precision": 0},
    {"threshold": 5},
    {"threshold": 0},
    {"threshold": 5, "edgeitems": 1},
    {"threshold": 5, "edgeitems": 0},
    {"edgeitems": 0},
    {"linewidth": 40},
    {"linewidth": 5},
    {"linewidth": 200},
    {"sci_mode": True},
    {"sci_mode": False},
    {"profile": "short"},
    {"profile": "full"},
]


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    set_printoptions(profile="default")


@pytest.fixture(scope="module")
def torch() -> Iterator[Any]:
    module = pytest.importorskip("torch", reason="PyTorch is the oracle of the printed form")
    yield module
    module.set_printoptions(profile="default")


def our_text(torch: Any, tensor: Any) -> str:
    """The text for a PyTorch tensor, its remarks gathered as the caller of `tensor_text` would."""
    data = tensor.detach()
    narrow = str(data.dtype).removeprefix("torch.") in NARROW
    suffixes = []
    if tensor.grad_fn is not None:
        suffixes.append(f"grad_fn=<{type(tensor.grad_fn).__name__}>")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")
    return tensor_text(
        (data.float() if narrow else data.resolve_conj()).numpy(),
        dtype_name=str(tensor.dtype),
        is_default_dtype=tensor.dtype in (torch.float32, torch.complex64),
        suffixes=suffixes,
    )


def assert_same(torch: Any, tensor: Any, **options: Any) -> None:
    torch.set_printoptions(**options)
    set_printoptions(**options)
    try:
        assert our_text(torch, tensor) == repr(tensor)
    finally:
        torch.set_printoptions(profile="default")
        set_printoptions(profile="default")


@pytest.mark.torch
@pytest.mark.parametrize("name", VALUES)
def test_values(name: str, torch: Any) -> None:
    assert_same(torch, torch.from_numpy(np.asarray(VALUES[name])))


@pytest.mark.torch
@pytest.mark.parametrize("options", OPTION_SETS, ids=str)
def test_options(options: dict[str, Any], torch: Any) -> None:
    for values in VALUES.values():
        assert_same(torch, torch.from_numpy(np.asarray(values)), **options)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("scale", [1e-6, 0.01, 1.0, 300.0])
def test_narrow_floats(dtype: str, scale: float, torch: Any) -> None:
    for shape in ((), (3,), (4, 4), (0,), (1100,)):
        values = torch.from_numpy(np.asarray(noise(*shape or (1,), scale=scale).reshape(shape)))
        assert_same(torch, values.to(getattr(torch, dtype)))


@pytest.mark.torch
def test_grad_remarks_and_their_line_breaks(torch: Any) -> None:
    for n in range(1, 30):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            leaf = torch.arange(n, dtype=dtype).requires_grad_()
            for tensor in (leaf, leaf * 1.5, leaf.reshape(1, n).exp(), leaf.sum()):
                assert_same(torch, tensor)


@pytest.mark.torch
def test_another_default_dtype(torch: Any) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        for values in (noise(2), noise(2).astype(float), np.empty(0), noise(2).astype(complex)):
            expected = repr(torch.from_numpy(values))
            text = tensor_text(
                values,
                dtype_name=f"torch.{values.dtype}",
                is_default_dtype=values.dtype in (np.float64, np.complex128),
            )
            assert text == expected
    finally:
        torch.set_default_dtype(torch.float32)


arrays = hnp.arrays(
    dtype=st.sampled_from(
        [np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_, np.complex64]
    ),
    shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9),
)


@pytest.mark.torch
@settings(max_examples=300, deadline=None)
@given(
    arrays,
    st.integers(0, 8),
    st.integers(0, 40),
    st.integers(0, 4),
    st.integers(1, 120),
    st.sampled_from([None, None, True, False]),
)
def test_any_array(
    values: Any, precision: int, threshold: int, edge: int, width: int, sci: bool | None
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle of the printed form")
    options = {"precision": precision, "threshold": threshold, "edgeitems": edge}
    assert_same(torch, torch.from_numpy(values), linewidth=width, sci_mode=sci, **options)


# ---- without PyTorch ----------------------------------------------------------------------------

FROZEN = [
    (f32(1.5, -2.25), "torch.float32", [], "tensor([ 1.5000, -2.2500])"),
    (f32(1, nan, 400), "torch.float32", [], "tensor([  1.,  nan, 400.])"),
    (f32(1e-10, -1), "torch.float32", [], "tensor([ 1.0000e-10, -1.0000e+00])"),
    (np.float32(0), "torch.float32", ["requires_grad=True"], "tensor(0., requires_grad=True)"),
    (np.arange(3), "torch.int64", [], "tensor([0, 1, 2])"),
    (np.arange(2, dtype=np.uint8), "torch.uint8", [], "tensor([0, 1], dtype=torch.uint8)"),
    (np.array([True, False]), "torch.bool", [], "tensor([ True, False])"),
    (np.array([1 + 2j], np.complex64), "torch.complex64", [], "tensor([1.+2.j])"),
    (np.arange(2000), "torch.int64", [], "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"),
    (np.empty((0, 2)), "torch.float64", [], "tensor([], size=(0, 2), dtype=torch.float64)"),
    (np.empty(0, np.int64), "torch.int64", [], "tensor([], dtype=torch.int64)"),
    (
        np.arange(12.0, dtype=np.float32).reshape(2, 2, 3),
        "torch.float32",
        ["grad_fn=<MulBackward0>"],
        "tensor([[[ 0.,  1.,  2.],\n         [ 3.,  4.,  5.]],\n\n"
        "        [[ 6.,  7.,  8.],\n         [ 9., 10., 11.]]], grad_fn=<MulBackward0>)",
    ),
    (
        f32(0.5, 1.5),
        "torch.bfloat16",
        ["grad_fn=<MulBackward0>", "device='cuda:0'"],
        "tensor([0.5000, 1.5000], device='cuda:0', dtype=torch.bfloat16,\n"
        "       grad_fn=<MulBackward0>)",
    ),
]


@pytest.mark.parametrize(("values", "dtype", "suffixes", "expected"), FROZEN)
def test_frozen(values: Any, dtype: str, suffixes: list[str], expected: str) -> None:
    default = dtype in ("torch.float32", "torch.complex64")
    text = tensor_text(values, dtype_name=dtype, is_default_dtype=default, suffixes=suffixes)
    assert text == expected


def test_int64_and_bool_may_be_called_default() -> None:
    values = np.empty(0, np.int64)
    text = tensor_text(values, dtype_name="torch.int64", is_default_dtype=True)
    assert text == "tensor([], dtype=torch.int64)"
    assert (
        tensor_text(np.arange(1), dtype_name="torch.int64", is_default_dtype=False) == "tensor([0])"
    )


def test_a_longer_prefix_indents() -> None:
    text = tensor_text(
        np.eye(2, dtype=np.float32),
        dtype_name="torch.float32",
        is_default_dtype=True,
        prefix="MaskedTensor(",
    )
    assert text == "MaskedTensor([[1., 0.],\n              [0., 1.]])"
    assert add_suffixes("tensor(...", ["device='meta'", "size=(2,)"], 7) == (
        "tensor(..., device='meta', size=(2,))"
    )
    assert contents_text(np.arange(2), 0) == "[0, 1]"


def test_options_are_kept_as_torch_keeps_them() -> None:
    assert get_printoptions() == PrintOptions().__dict__
    set_printoptions(precision=7, sci_mode=True)
    set_printoptions(linewidth=99)
    assert get_printoptions() == {
        "precision": 7,
        "threshold": 1000,
        "edgeitems": 3,
        "linewidth": 99,
        "sci_mode": None,
    }
    set_printoptions(profile="short", edgeitems=5)
    assert (OPTIONS.precision, OPTIONS.edgeitems, OPTIONS.linewidth) == (2, 5, 80)
    with printoptions(precision=1):
        assert contents_text(f32(0.25), 0) == "[0.2]"
    assert OPTIONS.precision == 2
    set_printoptions(profile="full")
    assert OPTIONS.threshold == inf


def test_a_large_tensor_is_cut_before_it_is_formatted() -> None:
    """A billion elements that share one number: formatting them all would take hours."""
    values = np.broadcast_to(np.float32(0.5), (1000, 1000, 1000))
    text = tensor_text(values, dtype_name="torch.float32", is_default_dtype=True)
    assert text.count("0.5000") == 6**3
