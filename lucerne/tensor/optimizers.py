"""torch's fused optimizer steps: one call updates whole lists of tensors in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne.ir import dispatch
from lucerne.ir.op import Op
from lucerne.ops.optimizers import adam_update, sgd_update
from lucerne.tensor.autograd.modes import no_grad
from lucerne.tensor.into import Plans, bump, refuse_internal_overlap, write

_ADAM: Op = adam_update.op  # type: ignore[attr-defined]
_SGD: Op = sgd_update.op  # type: ignore[attr-defined]


def _update(op: Op, args: tuple[Any, ...], written: Sequence[Any]) -> None:
    """Run a step with its results written over the tensors they come from."""
    for t in written:
        refuse_internal_overlap(t)
    plan = Plans.fused(op, args)
    if plan is not None:
        plan.run_into(args, list(written))
        for t in written:
            bump(t)
        return
    with no_grad():
        found = dispatch.entry.run(op, args)
    for t, value in zip(written, found, strict=True):
        write(t, value)


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
        params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, float(lr), float(beta1),
        float(beta2), float(weight_decay), float(eps), decoupled, bool(amsgrad), bool(maximize),
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
        params, slopes, buffers, float(weight_decay), float(momentum), float(lr),
        float(dampening), bool(nesterov), bool(maximize), bool(is_first_step),
    )  # fmt: skip
    _update(_SGD, args, (*params, *buffers))
