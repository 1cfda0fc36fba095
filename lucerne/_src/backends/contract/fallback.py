"""When a device has no rule for an op: an error that says which one to write, or the host.

The host computes it only where the user allows that, and the bill lists it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from lucerne._src.backends.contract import registry
from lucerne._src.backends.contract.backend import Executable
from lucerne._src.backends.contract.fallback_report import BILL
from lucerne._src.backends.contract.tensor_view import Room
from lucerne._src.base.config import config
from lucerne._src.base.device import HOST, device
from lucerne._src.base.process.profiler_hook import FUNCTION, watched
from lucerne._src.base.process.source_location import describe, user_place
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, one_op_graph
from lucerne._src.ir.graph import Value as GraphValue
from lucerne._src.ir.meta import TensorMeta

REFUSE, ON_HOST = "refuse", "host"


def executable(backend: Any, graph: Graph) -> Executable:
    """A graph of one op on a device, or on the host in its place."""
    (node,) = graph.nodes
    name = device_of(graph)
    if name != HOST and node.op.kind == op_.RANDOM and not backend.supports(node.op):
        return HostCall(graph, backend, name)  # a generator's numbers are made by the host
    try:
        found: Executable = backend.compile(graph)
    except NotImplementedError as error:
        if name in (HOST, ""):
            raise
        if config.fallback == ON_HOST:
            return HostCall(graph, backend, name)
        raise _teaching(error, node.op, name) from error
    return found


def device_of(graph: Graph) -> str:
    """The device type that a graph of one op runs on."""
    metas = [v.meta for v in (*graph.outputs, *graph.inputs)]
    return next((m.device.type for m in metas if isinstance(m, TensorMeta)), "")


def _teaching(error: Exception, op: op_.Op, name: str) -> NotImplementedError:
    meaning = op.doc.split("\n", 1)[0]
    return NotImplementedError(
        f"{error}\n"
        f"At {describe(user_place())}. What the device {name!r} lacks is the primitive "
        f"{op.qualified}({', '.join(op.args)}): {meaning}\n"
        "Write a rule for it in the backend. To go on without: "
        'lucerne.backends.set_fallback("host") (or LUCERNE_FALLBACK=host) lets the host compute '
        "it, with copies there and back, and lucerne.backends.bill() lists what that costs."
    )


def set_fallback(mode: str) -> None:
    """What ops do that their device has no rule for: "refuse" (an error), or "host"."""
    if mode not in (REFUSE, ON_HOST):
        raise ValueError(f'set_fallback: expected "{REFUSE}" or "{ON_HOST}", got {mode!r}')
    config.fallback = mode
    for told in CHANGED:
        told()


CHANGED: list[Any] = []
"""Functions to call when the mode changes: plans that were made under the old one are void."""


@contextlib.contextmanager
def fallback(mode: str = ON_HOST) -> Iterator[None]:
    """`set_fallback` for a block.

    >>> from lucerne import backends
    >>> with backends.fallback("host"):
    ...     pass  # ops that a device lacks run on the host here
    """
    before = config.fallback
    set_fallback(mode)
    try:
        yield
    finally:
        set_fallback(before)


class HostCall:
    """A graph of one op that runs on the host: operands are copied there, results back."""

    def __init__(self, graph: Graph, backend: Any, name: str) -> None:
        (node,) = graph.nodes
        self.op, self.backend, self.name = node.op, backend, name
        self.host = registry.get(HOST)
        self.execute: Any = self.host.compile(_on_host(graph))
        self.reads = node.op.qualified != "draw"
        """`draw` looks at the shape of its operand only."""

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        return watched(
            f"fallback::{self.op.qualified}", FUNCTION, lambda: self._run(inputs, outputs)
        )

    def _run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        start, moved = perf_counter(), [0, 0]
        given = [self._down(x, moved) if hasattr(x, "_meta") else x for x in inputs]
        made = [self._room(o, moved) for o in outputs]
        result = self.execute(given, made)
        for o, m in zip(outputs, made, strict=True):
            self._up(o, m, moved)
        if result is not None:
            parts = result if isinstance(result[0], tuple) else (result,)
            moved[1] += sum(bits.nbytes for bits, _ in parts)
        line = describe(user_place())
        BILL.add(self.name, self.op.qualified, (moved[0], moved[1]), perf_counter() - start, line)
        return result

    def _bytes(self, t: Any, moved: list[int]) -> np.ndarray[Any, Any]:
        meta = t._meta
        start = t._offset * meta.dtype.itemsize
        nbytes = meta.span * meta.dtype.itemsize
        moved[0] += nbytes
        return registry.on_host(self.backend, t._storage.buffer)[start : start + nbytes]

    def _down(self, t: Any, moved: list[int]) -> Room:
        meta = t._meta.like(device=device(HOST))
        if not self.reads or not meta.numel:
            return Room(meta, self.host)
        return Room(meta, self.host, self.host.from_host(np.array(self._bytes(t, moved))))

    def _room(self, o: Any, moved: list[int]) -> Room:
        meta = o._meta.like(device=device(HOST))
        if meta.is_dense or not meta.numel:
            return Room(meta, self.host)
        # what lies between the elements of a view is written back as it was
        return Room(meta, self.host, self.host.from_host(np.array(self._bytes(o, moved))))

    def _up(self, o: Any, m: Room, moved: list[int]) -> None:
        size = o._meta.dtype.itemsize
        nbytes = o._meta.span * size
        data = np.asarray(self.host.to_host(m._storage.buffer))[:nbytes]
        self.backend.write(o._storage.buffer, o._offset * size, data)
        moved[1] += nbytes


def _on_host(graph: Graph) -> Graph:
    """The same call on tensors of the host."""
    (node,) = graph.nodes
    there = device(HOST)

    def moved(x: Any) -> Any:
        meta = x.meta if type(x) is GraphValue else x
        if type(meta) is tuple:
            return tuple([moved(v) for v in meta])
        if isinstance(meta, TensorMeta):
            return meta.like(device=there)
        return there if isinstance(meta, device) else meta

    args = tuple([moved(a) for a in node.args])
    return one_op_graph(node.op, args, [moved(v) for v in node.outputs])


# ---- operands from elsewhere ---------------------------------------------------------------------


def joined(op: op_.Op, metas: Sequence[Any], target: device) -> tuple[tuple[Any, ...], list[bool]]:
    """Metas of a call on one device, and which of the flat inputs must be brought there first.

    Torch lets 0-dim tensors of the host join any device, and takes indices and sources of copies
    from anywhere; everything else must be where the result is.
    """
    from_elsewhere: list[bool] = []

    def one(name: str, m: Any) -> Any:
        if not isinstance(m, TensorMeta):
            from_elsewhere.append(False)
            return m
        far = m.device != target
        from_elsewhere.append(far)
        if not far:
            return m
        may_join = (op.qualified, name) in _JOIN or (not m.ndim and m.device.type == HOST)
        if not may_join:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{target} and {m.device}! (argument {name} of {op.name}; `.to({str(target)!r})` "
                "brings it there)"
            )
        return m.like(device=target)

    found: list[Any] = []
    for p, m in zip(op.params, metas, strict=True):
        if p.kind == op_.TENSOR_LIST:
            found.append(tuple([None if x is None else one(p.name, x) for x in m]))
        elif p.kind == op_.STATIC or m is None:
            found.append(m)
        else:
            found.append(one(p.name, m))
    return tuple(found), from_elsewhere


_JOIN = {("copy", "src"), ("index", "indices"), ("index_put", "indices")}


class Bringing:
    """An executable some of whose operands come from other devices."""

    def __init__(self, execute: Executable, far: list[bool], target: device) -> None:
        self.execute, self.far, self.target = execute, far, target

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        given = [
            brought(x, self.target) if far else x for x, far in zip(inputs, self.far, strict=True)
        ]
        return self.execute(given, outputs)


def brought(t: Any, target: device) -> Room:
    """The elements of a tensor in the memory of another device."""
    meta = t._meta.like(device=target)
    here, there = registry.get(t._meta.device.type), registry.get(target.type)
    start, nbytes = t._offset * meta.dtype.itemsize, meta.span * meta.dtype.itemsize
    data = registry.on_host(here, t._storage.buffer)[start : start + nbytes]
    return Room(meta, there, there.from_host(np.array(data)))
