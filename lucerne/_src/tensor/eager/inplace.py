"""Calls that write into a tensor that exists: `out=` and the in-place methods."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base.config import config
from lucerne._src.base.process import notices
from lucerne._src.base.process.source_location import user_place
from lucerne._src.ir import dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.dispatch import InPlace as InPlace
from lucerne._src.ir.meta import with_flip
from lucerne._src.ir.op import Op
from lucerne._src.ir.symbolic.numbers import is_filled
from lucerne._src.ops.copy.cast import clone_as, copy
from lucerne._src.tensor.autograd import record
from lucerne._src.tensor.autograd.state import requires_grad
from lucerne._src.tensor.base import (
    Plans,
    TensorBase,
    make_tensor,
    new_tensor,
    offset_of,
    same_place,
)
from lucerne._src.tensor.eager import native_bridge
from lucerne._src.tensor.eager.expanded_writes import met, shared_dims, way_of
from lucerne._src.tensor.eager.specialize import Observation, spoil
from lucerne._src.tensor.layers import conjugate
from lucerne._src.tensor.storage import FAST, bytes_of

_state = dispatch.state
_copy: Op = copy.op  # type: ignore[attr-defined]


def run_into(op: Op, args: tuple[Any, ...], out: Any) -> Any:
    """Run a call whose result is to land in `out`."""
    if _state.cast is not None:  # the tensor that is written to says what is computed with
        cast = _state.cast
        _state.set_cast(None)
        try:
            return run_into(op, args, out)
        finally:
            _state.set_cast(cast)
    if type(out) is InPlace:
        return _in_place(op, args, out.target)
    outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    for o in outs:
        if not isinstance(o, TensorBase):
            raise TypeError(f"{op.name}(): argument 'out' must be Tensor, not {type(o).__name__}")
    if _state.grad_enabled and (record.needs_grad(op, args) or any(requires_grad(o) for o in outs)):
        raise RuntimeError(
            f"{op.name}(): functions with out=... arguments don't support automatic "
            "differentiation, but one of the arguments requires grad."
        )
    if op.kind == op_.POINTWISE:
        _refuse_partial_overlap(args, outs)
    if op.out == "apart":
        for o in outs:
            refuse_internal_overlap(o)
    result = dispatch.entry.run(op, args)
    results = result if isinstance(result, tuple) else (result,)
    if len(results) != len(outs):
        raise TypeError(f"{op.name}(): expected {len(results)} tensors in out=, got {len(outs)}")
    how = op.out.split() if isinstance(op.out, str) else ()
    for r, o in zip(results, outs, strict=True):
        if ("exact" in how or "apart" in how) and r._meta.dtype is not o._meta.dtype:
            raise RuntimeError(
                f"Expected out tensor to have dtype {dt.c_name(r._meta.dtype)}, but got "
                f"{dt.c_name(o._meta.dtype)} instead"
            )
        if "apart" in how:
            _refuse_any_overlap(args, o, r._meta)
        plain = "plain" in how or ("lapack" in how and o._meta.numel > 0)
        write_out(r, o, op.name, plain=plain)
    return _rebuilt(result, out)


def _rebuilt(result: Any, out: Any) -> Any:
    if not isinstance(out, (tuple, list)):
        return out
    return type(result)(*out) if hasattr(result, "_fields") else tuple(out)


def write_out(result: Any, out: Any, name: str = "", *, plain: bool = False) -> None:
    """Copy a result into an `out=` tensor, resizing it when its shape is another.

    `plain`: a resized tensor is contiguous, whatever the strides of the result.
    """
    have, want = out._meta, result._meta
    if have.device != want.device:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, "
            f"{want.device} and {have.device}!"
        )
    _refuse_cast(want, have)
    if have.shape != want.shape:
        resize_output(out, want.like(shape=tuple(want.shape)) if plain else want)
    write(out, result)


def _refuse_cast(want: Any, have: Any) -> None:
    """A result may not lose its kind in the tensor it is written to."""
    if not dt.can_cast(want.dtype, have.dtype):
        raise RuntimeError(
            f"result type {dt.cxx_name(want.dtype)} can't be cast to the desired output type "
            f"{dt.cxx_name(have.dtype)}"
        )


def resize_output(out: Any, want: Any) -> None:
    if out._meta.numel:
        notices.warn(
            f"An output with one or more elements was resized since it had shape "
            f"{list(out._meta.shape)}, which does not match the required output shape "
            f"{list(want.shape)}. This behavior is deprecated, and in a future PyTorch release "
            "outputs will not be resized unless they have zero elements. You can explicitly reuse "
            "an out tensor t by resizing it, inplace, to zero elements with t.resize_(0).",
            stacklevel=4,
        )
    set_geometry(out, out._meta.like(shape=tuple(want.shape), strides=want.strides))


def set_geometry(t: Any, meta: Any) -> None:
    """Give a tensor another shape, growing its storage when that needs more."""
    need = (offset_of(t) + meta.span) * meta.dtype.itemsize
    if need > bytes_of(t._storage):
        t._storage.resize(need)
    t._meta = with_flip(meta, t._meta.flipped)
    t._array = None


def write(target: Any, source: Any) -> None:
    """Raw copy of values, without autograd; counts as a write to the storage."""
    spoil()
    if is_filled(target._meta.numel):
        refuse_internal_overlap(target)
        plan_copy(target, source)
    bump(target)


def plan_copy(target: Any, source: Any) -> None:
    """Convert and broadcast `source` straight into the memory of `target`."""
    args = conjugate.to_copy(target, source)
    if _state.kernel_level:
        dispatch.through(_state.kernel_level, _copy, args, InPlace(args[0]), _copy_now)
    else:
        _copy_now(_copy, args)


def _copy_now(op: Op, args: tuple[Any, ...], out: Any = None) -> None:
    Plans.get(op, args).run_into(args, [args[0]])


def bump(t: Any) -> None:
    """Count a write, and remember who made it if a backward pass might ask."""
    storage = t._storage
    if storage.inference and not _state.inference:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed. You can make "
            "a clone to get a normal tensor before doing inplace update."
        )
    storage.note_write()
    if storage.saved and config.user_lines:
        storage.writer = user_place()


def refuse_internal_overlap(t: Any) -> None:
    if shared_dims(t._meta):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location. Please clone() the tensor before performing the operation."
        )


def _refuse_partial_overlap(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
    for o in outs:
        refuse_internal_overlap(o)
        for a in args:
            if isinstance(a, TensorBase) and _partly_overlap(a, o):
                raise RuntimeError(
                    "unsupported operation: some elements of the input tensor and the written-to "
                    "tensor refer to a single memory location. Please clone() the tensor before "
                    "performing the operation."
                )


def _refuse_any_overlap(args: tuple[Any, ...], out: Any, want: Any) -> None:
    """For ops that read elements after they have written others: no input may share the memory."""
    if out._meta.shape != want.shape:
        resize_output(out, want)
    for a in args:
        if isinstance(a, TensorBase) and _overlap(a, out):
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to "
                "tensor refer to a single memory location. Please clone() the tensor before "
                "performing the operation."
            )


def _overlap(a: Any, b: Any) -> bool:
    return (a is b and bool(a._meta.numel)) or _partly_overlap(a, b) or _same_memory(a, b)


def _same_memory(a: Any, b: Any) -> bool:
    return a._storage.buffer is not None and same_place(a, b) and bool(a._meta.numel)


def _partly_overlap(a: Any, b: Any) -> bool:
    """Torch's test: dense tensors over one storage whose ranges cross without being the same."""
    if a._storage.buffer is not b._storage.buffer or a is b or a._storage.buffer is None:
        return False
    ma, mb = a._meta, b._meta
    if not ma.numel or not mb.numel or not ma.is_dense or not mb.is_dense:
        return False
    start_a, start_b = offset_of(a) * ma.dtype.itemsize, offset_of(b) * mb.dtype.itemsize
    end_a, end_b = start_a + ma.numel * ma.dtype.itemsize, start_b + mb.numel * mb.dtype.itemsize
    if start_a == start_b and end_a == end_b:
        return bool(ma.strides != mb.strides)
    return start_a < end_b and start_b < end_a


