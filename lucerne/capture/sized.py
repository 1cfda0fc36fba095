"""A second trace that knows how its sizes follow from those of the inputs.

It is recorded in step with the first one: a size that was 16 there and is 20 here, where an input
has gone from 8 to 10, is twice the size of that input. Tensors tell their sizes as `SymInt`s, so
whatever the function decides by them (`if x.shape[0] > 32`) is written down as a guard.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lucerne.base.shape import Size, wrap_dim
from lucerne.capture.recorder import Recorder
from lucerne.ir.graph import Graph, Value
from lucerne.ir.meta import TensorMeta
from lucerne.ir.op import Op
from lucerne.ir.symbols import SymInt, made, plain
from lucerne.tensor.tensor import Tensor
from lucerne.transforms.fit import Fit


class SizedRecorder(Recorder):
    """Records like `Recorder`, in step with the graph `first` of the same function.

    While it is entered, `shape`, `size()` and `numel()` of the tensors it made give `SymInt`s.
    """

    def __init__(self, whole: Callable[[Op, tuple[Any, ...]], bool], first: Graph) -> None:
        super().__init__(whole)
        self.first, self.fit = first, Fit(2)
        self.astray = False
        """The traces have parted: no more sizes are told."""
        self.sizes: dict[Any, Size] = {}
        self.hints: dict[int, tuple[Any, ...]] = {}
        """By number of a node: its arguments, with the formulas of those that are sizes."""

    def input(self, t: Any, letter: str = "s") -> Value:
        value = super().input(t)
        number = len(self.graph.inputs) - 1
        if number < len(self.first.inputs):
            self._tell(t, self.first.inputs[number], letter)
        return value

    def tangent(self, t: Any) -> Value:
        """Its sizes are those of a result, which have names or formulas already."""
        return self.input(t, "d")

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        plain_args = bare(args)
        result = super().run(op, plain_args, out, proceed)
        at = len(self.graph.nodes) - 1
        if any(a is not b for a, b in zip(args, plain_args, strict=True)):
            self.hints[at] = args
        if self.astray or at >= len(self.first.nodes) or self.first.nodes[at].op is not op:
            self.astray = True
            return result
        outs = result if isinstance(result, tuple) else (result,)
        for t, before in zip(outs, self.first.nodes[at].outputs, strict=False):
            self._tell(t, before, "d")
        return result

    def _tell(self, t: Any, value: Value, letter: str) -> None:
        """Remember the sizes of a tensor, if they were others in the first trace.

        Sizes of inputs have the names s0, s1, ...; those that nothing explains are named by the
        value they belong to, as `generalize` does.
        """
        meta, before = t._meta, value.meta
        if not isinstance(before, TensorMeta) or before.ndim != meta.ndim or before is meta:
            return
        if before.shape == meta.shape:
            return
        sizes = []
        for d, pair in enumerate(zip(before.shape, meta.shape, strict=True)):
            e = self.fit.product(pair)
            if letter == "s" and pair[0] != pair[1] and pair not in self.fit.known:
                count = sum(repr(x).startswith(letter) for x in self.fit.known.values())
                e = self.fit.name(pair, f"s{count}")
            elif e is None:
                e = self.fit.name(pair, f"d{value.index}_{d}")
            sizes.append(made(pair[1], e))
        self.sizes[_place(t)] = tuple.__new__(Size, sizes)

    # ---- what tensors tell ---------------------------------------------------------------------

    def __enter__(self) -> Any:
        sizes = self.sizes
        self._before = {name: Tensor.__dict__[name] for name in _MEMBERS}

        def shape_of(t: Any) -> Size:
            found: Size = sizes.get(_place(t), t._meta.shape)
            return found

        def size(t: Any, dim: int | None = None) -> Any:
            shape = shape_of(t)
            return shape if dim is None else shape[wrap_dim(dim, len(shape), allow_scalar=False)]

        def numel(t: Any) -> int:
            return math.prod(shape_of(t))

        for name, member in zip(_MEMBERS, (property(shape_of), size, numel, numel), strict=True):
            setattr(Tensor, name, member)
        return super().__enter__()

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        for name, member in self._before.items():
            setattr(Tensor, name, member)


_MEMBERS = ("shape", "size", "numel", "nelement")


def _place(t: Any) -> Any:
    return id(t._storage.buffer), t._offset, t._meta


def bare(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numbers as the graph keeps them, however deep they stand."""
    return tuple([_bare(a) for a in args])


def _bare(a: Any) -> Any:
    kind = type(a)
    if kind is SymInt:
        return plain(a)
    if isinstance(a, tuple) or kind is list:
        parts = [_bare(x) for x in a]
        if any(x is not y for x, y in zip(parts, a, strict=True)):
            return parts if kind is list else tuple(parts)
    return a
