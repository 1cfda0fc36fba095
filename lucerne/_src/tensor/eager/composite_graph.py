"""The body of a composite as a graph of primitives: run once on tensors without bytes, watched."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from lucerne._src import backends
from lucerne._src.base.device import device as Device
from lucerne._src.ir import dispatch
from lucerne._src.ir.dispatch import Interpreter
from lucerne._src.ir.graph import Graph, Value
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Op
from lucerne._src.tensor.base import TensorBase, new_tensor
from lucerne._src.tensor.eager.specialize import Observation

_META = Device(backends.META)


class TraceError(Exception):
    """The body does something a graph does not hold."""


class CompositeRecorder(Interpreter):
    """Writes the primitives it sees into a graph, as if they ran on `target`."""

    level = "kernel"

    def __init__(self, target: Device) -> None:
        self.graph = Graph()
        self.target = target
        self.values: dict[int, Value] = {}
        self.places: dict[Any, Value] = {}
        """The same by memory: a detached tensor is another object over the same bytes."""
        self.kept: list[Any] = []

    def input(self, meta: TensorMeta) -> Any:
        """A tensor without bytes that stands for an argument."""
        t = new_tensor(_on(meta, _META))
        self._know(t, self.graph.input(meta))
        return t

    def _know(self, t: Any, value: Value) -> None:
        self.values[id(t)] = value
        self.places.setdefault(_place(t), value)
        self.kept.append(t)  # so that no id is used twice

    def value(self, x: Any) -> Any:
        if not isinstance(x, TensorBase):
            return x
        found = self.values.get(id(x)) or self.places.get(_place(x))
        if found is None:
            raise TraceError("a tensor from elsewhere")
        return found

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        if out is not None or op.data_dependent:
            raise TraceError(op.qualified)
        placed = tuple(
            tuple(map(self.value, a)) if isinstance(a, tuple) else self.value(a) for a in args
        )
        result = proceed(op, args, out)
        outs = result if isinstance(result, tuple) else (result,)
        made = self.graph.call(op, placed, [_on(o._meta, self.target) for o in outs])
        for o, v in zip(outs, made, strict=True):
            self._know(o, v)
        return result


def _place(t: Any) -> Any:
    return id(t._storage), t._offset, t._meta


def _on(meta: TensorMeta, target: Device) -> TensorMeta:
    return make_meta(meta.dtype, tuple(meta.shape), meta.strides, target)


def traced(
    op: Op, args: tuple[Any, ...], target: Device, body: Callable[..., Any]
) -> tuple[Graph, Any] | None:
    """The graph of `body(op, args)`, and its result on tensors without bytes.

    None when the body can't be held in a graph: it writes in place, looks at data, warns, raises,
    or returns an argument. The call must then take its ordinary way.
    """
    recorder = CompositeRecorder(target)
    fakes = tuple(recorder.input(a._meta) if isinstance(a, TensorBase) else a for a in args)
    state = dispatch.state
    before = state.call_level, state.grad_enabled
    state.call_level, state.grad_enabled = [], False
    watching, Observation.current = Observation.current, None  # what is traced does not happen
    try:
        with warnings.catch_warnings(record=True) as told, recorder:
            warnings.simplefilter("always")
            result = body(op, fakes)
        outs = result if isinstance(result, tuple) else (result,)
        recorder.graph.outputs = tuple(recorder.value(o) for o in outs)
    except Exception:
        return None
    finally:
        state.call_level, state.grad_enabled = before
        state.refresh()
        Observation.current = watching
    inputs = set(recorder.graph.inputs)
    written = any(t._storage.version for t in recorder.kept)
    if told or written or any(v in inputs for v in recorder.graph.outputs):
        return None
    return recorder.graph, result
