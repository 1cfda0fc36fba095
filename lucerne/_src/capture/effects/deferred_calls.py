"""Calls that can wait: `print` and logging tell somebody something and give nothing back.

A graph has no moment at which they could be made, so they are side effects: noted in their order
and made when the part has run, with what they were told. A tensor is shown as it was at that
moment. A log record keeps the user's line, since by then nobody stands there any more.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from lucerne._src.base.raw import is_a
from lucerne._src.base.shape import Size
from lucerne._src.capture.bytecode.decode import Opcode, decode
from lucerne._src.capture.bytecode.registry import current_table
from lucerne._src.tensor.base import TensorBase

_LEVELS = {
    "debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING,
    "error": logging.ERROR, "critical": logging.CRITICAL,
}  # fmt: skip
_ROOT = {getattr(logging, name): level for name, level in _LEVELS.items()}
_PRINT_OPTIONS = frozenset(("sep", "end", "flush"))
_SHOWN = (str, int, float, bool, complex, bytes, type(None))


class DeferredCall(NamedTuple):
    """What is to be called, with what."""

    fn: Callable[..., None]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def deferred(
    fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], frame: Any
) -> DeferredCall | None:
    """The call to make afterwards in place of this one; None: it can't wait."""
    if not all(map(_can_be_shown, (*args, *kwargs.values()))):
        return None
    if fn is print:
        if not kwargs.keys() <= _PRINT_OPTIONS:
            return None
        return DeferredCall(fn, tuple(map(_as_it_is_now, args)), dict(kwargs))
    if _logs_once(fn) and all(type(x) in _SHOWN for x in (*args, *kwargs.values())):
        return DeferredCall(fn, tuple(args), dict(kwargs))
    owner, name = getattr(fn, "__self__", None), getattr(fn, "__name__", "")
    of_logger = type(owner) in (logging.Logger, logging.RootLogger) and name in _LEVELS
    if kwargs or not args or not (of_logger or fn in _ROOT):
        return None
    logger, level = (owner, _LEVELS[name]) if of_logger else (None, _ROOT[fn])
    place = (frame.code.co_filename, frame.line, frame.code.co_name)
    return DeferredCall(_log, (logger, level, place, *map(_as_it_is_now, args)), {})


_ONLY_CALLS = frozenset(
    (
        "RESUME", "PRECALL", "LOAD_FAST", "LOAD_CONST", "LOAD_ATTR", "LOAD_METHOD", "CALL",
        "CALL_KW", "CALL_FUNCTION_EX", "PUSH_NULL", "BUILD_MAP", "DICT_MERGE", "POP_TOP",
        "RETURN_VALUE", "RETURN_CONST", "LOAD_FAST_LOAD_FAST", "NOP", "KW_NAMES",
    )
)  # fmt: skip
"""Instructions of a function that calls methods of its arguments and does nothing else, by the
names that the tables give them in all versions of Python."""


def _only_logs(code: CodeType) -> bool:
    """Whether a method does no more than log: `self.warning(*args)`, and returns None."""
    decoded = decode(code, current_table())
    if isinstance(decoded, str) or not code.co_names or not set(code.co_names) <= _LEVELS.keys():
        return False
    ends = [b if b.name == "RETURN_CONST" else a for a, b in pairwise(decoded.ops) if _returns(b)]
    returns_none = all(op.name.endswith("_CONST") and op.argument is None for op in ends)
    return returns_none and all(op.name in _ONLY_CALLS for op in decoded.ops)


def _returns(op: Opcode) -> bool:
    return op.name in ("RETURN_VALUE", "RETURN_CONST")


def _logs_once(fn: Any) -> bool:
    """Whether it is a method of a logger that remembers what it was told (`lru_cache`), and logs
    nothing twice. What it remembers is only known when it is called, so it is always called."""
    owner, wrapped = getattr(fn, "__self__", None), getattr(fn, "__func__", None)
    if type(owner) not in (logging.Logger, logging.RootLogger):
        return False
    if type(wrapped) is not functools._lru_cache_wrapper:
        return False
    inner = wrapped.__wrapped__
    return type(inner) is FunctionType and _only_logs(inner.__code__)


def _can_be_shown(x: Any) -> bool:
    tensor = is_a(x, TensorBase)
    if type(x) in (tuple, Size):
        return all(type(v) in _SHOWN for v in x)
    # (The text of a tensor with a history names the op that made it: another one, compiled.)
    return type(x) in _SHOWN or (tensor and not x.requires_grad)


def _as_it_is_now(x: Any) -> Any:
    tensor = is_a(x, TensorBase)
    return x.clone() if tensor else x


def _log(logger: Any, level: int, place: tuple[str, int, str], message: Any, *args: Any) -> None:
    """As `logger.log`, for a line of the user's that has run before."""
    if logger is None:
        logger = logging.root
        if not logger.handlers:
            logging.basicConfig()
    if logger.isEnabledFor(level):
        file, line, name = place
        logger.handle(logger.makeRecord(logger.name, level, file, line, message, args, None, name))
