"""torch's fused optimizer steps: one call updates whole lists of tensors in place."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any

from lucerne._src.base.config import config
from lucerne._src.base.process.profiler_hook import FUNCTION, Watch, watched
from lucerne._src.base.process.source_location import user_place
from lucerne._src.base.unspecialized import as_number
from lucerne._src.ir import dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.op import Op
from lucerne._src.ops.nn.optimizers import adagrad_update, adam_update, counted_up, sgd_update
from lucerne._src.tensor.autograd.modes import no_grad
from lucerne._src.tensor.base import Plans
from lucerne._src.tensor.eager.dry_run import DryExecution
from lucerne._src.tensor.eager.inplace import bump, refuse_internal_overlap, write
from lucerne._src.tensor.storage import FAST

_ADAM: Op = adam_update.op  # type: ignore[attr-defined]
_SGD: Op = sgd_update.op  # type: ignore[attr-defined]
_ADAGRAD: Op = adagrad_update.op  # type: ignore[attr-defined]
_COUNT: Op = counted_up.op  # type: ignore[attr-defined]


def _update(op: Op, args: tuple[Any, ...], written: Sequence[Any]) -> None:
    """Run a step with its results written over the tensors they come from."""
    for t in written:
        refuse_internal_overlap(t)
    plan = Plans.fused(op, args)
    if plan is not None:
        run = partial(plan.run_into, args, list(written))
        watched(_shown(op, args), FUNCTION, run)
        for t in written:
            bump(t)
        return
    with no_grad():
        found = dispatch.entry.run(op, args)
    results = found if isinstance(found, tuple) else (found,)
    for t, value in zip(written, results, strict=True):
        write(t, value)


def _shown(op: Op, args: tuple[Any, ...]) -> str:
    """What profiles call a step: torch's name of the same."""
    if op is not _ADAM:
        return _SHOWN[op]
    decoupled = args[op.args.index("decoupled")]
    return "aten::_fused_adamw_" if decoupled else "aten::_fused_adam_"


_SHOWN = {_SGD: "aten::_fused_sgd_", _ADAGRAD: "aten::_fused_adagrad_"}
_SHOWN[_COUNT] = "aten::_foreach_add_"


def _unscaled(grads: Sequence[Any], grad_scale: Any, found_inf: Any) -> bool:
    """Undo the scaling of gradients; False if the step is to be skipped."""
    if found_inf is not None and float(found_inf) == 1.0:
        return False
    if grad_scale is not None:
        for g in grads:
            g.div_(grad_scale)
    return True


