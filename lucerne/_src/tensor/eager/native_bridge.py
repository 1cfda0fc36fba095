"""What the tensor layer and an engine's fast path tell each other.

The engine (`FAST`, see `backends.fast_path`) runs calls it has a plan for in machine code; every
other call arrives at `eager.run`, whose plans are handed over here. Without an engine nothing in
this module is used.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.base.config import config
from lucerne._src.base.device import HOST, device, watchers
from lucerne._src.base.process import notices
from lucerne._src.base.process.error_notes import call_failed
from lucerne._src.base.process.source_location import user_place
from lucerne._src.ir import argument_errors, dispatch, namespaces
from lucerne._src.ir import op as op_
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.tensor.autograd import pending
from lucerne._src.tensor.autograd.state import AutogradState
from lucerne._src.tensor.base import TensorBase, plain_types
from lucerne._src.tensor.eager.specialize import Observation
from lucerne._src.tensor.interop import exchange
from lucerne._src.tensor.storage import FAST, Storage

RECORDS, POINTWISE, ONLY_RECORDED = 1, 4, 16
"""Flags of plans, as the engine has them."""
_WRITE_OVER = ("copy", "scatter")
"""Primitives that may write their result over their first argument while they read it."""
_MASKED = 4
"""Arguments whose need of a gradient fits in a mask."""


def remember(op: Op, args: tuple[Any, ...], plan: Any) -> None:
    """Hand a plan to the fast path, unless it has it or cannot take it."""
    native = plan.native
    if native is False or (native is not None and FAST.holds(native)):
        return
    if native is None:
        native = plan.native = _native_plan(op, args, plan) or False
    if native is not False and not FAST.remember(op, args, native):
        plan.native = False


def _native_plan(op: Op, args: tuple[Any, ...], plan: Any, *, records: bool = True) -> Any:
    if op_.OPAQUE in op.kinds or len(op.kinds) > 12:
        return None
    if op.kind == op_.VIEW:
        return _view(op, args, plan)
    execute = plan.execute
    plain = type(execute) is FAST.kernel_type
    if not plain:  # it may do more than run a kernel, but not when gradients are recorded
        execute = getattr(execute, "when_recorded", None)
    if execute is None or plan.device.type != HOST:
        return None
    inputs = _inputs(op, args, execute.numbers, _range_code(plan))
    if inputs is None:
        return None
    flags, derivable = _recording(op, args, plan.metas) if records else (0, 0)
    lists = sum(1 << i for i, kind in enumerate(op.kinds) if kind == op_.TENSOR_LIST)
    smooth = sum(1 << i for i, m in enumerate(plan.metas) if _is_smooth(m))
    flags |= 0 if plain else ONLY_RECORDED
    flags |= POINTWISE if op.kind == op_.POINTWISE or op.qualified in _WRITE_OVER else 0
    masks = _save_masks(op, args)
    count, metas = len(args), plan.metas
    saved = _saved_results(op, len(metas))
    return FAST.kernel_plan(
        op, count, execute, inputs, metas, flags, derivable, masks, lists, smooth, saved
    )


def _saved_results(op: Op, count: int) -> int:
    """The mask of results that some formula reads."""
    reads = {r for _, needed in op.derivatives.values() for r in needed}
    if "y" in reads:
        return (1 << count) - 1
    return sum(1 << i for i, name in enumerate(op_.RESULTS[:count]) if count > 1 and name in reads)


def _is_smooth(meta: Any) -> bool:
    """Whether a result of this kind can have a gradient."""
    return meta.dtype.category in (dt.FLOAT, dt.COMPLEX)


def _view(op: Op, args: tuple[Any, ...], plan: Any) -> Any:
    source = args[0]._meta
    metas = [meta for meta, _ in plan.parts]
    if any(m.dtype.itemsize != source.dtype.itemsize for m in metas) or not op.derivatives:
        return None
    if source.device.type != HOST or not metas:
        return None
    _, derivable = _recording(op, args, metas)
    masks = _save_masks(op, args)
    if plan.several:
        parts = [(m, delta, ((op, args[1:], i),)) for i, (m, delta) in enumerate(plan.parts)]
        smooth = all(_is_smooth(m) for m in metas) or not any(_is_smooth(m) for m in metas)
        return FAST.views_plan(op, len(args), parts, derivable, masks) if smooth else None
    (meta, delta) = plan.parts[0]
    steps = ((op, args[1:], None),)
    return FAST.view_plan(op, len(args), meta, delta, steps, derivable, masks)


def _range_code(plan: Any) -> int | None:
    """Which Python ints the result's type holds, as the engine asks it: a width in bits, below 0
    of unsigned types (whose small negative numbers wrap), 0: all that have 64. None: any will do.
    """
    if not plan.checks:
        return None
    dtype = plan.metas[0].dtype
    bits = 8 * dtype.itemsize
    return 0 if bits == 64 else bits if dtype.is_signed else -bits


def _inputs(
    op: Op, args: tuple[Any, ...], letters: str, ints: int | None
) -> list[tuple[int, int, int, str]] | None:
    """How the kernel's inputs are found among the arguments; `ints`: see `_range_code`."""
    left = iter(letters)
    found: list[tuple[int, int, int, str]] = []
    for i, (kind, a) in enumerate(zip(op.kinds, args, strict=True)):
        if kind == op_.TENSOR_LIST:
            items = [(j, x) for j, x in enumerate(a) if x is not None]
            found.extend((i, j, x._meta.dtype.itemsize, "t") for j, x in items)
        elif kind in "tn" and a is not None:
            if isinstance(a, TensorBase):
                found.append((i, -1, a._meta.dtype.itemsize, "t"))
            else:
                letter = next(left, "?")
                if ints is None or kind != op_.SCALAR:
                    found.append((i, -1, 0, letter))
                else:
                    found.append((i, -1, ints, letter if letter == "i" else "?"))
    fits = next(left, None) is None and all(f[3] in "tfic" for f in found)
    return found if fits else None


