"""`lucerne.testing` says what torch's says."""

import warnings
from typing import Any

import numpy as np
import pytest

import lucerne

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

PAIRS = [
    "m.tensor([1., 2., 3.]), m.tensor([1., 2., 4.])",
    "m.tensor([1., 2.]), m.tensor([1., 2.])",
    "m.tensor([1., 2.]), m.tensor([1., 2. + 1e-7])",
    "1.0, 2.0",
    "1, 2",
    "1, 1.0",
    "1j, 2j",
    "m.tensor([1, 2]), m.tensor([1, 3])",
    "[m.tensor(1.)], [m.tensor(2.)]",
    "{'a': 1}, {'b': 1}",
    "{'b': m.ones(2), 'a': m.ones(2)}, {'a': m.ones(2), 'b': m.zeros(2)}",
    "[1], [1, 2]",
    "m.tensor([1.]), m.tensor([1])",
    "m.tensor([1.]), m.tensor([[1.]])",
    "m.tensor([1.]), m.tensor([1.], device='meta')",
    "None, 1",
    "None, None",
    "True, False",
    "'a', 'b'",
    "m.tensor([m.nan]), m.tensor([m.nan])",
    "m.tensor([m.inf]), m.tensor([m.inf])",
    "m.tensor([1.]), m.tensor([m.inf])",
    "m.tensor([[1., 2], [3, 4]]).t(), m.tensor([[1., 2], [3, 5]]).t()",
    "m.tensor(1.), 1.0",
    "np.zeros(2), np.ones(2)",
    "np.zeros(2), m.zeros(2)",
    "m.tensor([True]), m.tensor([False])",
    "m.tensor([1j]), m.tensor([2j])",
    "m.tensor([1.], dtype=m.bfloat16), m.tensor([2.], dtype=m.bfloat16)",
    "[[1], [2, {'x': m.tensor(1)}]], [[1], [2, {'x': m.tensor(2)}]]",
    "m.zeros(0), m.zeros(0)",
    "np.float32(1), np.float32(2)",
]
OPTIONS = [
    {}, {"rtol": 0.0, "atol": 0.0}, {"rtol": 0.5, "atol": 0.5}, {"rtol": 1.0}, {"equal_nan": True},
    {"check_dtype": False}, {"msg": "mine"}, {"msg": lambda text: f"Head\n{text}"},
    {"check_stride": True}, {"check_device": False, "check_dtype": False},
]  # fmt: skip


def _said(module: Any, pair: str, function: str, **options: Any) -> tuple[str, str]:
    scope = {"m": module, "np": np}
    actual, expected = eval(pair, scope)
    try:
        getattr(module.testing, function)(actual, expected, **options)
    except Exception as error:
        return type(error).__name__, str(error).replace("lucerne", "torch")
    return "agreed", ""


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
def test_assert_close_says_the_same(pair: str, options: dict[str, Any]) -> None:
    if "meta" in pair and options.get("check_device") is False:
        pytest.skip("both refuse to read a meta tensor, each in its words")
    want = _said(torch, pair, "assert_close", **options)
    assert _said(lucerne, pair, "assert_close", **options) == want


def test_assert_allclose_is_looser_and_warns() -> None:
    a, b = lucerne.tensor([1.0]), lucerne.tensor([1.00005])
    with pytest.warns(FutureWarning, match="deprecated"):
        lucerne.testing.assert_allclose(a, b)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lucerne.testing.assert_allclose([1.0], a)
        with pytest.raises(AssertionError, match="not close"):
            lucerne.testing.assert_allclose(a, lucerne.tensor([2.0]))


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "complex64", "int64", "uint8", "bool", "bfloat16"]
)
@pytest.mark.parametrize(
    "options",
    [{}, {"low": 0, "high": 2}, {"noncontiguous": True}, {"exclude_zero": True}],
    ids=["plain", "interval", "noncontiguous", "nonzero"],
)
def test_make_tensor_draws_the_same(dtype: str, options: dict[str, Any]) -> None:
    made = []
    for module in (torch, lucerne):
        module.manual_seed(3)
        t = module.testing.make_tensor(2, 5, dtype=getattr(module, dtype), device="cpu", **options)
        made.append((t.tolist(), t.stride(), str(t.dtype)))
    assert made[0] == made[1]


def test_make_tensor_refuses_what_makes_no_sense() -> None:
    make = lucerne.testing.make_tensor
    for options in (
        {"dtype": lucerne.int64, "requires_grad": True},
        {"dtype": lucerne.int64, "low": 3, "high": 2},
        {"dtype": lucerne.float32, "low": float("nan")},
        {"dtype": lucerne.uint8, "low": 400, "high": 500},
        {"dtype": lucerne.float32, "noncontiguous": True, "memory_format": lucerne.channels_last},
    ):
        with pytest.raises(ValueError, match=r"low|requires_grad|noncontiguous"):
            make(2, device="cpu", **options)