def _adam(decoupled: bool, lists: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
    params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps = (tuple(x) for x in lists)
    lr, beta1, beta2, weight_decay, eps, amsgrad, maximize = numbers
    if not amsgrad:
        max_exp_avg_sqs = ()
    if not params:
        return
    args = (
        params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, as_number(lr),
        as_number(beta1), as_number(beta2), as_number(weight_decay), as_number(eps), decoupled,
        bool(amsgrad), bool(maximize),
    )  # fmt: skip
    _update(_ADAM, args, (*params, *exp_avgs, *exp_avg_sqs, *max_exp_avg_sqs))


def _fused_adam_(
    self: Sequence[Any], grads: Sequence[Any], exp_avgs: Sequence[Any], exp_avg_sqs: Sequence[Any],
    max_exp_avg_sqs: Sequence[Any], state_steps: Sequence[Any], *, lr: Any, beta1: float,
    beta2: float, weight_decay: float, eps: float, amsgrad: bool, maximize: bool,
    grad_scale: Any = None, found_inf: Any = None,
) -> None:  # fmt: skip
    """A step of Adam over lists of parameters, in place. Steps have been counted already."""
    if _unscaled(grads, grad_scale, found_inf):
        lists = (self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps)
        _adam(False, lists, (lr, beta1, beta2, weight_decay, eps, amsgrad, maximize))


def _fused_adamw_(
    self: Sequence[Any], grads: Sequence[Any], exp_avgs: Sequence[Any], exp_avg_sqs: Sequence[Any],
    max_exp_avg_sqs: Sequence[Any], state_steps: Sequence[Any], *, lr: Any, beta1: float,
    beta2: float, weight_decay: float, eps: float, amsgrad: bool, maximize: bool,
    grad_scale: Any = None, found_inf: Any = None,
) -> None:  # fmt: skip
    """A step of AdamW over lists of parameters, in place. Steps have been counted already."""
    if _unscaled(grads, grad_scale, found_inf):
        lists = (self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps)
        _adam(True, lists, (lr, beta1, beta2, weight_decay, eps, amsgrad, maximize))


def _fused_sgd_(
    self: Sequence[Any], grads: Sequence[Any], momentum_buffer_list: Sequence[Any], *,
    weight_decay: float, momentum: float, lr: Any, dampening: float, nesterov: bool,
    maximize: bool, is_first_step: bool, grad_scale: Any = None, found_inf: Any = None,
) -> None:  # fmt: skip
    """A step of gradient descent over lists of parameters, in place."""
    if not _unscaled(grads, grad_scale, found_inf) or not self:
        return
    params, slopes = tuple(self), tuple(grads)
    buffers = tuple(momentum_buffer_list) if momentum else ()
    args = (
        params, slopes, buffers, as_number(weight_decay), as_number(momentum), as_number(lr),
        as_number(dampening), bool(nesterov), bool(maximize), bool(is_first_step),
    )  # fmt: skip
    _update(_SGD, args, (*params, *buffers))


def _fused_adagrad_(
    self: Sequence[Any], grads: Sequence[Any], state_sums: Sequence[Any],
    state_steps: Sequence[Any], *, lr: Any, lr_decay: float, weight_decay: float, eps: float,
    maximize: bool, grad_scale: Any = None, found_inf: Any = None,
) -> None:  # fmt: skip
    """A step of Adagrad over lists of parameters, in place. Steps have been counted already."""
    if not _unscaled(grads, grad_scale, found_inf) or not self:
        return
    params, sums = tuple(self), tuple(state_sums)
    args = (
        params, tuple(grads), sums, tuple(state_steps), as_number(lr), as_number(lr_decay),
        as_number(weight_decay), as_number(eps), bool(maximize),
    )  # fmt: skip
    _update(_ADAGRAD, args, (*params, *sums))


# ---- scaled gradients -------------------------------------------------------------------------


def _amp_foreach_non_finite_check_and_unscale_(
    self: Sequence[Any], found_inf: Any, inv_scale: Any
) -> None:
    """Multiply each tensor by `inv_scale`; `found_inf` becomes 1 if one of them is not finite."""
    for name, x in (("found_inf", found_inf), ("inv_scale", inv_scale)):
        if x.numel() != 1:
            raise RuntimeError(f"{name} must be a 1-element tensor.")
    for t in self:
        if not bool(t.isfinite().all()):
            found_inf.fill_(1)
        t.mul_(float(inv_scale))


def _amp_update_scale_(
    self: Any, growth_tracker: Any, found_inf: Any, scale_growth_factor: float,
    scale_backoff_factor: float, growth_interval: int,
) -> Any:  # fmt: skip
    """The scale after a step: smaller after one that was not finite, larger after enough good ones.

    `growth_tracker` counts the good ones in a row.
    """
    if float(found_inf):
        self.mul_(scale_backoff_factor)
        growth_tracker.zero_()
        return self
    counted = int(growth_tracker) + 1
    if counted == growth_interval:
        grown = self * scale_growth_factor
        if bool(grown.isfinite().all()):
            self.copy_(grown)
        counted = 0
    growth_tracker.fill_(counted)
    return self


# ---- steps that are captured ------------------------------------------------------------------


def record_adam(lists: Sequence[Any], flags: Sequence[bool], numbers: Sequence[float]) -> None:
    """Count the steps and update, as two nodes of a graph; arguments as those of `ready_adam`."""
    decoupled, amsgrad, maximize = flags
    count_steps(lists[-1])
    _adam(bool(decoupled), tuple(lists), (*numbers, amsgrad, maximize))


def record_sgd(lists: Sequence[Any], flags: Sequence[bool], numbers: Sequence[float]) -> None:
    """Update, as one node of a graph; arguments as those of `ready_sgd`."""
    params, _, buffers = (tuple(x) for x in lists)
    if params:
        _update(_SGD, (*(tuple(x) for x in lists), *numbers, *flags), (*params, *buffers))


def count_steps(steps: Sequence[Any]) -> None:
    """Add one to each counter: a single node for all of them."""
    if steps:
        _update(_COUNT, (tuple(steps),), steps)


# ---- steps kept ready -------------------------------------------------------------------------


class ReadyStep:
    """A fused step over the same tensors again and again, with little done in Python.

    The block of the kernel's arguments is kept; `run` writes the pointers of the tensors it is
    given into it, in machine code, and answers False (having changed nothing) when one of them is
    not laid out as it was when the step was made: then somebody must make another.
    """

    __slots__ = (
        "address", "block", "counted", "doubles", "inputs", "kernel", "name", "outputs", "written",
    )  # fmt: skip

    def __init__(self, kernel: Any, op: Op, args: tuple[Any, ...], written: Sequence[int]) -> None:
        lists = [a for a, kind in zip(args, op.kinds, strict=True) if kind == op_.TENSOR_LIST]
        numbers = [a for a, kind in zip(args, op.kinds, strict=True) if kind == op_.SCALAR]
        outs = [t for k in written for t in lists[k]]
        flat = [t for x in lists for t in x]
        self.kernel, self.name = kernel, _shown(op, args)
        self.written = tuple(k for k in written if lists[k])
        self.block, _ = kernel.block([*flat, *numbers], outs)
        self.address = at = ctypes.addressof(self.block)
        self.outputs = []
        for k in self.written:
            self.outputs.append((k, _metas(lists[k]), _itemsize(lists[k]), at))
            at += 8 * len(lists[k])
        self.inputs = []
        for k, tensors in enumerate(lists):
            if tensors:
                self.inputs.append((k, _metas(tensors), _itemsize(tensors), at))
                at += 8 * len(tensors)
        self.doubles = (ctypes.c_double * (2 * len(numbers))).from_address(at + 8)
        self.counted = "steps" in op.args and len(lists) - 1

    @staticmethod
    def make(op: Op, args: tuple[Any, ...], written: Sequence[int]) -> ReadyStep | None:
        """None: the engine has no kernel for these tensors."""
        plan = None if FAST is None else Plans.fused(op, args)
        if plan is None or type(plan.execute) is not FAST.kernel_type:
            return None
        if plan.execute.workspace or not args[0]:
            return None
        kind = ReadyStep if DryExecution.current is None else _DryStep
        return kind(plan.execute, op, args, written)

    def run(self, lists: Sequence[tuple[Any, ...] | None], numbers: Sequence[float]) -> bool:
        """Count the steps, if there are any, and update; a list that is None is the gradients."""
        params = lists[0]
        for k, metas, size, address in self.inputs:
            tensors = lists[k]
            if tensors is None:
                good = FAST.place_grads(params, metas, size, address)
            else:
                good = FAST.place(tensors, metas, size, address)
            if not good:
                return False
        for k, metas, size, address in self.outputs:
            FAST.place(lists[k], metas, size, address)
        self.doubles[::2] = list(numbers)
        if self.counted:
            FAST.count_up(lists[self.counted])
        if Watch.current is None:
            status = self.kernel.call(self.address)
        else:
            status = watched(self.name, FUNCTION, lambda: self.kernel.call(self.address))
        assert status == 0, f"an optimizer kernel answered {status}"
        line = user_place() if config.user_lines else None
        for k in self.written:
            FAST.note_writes(lists[k], line)
        return True


class _DryStep(ReadyStep):
    """The same in a dry run, where there are no addresses: steps are counted, nothing else."""

    __slots__ = ()

    def __init__(self, kernel: Any, op: Op, args: tuple[Any, ...], written: Sequence[int]) -> None:
        self.counted = "steps" in op.args

    def run(self, lists: Sequence[tuple[Any, ...] | None], numbers: Sequence[float]) -> bool:
        steps = lists[-1]
        if self.counted and steps is not None:
            count_steps(steps)
        return True


def _metas(tensors: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(t._meta for t in tensors)


def _itemsize(tensors: Sequence[Any]) -> int:
    return int(tensors[0]._meta.dtype.itemsize)


def ready_adam(lists: Sequence[tuple[Any, ...]], flags: tuple[bool, bool, bool]) -> Any:
    """A step of Adam over (params, grads, averages, squares, largest squares, steps), kept ready.

    `flags`: decoupled weight decay, amsgrad, maximize. Numbers of `run`: lr, both betas, weight
    decay, eps.
    """
    return ReadyStep.make(_ADAM, (*lists, 1.0, 1.0, 1.0, 1.0, 1.0, *flags), (0, 2, 3, 4))


def ready_sgd(lists: Sequence[tuple[Any, ...]], flags: tuple[bool, bool, bool]) -> Any:
    """A step of gradient descent over (params, grads, momentum buffers), kept ready.

    `flags`: nesterov, maximize, first step. Numbers of `run`: weight decay, momentum, lr,
    dampening.
    """
    return ReadyStep.make(_SGD, (*lists, 1.0, 1.0, 1.0, 1.0, *flags), (0, 2))


def clear_grads(params: Sequence[Any]) -> None:
    """`p.grad = None` for each."""
    if FAST is None or dispatch.recording() or not FAST.clear_grads(tuple(params)):
        for p in params:
            p.grad = None
