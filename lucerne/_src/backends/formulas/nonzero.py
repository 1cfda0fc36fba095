"""Positions of elements that aren't zero: counted in pieces, then each piece knows its place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne._src.backends.contract.tensor_view import Room
from lucerne._src.backends.formulas.frame import FormulaExecutable, FormulaTensor, Frame
from lucerne._src.base import dtype as dt
from lucerne._src.ir.graph import Graph, one_op_graph
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.scalar.protocol import s

_PIECE = 256


def _walk(f: Frame, input: FormulaTensor, piece: Any, found: Any) -> None:
    """Call `found(coordinates)` for each element of a piece that isn't zero."""
    numel = f.size(input.meta.numel)
    with f.loop(_PIECE) as i:
        k = piece * _PIECE + i
        with f.when(k < numel):
            at = f.unravel(k, input.shape)
            with f.when(f.value(input(*at), dt.bool_)):
                found(at)


def _count(f: Frame, input: FormulaTensor) -> None:
    """Into element i + 1: how many stand in the pieces up to i."""
    pieces = f.out.shape[0] - 1
    with f.kernel((pieces,)) as (piece,):
        count = f.variable(0, dt.int64)
        _walk(f, input, piece, lambda at: count.set(count.now + 1))
        f.out.put((piece + 1,), count.now)
    with f.kernel((1,)):
        total = f.variable(0, dt.int64)
        f.out.put((f.value(0, dt.int64),), 0)
        with f.loop(pieces) as i:
            total.set(total.now + f.out(i + 1))
            f.out.put((i + 1,), total.now)


def _write(f: Frame, input: FormulaTensor) -> None:
    positions, counts = f.outs
    with f.kernel((counts.shape[0] - 1,)) as (piece,):
        row = f.variable(counts(piece), dt.int64)

        def found(at: Sequence[Any]) -> None:
            for d, i in enumerate(at):
                positions.put((row.now, f.value(d, dt.int64)), s.cast(i, dt.int64))
            row.set(row.now + 1)

        _walk(f, input, piece, found)


class Nonzero:
    """The executable of `nonzero`: of all bytes, the number of positions comes to the host."""

    def __init__(self, graph: Graph, backend: Any) -> None:
        (node,) = graph.nodes
        meta: TensorMeta = node.args[0].meta
        self.op, self.meta, self.backend = node.op, meta, backend
        pieces = math.ceil(meta.numel / _PIECE)
        self.counts = make_meta(dt.int64, (pieces + 1,), None, meta.device)
        self.count = FormulaExecutable(
            one_op_graph(self.op, (meta,), (self.counts,)), _count, backend
        )

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        counts = Room(self.counts, self.backend)
        self.count(inputs, [counts])
        whole: Any = self.backend.to_host(counts._storage.buffer)
        total = int(whole.view(np.int64)[self.counts.numel - 1])
        shape = make_meta(dt.int64, (total, self.meta.ndim), None, self.meta.device)
        found = Room(shape, self.backend)
        metas = (shape, self.counts)
        write = FormulaExecutable(one_op_graph(self.op, (self.meta,), metas), _write, self.backend)
        write(inputs, [found, counts])
        return found
