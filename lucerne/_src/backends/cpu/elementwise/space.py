"""The iteration space of an element-wise kernel: which loops visit every element once.

Dimensions are put in the memory order of the first operand (the output), dimensions of size one
vanish, and neighbours that all operands walk in one stride merge. What is left are sizes and byte
strides, innermost first, and for each operand how the innermost loop moves through it:

* BROADCAST: it stands still;
* UNIT: from one element to the next in memory;
* BACKWARD: from one element to the one before it;
* STRIDED: with some other step;
* TURNED: with some other step, but the second loop walks it element by element (a transpose).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from lucerne._src.ir.meta import TensorMeta

BROADCAST, UNIT, BACKWARD, STRIDED, TURNED = "b", "u", "r", "s", "t"

_TILE_WORTH = 8
"""A transposed pair of dimensions smaller than this is walked with a stride instead."""


class Space:
    """Sizes, byte strides per operand (both innermost first) and the way of each operand."""

    __slots__ = ("sizes", "strides", "ways")

    def __init__(self, sizes: Sequence[int], strides: Sequence[Sequence[int]], ways: str) -> None:
        self.sizes = tuple(sizes)
        self.strides = tuple(tuple(s) for s in strides)
        self.ways = ways

    def __repr__(self) -> str:
        return f"Space({self.sizes}, {self.strides}, {self.ways!r})"

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def numel(self) -> int:
        return prod(self.sizes)

    @property
    def flat(self) -> bool:
        """Whether one loop over consecutive (or standing) elements does everything."""
        return self.rank <= 1 and not {STRIDED, BACKWARD} & set(self.ways)

    @property
    def turned(self) -> bool:
        return TURNED in self.ways


def iteration_space(shape: Sequence[int], operands: Sequence[tuple[Sequence[int], int]]) -> Space:
    """The space of operands given as (byte strides over `shape`, bytes of an element)."""
    dims = [d for d, n in enumerate(shape) if n != 1]
    dims.sort(key=lambda d: [abs(strides[d]) for strides, _ in operands])
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in operands]
    for d in dims:
        here = [strides[d] for strides, _ in operands]
        if sizes and all(s[-1] * sizes[-1] == h for s, h in zip(steps, here, strict=True)):
            sizes[-1] *= shape[d]
            continue
        sizes.append(shape[d])
        for s, h in zip(steps, here, strict=True):
            s.append(h)
    items = [item for _, item in operands]
    _bring_turned_dim_second(sizes, steps, items)
    return Space(sizes, steps, "".join(_ways(sizes, steps, items)))


def broadcast_strides(meta: TensorMeta, ndim: int) -> tuple[int, ...]:
    """Byte strides of a tensor that is broadcast to `ndim` dimensions: zero where it repeats."""
    missing = ndim - meta.ndim
    return (0,) * missing + tuple(
        0 if n == 1 else s for n, s in zip(meta.shape, meta.byte_strides, strict=True)
    )


def space_of(out: TensorMeta, others: Sequence[TensorMeta]) -> Space:
    """The space of an output and of operands that broadcast to it."""
    shape = tuple(out.shape)
    metas = (out, *others)
    return iteration_space(
        shape, [(broadcast_strides(m, len(shape)), m.dtype.itemsize) for m in metas]
    )


def _bring_turned_dim_second(sizes: list[int], steps: list[list[int]], items: list[int]) -> None:
    """If an operand runs element by element along some outer loop, make that the second loop."""
    if len(sizes) < 3 or sizes[0] < _TILE_WORTH:
        return
    for s, item in zip(steps, items, strict=True):
        if s[0] in (0, item) or item not in s:
            continue
        d = s.index(item)
        if d > 1 and sizes[d] >= _TILE_WORTH:
            for values in (sizes, *steps):
                values.insert(1, values.pop(d))
            return


def _ways(sizes: list[int], steps: list[list[int]], items: list[int]) -> list[str]:
    if not sizes:
        return [UNIT] * len(items)
    tiles = len(sizes) > 1 and all(n >= _TILE_WORTH for n in sizes[:2])
    ways = []
    for k, (s, item) in enumerate(zip(steps, items, strict=True)):
        if s[0] == item:
            ways.append(UNIT)
        elif s[0] == 0 and k:
            ways.append(BROADCAST)
        elif s[0] == -item and k:
            ways.append(BACKWARD)
        elif k and tiles and s[1] == item:
            ways.append(TURNED)
        else:
            ways.append(STRIDED)
    return ways


def outer_words(space: Space, inner: int) -> list[int]:
    """Sizes and strides of the loops outside the `inner` innermost ones, as kernels read them.

    One record per loop, outermost last: its size, then the byte stride of every operand.
    """
    words: list[int] = []
    for d in range(inner, space.rank):
        words += [space.sizes[d], *(s[d] for s in space.strides)]
    return words
