"""Programs whose steps are compiled give what torch gives uncompiled, bit by bit of their state."""

from __future__ import annotations

import contextlib
import io
import math
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucerne
from tests.capture import recipes_domains, recipes_steps

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RECIPES = [*recipes_domains.RECIPES, *recipes_steps.RECIPES]


def plain(x: Any) -> Any:
    """The same for both packages: numbers, arrays, lists."""
    if isinstance(x, (torch.Tensor, lucerne.Tensor)):
        t = x.detach()
        t = t.float() if str(t.dtype).endswith("bfloat16") else t
        return str(x.dtype).rpartition(".")[2], bool(x.requires_grad), t.numpy().copy()
    if isinstance(x, (torch.Size, lucerne.Size)):
        return [int(n) for n in x]
    if isinstance(x, dict):
        return [type(x).__name__, *((plain(k), plain(v)) for k, v in x.items())]
    if isinstance(x, (list, tuple)):
        return [type(x).__name__, *map(plain, x)]
    return str(x).rpartition(".")[2] if type(x).__name__ == "dtype" else x


def check(a: Any, b: Any, path: str = "") -> None:
    assert type(a) is type(b), path
    if isinstance(a, np.ndarray):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=path)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), path
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            check(x, y, f"{path}.{k}")
    elif isinstance(a, float):
        assert math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-5) or a != a != b, path
    else:
        assert a == b, path


def run(recipe: Callable[..., Any], package: Any, compiles: Callable[..., Any]) -> tuple[Any, str]:
    package.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    out = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(out):
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", "(?s).*an internal error")
        found = recipe(package, package.nn, package.nn.functional, compiles)
    return plain(found), out.getvalue()


def as_it_is(fn: Any) -> Any:
    return fn


def bitwise(fn: Any) -> Any:
    return lucerne.compile(fn, mode="bitwise")


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda f: f.__name__)
def test_compiled_steps_as_torch(recipe: Callable[..., Any]) -> None:
    want, printed = run(recipe, torch, as_it_is)
    found, shown = run(recipe, lucerne, bitwise)
    check(found, want)
    assert shown == printed


def test_differences_are_seen() -> None:
    one = lucerne.ones(2)
    check(plain([one, 1.0, {"a": (2,)}]), plain([torch.ones(2), 1.0, {"a": (2,)}]))
    for other in ([one + 1e-3], [one.double()], [lucerne.ones(2, requires_grad=True)], (one,)):
        with pytest.raises(AssertionError):
            check(plain(other), plain([torch.ones(2)]))
