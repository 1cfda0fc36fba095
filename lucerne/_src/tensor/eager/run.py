"""The eager path: a call becomes a key, the key finds a plan, the plan runs.

A plan is made once per op, static arguments and tensor metadata: it knows the metas of the results
and holds the backend's executable of a one-op graph. This is the complete path; an engine may put a
faster one in front for common cases, and everything it does not take arrives here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.backends.contract.fallback import CHANGED, Bringing, executable, joined
from lucerne._src.base import shape as sh
from lucerne._src.base.config import config
from lucerne._src.base.exact import ITSELF, exact
from lucerne._src.base.process.error_notes import call_failed
from lucerne._src.base.unspecialized import GivenFloat, Guarding
from lucerne._src.ir import argument_errors, dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.define import Geometry
from lucerne._src.ir.graph import flat_inputs, one_op_graph
from lucerne._src.ir.meta import NUMBER_METAS, TensorMeta, make_meta, starting_at
from lucerne._src.ir.op import Op
from lucerne._src.ir.symbolic.numbers import SymFloat, SymInt, plain
from lucerne._src.ops import aten
from lucerne._src.ops.scalars import check_int, check_scalars, has_scalars_to_check
from lucerne._src.tensor.autograd import record
from lucerne._src.tensor.autograd.names import is_named
from lucerne._src.tensor.autograd.state import AutogradState, ViewState
from lucerne._src.tensor.base import (
    Plans,
    TensorBase,
    make_tensor,
    new_tensor,
    plain_types,
    tensor_maker,
)
from lucerne._src.tensor.eager import native_bridge
from lucerne._src.tensor.eager.composite_graph import traced
from lucerne._src.tensor.eager.inplace import InPlace, run_into
from lucerne._src.tensor.eager.specialize import Observation, spoil
from lucerne._src.tensor.layers import conjugate
from lucerne._src.tensor.storage import FAST, Storage
from lucerne._src.tensor.subclasses import torch_dispatch, torch_function

_NUMBERS = frozenset((bool, int, float, complex, type(None), GivenFloat, SymInt, SymFloat))
_plans: dict[tuple[Any, ...], Plan] = {}
_state = dispatch.state


def run(op: Op, args: tuple[Any, ...], out: Any = None) -> Any:
    """Run one call now. `args` holds every parameter in signature order, statics normalised."""
    try:
        if out is not None or _state.active:
            return _run_watched(op, args, out)
        if _state.cast is not None and op in _state.cast.ops:
            result = _state.cast.run(op, args)
            if result is not NotImplemented:
                return result
        if op.kinds == "tt" and op.kind != op_.COMPOSITE:
            return _run_pair(op, args)
        if op.kind == op_.COMPOSITE:
            return _run_composite(op, args)
        key: list[Any] = [op]
        grad = False
        for kind, a in zip(op.kinds, args):  # noqa: B905 - hot path, lengths agree by construction
            if kind == "t":
                cls = type(a)
                if cls in plain_types:
                    key.append(a._meta)
                    grad = grad or a._needs_grad
                elif cls in _NUMBERS:
                    key.append(cls)
                else:
                    return _run_unusual(op, args, None)
            elif kind == "s":
                key.append(a if type(a) in ITSELF else exact(a))
            elif kind == "n":
                key.append(type(a))
            elif kind == "l":
                if type(a) is not tuple:
                    return _run_unusual(op, args, None)
                for x in a:
                    if type(x) not in plain_types and x is not None:
                        return _run_unusual(op, args, None)
                    grad = grad or (x is not None and x._needs_grad)
                key.append(tuple([None if x is None else x._meta for x in a]))
        found = tuple(key)
        plan = _plans.get(found) or _make_plan(found, op, args)
        result = plan.run(args)
        if FAST is not None:
            native_bridge.remember(op, args, plan)
            if Observation.current is not None:
                Observation.current.saw(op, args, plan, result)
        if grad and _state.grad_enabled:
            record.record(op, args, result)
        return result
    except Exception as error:
        call_failed(error, op.name, zip(op.args, args, strict=False), passes_on=False)
        raise


def _run_pair(op: Op, args: tuple[Any, ...]) -> Any:
    """`run` for two operands and nothing else: the commonest call, without a loop."""
    a, b = args
    kind_a, kind_b = type(a), type(b)
    key: tuple[Any, ...]
    if kind_a in plain_types:
        if kind_b in plain_types:
            key = (op, a._meta, b._meta)
            grad = a._needs_grad or b._needs_grad
        elif kind_b in _NUMBERS:
            key = (op, a._meta, kind_b)
            grad = a._needs_grad
        else:
            return _run_unusual(op, args, None)
    elif kind_a in _NUMBERS and kind_b in plain_types:
        key = (op, kind_a, b._meta)
        grad = b._needs_grad
    else:
        return _run_unusual(op, args, None)
    plan = _plans.get(key) or _make_plan(key, op, args)
    result = plan.run(args)
    if FAST is not None:
        native_bridge.remember(op, args, plan)
        if Observation.current is not None:
            Observation.current.saw(op, args, plan, result)
    if grad and _state.grad_enabled:
        record.record(op, args, result)
    return result


def clear_plans() -> None:
    """Forget all plans (a default they depend on has changed)."""
    _plans.clear()
    if FAST is not None:
        FAST.forget()


def plan_for(op: Op, args: tuple[Any, ...]) -> Plan:
    """The plan of a call whose tensors are all plain."""
    if Guarding.count:  # expressions are no keys
        return _named_plan(op, args)
    key: list[Any] = [op]
    for kind, a in zip(op.kinds, args, strict=True):
        if kind == "t":
            key.append(a._meta if isinstance(a, TensorBase) else type(a))
        elif kind == "s":
            key.append(a if type(a) in ITSELF else exact(a))
        elif kind == "n":
            key.append(type(a))
        elif kind == "l":
            key.append(tuple([None if x is None else x._meta for x in a]))
    found = tuple(key)
    return _plans.get(found) or _make_plan(found, op, args)


# ---- plans ------------------------------------------------------------------------------------


class Plan:
    """What to do for one key."""

    __slots__ = ("native",)
    native: Any
    """The plan as the fast path reads it: None before it was tried, False when it does not fit."""

    def run(self, args: tuple[Any, ...]) -> Any:
        raise NotImplementedError


class KernelPlan(Plan):
    """Allocate the results and run an executable that writes them."""

    __slots__ = (
        "checks",
        "device",
        "execute",
        "flat",
        "makers",
        "metas",
        "on_host",
        "op",
        "sizes",
        "slots",
        "whole",
    )

    def __init__(
        self,
        op: Op,
        args: tuple[Any, ...],
        metas: tuple[TensorMeta, ...],
        execute: Any = None,
    ) -> None:
        self.native = None
        self.op = op
        self.metas = metas
        self.slots = [
            i
            for i, (k, a) in enumerate(zip(op.kinds, args, strict=True))
            if k in "tno" and a is not None
        ]
        self.flat = op_.TENSOR_LIST not in op.kinds
        self.whole = self.flat and len(self.slots) == len(args)
        self.checks = has_scalars_to_check(op, metas[0].dtype)
        self.device = metas[0].device
        self.on_host = FAST is not None and self.device.type == backends.HOST
        self.sizes = [(starting_at(m, 0), plain(m.span * m.dtype.itemsize)) for m in metas]
        self.execute: Any = execute
        self.makers = [] if self.on_host else [tensor_maker(m) for m in metas]
        if self.device.type != backends.META:
            backend = backends.get(self.device.type)
            _check_room(self.sizes)
            given = metas_of(op, args)
            _check_memory(given)
            if execute is None:
                given, far = joined(op, given, self.device)
                self.execute = executable(backend, one_op_graph(op, given, metas))
                if any(far):
                    self.execute, self.native = Bringing(self.execute, far, self.device), False

    def inputs(self, args: tuple[Any, ...]) -> list[Any]:
        if self.flat:
            return [args[i] for i in self.slots]
        return flat_inputs(self.op, args)

    def run(self, args: tuple[Any, ...]) -> Any:
        if self.checks:
            check_scalars(self.op, args, self.metas[0].dtype)
        if self.on_host:
            outs = [FAST.fresh_tensor(meta, nbytes) for meta, nbytes in self.sizes]
        else:
            outs = [make() for make in self.makers]
        if self.execute is not None:
            try:
                self.execute(args if self.whole else self.inputs(args), outs)
            except NotImplementedError:
                metas_of(
                    self.op, args
                )  # as in the first call: a number that fits nowhere goes first
                raise
        return outs[0] if len(outs) == 1 else tuple(outs)

    def run_into(self, args: tuple[Any, ...], outs: list[Any]) -> None:
        if self.checks:
            check_scalars(self.op, args, self.metas[0].dtype)
        if self.execute is not None:
            self.execute(self.inputs(args), outs)


class ViewPlan(Plan):
    """Another reading of the same storage; nothing runs."""

    __slots__ = ("op", "parts", "several")

    def __init__(self, op: Op, parts: list[tuple[TensorMeta, int]], several: bool) -> None:
        self.native = None
        self.op = op
        self.parts = parts
        self.several = several

    def run(self, args: tuple[Any, ...]) -> Any:
        source = args[0]
        rest = args[1:]
        views = [self._view(source, rest, i) for i in range(len(self.parts))]
        return tuple(views) if self.several else views[0]

    def _view(self, source: Any, rest: tuple[Any, ...], index: int) -> Any:
        meta, offset = self.parts[index]
        scale = source._meta.dtype.itemsize
        start = source._meta.start  # (an expression, where it follows from symbolic sizes)
        if start is None:
            start = source._offset
        if meta.dtype.itemsize == scale:
            start = start + offset
        else:
            start = start * scale // meta.dtype.itemsize + offset
        if type(start) is not int:
            meta, start = starting_at(meta, start), plain(start)
        t = make_tensor(source._storage, start, meta)
        parent = source._view
        step = ((self.op, rest, index if self.several else None),)
        base, steps = (source, step) if parent is None else (parent.base, parent.steps + step)
        t._view = ViewState(
            base,
            steps,
            source._storage.version,
            several=self.several or (parent is not None and parent.several),
            no_grad=not _state.grad_enabled,
        )
        if not source._needs_grad and source._auto is None:
            if _state.grad_enabled:
                source._storage.note_view(t)
        elif source._needs_grad and not _state.grad_enabled:
            t._auto = AutogradState(requires_grad=True)  # a leaf of its own, as in torch
        return t


class DataPlan(Plan):
    """Results whose shape depends on the data: the rule returns arrays, which become tensors."""

    __slots__ = ("device", "execute", "op")

    def __init__(self, op: Op, args: tuple[Any, ...], device: Any) -> None:
        if device.type == backends.META:
            raise NotImplementedError(
                f"{op.name}: the shape of the result depends on the data, which a meta tensor lacks"
            )
        self.native = False
        self.op = op
        self.device = device
        graph = one_op_graph(op, metas_of(op, args), ())
        self.execute = executable(backends.get(device.type), graph)

    def run(self, args: tuple[Any, ...]) -> Any:
        found = self.execute(flat_inputs(self.op, args), [])
        if isinstance(found, tuple) and isinstance(found[0], tuple):
            return tuple(self._wrap(f) for f in found)
        return self._wrap(found)

    def _wrap(self, found: Any) -> Any:
        """(array of stored bits, dtype) as a tensor; or memory of the device, which becomes one."""
        if not isinstance(found, tuple):
            held = found._storage
            return make_tensor(Storage(held.buffer, held.nbytes, self.device), 0, found._meta)
        bits, dtype = found
        strides = tuple(n // bits.itemsize for n in bits.strides)
        dense = bits.size and sh.is_dense(bits.shape, strides)
        if not dense:
            bits = np.ascontiguousarray(bits)
        t = new_tensor(make_meta(dtype, bits.shape, strides if dense else None, self.device))
        t._storage.write(0, bits.ravel(order="K"))
        return t


class FlippedPlan(Plan):
    """A call with an argument that reads its memory flipped: that is computed first."""

    __slots__ = ("metas", "op")

    def __init__(self, op: Op) -> None:
        self.native = False
        self.op = op
        self.metas = (None,)  # no kernel of it may write over a tensor

    def run(self, args: tuple[Any, ...]) -> Any:
        args = conjugate.computed(args)
        return plan_for(self.op, args).run(args)


class HostPlan(Plan):
    """A custom op: its Python function makes the results."""

    __slots__ = ("op",)

    def __init__(self, op: Op) -> None:
        self.native = False
        self.op = op

    def run(self, args: tuple[Any, ...]) -> Any:
        spoil()
        assert self.op.host is not None
        return self.op.host.run(args)


def _make_plan(key: tuple[Any, ...], op: Op, args: tuple[Any, ...]) -> Plan:
    if len(_plans) >= config.plan_cache_size:
        _plans.clear()
    plan = _plans[key] = _named_plan(op, args)
    return plan


def _named_plan(op: Op, args: tuple[Any, ...]) -> Plan:
    try:
        return build_plan(op, args)
    except argument_errors.CAUGHT as error:
        argument_errors.raise_named(error, op, args)


def build_plan(op: Op, args: tuple[Any, ...]) -> Plan:
    if op.host is not None:
        return HostPlan(op)
    metas = metas_of(op, args)
    if op.kind == op_.VIEW:
        return _view_plan(op, metas)
    if conjugate.among(args):
        return FlippedPlan(op)
    if op.data_dependent:
        return DataPlan(op, args, _first_meta(metas).device)
    assert op.meta is not None, f"{op.name} has no meta function"
    found = op.meta(*metas)
    return KernelPlan(op, args, (found,) if isinstance(found, TensorMeta) else tuple(found))


def _first_meta(metas: tuple[Any, ...]) -> TensorMeta:
    for m in metas:
        for x in m if isinstance(m, tuple) else (m,):
            if isinstance(x, TensorMeta):
                return x
    raise TypeError("expected at least one Tensor among the arguments")


def _view_plan(op: Op, metas: tuple[Any, ...]) -> ViewPlan:
    found = op.body(*metas)
    several = isinstance(found, (list, tuple))
    geometries: list[Geometry] = list(found) if several else [found]
    source: TensorMeta = metas[0]
    parts = [
        (
            make_meta(
                g.dtype or source.dtype,
                tuple(g.shape),
                tuple(g.strides),
                source.device,
                source.flipped if g.flipped is None else g.flipped,
            ),
            g.offset,
        )
        for g in geometries
    ]
    return ViewPlan(op, parts, several)


def _check_memory(metas: tuple[Any, ...]) -> None:
    """A kernel reads memory, and tensors on the meta device have none."""
    for m in metas:
        if isinstance(m, tuple):
            _check_memory(m)
        elif isinstance(m, TensorMeta) and m.device.type == backends.META:
            raise RuntimeError("Tensor on device meta is not on the expected device cpu!")


def _check_room(sizes: list[tuple[TensorMeta, int]]) -> None:
    """So many bytes must be a number that machines count with."""
    for meta, nbytes in sizes:
        if nbytes > _MOST_BYTES:
            raise RuntimeError(
                f"Storage size calculation overflowed with sizes={list(meta.shape)} and "
                f"strides={list(meta.strides)}"
            )


_MOST_BYTES = (1 << 63) - 1


def metas_of(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with tensors replaced by their metas and numbers by their kind."""
    found: list[Any] = []
    for kind, a in zip(op.kinds, args, strict=True):
        if kind == "l":
            found.append(tuple([None if x is None else x._meta for x in a]))
        elif isinstance(a, TensorBase):
            found.append(a._meta)
        elif kind == "t" and a is not None:
            check_int(a)
            found.append(NUMBER_METAS[type(a)])
        else:
            found.append(a)
    return tuple(found)