def _recording(op: Op, args: tuple[Any, ...], metas: Sequence[Any]) -> tuple[int, int]:
    """Flags and the mask of arguments with a derivative."""
    if not any(_is_smooth(m) for m in metas):
        return RECORDS, 0
    if not op.derivatives:
        return (RECORDS if op.explicit else 0), 0
    if op.zero_for:
        return 0, 0  # a node keeps where zeros go
    reads = {r for _, needed in op.derivatives.values() for r in needed}
    derivable = 0
    for i, name in enumerate(op.args):
        if op.kinds[i] == op_.TENSOR_LIST and name in reads:
            return 0, 0  # saved as a whole: Python does that
        if i < _MASKED and name in op.derivatives and op.kinds[i] in "tl":
            derivable |= 1 << i
    return RECORDS, derivable


def _save_masks(op: Op, args: tuple[Any, ...]) -> list[int]:
    """For each set of arguments that need a gradient: the arguments their formulas read."""
    masks = []
    for needing in range(1 << _MASKED):
        reads = {
            r
            for i, name in enumerate(op.args[:_MASKED])
            if needing >> i & 1 and name in op.derivatives
            for r in op.derivatives[name][1]
        }
        tensors = (
            i for i, n in enumerate(op.args) if n in reads and isinstance(args[i], TensorBase)
        )
        masks.append(sum(1 << i for i in tensors))
    return masks


# ---- watching the first call of a kind ----------------------------------------------------------


def observe(public: Any, given: tuple[Any, ...], names: tuple[str, ...] | None) -> Any:
    """Run a public function and, if one kernel was all it took, tell the engine."""
    count = len(given) - len(names or ())
    kwargs = dict(zip(names or (), given[count:], strict=True))
    try:
        if Observation.current is not None or _is_ambiguous(given) or _floats_vary(public, given):
            return public.__wrapped__(*given[:count], **kwargs)
        seen = Observation.current = Observation()
        state = dispatch.state
        state.add_special(1)
        warned = notices.count
        try:
            result = public.__wrapped__(*given[:count], **kwargs)
        finally:
            Observation.current = None
            state.add_special(-1)
        good = not seen.spoiled and bool(seen.steps) and warned == notices.count
        if not public.by_value and (not good or _floats_decide(seen, given)):
            public.by_value = 1
        call = _call(seen, given, result) if good else None
        FAST.remember_call(public, given, names, *(call or (None,)))
        return result
    except Exception as error:
        named = argument_errors.given_names(public, given[:count], kwargs)
        call_failed(error, namespaces.public_name(inspect.unwrap(public)), named)
        raise


