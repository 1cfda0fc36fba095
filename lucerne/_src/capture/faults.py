"""Faults: an error inside of the compiler costs the optimisation, never the call.

Whatever makes, finds, keeps or notes a compiled version may raise something that nobody meant
(`IndexError` in a pass, `MemoryError` in LLVM, a file that can't be written). Then the state of the
process is put back, the call runs as it is, and one warning per function says what was lost and
where it came from. What is meant to be raised goes through: see `goes_through`.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from os.path import relpath
from typing import Any

from lucerne._src.base.process import notices, source_digests
from lucerne._src.base.process.source_location import describe, place_of_error
from lucerne._src.capture.effects.new_objects import NewObjects
from lucerne._src.capture.process_state import ProcessState
from lucerne._src.capture.trace.fake import CaptureError
from lucerne._src.tensor.random.generator import default_generator

UNCOMPILED = "the function runs uncompiled from here on"
A_PART = "a part of the function runs uncompiled"
NO_SIZES = "other sizes are compiled one by one"
NO_STORE = "nothing is read from or written to the program cache for it"
NO_NOTE = "the ledger, the dump or shadow mode lacks it"
WHOLE_BACKWARD = "its backward pass computes gradients that nobody asked for"
NO_NUMBERS = "numbers that change are compiled one by one"
BACKWARD = "the call was made once more for its gradients"
EAGER_GRAPH = "these ops of lazy mode run one by one"
"""What an error costs, in words."""

_PACKAGE = source_digests.PACKAGE.name + "/_src/"
_HOMES = ("capture/", "transforms/", "loops/", "backends/", "pipeline/")
_HANDLERS = "capture/bytecode/"


def goes_through(error: BaseException) -> bool:
    """Whether an error is meant for the caller: a budget that is exceeded, a shadow's finding."""
    return bool(getattr(error, "is_for_caller", False))


def reference(error: BaseException) -> str:
    """Where an error was raised: file and line, to be looked for and to be reported."""
    trace = error.__traceback__
    if trace is None:
        return "an unknown place"
    while trace.tb_next is not None:
        trace = trace.tb_next
    file = relpath(trace.tb_frame.f_code.co_filename, source_digests.PACKAGE.parent)
    return f"{file}:{trace.tb_lineno}"


def in_words(error: BaseException) -> str:
    """What was raised: its class, the stage, its text, the user's line, the reference."""
    stage = getattr(error, "stage", "")
    where = f" in the stage {stage!r}" if stage else ""
    place = place_of_error(error)
    line = "" if place is None else f" ({describe(place)})"
    return f"{type(error).__name__}{where}: {error}{line} [raised at {reference(error)}]"


ADVICE = (
    "The results are right. Please report this text as an issue of Lucerne; "
    "compile(..., disable=True) runs the function uncompiled and says nothing"
)


@dataclass
class Fault:
    """One error in words, and what it costs."""

    what: str
    cost: str

    def __str__(self) -> str:
        return f"an internal error, so {self.cost}: {self.what}. {ADVICE}"


def tell(compiled: Any, error: Exception, cost: str) -> None:
    """Note a fault of a compiled function (`compiled.faults`). The first one is a warning."""
    compiled.faults.append(Fault(in_words(error), cost))
    if len(compiled.faults) == 1:
        name = getattr(compiled.fn, "__qualname__", type(compiled.fn).__name__)
        notices.warn(f"{name}: {compiled.faults[0]}", stacklevel=4)


class Teller:
    """`tell` for those who know nothing of the function, which it does not keep alive."""

    def __init__(self, compiled: Any) -> None:
        self.compiled = weakref.ref(compiled)

    def __call__(self, error: Exception, cost: str) -> None:
        compiled = self.compiled()
        if compiled is not None and not goes_through(error):
            tell(compiled, error, cost)

    def perhaps(self, error: Exception, cost: str) -> None:
        """Something was tried that may well raise: it is a fault if it is ours."""
        if goes_through(error):
            raise error
        if is_ours(error) and not isinstance(error, CaptureError):
            self(error, cost)


def is_ours(error: BaseException) -> bool:
    """Whether it was raised by the compiler itself, not by an op, an argument check or the user's
    code. (A handler of bytecode raises what the instruction raises: those are not told apart.)"""
    where = reference(error).removeprefix(_PACKAGE)
    return where.startswith(_HOMES) and not where.startswith(_HANDLERS)


class costs:
    """`with costs(compiled, cost):` what is raised inside costs this, and the rest of the block.

    `puts_back=False`: for what puts the state of the process back itself, where it changes any.
    """

    def __init__(self, compiled: Any, cost: str, *, puts_back: bool = True) -> None:
        self.compiled, self.cost, self.puts_back = compiled, cost, puts_back

    def __enter__(self) -> None:
        self.before = Before() if self.puts_back else None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, Exception) or goes_through(error):
            return False
        if self.before is not None:
            self.before.put_back()
        tell(self.compiled, error, self.cost)
        return True


class Before:
    """State of the process that an attempt may leave changed when it ends in the middle."""

    def __init__(self) -> None:
        self.state = ProcessState()
        self.random = default_generator._engine.mark()
        self.holder = NewObjects.holder

    def put_back(self) -> None:
        """Everything as it was."""
        self.state.restore()
        with default_generator.lock:
            default_generator._engine.rewind(self.random)
        if NewObjects.holder is not self.holder:
            NewObjects.release()
