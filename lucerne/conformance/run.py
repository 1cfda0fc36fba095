"""Run the cases on a device and count."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from lucerne.base import dtype as dt
from lucerne.conformance.cases import TOLERANCE, Case
from lucerne.tensor import interop
from lucerne.tensor.base import TensorBase


@dataclasses.dataclass
class Outcome:
    """All cases of one op and dtype."""

    op: str
    tier: str
    dtype: str
    passed: int = 0
    total: int = 0
    first_failure: str = ""

    @property
    def ok(self) -> bool:
        return self.passed == self.total


def run(cases: Iterable[Case], device: str, progress: bool = False) -> list[Outcome]:
    """Every case on `device`, gathered by op and dtype."""
    found: dict[tuple[str, str], Outcome] = {}
    for n, case in enumerate(cases):
        outcome = found.setdefault((case.op, case.dtype), Outcome(case.op, case.tier, case.dtype))
        problem = check(case, device)
        outcome.total += 1
        outcome.passed += not problem
        outcome.first_failure = outcome.first_failure or problem
        if progress and n % 200 == 0:
            print(f"\r{n} cases", end="", file=sys.stderr, flush=True)
    if progress:
        print("\r" + " " * 30 + "\r", end="", file=sys.stderr)
    return list(found.values())


def check(case: Case, device: str) -> str:
    """What is wrong with the device's answer; empty when it is right."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            got = case.run(device)
        except Exception as error:  # a device under test may fail in any way; the report names it
            return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return difference(got, case.expected)


def difference(got: Any, expected: Any) -> str:
    """The first disagreement, in words."""
    if isinstance(expected, np.ndarray):
        return _numbers("result", interop.values(got.cpu()), expected, None)
    left, right = list(_leaves(got)), list(_leaves(expected))
    if len(left) != len(right):
        return f"{len(left)} results, expected {len(right)}"
    for i, (g, e) in enumerate(zip(left, right, strict=True)):
        problem = _leaf(f"result {i}", g, e)
        if problem:
            return problem
    return ""


def _leaves(x: Any) -> Iterator[Any]:
    if isinstance(x, (list, tuple)):
        for v in x:
            yield from _leaves(v)
    else:
        yield x


def _leaf(name: str, got: Any, expected: Any) -> str:
    if not isinstance(expected, TensorBase):
        return "" if got == expected or (got != got and expected != expected) else f"{name}: {got!r}"
    if not isinstance(got, TensorBase):
        return f"{name}: {type(got).__name__} instead of a tensor"
    if got._meta.shape != expected._meta.shape:
        return f"{name}: shape {list(got._meta.shape)}, expected {list(expected._meta.shape)}"
    if got._meta.dtype is not expected._meta.dtype:
        return f"{name}: {got._meta.dtype}, expected {expected._meta.dtype}"
    host = got.detach().cpu()  # type: ignore[attr-defined]
    return _numbers(name, interop.values(host), interop.values(expected), expected._meta.dtype)


def _numbers(name: str, got: Any, expected: Any, dtype: dt.dtype | None) -> str:
    if got.shape != expected.shape:
        return f"{name}: shape {list(got.shape)}, expected {list(expected.shape)}"
    rtol, atol = TOLERANCE.get(dtype.name if dtype else got.dtype.name, (0.0, 0.0))
    close = np.isclose(got, expected, rtol=rtol, atol=atol, equal_nan=True)
    if close.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~close)[0])
    return f"{name}: {int((~close).sum())} of {close.size} differ, at {at}: {got[at]} not {expected[at]}"