# ---- the ways that are not the shortest -------------------------------------------------------


def _run_watched(op: Op, args: tuple[Any, ...], out: Any) -> Any:
    """Interpreters above autograd see the call first."""
    if Observation.current is not None and type(out) is not InPlace:
        Observation.current.spoiled = True
    if _state.call_level:
        return dispatch.through(_state.call_level, op, args, out, _run_unwatched)
    return _run_unwatched(op, args, out)


def _run_unwatched(op: Op, args: tuple[Any, ...], out: Any) -> Any:
    stack = _state.kernel_level
    if stack and out is None and _state.cast is None and not _state.inference:
        quick = stack[-1].quick
        if quick is not None and not conjugate.concern(op, args):
            result = quick(op, args)
            if result is not NotImplemented:
                return result
    if not is_plain_call(op, args) or torch_function.is_override(out):
        return _run_unusual(op, args, out)
    if out is not None:
        return run_into(op, args, out)
    if _state.cast is not None and op in _state.cast.ops:
        result = _state.cast.run(op, args)
        if result is not NotImplemented:
            return result
    if op.kind == op_.COMPOSITE:
        result = _run_composite(op, args)
        if _state.inference and stack:  # one node of a graph: nothing inside has marked it
            _mark_inference(result, args)
        return result
    if stack or _state.grad_enabled or torch_function.dispatching:
        result = _run_recorded(op, args)
    else:
        result = plan_for(op, args).run(args)
    if _state.inference and op.kind != op_.VIEW:
        _mark_inference(result)
    return result


