"""Run one function under torch and under Lucerne and compare everything it returns."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

Case = Callable[[Any], Any]


def flat(found: Any) -> list[Any]:
    """Leaves of nested tuples, lists and dicts, in order."""
    if isinstance(found, dict):
        return [leaf for key, value in found.items() for leaf in (key, *flat(value))]
    if isinstance(found, (tuple, list)):
        return [leaf for value in found for leaf in flat(value)]
    return [found]


def plain(leaf: Any) -> Any:
    """A tensor as an array, anything else as text."""
    if hasattr(leaf, "detach"):
        return leaf.detach().numpy()
    return repr(leaf).replace("lucerne", "torch")


def run(name: str, case: Case) -> list[Any]:
    torch = importlib.import_module(name)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        if name == "torch":  # what torch warns about is its own business
            warnings.simplefilter("ignore")
            torch.set_num_threads(1)
        return [plain(leaf) for leaf in flat(case(torch))]


def assert_agree(case: Case, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """What `case(torch)` returns must agree: tensors in shape, dtype and value, others in text."""
    wanted, found = run("torch", case), run("lucerne", case)
    assert len(wanted) == len(found)
    for i, (a, b) in enumerate(zip(wanted, found, strict=True)):
        if isinstance(a, str):
            assert a == b, f"result {i}"
            continue
        assert (a.shape, a.dtype) == (b.shape, b.dtype), f"result {i}"
        np.testing.assert_allclose(b, a, rtol, atol, err_msg=f"result {i}")


def assert_equal(case: Case) -> None:
    """As `assert_agree`, to the last bit."""
    assert_agree(case, 0.0, 0.0)


def trained(module: Any, loss: Any) -> list[Any]:
    """Gradients of all parameters of a module after a backward pass."""
    loss.backward()
    return [p.grad for p in module.parameters() if p.grad is not None]