# ---- in place ---------------------------------------------------------------------------------


def _in_place(op: Op, args: tuple[Any, ...], target: Any) -> Any:
    recorded = _state.grad_enabled and (
        record.needs_grad(op, args)
        or requires_grad(target)
        or (target._view is not None and requires_grad(target._view.base))
    )
    if recorded:
        record.check_in_place(target)
        spoil()
    elif shared_dims(target._meta) and args[0] is target:
        way = way_of(op, args)
        if way is not None:
            return _over_shared(way, op, args)
    if op.kind == op_.COMPOSITE:
        return _composite_in_place(op, args, target, recorded)
    original = target
    if recorded and op.args[0] in op.save_names and args[0] is target:
        original = _bare_clone(target)
    node = record.node_for(op, args, target, original) if recorded else None
    if op.kind == op_.POINTWISE:
        _refuse_partial_overlap(args, (target,))
    _execute_over(op, args, target)
    if node is not None:
        record.rebase(target, node)
    return target


def _over_shared(way: str, op: Op, args: tuple[Any, ...]) -> Any:
    """An op whose target has elements that are one number in memory."""
    target = args[0]
    result = dispatch.entry.run(op, args)
    check_fits(op, result._meta, target._meta)
    write(*met(way, op, args, result))
    return target


def _bare_clone(t: Any) -> Any:
    """The values before they are overwritten, with the history they had."""
    bare = make_tensor(t._storage, t._offset, t._meta)
    if _state.active:  # whoever watches sees the copy as an op
        before, _state.grad_enabled = _state.grad_enabled, False
        made = clone_as(bare, lo.preserve_format)
        _state.grad_enabled = before
    else:
        made = new_tensor(t._meta if t._meta.is_dense else t._meta.like(shape=tuple(t._meta.shape)))
        plan_copy(made, bare)
    made._auto = record.frozen_history(t)
    return made