def _mark_inference(result: Any, args: tuple[Any, ...] = ()) -> None:
    """Memory made in inference mode may never become part of a graph; `args`: whose is older."""
    if not args and isinstance(result, TensorBase):
        result._storage.inference = True
        return
    old = {id(a._storage) for a in args if isinstance(a, TensorBase)}
    for r in result if isinstance(result, tuple) else (result,):
        if isinstance(r, TensorBase) and id(r._storage) not in old:
            r._storage.inference = True


def is_plain_call(op: Op, args: tuple[Any, ...]) -> bool:
    """Whether all tensors of a call are of types that override nothing."""
    for kind, a in zip(op.kinds, args, strict=True):
        if kind == "t":
            if type(a) not in plain_types and type(a) not in _NUMBERS:
                return False
        elif kind == "l" and (
            type(a) is not tuple or any(type(x) not in plain_types and x is not None for x in a)
        ):
            return False
    return True


def _run_unusual(op: Op, args: tuple[Any, ...], out: Any) -> Any:
    """Arguments neither plain tensors nor numbers: overriding types, NumPy scalars, mistakes."""
    if Observation.current is not None:
        Observation.current.spoiled = True
    handled, result = torch_function.offer(op, args, out)
    if handled:
        return result
    plain = torch_function.plain_arguments(op, args)
    if out is not None:
        if (
            torch_function.dispatching
            and type(out) is InPlace
            and torch_dispatch.wanted((out.target,))
        ):
            return torch_dispatch.ask_in_place(op, plain, out.target)
        return run_into(op, plain, out)
    if op.kind == op_.COMPOSITE:
        return _run_composite(op, plain)
    return _run_recorded(op, plain)


