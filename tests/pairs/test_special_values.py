"""Zeros of both signs, infinities, nan, numbers near the ends: compiled as eager, sign for sign.

    python -m pytest tests/pairs/test_special_values.py -m "nightly or not nightly"

Pairs and trees have ordinary numbers, of which no rule that is wrong for -0.0 alone is seen.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from tests.pairs.check import AROUND, results
from tests.pairs.functions import functions

INF, NAN = float("inf"), float("nan")
VALUES: dict[str, tuple[float, ...]] = {
    "zeros": (0.0,),
    "minus zeros": (-0.0,),
    "both zeros": (0.0, -0.0, -0.0, 1.0, -0.0),
    "infinities": (1.0, INF, -2.0, -INF, 3.0, 0.0),
    "nan": (1.0, NAN, -2.0, 3.0, -0.0, 2.0, 1.0),
    "large": (1e30, -1e30, 3e38, 1.0),
    "denormal": (1e-40, -1e-40, 1e-45, 0.0),
}
FORMS: dict[str, Callable[[Any], Any]] = {
    "-f(x)": lambda f: lambda x: -f(x),
    "f(x)": lambda f: f,
    "f(2x)": lambda f: lambda x: f(x * 2),
    "x + f(x)": lambda f: lambda x: x + f(x),
}
SHAPES = ((1, 6), (4, 6), (4, 1))
DRAWS = ("noise", "draws")
"""Other numbers when compiled (docs/guide/compile.md), and 0 times them has their signs."""
NAMES = [name for name in sorted(functions()) if name not in DRAWS]


def filled(values: tuple[float, ...], shape: tuple[int, ...]) -> Any:
    return torch.tensor(np.resize(np.array(values, np.float32), shape))


def difference(wanted: Any, got: Any) -> str:
    """Empty if both are the same, roundings aside: of zeros the sign counts."""
    if wanted is None or got is None:
        return "" if wanted is got else f"{wanted} and {got}"
    a, b = wanted.numpy(), got.numpy()
    size = np.abs(a[np.isfinite(a)]).max(initial=0.0) if a.dtype.kind == "f" else 0.0
    np.testing.assert_equal(b.dtype, a.dtype)
    if a.shape != b.shape:
        return f"{a.shape} and {b.shape}"
    zeros = (a == 0) & (b == 0)
    signs = a.dtype.kind == "f" and (np.signbit(a) != np.signbit(b))[zeros].any()
    if signs or not np.allclose(a, b, rtol=2e-4, atol=2e-5 * size, equal_nan=True):
        return f"eager {a.flatten()[:8].tolist()}, compiled {b.flatten()[:8].tolist()}"
    return ""


def differences(name: str, form: str, shapes: tuple[tuple[int, ...], ...]) -> Iterator[str]:
    f = FORMS[form](functions()[name])
    compiled = torch.compile(f, dynamic=False)
    for shape in shapes:
        for label, values in VALUES.items():
            x = filled(values, shape)
            try:
                wanted = results(f, x, AROUND[""])
            except Exception:
                continue  # not a function of this shape
            for p, q in zip(wanted, results(compiled, x, AROUND[""]), strict=True):
                if told := difference(p, q):
                    yield f"{name} as {form} of {label} {shape}: {told}"


def check(names: list[str], forms: list[str], shapes: tuple[tuple[int, ...], ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [d for n in names for form in forms for d in differences(n, form, shapes)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("part", range(8))
def test_special_values(part: int) -> None:
    check(NAMES[part::8], list(FORMS)[:1], SHAPES[:1])


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(8))
def test_special_values_everywhere(part: int) -> None:
    check(NAMES[part::8], list(FORMS), SHAPES)


def test_sums_of_one_number() -> None:
    """0.0 + -0.0 is 0.0, also where a rule sees that there is one number, or a zero."""
    forms = {
        "mean": lambda x: x.mean(),
        "sum": lambda x: x.sum(0) / 1,
        "picked": lambda x: torch.nn.functional.nll_loss(-x.reshape(1, 1), torch.tensor([0])),
        "zeros": lambda x: torch.zeros(1) + x,
    }
    for name, f in forms.items():
        x = torch.tensor([-0.0])
        assert not difference(f(x), torch.compile(f)(x)), name


@pytest.mark.parametrize(
    "got", [[-0.0, 1.0], [0.0, 1.1], [NAN, 1.0], [0.0]], ids=["sign", "number", "nan", "shape"]
)
def test_difference_is_told(got: list[float]) -> None:
    assert difference(torch.tensor([0.0, 1.0]), torch.tensor(got))
    assert not difference(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]))
