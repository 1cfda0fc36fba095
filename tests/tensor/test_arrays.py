"""Operators between tensors and NumPy arrays: every operator, side and form, beside torch's."""

import operator
import warnings
from typing import Any

import numpy as np
import pytest

import lucerne

ARRAYS = {
    "float64": np.ones(3),
    "int64": np.arange(1, 4),
    "float32": np.ones(3, np.float32),
    "bool": np.array([True, False, True]),
    "no dimension": np.array(2.0),
    "float64 number": np.float64(2),
    "int64 number": np.int64(2),
    "another length": np.ones(4),
    "matrix": np.ones((2, 3)),
    "objects": np.array([None] * 3),
    "text": np.array(["a", "b", "c"]),
    "uint16": np.ones(3, np.uint16),
    "complex": np.ones(3, complex),
}
TENSORS = {"float32": [1.0, 2.0, 3.0], "int64": [1, 2, 3], "bool": [True, False, True]}
BINARY = [
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor",
    "lshift", "rshift",
]  # fmt: skip
COMPARE = ["eq", "ne", "lt", "le", "gt", "ge"]
FORMS = [*BINARY, *COMPARE, *(f"i{name.rstrip('_')}" for name in BINARY)]


def _answer(package: Any, name: str, left: Any, right: Any) -> Any:
    """Type, dtype, values, and whether it is the left operand; or that it raises."""
    try:
        found = getattr(operator, name)(left, right)
    except Exception:
        return "raises"
    if isinstance(found, package.Tensor):
        return "tensor", str(found.dtype), repr(found.tolist()), found is left
    return type(found).__name__, repr(found.tolist() if hasattr(found, "tolist") else found)


@pytest.mark.torch
@pytest.mark.parametrize("kind", ARRAYS)
def test_operators_with_arrays_are_torchs(kind: str) -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's array protocol is NumPy 1's
        for name in FORMS:
            for values in TENSORS.values():
                for swap in (False, True):
                    both = []
                    for package in (lucerne, torch):
                        pair = package.tensor(values), ARRAYS[kind].copy()
                        both.append(_answer(package, name, *(pair[::-1] if swap else pair)))
                    ours, theirs = both
                    if theirs[1] == "torch.uint8":
                        # docs/guide/porting.md: truth values stay truth values
                        assert ours[1] == "torch.bool", (name, values, swap, ours)
                    else:
                        assert ours == theirs, (name, values, swap)


def test_equality_compares_elements() -> None:
    for found in (lucerne.arange(3) == np.arange(3), np.arange(3) == lucerne.arange(3)):
        assert isinstance(found, lucerne.Tensor)
        assert found.tolist() == [True, True, True]
    compared = lucerne.compile(lambda x: x * (x == np.arange(3)))
    assert compared(lucerne.arange(3)).tolist() == [0, 1, 2]


def test_in_place_operators_take_arrays() -> None:
    for name in ("iadd", "isub", "imul", "itruediv"):
        t = lucerne.full((3,), 4.0)
        found = getattr(operator, name)(t, np.full(3, 2.0))
        assert found.dtype == lucerne.float64
        assert found.tolist() == [getattr(operator, name[1:])(4.0, 2.0)] * 3
        assert t.tolist() == [4.0] * 3
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \+="):
        t += [1, 2, 3]


NOT_NUMPYS = ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]


@pytest.mark.parametrize("name", NOT_NUMPYS)
def test_dlpack_of_types_that_numpy_has_not(name: str) -> None:
    given = lucerne.tensor([1.0, -2.0, 0.5, 4.0]).to(getattr(lucerne, name))[::2]
    found = lucerne.from_dlpack(given)
    assert found.dtype is given.dtype
    assert found.float().tolist() == [1.0, 0.5]
    assert found.data_ptr() == given.data_ptr()
    assert lucerne.from_dlpack(lucerne.utils.dlpack.to_dlpack(given)).float().tolist() == [1.0, 0.5]


@pytest.mark.torch
@pytest.mark.parametrize("name", NOT_NUMPYS)
def test_dlpack_of_types_that_numpy_has_not_with_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.tensor([1.0, -2.0]).to(getattr(torch, name))
    ours = lucerne.from_dlpack(theirs)
    assert str(ours.dtype) == str(theirs.dtype)
    assert ours.float().tolist() == [1.0, -2.0]
    back = torch.from_dlpack(lucerne.tensor([1.0, -2.0]).to(getattr(lucerne, name)))
    assert back.dtype is theirs.dtype
    assert back.float().tolist() == [1.0, -2.0]
