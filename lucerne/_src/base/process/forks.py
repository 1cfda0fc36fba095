"""What `os.fork` must not leave behind: locks whose holder is not in the child.

A child of `fork` has one thread, and the memory as it was. A lock that another thread held stays
held there for ever. So every lock of the package is made here (a test looks for others) and is
free in the child; and an object that remembers what another thread was doing is told to forget it.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, overload

T = TypeVar("T")

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_told: weakref.WeakSet[Forked] = weakref.WeakSet()


class Forked(Protocol):
    """What has something to forget in a forked child."""

    def forget(self) -> None: ...


def lock() -> Any:
    """`threading.Lock()`, free in a forked child."""
    made = threading.Lock()
    _locks.add(made)
    return made


def rlock() -> Any:
    """`threading.RLock()`, free in a forked child."""
    made = threading.RLock()
    _locks.add(made)
    return made


def tell(one: Forked) -> None:
    """Call `one.forget()` in each forked child, as long as `one` lives."""
    _told.add(one)


def in_child(call: Callable[[], Any]) -> None:
    """Call it in each forked child."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)


class Gate:
    """Where threads go through what must not be forked in the middle: LLVM, an import.

    `with gate:` any number of threads may be inside; `fork` waits until no other one is.
    """

    def __init__(self, patience: float = 60.0) -> None:
        self._inside: dict[int, int] = {}
        """By thread: how many times."""
        self._closed = 0
        """How many forks wait or happen."""
        self._patience = patience
        self._counting = lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._close, after_in_parent=self._open, after_in_child=self._forget
            )

    def __enter__(self) -> None:
        me = threading.get_ident()
        while True:
            with self._counting:
                if not self._closed or me in self._inside:
                    self._inside[me] = self._inside.get(me, 0) + 1
                    return
            time.sleep(_SOON)

    def __exit__(self, *_: object) -> None:
        me = threading.get_ident()
        with self._counting:
            self._inside[me] -= 1
            if not self._inside[me]:
                del self._inside[me]

    def _close(self) -> None:
        with self._counting:
            self._closed += 1
        me, end = threading.get_ident(), time.monotonic() + self._patience
        while len(self._inside) > (me in self._inside) and time.monotonic() < end:
            time.sleep(_SOON)

    def _open(self) -> None:
        with self._counting:
            self._closed -= 1

    def _forget(self) -> None:
        me = threading.get_ident()
        self._inside = {me: self._inside[me]} if me in self._inside else {}
        self._closed = 0


_IMPORTS = Gate()
"""Python's locks of modules stay held in a child as well."""


def import_module(name: str) -> Any:
    """`importlib.import_module(name)` for what is imported late."""
    found = sys.modules.get(name)
    if found is None or getattr(found.__spec__, "_initializing", False):
        with _IMPORTS:
            return importlib.import_module(name)
    return found


_SOON = 1e-4
"""Seconds: between two looks at a gate."""


class once(Generic[T]):
    """`functools.cached_property` without the lock that it has before Python 3.12: whoever held it
    is not in a forked child. Two threads may compute the same value; the last one stays."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> once[T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        found = instance.__dict__[self.name] = self.compute(instance)
        return found


def _forget() -> None:
    """Every lock is free and everyone is told, also when one of them fails."""
    for one in list(_locks):
        one._at_fork_reinit()
    failed: Exception | None = None
    for each in list(_told):
        try:
            each.forget()
        except Exception as error:
            failed = error
    if failed is not None:
        raise failed


in_child(_forget)