def _execute_over(op: Op, args: tuple[Any, ...], target: Any) -> None:
    plan = None if _state.active else Plans.get(op, args)
    if plan is not None and _may_write_directly(op, plan, args, target):
        refuse_internal_overlap(target)
        plan.run_into(args, [target])
        bump(target)
        if FAST is not None:
            native_bridge.remember(op, args, plan)
            if Observation.current is not None:
                Observation.current.saw(op, args, plan, target, over=target)
        return
    spoil()
    # A dispatch mode sees the in-place op itself (`aten.add_.Tensor`), not what it is made of.
    sees = getattr(_state.kernel_level[-1], "writes_over", None) if _state.kernel_level else None
    if sees is not None and sees(op, args, target):
        return
    before = _state.grad_enabled
    _state.grad_enabled = False
    try:
        result = dispatch.entry.run(op, args)
    finally:
        _state.grad_enabled = before
    check_fits(op, result._meta, target._meta)
    write(target, result)


_UPDATES = ("scatter", "index_put")
"""Ops that give back their first input changed in places: kernels may write those alone."""


def _may_write_directly(op: Op, plan: Any, args: tuple[Any, ...], target: Any) -> bool:
    """Whether a kernel may write over `target` while it reads: only if no other input shares it."""
    elementwise = op.kind in (op_.POINTWISE, op_.RANDOM) or op is _copy
    updates = op.name in _UPDATES and args[0] is target
    if not (elementwise or updates) or plan.metas[0] is not target._meta:
        return False
    buffer = target._storage.buffer
    if updates:
        args = tuple(x for a in args for x in (a if isinstance(a, tuple) else (a,)))
        if sum(a is target for a in args) > 1:  # it would read what it has written
            return False
    return all(
        not isinstance(a, TensorBase) or a is target or a._storage.buffer is not buffer
        for a in args
    )


def check_fits(op: Op, want: Any, have: Any) -> None:
    if want.shape != have.shape:
        raise RuntimeError(
            f"output with shape {list(have.shape)} doesn't match the broadcast shape "
            f"{list(want.shape)}"
        )
    _refuse_cast(want, have)


def _composite_in_place(op: Op, args: tuple[Any, ...], target: Any, recorded: bool) -> Any:
    """Compute aside, then copy over: the copy carries the history."""
    if recorded:
        args = tuple(a.clone() if a is target else a for a in args)
    result = dispatch.entry.run(op, args)
    check_fits(op, result._meta, target._meta)
    if recorded:
        target.copy_(result)
    else:
        write(target, result)
    return target