def _run_recorded(op: Op, args: tuple[Any, ...]) -> Any:
    if _state.kernel_level:
        result = _run_seen(op, args)
    else:
        result = _run_plan(op, args, None)
    if _state.grad_enabled and record.needs_grad(op, args):
        record.record(op, args, result)
    return result


def _run_seen(op: Op, args: tuple[Any, ...]) -> Any:
    """A call as interpreters below autograd see it."""
    if conjugate.concern(op, args) and not (
        torch_function.dispatching and torch_dispatch.wanted(args)
    ):
        return conjugate.seen(op, args, _run_plan)
    return dispatch.through(_state.kernel_level, op, args, None, _run_plan)


def _run_plan(op: Op, args: tuple[Any, ...], out: Any) -> Any:
    if torch_function.dispatching and torch_dispatch.wanted(args):
        return torch_dispatch.ask(op, args, out)
    if out is not None:
        return run_into(op, args, out)
    return plan_for(op, args).run(args)


def _run_composite(op: Op, args: tuple[Any, ...]) -> Any:
    """Run the body; if the entry names its own derivative, the body itself is not recorded."""
    if torch_function.any_override(op, args):
        return _run_unusual(op, args, None)
    recorded = _state.grad_enabled and record.needs_grad(op, args)
    whole = not recorded or op.explicit
    if _state.kernel_level and whole and _state.kernel_level[-1].takes(op, args):
        result = _run_seen(op, args)
        if recorded:
            record.record(op, args, result)
        return result
    asked = torch_function.dispatching and whole and op.qualified in aten.WHOLE
    if asked and torch_dispatch.wanted(args):
        result = torch_dispatch.ask(op, args, None)
        if recorded:
            record.record(op, args, result)
        return result
    fused = _fused_plan(op, args) if whole else None
    if fused is not None:
        result = fused.run(args)
        if FAST is not None:
            native_bridge.remember(op, args, fused)
            if Observation.current is not None:
                Observation.current.saw(op, args, fused, result)
        if _state.inference:
            _mark_inference(result)
        if recorded:
            record.record(op, args, result)
        return result
    if Observation.current is not None and (op.explicit or is_named(op)):
        Observation.current.recordable = False
    if recorded and op.explicit:
        _state.grad_enabled = False
        try:
            result = body_of(op, args)
        finally:
            _state.grad_enabled = True
        result = record.detached_from_inputs(result, args)
        record.record(op, args, result)
        return result
    return body_of(op, args)