_MOST_FLOATS = 16
"""How many calls that differ in their floats only are remembered, where each float is a call."""


def _floats_vary(public: Any, given: tuple[Any, ...]) -> bool:
    """Whether calls like this one come with ever new floats (`x.clamp_(max=limit)` in a loop): to
    remember each would cost more than the call, and fill the table."""
    if not public.by_value or not any(type(g) is float for g in given):
        return False
    alike = tuple([_likeness(g) for g in given])
    counts = public.__dict__.setdefault("float_calls", {})
    counts[alike] = seen = counts.get(alike, 0) + 1
    return bool(seen > _MOST_FLOATS)


def _likeness(given: Any) -> Any:
    return given._meta if isinstance(given, TensorBase) else type(given)


def _is_ambiguous(given: tuple[Any, ...]) -> bool:
    """Whether one thing is given twice, as in `mul(x, x)`: what became of which can't be told, and
    the next call of the kind may be given two."""
    things = [id(g) for g in given if isinstance(g, TensorBase) or type(g) is float]
    return len(set(things)) < len(things)


def _call(seen: Observation, given: tuple[Any, ...], result: Any) -> tuple[Any, ...] | None:
    """Plan, sources, constants, target of a call that did one thing; None otherwise."""
    op, args, plan, made = seen.steps[-1]
    pick = -1
    if type(made) is tuple:
        pick = next((i for i, one in enumerate(made) if one is result), -1)
        made = made[pick] if pick >= 0 else made
    if made is not result or any(result is g for g in given) != (seen.over is not None):
        return None
    if len(seen.steps) > 1:
        chain = _view_chain(seen)
        if chain is None:
            return None
        native, args = chain
    else:
        remember(op, args, plan)
        native = plan.native or None
        if native is not None and not seen.recordable:
            native = _native_plan(op, args, plan, records=False)
    if native is None:
        return None
    kinds = op.kinds if len(seen.steps) == 1 else op_.TENSOR
    placed = _sources(kinds, args, given)
    if placed is None:
        return None
    target = -1
    if seen.over is not None:
        target = next((i for i, g in enumerate(given) if g is seen.over), -1)
        if target < 0 or seen.over is not args[0]:
            return None
    constants = tuple(a if place < 0 else None for a, place in zip(args, placed, strict=True))
    return native, placed, constants, target, pick


def _view_chain(seen: Observation) -> Any:
    """Views of views as one: (plan, arguments of the first)."""
    if seen.over is not None or any(op.kind != op_.VIEW for op, _, _, _ in seen.steps):
        return None
    first = seen.steps[0][1]
    delta, steps = 0, []
    for i, (op, args, plan, _) in enumerate(seen.steps):
        if i and args[0] is not seen.steps[i - 1][3]:
            return None
        meta, more = plan.parts[0]
        if plan.several or meta.dtype.itemsize != args[0]._meta.dtype.itemsize:
            return None
        if meta.device.type != HOST:
            return None
        delta += more
        steps.append((op, args[1:], None))
    meta = seen.steps[-1][2].parts[0][0]
    plan = FAST.view_plan(seen.steps[0][0], 1, meta, delta, tuple(steps), 0, [0] * (1 << _MASKED))
    return plan, first[:1]


