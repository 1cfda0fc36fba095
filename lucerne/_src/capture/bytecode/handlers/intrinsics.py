"""The numbered helpers of Python 3.12 and later (CALL_INTRINSIC_1 and _2), by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.capture.bytecode.frame import PythonFrame
from lucerne._src.capture.bytecode.handlers.containers import list_to_tuple
from lucerne._src.capture.bytecode.handlers.exceptions import prep_reraise_star
from lucerne._src.capture.bytecode.handlers.operators import unary_positive
from lucerne._src.capture.bytecode.machine import Machine


def _stop_iteration(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    """What escapes a generator: a StopIteration would look like its end."""
    error = frame.stack[-1]
    if isinstance(error, StopIteration):
        wrong = RuntimeError("generator raised StopIteration")
        wrong.__cause__ = wrong.__context__ = error
        wrong.__traceback__ = error.__traceback__
        frame.stack[-1] = wrong


HELPERS: dict[str, Callable[[Machine, PythonFrame, Any], Any]] = {
    "INTRINSIC_LIST_TO_TUPLE": list_to_tuple,
    "INTRINSIC_UNARY_POSITIVE": unary_positive,
    "INTRINSIC_STOPITERATION_ERROR": _stop_iteration,
    "INTRINSIC_PREP_RERAISE_STAR": prep_reraise_star,
}


def intrinsic(machine: Machine, frame: PythonFrame, name: str) -> Any:
    return HELPERS[name](machine, frame, None)
