"""Errors on their way from a worker to the program."""

from __future__ import annotations

import builtins
import pickle
import traceback
from typing import Any

_SHOWN_KEYS = 8


class KeyErrorMessage(str):
    """A KeyError shows the repr of its argument: this one keeps its line breaks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception as text, raised again with its type in another process."""

    def __init__(self, error: BaseException, where: str, sample: str = "") -> None:
        self.exc_type = type(error)
        self.exc_msg = "".join(traceback.format_exception(error))
        self.where = where
        self.sample = sample

    def __getstate__(self) -> dict[str, Any]:
        """A type that can't be sent (defined inside a function) stays behind."""
        state = dict(self.__dict__)
        try:
            pickle.dumps(self.exc_type)
        except Exception:
            state["exc_type"] = RuntimeError
        return state

    def text(self) -> str:
        sample = f"\n{self.sample}" if self.sample else ""
        name = self.exc_type.__name__
        return f"Caught {name} {self.where}.\nOriginal {self.exc_msg}{sample}"

    def reraise(self) -> None:
        """Raise the exception here; a type that can't be made from a text becomes RuntimeError."""
        message = self.text()
        if self.exc_type is builtins.KeyError:
            raise KeyError(KeyErrorMessage(message))
        if hasattr(self.exc_type, "message") or self._takes_message():
            raise self.exc_type(message=message)  # type: ignore[call-arg]
        try:
            made = self.exc_type(message)
        except Exception:
            made = RuntimeError(message)
        raise made

    def _takes_message(self) -> bool:
        made = getattr(self.exc_type, "__init__", None)
        code = getattr(made, "__code__", None)
        return code is not None and "message" in code.co_varnames[1 : code.co_argcount]


def describe_keys(keys: Any) -> str:
    """The keys of a batch, in so few words that they fit a message."""
    if not isinstance(keys, list | tuple):
        return repr(keys)
    shown = ", ".join(repr(key) for key in keys[:_SHOWN_KEYS])
    return f"[{shown}{', ...' if len(keys) > _SHOWN_KEYS else ''}]"
