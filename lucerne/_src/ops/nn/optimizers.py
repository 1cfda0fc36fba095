"""One optimizer step over lists of tensors as one op: what `_fused_adamw_` and kin run.

The ops give new values; the functions in `lucerne._src.tensor.optimizers` write them in place.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.ir.define import composite
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Scalar, Tensor, TensorList
from lucerne._src.ops.checks import computing


def _adam_meta(
    params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, max_exp_avg_sqs: Any, *rest: Any
) -> tuple[TensorMeta, ...]:
    return (*params, *exp_avgs, *exp_avg_sqs, *max_exp_avg_sqs)


@composite(internal=True, meta=_adam_meta, vjp={}, out=False, updates=True, torch="_fused_adam_")
def adam_update(
    params: TensorList,
    grads: TensorList,
    exp_avgs: TensorList,
    exp_avg_sqs: TensorList,
    max_exp_avg_sqs: TensorList,
    steps: TensorList,
    lr: Scalar,
    beta1: Scalar,
    beta2: Scalar,
    weight_decay: Scalar,
    eps: Scalar,
    decoupled: bool,
    amsgrad: bool,
    maximize: bool,
) -> Any:
    """Parameters and averages after a step of Adam; `decoupled`: weight decay as in AdamW."""
    found: list[list[Tensor]] = [[], [], [], []]
    for k, given in enumerate(zip(params, grads, exp_avgs, exp_avg_sqs, strict=True)):
        p, g, m, v = (computing(x) for x in given)
        g = -g if maximize else g
        if decoupled:
            p = p * (1 - lr * weight_decay)
        else:
            g = g + p * weight_decay
        m = m + (g - m) * (1 - beta1)
        v = v * beta2 + g * g * (1 - beta2)
        top = v
        if amsgrad:
            top = v.maximum(computing(max_exp_avg_sqs[k]))
            found[3].append(top.to(max_exp_avg_sqs[k].dtype))
        step = steps[k].double()
        size, root = lr / (1 - beta1**step), (1 - beta2**step).sqrt()
        p = p - m / (top.sqrt() / root + eps) * size
        for items, x, like in zip(found, (p, m, v), (given[0], *given[2:]), strict=False):
            items.append(x.to(like.dtype))
    return tuple(x for items in found for x in items)


def _count_meta(steps: Any) -> tuple[TensorMeta, ...]:
    return tuple(steps)


@composite(internal=True, meta=_count_meta, vjp={}, out=False, updates=True, torch="_foreach_add_")
def counted_up(steps: TensorList) -> Any:
    """Counters of steps, one further."""
    return tuple(step + 1 for step in steps)


def _sgd_meta(params: Any, grads: Any, momentum_buffers: Any, *rest: Any) -> tuple[TensorMeta, ...]:
    return (*params, *momentum_buffers)


@composite(internal=True, meta=_sgd_meta, vjp={}, out=False, updates=True, torch="_fused_sgd_")
def sgd_update(
    params: TensorList,
    grads: TensorList,
    momentum_buffers: TensorList,
    weight_decay: Scalar,
    momentum: Scalar,
    lr: Scalar,
    dampening: Scalar,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
) -> Any:
    """Parameters and momentum after a step of gradient descent; no buffers: no momentum."""
    changed, buffers = [], []
    for k, (param, grad) in enumerate(zip(params, grads, strict=True)):
        p, g = computing(param), computing(grad)
        g = (-g if maximize else g) + p * weight_decay
        if momentum_buffers:
            old = computing(momentum_buffers[k])
            b = g if is_first_step else old * momentum + g * (1 - dampening)
            buffers.append(b.to(momentum_buffers[k].dtype))
            g = g + b * momentum if nesterov else b
        changed.append((p - g * lr).to(param.dtype))
    return (*changed, *buffers)


def _adagrad_meta(params: Any, grads: Any, state_sums: Any, *rest: Any) -> tuple[TensorMeta, ...]:
    return (*params, *state_sums)


@composite(
    internal=True, meta=_adagrad_meta, vjp={}, out=False, updates=True, torch="_fused_adagrad_"
)
def adagrad_update(
    params: TensorList,
    grads: TensorList,
    state_sums: TensorList,
    steps: TensorList,
    lr: Scalar,
    lr_decay: Scalar,
    weight_decay: Scalar,
    eps: Scalar,
    maximize: bool,
) -> Any:
    """Parameters and sums of squares after a step of Adagrad."""
    changed, sums = [], []
    for param, grad, old, step in zip(params, grads, state_sums, steps, strict=True):
        p, g = computing(param), computing(grad)
        g = (-g if maximize else g) + p * weight_decay
        total = computing(old) + g * g
        rate = (lr / (1 + (step.double() - 1) * lr_decay)).to(p.dtype)
        changed.append((p - g / (total.sqrt() + eps) * rate).to(param.dtype))
        sums.append(total.to(old.dtype))
    return (*changed, *sums)
