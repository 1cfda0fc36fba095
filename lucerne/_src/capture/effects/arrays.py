"""Arrays of others: memory that Python code reads and writes without any hook of ours.

NumPy's arrays, `array.array`, `memoryview`: what captured code looks at in there is compared by
content. Writing to one that was there before is a graph break.
"""

from __future__ import annotations

import array
import ctypes
import decimal
import io
import mmap
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from lucerne._src.base.raw import is_a

ARRAYS = (np.ndarray, array.array, memoryview)
BUFFERS = (*ARRAYS, bytearray)
MOST_BYTES = 1 << 16
"""Of larger ones nothing is compared: looking at them is a break."""
_WRITES = frozenset(
    (
        "fill", "sort", "partition", "put", "resize", "itemset", "setfield", "setflags", "byteswap",
        "append", "extend", "insert", "pop", "remove", "reverse", "fromlist", "frombytes",
        "fromfile", "fromunicode", "release", "__setitem__", "__delitem__", "copyto", "place",
        "putmask", "fill_diagonal", "put_along_axis", "at", "shuffle",
    )
)  # fmt: skip
"""Methods of arrays and functions of NumPy that write to one."""


def size_of(x: Any) -> int:
    """How many bytes an array holds; objects in it count as too many."""
    if is_a(x, array.array):
        return len(x) * x.itemsize
    if is_a(x, bytearray):
        return len(x)
    return 1 << 62 if is_a(x, np.ndarray) and x.dtype.hasobject else int(x.nbytes)


def contents(x: Any) -> tuple[Any, ...]:
    """What an array holds, to be compared."""
    if is_a(x, array.array):
        return x.typecode, x.tobytes()
    if is_a(x, memoryview):
        return x.format, x.shape, x.tobytes()
    if is_a(x, bytearray):
        return (bytes(x),)
    return x.dtype.str, x.shape, x.strides, x.flags.writeable, x.tobytes()


def base_of(x: Any) -> Any:
    """The array whose memory it reads, itself if it has its own."""
    while is_a(x, np.ndarray) and is_a(x.base, ARRAYS):
        x = x.base
    return x.obj if is_a(x, memoryview) and is_a(x.obj, (*ARRAYS, bytearray)) else x


def owner_of(x: Any) -> Any:
    """The object whose memory is read or written through it: an array, a view, an iterator over
    one. What is found at the end may be no array (a file's map, memory of a tensor)."""
    for _ in range(_DEEPEST):
        if is_a(x, memoryview):
            inner = x.obj
        elif is_a(x, _VIEWS):
            inner = x.base
        else:
            return x
        if inner is None:
            return x
        x = inner
    return x


def is_opaque(x: Any) -> bool:
    """Whether it is an object of native code whose content no guard can compare: memory that C
    made, what NumPy has besides arrays, containers that the collector empties, numbers whose
    operators ask the context.

    >>> from lucerne._src.capture.effects.arrays import is_opaque
    >>> is_opaque(np.ones(2).flat), is_opaque(np.ones(2)), is_opaque(np.float32(1))
    (True, False, False)
    """
    return is_a(x, _OPAQUE)


_OPAQUE = (
    ctypes.c_int.__mro__[1], ctypes.Structure, ctypes.Union, ctypes.Array,
    type(ctypes.pointer(ctypes.c_int())).__mro__[1], np.flatiter, np.nditer, np.void, np.poly1d,
    np.ma.MaskedArray, type(np.ones(1).flags), np.broadcast, np.ndenumerate, np.ndindex,
    decimal.Decimal, decimal.Context, weakref.WeakValueDictionary, weakref.WeakKeyDictionary,
    weakref.WeakSet,
)  # fmt: skip


def unguarded(x: Any, tensors: Iterable[Any], shared: set[int]) -> str:
    """Why what an array holds can't be compared at each call; empty: it can. `tensors`: real ones
    from outside; `shared`: ids of arrays that a tensor was made of meanwhile."""
    owner = owner_of(x)
    if id(owner) in shared or not is_a(owner, _OWN):
        return f"a {type(x).__name__} whose memory is a tensor's as well"
    if size_of(x) > MOST_BYTES:
        return f"a large {type(x).__name__}"
    found = None
    for t in tensors:
        storage = getattr(t, "_storage", None)
        if storage is None or t._meta.device.type != "cpu":
            continue
        found = _place(owner) if found is None else found
        begin = storage.data_ptr()
        if begin < found[1] and found[0] < begin + storage.nbytes:
            return f"a {type(x).__name__} whose memory is a tensor's as well"
    return ""


_OWN = (*ARRAYS, bytearray, bytes, mmap.mmap, array.array, type(io.BytesIO().getbuffer().obj))


def _place(owner: Any) -> tuple[int, int]:
    """Where the memory of an array begins and ends."""
    if is_a(owner, np.ndarray):
        begin, end = np.lib.array_utils.byte_bounds(owner)
        return begin, end
    flat = np.frombuffer(owner, np.uint8)
    return flat.ctypes.data, flat.ctypes.data + flat.nbytes


SHARING = frozenset(("from_numpy", "as_tensor", "asarray", "frombuffer", "from_dlpack"))
"""Functions of ours that give a tensor over the memory of an array."""
_DEEPEST = 100
_VIEWS = (np.ndarray, np.flatiter, np.void)


def written_by(fn: Any, args: Any, kwargs: Any) -> list[Any]:
    """The arrays that a native call may write to."""
    found = [kwargs["out"]] if "out" in kwargs else []
    if getattr(fn, "__name__", "") in _WRITES:
        found += [getattr(fn, "__self__", None), *args[:1]]
    flat = [y for x in found for y in (x if is_a(x, tuple) else (x,))]
    return [x for x in flat if is_a(x, ARRAYS)]
