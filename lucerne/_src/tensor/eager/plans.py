"""Plans: what to do for one key of a call, made once and found again.

A plan is made once per op, static arguments and tensor metadata: it knows the metas of the results
and holds the backend's executable of a one-op graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.backends.contract.fallback import CHANGED, Bringing, executable, joined
from lucerne._src.base import shape as sh
from lucerne._src.base.config import config
from lucerne._src.base.unspecialized import Guarding
from lucerne._src.ir import argument_errors, dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.define import Geometry
from lucerne._src.ir.graph import flat_inputs, one_op_graph
from lucerne._src.ir.meta import TensorMeta, make_meta, starting_at
from lucerne._src.ir.op import Op
from lucerne._src.ir.symbolic.numbers import plain
from lucerne._src.ops.scalars import check_scalars, has_scalars_to_check
from lucerne._src.tensor.autograd.state import AutogradState, ViewState
from lucerne._src.tensor.base import (
    Plans,
    TensorBase,
    make_tensor,
    new_tensor,
    tensor_maker,
)
from lucerne._src.tensor.eager.dry_run import DryExecution
from lucerne._src.tensor.eager.keys import Key, forget_results, key_of, metas_of
from lucerne._src.tensor.eager.specialize import spoil
from lucerne._src.tensor.layers import conjugate
from lucerne._src.tensor.storage import FAST, Storage

PLANS: dict[Key, Any] = {}
"""A `Plan`, or None: a composite that no device takes as a whole."""
_state = dispatch.state


def plan_for(op: Op, args: tuple[Any, ...]) -> Any:
    """The plan of a call that no type of tensor answers by itself."""
    if Guarding.count:  # expressions are no keys
        return _named_plan(op, args)
    key = key_of(op, args)[0]
    if key is None:
        tensors = [x for a in args for x in (a if isinstance(a, tuple) else (a,))]
        types = {type(x) for x in tensors if isinstance(x, TensorBase)}
        key = key_of(op, args, types)[0]
    return _named_plan(op, args) if key is None else plan_of(key, op, args)


def plan_of(key: Key, op: Op, args: tuple[Any, ...]) -> Any:
    """The plan of a call whose key is known."""
    return PLANS.get(key) or keep_plan(key, _named_plan(op, args))


def keep_plan(key: Key, plan: Any) -> Any:
    if len(PLANS) >= config.plan_cache_size:
        PLANS.clear()
    PLANS[key] = plan
    return plan


def clear_plans() -> None:
    """Forget all plans (a default they depend on has changed)."""
    PLANS.clear()
    forget_results()
    if FAST is not None:
        FAST.forget()


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
        if DryExecution.current is not None:
            dry = DryExecution.current.results(self, args)
            if dry is not None:
                return dry[0] if len(dry) == 1 else tuple(dry)
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
        if DryExecution.current is not None and DryExecution.current.writes(self, args, outs):
            return
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
        if DryExecution.current is not None:
            DryExecution.current.reads(args)
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


CHANGED.append(clear_plans)
Plans.get = staticmethod(plan_for)