def _floats_decide(seen: Observation, given: tuple[Any, ...]) -> bool:
    """Whether a float of the call went anywhere but into a runtime number of the kernel."""
    op, args, _, _ = seen.steps[-1]
    runtime = {id(a) for k, a in zip(op.kinds, args, strict=True) if k in "tn"}
    static = {id(a) for k, a in zip(op.kinds, args, strict=True) if k not in "tn"}
    floats = {id(g) for g in given if type(g) is float}
    derived = {id(a) for a in args if type(a) is float} - floats
    return bool(floats) and (bool(floats & static) or not floats <= runtime or bool(derived))


def _sources(kinds: str, args: tuple[Any, ...], given: tuple[Any, ...]) -> list[int] | None:
    """Where each argument of the plan stands in the call; -1: it does not change."""
    found = []
    for kind, a in zip(kinds, args, strict=True):
        place = -1
        if isinstance(a, TensorBase) or (type(a) is float and kind in "tn"):
            place = next((i for i, g in enumerate(given) if g is a), -1)
            if place < 0 and isinstance(a, TensorBase):
                return None
        elif type(a) is tuple and any(isinstance(x, TensorBase) for x in a):
            return None
        found.append(place)
    return found


# ---- connecting -------------------------------------------------------------------------------


def _place() -> Any:
    """The user's line; when the caller itself is the user's code, the engine is told so."""
    place = user_place()
    caller = sys._getframe(1)
    if place is not None and caller.f_code is place[0]:
        FAST.note_user_code(caller.f_code)
    return place


def wrap_public_functions() -> None:
    """Let the engine take calls of public functions: before methods and names are handed out."""
    namespaces.Wrapping.public = FAST.public
    for op in op_.table().values():
        op.public = public = namespaces.wrapped(op.public)
        # Bodies and fronts may look at a float; a primitive takes it as a number of its kernel.
        public.by_value = int(op.kind == op_.COMPOSITE)  # type: ignore[attr-defined]


class Operators:
    """The ops behind operators, by slot: kept for the second plain type."""

    known: ClassVar[dict[str, Op]] = {}


def add_plain_type(cls: type) -> None:
    """Make a finished subclass of Tensor (Parameter) as fast as Tensor itself.

    Its instances must behave as tensors in every op; results of ops are plain tensors. The engine
    has room for one such class.
    """
    plain_types.add(cls)
    dispatch.familiar.add(cls)
    if FAST is not None:
        FAST.set_plain_type(cls)
        FAST.patch(cls, Operators.known)
        FAST.patch_dealloc(cls)


def quicken(base: type, hooks: list[Any], tables: list[type], failed: Any) -> Any:
    """Machine code for attributes and calls of modules: gives a function to be called with `base`
    and each finished subclass, or None. `hooks` are the dictionaries of global hooks, `tables` the
    classes of a module's tables (members, hooks); `failed(error, module, args, kwargs or None)` is
    called with what a call raises."""
    slots = None if FAST is None else FAST.module_slots(base, hooks, tables, failed)
    return None if slots is None else slots.patch


def connect(tensor: type, slow_run: Any, operators: dict[str, Op]) -> None:
    """Put the fast path in front: called once, when the Tensor class is complete."""
    Operators.known = operators
    FAST.connect(
        tensor=tensor,
        storage=Storage,
        state=AutogradState,
        in_place=dispatch.InPlace,
        op_class=Op,
        meta=TensorMeta,
        host_device=device(HOST),
        identity_types={
            "dtype": dt.dtype,
            "device_class": device,
            "layout": lo.layout,
            "memory_format": lo.memory_format,
            "size": sh.Size,
        },
        callbacks={
            "expand_auto": pending.expand_auto,
            "expand_view": pending.expand_view,
            "slow_run": slow_run,
            "user_place": _place,
            "adopt": pending.adopt,
            "observe": observe,
            "dlpack_lend": exchange.lend,
            "dlpack_take": exchange.take,
            "dlpack_room": exchange.room,
        },
    )
    FAST.record_lines(config.user_lines)
    FAST.patch(tensor, operators)
    FAST.patch_dealloc(tensor)
    dispatch.State.changed = FAST.set_mode
    watchers.append(dispatch.state.add_special)
    dispatch.install(FAST.run)
