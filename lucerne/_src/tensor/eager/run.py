"""The eager path: a call becomes a key, the key finds a plan, the plan runs.

Keys are made in `keys.py`, plans in `plans.py` and, for composites that a device takes whole, in
`composite.py`. This is the complete path; an engine may put a faster one in front for common cases,
and everything it does not take arrives here.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.base.process.error_notes import call_failed
from lucerne._src.ir import dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.dispatch import InPlace
from lucerne._src.ir.op import Op
from lucerne._src.ops import aten
from lucerne._src.tensor.autograd import record
from lucerne._src.tensor.autograd.names import is_named
from lucerne._src.tensor.base import (
    TensorBase,
)
from lucerne._src.tensor.eager import native_bridge
from lucerne._src.tensor.eager.composite import body_of, fused_plan
from lucerne._src.tensor.eager.inplace import run_into
from lucerne._src.tensor.eager.keys import is_plain_call, key_of
from lucerne._src.tensor.eager.plans import PLANS, plan_for, plan_of
from lucerne._src.tensor.eager.specialize import Observation
from lucerne._src.tensor.layers import conjugate
from lucerne._src.tensor.storage import FAST
from lucerne._src.tensor.subclasses import torch_dispatch, torch_function

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
        if op.kind == op_.COMPOSITE:
            return _run_composite(op, args)
        key, grad = key_of(op, args)
        if key is None:
            return _run_unusual(op, args, None)
        plan = PLANS.get(key) or plan_of(key, op, args)
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
    if stack and _state.cast is None and not _state.inference:
        quick, logs = stack[-1].quick, stack[-1].logs
        if logs is not None and not conjugate.concern(op, args):
            return logs(op, args, out)
        if quick is not None and out is None and not conjugate.concern(op, args):
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
    fused = fused_plan(op, args) if whole else None
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
            result = _body(op, args)
        finally:
            _state.grad_enabled = True
        result = record.detached_from_inputs(result, args)
        record.record(op, args, result)
        return result
    return body_of(op, args) if recorded else _body(op, args)


def _body(op: Op, args: tuple[Any, ...]) -> Any:
    """The result of a body that autograd does not look at."""
    stack = _state.kernel_level
    return stack[-1].body(op, args, body_of) if stack else body_of(op, args)


dispatch.install(run)
