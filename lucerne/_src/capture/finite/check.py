"""Whether all numbers of some tensors are finite: one small program for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lucerne._src import backends
from lucerne._src.base import dtype as dt
from lucerne._src.ir import dispatch
from lucerne._src.ir.graph import Graph, Value
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Op
from lucerne._src.ops.pointwise.arithmetic import add2, mul
from lucerne._src.ops.reduce.folds import sum as sum_
from lucerne._src.pipeline.road import Road
from lucerne._src.tensor.autograd.ranges import counts
from lucerne._src.tensor.base import new_tensor
from lucerne._src.tensor.interop.outside import bits
from lucerne._src.transforms.rewrite import result_metas

_MUL, _SUM, _ADD = (f.op for f in (mul, sum_, add2))  # type: ignore[attr-defined]


def is_read(meta: Any) -> bool:
    """Whether a tensor has numbers that may be infinite or nan."""
    return isinstance(meta, TensorMeta) and meta.dtype.category is dt.FLOAT and meta.numel > 0


class FiniteCheck:
    """Made for the metas of some tensors; called with those, it says whether all are finite.

    A finite number times 0 is 0, any other is nan: so is the sum of all of them. It is written to
    one number that stays where it is: finding the memory of a new tensor takes Python longer than
    the program takes for a small one.
    """

    def __init__(self, metas: Sequence[TensorMeta], among: Iterable[int] | None = None) -> None:
        """Tensors of other kinds than `is_read` are not looked at. `among`: only these are."""
        self.metas = list(metas)
        self.read = [
            k for k in (range(len(self.metas)) if among is None else among) if is_read(metas[k])
        ]
        found = [metas[k] for k in self.read]
        self._launch: Any = None
        self.runner: Any = None
        if found and len({m.device for m in found}) == 1:
            self.number = new_tensor(make_meta(dt.float32, (), None, found[0].device))
            held = bits(self.number)  # (of memory that is not the host's: a copy)
            self._value = held.item if held.flags.writeable else self.number.item
            road = Road(backends.get(found[0].device.type))
            self.runner = road.compiled(_graph(found, self.number._meta))
            self._launch = self.runner.launch

    def __call__(self, tensors: Sequence[Any]) -> bool:
        return self.are_finite(self.taken(tensors))

    def is_run_by(self, runner: Any) -> bool:
        """Let a program look by itself, as part of each of its runs. False: it can't."""
        own = self.runner
        return own is not None and bool(runner.begin_checks(own, self.number, self.read))

    def taken(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Those that are looked at."""
        return tuple([tensors[k] for k in self.read])

    def are_finite(self, given: tuple[Any, ...]) -> bool:
        """Of what `taken` gave."""
        if not given:
            return True
        if self._launch is None or self._launch((self.number,), given, ()) is None:
            with dispatch.unseen():
                return all(counts(t) == (0, 0) for t in given)
        return bool(self._value() == 0)


def _graph(metas: Sequence[TensorMeta], result: TensorMeta) -> Graph:
    graph = Graph()
    target = graph.input(result)
    total: Value | None = None
    for v in [graph.input(meta) for meta in metas]:
        every = tuple(range(len(v.meta.shape)))
        nought = _call(graph, _MUL, (v, 0.0))
        found = _call(graph, _SUM, (nought, every, False, dt.float32)) if every else nought
        total = found if total is None else _call(graph, _ADD, (total, found))
    assert total is not None
    graph.writes = [(target, total)]
    return graph


def _call(graph: Graph, op: Op, args: tuple[Any, ...]) -> Value:
    return graph.call(op, args, result_metas(op, args))[0]
