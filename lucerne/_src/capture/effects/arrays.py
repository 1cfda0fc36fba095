"""Arrays of others: memory that Python code reads and writes without any hook of ours.

NumPy's arrays, `array.array`, `memoryview`: what captured code looks at in there is compared by
content. Writing to one that was there before is a graph break.
"""

from __future__ import annotations

import array
from typing import Any

import numpy as np

from lucerne._src.base.raw import is_a

ARRAYS = (np.ndarray, array.array, memoryview)
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
    return 1 << 62 if is_a(x, np.ndarray) and x.dtype.hasobject else int(x.nbytes)


def contents(x: Any) -> tuple[Any, ...]:
    """What an array holds, to be compared."""
    if is_a(x, array.array):
        return x.typecode, x.tobytes()
    if is_a(x, memoryview):
        return x.format, x.shape, x.tobytes()
    return x.dtype.str, x.shape, x.strides, x.tobytes()


def base_of(x: Any) -> Any:
    """The array whose memory it reads, itself if it has its own."""
    while is_a(x, np.ndarray) and is_a(x.base, ARRAYS):
        x = x.base
    return x.obj if is_a(x, memoryview) and is_a(x.obj, (*ARRAYS, bytearray)) else x


def written_by(fn: Any, args: Any, kwargs: Any) -> list[Any]:
    """The arrays that a native call may write to."""
    found = [kwargs["out"]] if "out" in kwargs else []
    if getattr(fn, "__name__", "") in _WRITES:
        found += [getattr(fn, "__self__", None), *args[:1]]
    flat = [y for x in found for y in (x if is_a(x, tuple) else (x,))]
    return [x for x in flat if is_a(x, ARRAYS)]
