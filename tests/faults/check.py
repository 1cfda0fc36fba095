"""One planted fault: what must be so afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from lucerne._src.capture.trace.fake import CaptureError
from tests.faults.planting import PACKAGE, entered, planted
from tests.faults.programs import Program, run, same

_MARKS = itertools.count(1)
_TELLS = "an internal error"


def new_mark() -> float:
    """A number that is in no program yet, though close to one."""
    return 1.0 + next(_MARKS) / 4096


@dataclass
class Outcome:
    """What came of a fault."""

    program: str
    point: str
    error: str
    since: int
    fired: int = 0
    warned: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = "; ".join(self.problems) or "right"
        return f"{self.program}: {self.error} in {self.point} from call {self.since} on: {told}"


def points(program: Program) -> list[CodeType]:
    """The functions that making the versions of a program enters."""
    return entered(lambda: run(program, True, new_mark()))


def name_of(code: CodeType) -> str:
    """A point in words."""
    place = f"{code.co_filename.removeprefix(PACKAGE)}:{code.co_firstlineno}"
    return f"{place} {code.co_qualname}"


def checked(program: Program, code: CodeType, error: type[Exception], since: int) -> Outcome:
    """Run a program with a fault that is there from call number `since` on, and without."""
    mark = new_mark()
    want = run(program, False, mark)
    out = Outcome(program.name, name_of(code), error.__name__, since)
    ends: list[Callable[[], Any]] = []
    counts: list[Callable[[], int]] = []

    def plant(k: int) -> None:
        if k == since:
            context = planted(code, error)
            counts.append(context.__enter__())
            ends.append(lambda: context.__exit__(None, None, None))

    try:
        got = run(program, True, mark, plant)
    finally:
        for end in ends:
            end()
    out.fired = sum(count() for count in counts)
    told = [w for w in got.warned if _TELLS in w]
    out.warned = len(told)
    for k, (have, need) in enumerate(zip(got.results, want.results, strict=True)):
        if not same(have, need):
            out.problems.append(f"call {k} gives {str(have)[:90]}, not {str(need)[:90]}")
    if got.printed != want.printed:
        out.problems.append(f"prints {got.printed!r}, not {want.printed!r}")
    if len(got.warned) != len(told) + len(want.warned):
        out.problems.append(f"warns {got.warned}")
    least = 1 if out.fired and not issubclass(error, CaptureError) else 0
    if not least <= out.warned <= 1:
        out.problems.append(f"{out.warned} warnings")
    if told and ("raised at" not in told[0] or "Planted" not in told[0]):
        out.problems.append(f"the warning says {told[0]!r}")
    return out
