"""Programs over sizes, compiled against eager."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any

import lucerne as torch
from tests.sizes.programs import Program

RTOL, ATOL = 1e-4, 1e-4
"""Sums of a fused loop may be taken in another order; everything else is the same to the bit."""
WARNED = "runs uncompiled: it was compiled"
"""A program that is another one at each size is given up after some: eager is what it then is."""


def made(n: int, seed: int) -> Any:
    """A tensor of one dimension, with values that floats hold exactly."""
    dice = random.Random(seed)
    return torch.tensor([dice.randint(-16, 16) / 4 for _ in range(n)])


def result(fn: Any, n: int, m: int, grad: bool) -> Any:
    """What a call gives, with gradients if some are wanted; or the class of what it raises."""
    x, y = made(n, n), made(m, 100 + m)
    if grad:
        x.requires_grad_()
        y.requires_grad_()
    try:
        found = fn(x, y)
        if grad and found[0].requires_grad:
            found[0].sum().backward()
            found = (*found, x.grad, y.grad)
    except Exception as error:
        return type(error).__name__
    return found


def alike(a: Any, b: Any) -> bool:
    """Whether two results are the same: tensors within the bounds, all else exactly."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.shape != b.shape or a.dtype != b.dtype or a.requires_grad != b.requires_grad:
            return False
        return bool(torch.allclose(a.detach(), b.detach(), RTOL, ATOL, equal_nan=True))
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(alike, a, b))
    return repr(a) == repr(b)


def differences(seed: int, options: dict[str, Any] | None = None) -> Iterator[str]:
    """In what a program is another one compiled; nothing if in nothing."""
    program = Program(seed)
    grad = seed % 4 == 0
    plain, compiled = program.function(), torch.compile(program.function(), **(options or {}))
    for n, m in program.sizes():
        want = result(plain, n, m, grad)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            have = result(compiled, n, m, grad)
        if not alike(want, have):
            yield f"program {seed} at ({n}, {m}): {have} is not {want}"
        for w in told:
            if "runs uncompiled" in str(w.message) and WARNED not in str(w.message):
                yield f"program {seed} at ({n}, {m}): {w.message}"
