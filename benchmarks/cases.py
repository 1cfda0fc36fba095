"""What a benchmark case is, and how one is measured."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.timing import Call, Effort, best_times

Make = Callable[[Any], Call]
"""From a module with torch's names to a call to be timed."""

OURS, THEIRS = "lucerne", "torch"


@dataclasses.dataclass
class Case:
    """One comparison: the same code against both modules.

    `makes` may hold several ways to reach the same result (memory layouts, fused or not): each side
    is judged by its best. `limit` is the largest allowed ratio of Lucerne's time to torch's.
    """

    name: str
    makes: Mapping[str, Make]
    limit: float | None = None
    work: float = 0.0
    """Floating-point operations (or bytes, by `unit`) of one call, to show a rate."""
    unit: str = "GF/s"
    limit_seconds: float | None = None
    check: bool = True
    """Whether the two results are compared as well."""
    long: bool = False
    """Left out of smoke runs."""
    calls: int = 1
    """How often one call does it: what is shown is the time of one."""


@dataclasses.dataclass
class Section:
    """Cases that belong together. With `mean_limit` the geometric mean of the ratios is bound."""

    name: str
    title: str
    cases: Callable[[], list[Case]]
    mean_limit: float | None = None
    direct: Callable[[bool], list[Result]] | None = None
    """Figures that are not a timed call: given whether to be quick, the finished results."""


@dataclasses.dataclass
class Result:
    """What came out of a case (also the form of the JSON file)."""

    section: str
    name: str
    ours: float | None = None
    theirs: float | None = None
    limit: float | None = None
    limit_ours: float | None = None
    """An absolute limit, in `unit`."""
    unit: str = "s"
    rate: float | None = None
    rate_unit: str = ""
    way: str = ""
    note: str = ""
    busy: float = 0.0
    """Share of the timings that began while something else was running on the machine."""

    @property
    def doubtful(self) -> bool:
        """Whether too few timings were undisturbed. torch's threads wait for one another, so a busy
        machine slows it many times more than Lucerne: such a ratio flatters."""
        return self.busy > 0.5

    @property
    def ratio(self) -> float | None:
        if self.ours is None or not self.theirs:
            return None
        return self.ours / self.theirs

    @property
    def passed(self) -> bool | None:
        """Whether all limits hold; None when nothing was measured or nothing is required."""
        if self.ours is None:
            return None
        told: list[bool] = []
        if self.limit is not None and self.ratio is not None:
            told.append(self.ratio <= self.limit)
        if self.limit_ours is not None:
            told.append(self.ours <= self.limit_ours)
        if self.note.startswith("WRONG"):
            told.append(False)
        return all(told) if told else None


def one(make: Make) -> dict[str, Make]:
    """A case with a single way."""
    return {"": make}


def measure(section: str, case: Case, modules: Mapping[str, Any], effort: Effort) -> Result:
    """Time a case on every module that is there."""
    result = Result(section, case.name, limit=case.limit, limit_ours=case.limit_seconds)
    calls: dict[str, Call] = {}
    for side, module in modules.items():
        for way, make in case.makes.items():
            try:
                call = make(module)
                call()
                calls[f"{side}/{way}"] = call
            except (AttributeError, NotImplementedError, TypeError, RuntimeError) as e:
                result.note = f"{side}: {type(e).__name__}: {str(e)[:60]}"
    if not any(k.startswith(OURS) for k in calls):
        return result
    if case.check and not result.note:
        result.note = _disagreement(calls)
    noisy, taken = effort.noisy, effort.taken
    times = {way: t / case.calls for way, t in best_times(calls, effort).items()}
    result.busy = (effort.noisy - noisy) / max(1, effort.taken - taken)
    result.ours, result.way = _best(times, OURS)
    result.theirs, their_way = _best(times, THEIRS)
    if their_way != result.way:
        result.way = f"{result.way} : {their_way}"
    if case.work and result.ours:
        result.rate, result.rate_unit = case.work / result.ours / 1e9, case.unit
    return result


def _best(times: Mapping[str, float], side: str) -> tuple[float | None, str]:
    mine = {k.split("/", 1)[1]: t for k, t in times.items() if k.startswith(side + "/")}
    if not mine:
        return None, ""
    way = min(mine, key=lambda w: mine[w])
    return mine[way], way


def _disagreement(calls: Mapping[str, Call]) -> str:
    """A note when the two sides compute different things: a fast wrong answer is no result."""
    found = {}
    for name, call in calls.items():
        value = call()
        while isinstance(value, (tuple, list)) and len(value):
            value = value[0]
        if not hasattr(value, "detach"):
            return ""
        value = value.detach()
        wide = value.double() if value.dtype.is_floating_point else value
        found.setdefault(
            name.split("/")[0], np.asarray(wide.tolist() if value.numel() < 4096 else wide.numpy())
        )
    if len(found) < 2:
        return ""
    a, b = found[OURS], found[THEIRS]
    if a.shape != b.shape:
        return f"WRONG shape {a.shape} {b.shape}"
    if a.dtype.kind != "f":
        return "" if np.array_equal(a, b) else "WRONG values"
    scale = max(float(np.abs(b[np.isfinite(b)]).max(initial=0.0)), 1e-30)
    off = float(np.nanmax(np.abs(a - b)[np.isfinite(b)], initial=0.0)) / scale
    return (
        ""
        if off < 0.02 and np.array_equal(np.isfinite(a), np.isfinite(b))
        else f"WRONG by {off:.2g}"
    )


def geometric_mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
