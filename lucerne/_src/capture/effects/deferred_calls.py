"""Calls that can wait: `print` and logging tell somebody something and give nothing back.

A graph has no moment at which they could be made, so they are side effects: noted in their order
and made when the part has run, with what they were told. A tensor is shown as it was at that
moment. A log record keeps the user's line, since by then nobody stands there any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lucerne._src.base.shape import Size
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
    owner, name = getattr(fn, "__self__", None), getattr(fn, "__name__", "")
    of_logger = type(owner) in (logging.Logger, logging.RootLogger) and name in _LEVELS
    if kwargs or not args or not (of_logger or fn in _ROOT):
        return None
    logger, level = (owner, _LEVELS[name]) if of_logger else (None, _ROOT[fn])
    place = (frame.code.co_filename, frame.line, frame.code.co_name)
    return DeferredCall(_log, (logger, level, place, *map(_as_it_is_now, args)), {})


def _can_be_shown(x: Any) -> bool:
    tensor = isinstance(x, TensorBase)
    if type(x) in (tuple, Size):
        return all(type(v) in _SHOWN for v in x)
    # (The text of a tensor with a history names the op that made it: another one, compiled.)
    return type(x) in _SHOWN or (tensor and not x.requires_grad)


def _as_it_is_now(x: Any) -> Any:
    tensor = isinstance(x, TensorBase)
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
