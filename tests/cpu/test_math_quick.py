"""Roots and quotients of optimizers, which need not be exact: how far off, and what happens at the
ends of the range."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from lucerne._src.backends.cpu.emit.builder import F32, PTR, Module
from lucerne._src.backends.cpu.math.vector import has_special, quick_quotient, quick_root
from lucerne._src.backends.cpu.runtime.code import Code, compiled

LANES = 16
WIDE = F32.vector(LANES)
TINY, INF = 2.0**-126, float("inf")


def _write(m: Module) -> None:
    params = [("a", PTR), ("b", PTR), ("root", PTR), ("quotient", PTR)]
    with m.function("quick", params) as f:
        a, b = (f.load(WIDE, p) for p in f.args[:2])
        f.store(quick_root(f, b), f.args[2])
        f.store(quick_quotient(f, a, b), f.args[3])


def quick(above: np.ndarray, below: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The roots of `below`, and `above / below`."""
    code: Code = compiled(("test quick root and quotient",), _write)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(code["quick"])
    a, b = (np.ascontiguousarray(x, np.float32).reshape(-1, LANES) for x in (above, below))
    found = np.empty_like(a), np.empty_like(a)
    for i in range(len(a)):
        call(*(x[i].ctypes.data for x in (a, b, *found)))
    return found[0].reshape(-1), found[1].reshape(-1)


def test_roots_and_quotients_are_off_by_one_unit_at_most() -> None:
    rng = np.random.default_rng(0)
    below = (2.0 ** rng.uniform(-125, 125, 16000)).astype(np.float32)
    above = (below * rng.choice([-1, 1], 16000) * 2.0 ** rng.uniform(-60, 2, 16000)).astype(
        np.float32
    )
    above[np.abs(above) < 2.0**-90] = 0  # what is left of them would be below 2^-126
    root, quotient = quick(above, below)
    for found, wanted in ((root, np.sqrt(below)), (quotient, above / below)):
        assert np.all(np.abs(found - wanted) <= np.spacing(np.abs(wanted)))
    assert np.mean(root == np.sqrt(below)) > 0.6
    assert np.mean(quotient == above / below) > 0.9


def test_ends_of_the_range() -> None:
    below = np.array([0.0, INF, np.nan, 1.0, TINY, 4.0, 0.0, 0.0] * 2, np.float32)
    above = np.array([1.0, 1.0, 1.0, np.nan, TINY, INF, -1.0, 0.0] * 2, np.float32)
    root, quotient = quick(above, below)
    np.testing.assert_array_equal(root, np.sqrt(below))
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = above / below
    np.testing.assert_array_equal(quotient[[0, 1, 2, 3, 4, 6, 7]], wanted[[0, 1, 2, 3, 4, 6, 7]])


@pytest.mark.skipif(not has_special(WIDE), reason="this machine has no guesses of roots")
def test_no_slow_instruction_is_used() -> None:
    module = Module()
    _write(module)
    ir = module.text()
    assert "rsqrt14" in ir
    assert "rcp14" in ir
    assert "fdiv" not in ir
    assert "llvm.sqrt" not in ir