# ---- composites as one kernel -----------------------------------------------------------------


class FusedPlan(KernelPlan):
    """A composite whose device runs it as one kernel."""

    __slots__ = ("result_type",)

    def __init__(
        self, op: Op, args: tuple[Any, ...], metas: tuple[TensorMeta, ...], execute: Any, kind: Any
    ) -> None:
        super().__init__(op, args, metas, execute)
        self.result_type = kind if hasattr(kind, "_fields") else None
        if self.result_type is not None:
            self.native = False

    def run(self, args: tuple[Any, ...]) -> Any:
        result = super().run(args)
        return result if self.result_type is None else self.result_type(*result)


def _fused_plan(op: Op, args: tuple[Any, ...]) -> Any:
    """The plan of a composite that its device takes as a whole; None: run its body."""
    if _state.kernel_level:
        return None
    key: list[Any] = [op]
    for kind, a in zip(op.kinds, args):  # noqa: B905 - hot path, lengths agree by construction
        if kind == "t":
            if type(a) in plain_types:
                key.append(a._meta)
            elif a is None:
                key.append(None)
            else:
                return None
        elif kind == "s":
            key.append(a if type(a) in ITSELF else exact(a))
        elif kind == "n":
            key.append(type(a))
        elif kind == "l" and all(type(x) in plain_types for x in a):
            key.append(tuple([x._meta for x in a]))
        else:
            return None
    try:
        return _plans[tuple(key)]
    except KeyError:
        return _make_fused_plan(tuple(key), op, args)
    except TypeError:  # a static that can't be a key
        return None


