"""An exported program with what it takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lucerne._src.base.process import forks
from lucerne._src.serve.http import HTTPError
from lucerne._src.serve.tensors import KIND_OF, Array
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.autograd.modes import no_grad
from lucerne._src.tensor.tensor import Tensor
from lucerne.export import blueprint as bp
from lucerne.export.errors import ArgumentError
from lucerne.export.file import load

_CLIENTS = (ArgumentError, IndexError, ValueError)
"""What a program raises for data that it can't take."""


@dataclass(frozen=True)
class Port:
    """A tensor that goes in or comes out; sizes that may change are -1."""

    name: str
    kind: str
    shape: tuple[int, ...]

    def told(self) -> dict[str, Any]:
        """As the protocol has it."""
        return {"name": self.name, "datatype": self.kind, "shape": list(self.shape)}


class ServedProgram:
    """One version of a model: loaded, compiled, and asked what it takes.

    `most_rows` is how many rows may go in at once, by the range of the size that is first in all
    inputs and outputs; 0 where there is none such: requests then run one by one.
    """

    def __init__(self, path: Path) -> None:
        program = load(path)
        plan = program.plan
        self._lock = forks.lock()
        self.run_module = program.compiled()
        arguments = [(n, i) for n, i in enumerate(plan.inputs) if i.kind == bp.ARGUMENT]
        if plan.in_shape[1][1][1] or len(arguments) != len(plan.in_leaves):
            raise ValueError("the program takes arguments by name, or such that are no tensors")
        if any(x is not bp.TENSOR for x in plan.out_leaves):
            raise ValueError("the program gives back something that is no tensor")
        self.arguments = [i.leaf for _, i in arguments]
        first, second = (_sizes(plan, k) for k in (0, 1))
        ins, more_ins = ([metas[n] for n, _ in arguments] for metas in (first[1], second[1]))
        outs, more_outs = (s[2][: len(plan.out_leaves)] for s in (first, second))
        self.inputs = [
            _port(i.name, a, b) for (_, i), a, b in zip(arguments, ins, more_ins, strict=True)
        ]
        self.outputs = [
            _port(f"output{n}", a, b) for n, (a, b) in enumerate(zip(outs, more_outs, strict=True))
        ]
        self.most_rows = self._rows(
            plan, first[0], second[0], [*ins, *outs], [*more_ins, *more_outs]
        )

    def _rows(self, plan: Any, one: Any, two: Any, metas: list[Any], others: list[Any]) -> int:
        """The largest number of rows, if one size is the first of everything, as it is."""
        if any(not m.ndim for m in metas) or not one:
            return 0
        for symbol, least in one.items():
            moved = all(
                a.shape[0] == least and b.shape[0] == two[symbol]
                for a, b in zip(metas, others, strict=True)
            )
            if moved and two[symbol] != least:
                most: int = plan.ranges[symbol].most
                return most
        return 0

    def checked(self, given: Mapping[str, Array]) -> list[Array]:
        """Arrays in the order of the arguments, if they are what the program takes."""
        names = [p.name for p in self.inputs]
        if set(given) != set(names):
            raise HTTPError(400, f"the inputs are {', '.join(names)}; given: {', '.join(given)}")
        for port in self.inputs:
            a = given[port.name]
            fits = len(a.shape) == len(port.shape) and all(
                want in (-1, n) for want, n in zip(port.shape, a.shape, strict=True)
            )
            if KIND_OF[a.dtype] != port.kind or not fits:
                raise HTTPError(
                    400,
                    f"input {port.name!r} is {port.kind}{list(port.shape)}, not "
                    f"{KIND_OF[a.dtype]}{list(a.shape)}",
                )
        return [given[name] for name in names]

    def run(self, arrays: list[Array]) -> list[Array]:
        """One call of the program; one at a time."""
        leaves = [lu.from_numpy(np.ascontiguousarray(a)) for a in arrays]
        ordered = [
            t for _, t in sorted(zip(self.arguments, leaves, strict=True), key=lambda p: p[0])
        ]
        try:
            with self._lock, no_grad():
                made = self.run_module(*ordered)
        except _CLIENTS as error:
            raise HTTPError(400, str(error)) from None
        found = [made] if isinstance(made, Tensor) else _tensors(made)
        return [t.numpy() for t in found]


def _tensors(made: Any) -> list[Any]:
    """The tensors of a result, in order."""
    if isinstance(made, Tensor):
        return [made]
    items = made.values() if isinstance(made, dict) else made
    return [t for item in items for t in _tensors(item)]


def _sizes(plan: Any, more: int) -> tuple[dict[str, int], list[Any], list[Any]]:
    """Sizes near the least ones, with the metas of inputs and outputs there."""
    if plan.template is None:
        return {}, [v.meta for v in plan.graph.inputs], [v.meta for v in plan.graph.outputs]
    sizes = {s: min(max(r.least, 2) + more, r.most) for s, r in plan.ranges.items()}
    graph, _ = plan.at(sizes)
    return sizes, plan.template.metas(sizes), [v.meta for v in graph.outputs]


def _port(name: str, meta: Any, other: Any) -> Port:
    kind = KIND_OF.get(np.dtype(meta.dtype.storage)) if meta.dtype.name in _PLAIN else None
    if kind is None:
        raise ValueError(f"{name} is of {meta.dtype}, which the protocol has no name for")
    pairs = zip(meta.shape, other.shape, strict=True)
    return Port(name, kind, tuple(int(a) if a == b else -1 for a, b in pairs))


_PLAIN = frozenset(d.name for d in KIND_OF)
