"""Memory that native code writes to while a function is traced: arrays, buffers.

Which functions write to what they are given is not told from their names (`np.add(a, b, a)`, a
ufunc in a `partial`, `Struct.pack_into`): what a call could get at is compared with what it was. If
it differs it gets that back, and the call is a break, which writes when it runs as Python.
"""

from __future__ import annotations

import functools
import gc
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from lucerne._src.base.raw import is_a, own_dict
from lucerne._src.capture.effects.arrays import ARRAYS, MOST_BYTES, contents, owner_of, size_of
from lucerne._src.capture.effects.objects import content_of, is_iterator, is_plain
from lucerne._src.tensor.base import TensorBase

_CONTAINERS = (list, tuple, set, frozenset, deque)
_DEEPEST = 5
_MANY = 256
"""Of larger containers nothing is looked at."""
_MOST_OBJECTS = 1000
_BUFFERS = (*ARRAYS, bytearray)


class MemoryWrites:
    """The memory that is reached from what is given to a call, and what it held before."""

    __slots__ = ("before", "functions")

    def __init__(self, given: Iterable[Any], is_new: Callable[[Any], bool]) -> None:
        self.before: list[tuple[Any, Any]] = []
        self.functions: list[types.FunctionType] = []
        """What native code may call, directly or by way of others."""
        seen: set[int] = set()
        for x, place in _reached(given):
            if is_a(x, types.FunctionType):
                self.functions.append(x)
                continue
            owner = owner_of(x)
            if id(owner) in seen or not is_a(owner, _BUFFERS):
                continue
            # Of arrays the collector knows nothing: what lies in an old place is old.
            if is_new(owner) and (place is None or is_new(place)):
                continue
            seen.add(id(owner))
            if is_a(owner, bytearray) or size_of(owner) <= MOST_BYTES:
                self.before.append((owner, _held(owner)))

    def changed(self) -> Any:
        """Something that holds something else now: all of it has its content back. None: nothing
        does."""
        found = None
        for owner, held in self.before:
            if _held(owner) != held:
                found = owner
                _put_back(owner, held)
        return found


def _held(owner: Any) -> Any:
    return bytes(owner) if is_a(owner, bytearray) else contents(owner)


def _put_back(owner: Any, held: Any) -> None:
    if is_a(owner, bytearray):
        bytearray.__setitem__(owner, slice(None), held)
        return
    if not is_a(owner, np.ndarray):
        memory = memoryview(owner).cast("B")
        memory[:] = held[-1]
        return
    was = np.frombuffer(held[-1], np.uint8)
    writeable = owner.flags.writeable
    owner.flags.writeable = True
    if owner.dtype.str != held[0]:
        owner.dtype = np.dtype(held[0])
    plain = owner.view(np.ndarray)
    plain[...] = was.view(plain.dtype).reshape(plain.shape)
    owner.flags.writeable = writeable


def _reached(given: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Arrays, buffers and functions that native code might get at through what it is given, and
    what each was found in (None: it is given itself)."""
    todo: list[tuple[Any, Any, int]] = [(x, None, 0) for x in given]
    seen: set[int] = set()
    while todo and len(seen) < _MOST_OBJECTS:
        x, place, depth = todo.pop()
        if is_plain(x) or id(x) in seen or is_a(x, (type, types.ModuleType, TensorBase)):
            continue
        seen.add(id(x))
        if is_a(x, _BUFFERS):
            yield x, place
            continue
        if is_a(x, types.FunctionType):
            yield x, place
        if depth >= _DEEPEST:
            continue
        if is_a(x, types.FunctionType):
            todo += [(part, at, depth + 1) for part, at in _of_function(x)]
        else:
            todo += [(part, x, depth + 1) for part in _inside(x)]


def _inside(x: Any) -> list[Any]:
    if is_a(x, _CONTAINERS):
        parts = list(x) if len(x) <= _MANY else []
    elif is_a(x, dict):
        parts = list(dict.values(x)) if len(x) <= _MANY else []
    elif is_a(x, _BOUND):
        return [x.__self__, getattr(x, "__func__", None)]
    elif is_a(x, functools.partial):
        return [x.func, *x.args, *x.keywords.values()]
    elif is_iterator(x):
        return gc.get_referents(x)
    else:
        parts = [getattr(x, "pyfunc", None)] if is_a(x, np.vectorize) else []
    own = own_dict(x)
    return [*parts, *dict.values(own)] if is_a(own, dict) else parts


_BOUND = (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)


def _of_function(fn: types.FunctionType) -> Iterator[tuple[Any, Any]]:
    """What a function finds, and where: in its cells, defaults, and globals that it names."""
    for cell in fn.__closure__ or ():
        for content in content_of(cell):
            yield content, cell
    for default in fn.__defaults__ or ():
        yield default, fn
    for name in fn.__code__.co_names:
        yield fn.__globals__.get(name), fn.__globals__