def _make_fused_plan(key: tuple[Any, ...], op: Op, args: tuple[Any, ...]) -> Any:
    if len(_plans) >= config.plan_cache_size:
        _plans.clear()
    plan: Any = None
    tensors = [x for a in args for x in (a if isinstance(a, tuple) else (a,))]
    devices = {x._meta.device for x in tensors if isinstance(x, TensorBase)}
    target = next(iter(devices), None)
    usual = len(devices) == 1 and not conjugate.among(args)
    if usual and target is not None and target.type != backends.META:
        backend = backends.get(target.type)
        if backend.fuses(op):
            try:
                plan = _built_fused_plan(op, args, target, backend)
            except argument_errors.CAUGHT as error:
                argument_errors.raise_named(error, op, args)
    _plans[key] = plan
    return plan


def _built_fused_plan(op: Op, args: tuple[Any, ...], target: Any, backend: Any) -> Any:
    if op.meta is not None:
        found = op.meta(*metas_of(op, args))
        if found is None:  # an unusual case, which only the body knows
            return None
        metas = (found,) if isinstance(found, TensorMeta) else tuple(found)
        graph, kind = one_op_graph(op, metas_of(op, args), metas), tuple
    elif op_.SCALAR in op.kinds or op_.TENSOR_LIST in op.kinds:
        return None
    else:
        seen = traced(op, args, target, body_of)
        if seen is None:
            return None
        graph, kind = seen[0], type(seen[1])
        metas = tuple(v.meta for v in graph.outputs)
    execute = backend.fuse(graph)
    return None if execute is None else FusedPlan(op, args, metas, execute, kind)


def body_of(op: Op, args: tuple[Any, ...]) -> Any:
    """The result of a composite's body."""
    try:
        if op.needs_opmath:
            return record.in_opmath(op, args)
        return record.call_body(op, args)
    except argument_errors.CAUGHT as error:
        argument_errors.raise_named(error, op, args)


dispatch.install(run)
CHANGED.append(clear_plans)
Plans.get = staticmethod(plan_for)
Plans.fused = staticmethod(_fused_plan)
__all__ = ["InPlace", "clear_plans", "plan_for", "run"]
