"""What a convolution is to the planner: arrays of five dimensions and maps between positions.

`conv` and `conv_input` are one thing here, a `Gather`: every output position collects taps of the
source. Along each dimension outputs fall into classes (one for `conv`; for the transpose of a
stride s, the s residues), and within a class output `start + step * a` reads, for each of its taps,
source position `in_step * a + offset`. Positions outside the source count as zero.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from lucerne._src.base import dtype as dt
from lucerne._src.ir.meta import TensorMeta

SPATIAL = 3


@dataclass(frozen=True)
class Array:
    """A tensor (N, C, D, H, W); dimensions that a smaller one lacks have size 1."""

    dtype: dt.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def space(self) -> tuple[int, ...]:
        return self.shape[2:]


def spread(meta: TensorMeta) -> Array:
    missing = SPATIAL + 2 - meta.ndim
    shape = (*meta.shape[:2], *[1] * missing, *meta.shape[2:])
    strides = (*meta.strides[:2], *[0] * missing, *meta.strides[2:])
    return Array(meta.dtype, shape, strides)


def widened(values: Sequence[int], fill: int) -> tuple[int, ...]:
    """A setting for three dimensions."""
    return (*[fill] * (SPATIAL - len(values)), *values)


@dataclass(frozen=True)
class ConvSetting:
    """stride, padding, dilation for D, H, W, and groups."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @classmethod
    def of(
        cls, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
    ) -> ConvSetting:
        return cls(widened(stride, 1), widened(padding, 0), widened(dilation, 1), groups)


@dataclass(frozen=True)
class Class:
    """Outputs `start + step * a`, a < count; taps are pairs (tap, offset), offsets rising."""

    start: int
    step: int
    count: int
    in_step: int
    taps: tuple[tuple[int, int], ...]

    @property
    def adjacent(self) -> bool:
        """Whether the taps read neighbouring positions."""
        offsets = [offset for _, offset in self.taps]
        return all(b - a == 1 for a, b in itertools.pairwise(offsets))


@dataclass(frozen=True)
class Gather:
    """One convolution or transposed convolution. Strides of the weights are by role:
    `lane` steps to the next output channel of a group, `reduced` to the next channel summed."""

    source: Array
    target: Array
    weight_dtype: dt.dtype
    groups: int
    lanes: int
    reduced: int
    w_lane: int
    w_reduced: int
    w_group: int
    w_taps: tuple[int, ...]
    taps: tuple[int, ...]
    classes: tuple[tuple[Class, ...], ...]
    bias: bool

    @property
    def low(self) -> tuple[int, ...]:
        """The least offset of any tap, by dimension."""
        return tuple(min(self._offsets(d), default=0) for d in range(SPATIAL))

    @property
    def high(self) -> tuple[int, ...]:
        return tuple(max(self._offsets(d), default=0) for d in range(SPATIAL))

    def _offsets(self, d: int) -> list[int]:
        return [offset for c in self.classes[d] for _, offset in c.taps]

    @property
    def counts(self) -> tuple[int, ...]:
        """The most outputs of any class, by dimension."""
        return tuple(max(c.count for c in self.classes[d]) for d in range(SPATIAL))

    @property
    def in_step(self) -> tuple[int, ...]:
        return tuple(self.classes[d][0].in_step for d in range(SPATIAL))

    @property
    def step(self) -> tuple[int, ...]:
        return tuple(self.classes[d][0].step for d in range(SPATIAL))

    @property
    def inside(self) -> bool:
        """Whether no output reads outside the source."""
        ends = (
            (count - 1) * step + high < size
            for count, step, high, size in zip(
                self.counts, self.in_step, self.high, self.source.space, strict=True
            )
        )
        return min(self.low) >= 0 and all(ends)

    @property
    def work(self) -> int:
        """Multiplications."""
        taps = math.prod(self.taps)
        inner = math.prod(self.source.space) if self.step != (1, 1, 1) else 0
        outputs = inner or math.prod(self.target.space)
        return self.target.shape[0] * self.groups * self.lanes * self.reduced * outputs * taps


