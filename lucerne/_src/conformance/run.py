"""Run cases on a device, compare and count."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.conformance.cases import TIERS, Case, leaves
from lucerne._src.ir import op as op_
from lucerne._src.ir.dispatch import Interpreter
from lucerne._src.ir.op import Op
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.interop import outside

# relative and absolute tolerance of each result dtype; every other type must agree exactly
TOLERANCE = {
    "float64": (1e-7, 1e-7), "complex128": (1e-7, 1e-7), "float32": (1e-4, 2e-5),
    "complex64": (1e-4, 2e-5), "float16": (2e-3, 1e-3), "bfloat16": (1.6e-2, 1e-3),
}  # fmt: skip


@dataclasses.dataclass
class Outcome:
    """All cases of one op and dtype."""

    op: str
    tier: str
    dtype: str
    passed: int = 0
    total: int = 0
    first_failure: str = ""
    needs: set[str] = dataclasses.field(default_factory=set)
    """Primitives that the failing cases use and the device has no rule for."""
    fallbacks: Counter[str] = dataclasses.field(default_factory=Counter)
    """Graphs that the device's backend left to another one, by op; those of cases before it that
    were equal are not counted again."""

    @property
    def ok(self) -> bool:
        return self.passed == self.total


def run(cases: Iterable[Case], device: str, progress: bool = False) -> list[Outcome]:
    """Every case on `device`, the most needed tier first, gathered by op and dtype."""
    found: dict[tuple[str, str, str], Outcome] = {}
    lacking = unsupported(device)
    n = 0
    for n, case in enumerate(sorted(cases, key=lambda case: TIERS.index(case.tier)), 1):
        key = (case.tier, case.op, case.dtype)
        outcome = found.setdefault(key, Outcome(case.op, case.tier, case.dtype))
        before = fallbacks(device)
        problem = check(case, device)
        outcome.fallbacks += fallbacks(device) - before
        outcome.total += 1
        outcome.passed += not problem
        outcome.first_failure = outcome.first_failure or problem
        if problem and lacking:
            outcome.needs |= lacking & primitives_of(case)
        if progress and n % 200 == 0:
            print(f"\r{n} cases", end="", file=sys.stderr, flush=True)
    if progress:
        print(f"\r{n} cases", file=sys.stderr)
    return list(found.values())


def unsupported(device: str) -> set[str]:
    """Primitives of the table that the device's backend says it can't compile."""
    backend = backends.get(device.partition(":")[0])
    primitives = [op for op in op_.table().values() if op.is_primitive and op.kind != op_.VIEW]
    return {op.qualified for op in primitives if not backend.supports(op)}


def fallbacks(device: str) -> Counter[str]:
    """How many graphs of each op the backend has handed to another one so far, if it counts."""
    backend = backends.get(device.partition(":")[0])
    return Counter(backend.fallbacks)


_WITNESS = "reference"


class _Names(Interpreter):
    """Writes down which primitives run on the witness (results are compared on the host)."""

    level = "kernel"

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        result = proceed(op, args, out)
        if any(
            isinstance(t, TensorBase) and t._meta.device.type == _WITNESS for t in leaves(result)
        ):
            self.seen.add(op.qualified)
        return result


def primitives_of(case: Case) -> set[str]:
    """What a case executes, seen on the reference device."""
    with _Names() as names:
        check(case, _WITNESS)
    return names.seen


def check(case: Case, device: str) -> str:
    """What is wrong with the device's answer; empty when it is right."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            problem = difference(case, case.run(device), device)
        except Exception as error:  # a device under test may fail in any way; the report names it
            lines = str(error).splitlines() or [""]
            problem = f"{type(error).__name__}: {lines[0]}"
    return f"{case.part}: {problem}" if problem and case.part != "result" else problem


def difference(case: Case, answer: Any, device: str) -> str:
    """The first disagreement, in words."""
    got, expected = list(leaves(answer)), list(leaves(case.expected))
    if len(got) != len(expected):
        return f"{len(got)} results, expected {len(expected)}"
    for i, (g, e) in enumerate(zip(got, expected, strict=True)):
        if case.part == "gradient" and (g is None or e is None):
            problem = _nothing(g if e is None else e)
        else:
            problem = _leaf(g, e, device, case.up_to_sign)
        if problem:
            return problem if len(got) == 1 else f"number {i}: {problem}"
    return ""


def _nothing(gradient: Any) -> str:
    """No gradient and a gradient of zeros say the same."""
    return (
        "" if gradient is None or not _host(gradient).any() else "a gradient is None, or should be"
    )


def _leaf(got: Any, expected: Any, device: str, up_to_sign: bool) -> str:
    if isinstance(expected, np.ndarray):
        return _numbers(_host(got), expected, up_to_sign)
    if not isinstance(expected, TensorBase):
        return (
            ""
            if got == expected or (got != got and expected != expected)
            else f"{got!r} not {expected!r}"
        )
    if not isinstance(got, TensorBase):
        return f"{type(got).__name__} instead of a tensor"
    if got._meta.dtype is not expected._meta.dtype:
        return f"{got._meta.dtype}, expected {expected._meta.dtype}"
    if got._meta.device.type != device.partition(":")[0]:
        return f"it is on {got._meta.device}, not on {device}"
    return _numbers(_host(got), outside.values(expected), up_to_sign, expected._meta.dtype.name)


def _host(got: Any) -> Any:
    return outside.values(got.detach().cpu()) if hasattr(got, "_meta") else np.asarray(got)


def _numbers(got: Any, expected: Any, up_to_sign: bool, dtype: str = "") -> str:
    if got.shape != expected.shape:
        return f"shape {list(got.shape)}, expected {list(expected.shape)}"
    if up_to_sign:
        got, expected = np.abs(got), np.abs(expected)
    rtol, atol = max(
        TOLERANCE.get(n, (0.0, 0.0)) for n in (dtype or got.dtype.name, expected.dtype.name)
    )
    close = np.isclose(got, expected, rtol=rtol, atol=atol, equal_nan=True)
    if close.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~close)[0])
    where = f" at {list(at)}" if at else ""
    numbers = f"{_short(got[at])}, expected {_short(expected[at])}"
    return f"{int((~close).sum())} of {close.size} numbers differ:{where} {numbers}"


def _short(x: Any) -> str:
    return f"{x:.6g}" if isinstance(x, np.inexact) else str(x)