def thinned(x: Array, w: Array, y: Array, s: ConvSetting) -> tuple[Array, ConvSetting]:
    """A dimension with one tap and a stride needs every so-maniest position only: as a view of the
    others, with stride one. (Not columns of planes, which would no longer be neighbours.)"""
    shape, strides, steps = list(x.shape), list(x.strides), list(s.stride)
    for d in range(SPATIAL):
        neighbours = d == SPATIAL - 1 and x.strides[1] != 1
        if w.space[d] == 1 and s.padding[d] == 0 and s.stride[d] > 1 and not neighbours:
            shape[2 + d], steps[d] = y.space[d], 1
            strides[2 + d] *= s.stride[d]
    made = dataclasses.replace(s, stride=tuple(steps))
    return Array(x.dtype, tuple(shape), tuple(strides)), made


def conv_gather(x: Array, w: Array, y: Array, s: ConvSetting, bias: bool) -> Gather:
    lanes = w.shape[0] // s.groups
    classes = tuple(
        (
            Class(
                0, 1, y.space[d], s.stride[d],
                tuple((k, k * s.dilation[d] - s.padding[d]) for k in range(w.space[d])),
            ),
        )
        for d in range(SPATIAL)
    )  # fmt: skip
    return Gather(
        x, y, w.dtype, s.groups, lanes, w.shape[1], w.strides[0], w.strides[1],
        lanes * w.strides[0], w.strides[2:], w.space, classes, bias,
    )  # fmt: skip


def input_gather(g: Array, w: Array, y: Array, s: ConvSetting, bias: bool) -> Gather:
    """The transpose: outputs of each residue of the stride read their own taps."""
    reduced = w.shape[0] // s.groups
    classes = tuple(
        tuple(
            _residue(r, y.space[d], w.space[d], s.stride[d], s.padding[d], s.dilation[d])
            for r in range(min(s.stride[d], y.space[d]))
        )
        for d in range(SPATIAL)
    )
    return Gather(
        g, y, w.dtype, s.groups, w.shape[1], reduced, w.strides[1], w.strides[0],
        reduced * w.strides[0], w.strides[2:], w.space, classes, bias,
    )  # fmt: skip


def _residue(r: int, size: int, kernel: int, stride: int, padding: int, dilation: int) -> Class:
    found = [
        ((r + padding - k * dilation) // stride, k)
        for k in range(kernel)
        if (r + padding - k * dilation) % stride == 0
    ]
    taps = tuple((k, offset) for offset, k in sorted(found))
    return Class(r, stride, (size - r + stride - 1) // stride, 1, taps)


def flattened(p: Gather) -> Gather:
    """A 1x1 convolution whose positions lie evenly in memory, as one long row.

    The row may hold more positions than a dimension had (images follow each other), so its step is
    1: a stride that a dimension of one position has never taken must not be taken by the row.
    """
    whole = all(
        len(row) == 1 and row[0].in_step == 1 and [o for _, o in row[0].taps] == [0]
        for row in p.classes
    )
    if not whole or p.counts != p.source.space:
        return p
    source, target = p.source, p.target
    for outer, inner in ((2, 3), (3, 4), (0, 4)):
        if _merges(source, outer, inner) and _merges(target, outer, inner):
            source, target = _merged(source, outer, inner), _merged(target, outer, inner)
    classes = tuple(
        (dataclasses.replace(p.classes[d][0], count=target.space[d], step=1),)
        for d in range(SPATIAL)
    )
    return dataclasses.replace(p, source=source, target=target, classes=classes)


def _merges(a: Array, outer: int, inner: int) -> bool:
    between = a.shape[outer + 1 : inner] if outer else a.shape[2:inner]
    if math.prod(between) != 1:
        return False
    even = a.strides[outer] == a.shape[inner] * a.strides[inner]
    return even or 1 in (a.shape[outer], a.shape[inner])


def _merged(a: Array, outer: int, inner: int) -> Array:
    shape, strides = list(a.shape), list(a.strides)
    if shape[inner] == 1:
        strides[inner] = strides[outer]
    shape[inner] *= shape[outer]
    shape[outer] = 1
    return Array(a.dtype, tuple(shape), tuple(strides))
