"""RAdam: Adam that waits until its estimate of the variance can be trusted."""

from __future__ import annotations

from typing import Any

from lucerne._src.optim.lists import (
    ListOptimizer,
    Tensors,
    check_at_least_zero,
    check_betas,
    check_kind,
    check_lr,
    column,
    count,
    first_step,
    number,
    options,
    real,
    zeros,
)
from lucerne._src.tensor import api as lu
from lucerne.optim.optimizer import ParamsT, State


class RAdam(ListOptimizer):
    """Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond" (2019).

    >>> import lucerne
    >>> w = lucerne.ones(2, requires_grad=True)
    >>> optimizer = lucerne.optim.RAdam([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.8000, 0.8000], requires_grad=True)
    """

    _sparse = "RAdam does not support sparse gradients"

    def __init__(
        self, params: ParamsT, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, decoupled_weight_decay: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
        differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_at_least_zero(eps=eps)
        check_betas(betas)
        check_at_least_zero(weight_decay=weight_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _begin(self, p: Any, group: dict[str, Any]) -> State:
        return {"step": first_step(p, group), "exp_avg": zeros(p), "exp_avg_sq": zeros(p)}

    def _update(
        self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[State]
    ) -> None:
        beta1, beta2 = group["betas"]
        radam(
            params, grads, column(states, "exp_avg"), column(states, "exp_avg_sq"),
            column(states, "step"), beta1=beta1, beta2=beta2,
            **options(group, "lr weight_decay eps maximize foreach capturable differentiable"),
            decoupled_weight_decay=group["decoupled_weight_decay"],
        )  # fmt: skip


def radam(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors,
    state_steps: Tensors, decoupled_weight_decay: bool = False, foreach: bool | None = None,
    differentiable: bool = False, capturable: bool = False, has_complex: bool = False,
    maximize: bool = False, *, beta1: float, beta2: float, lr: Any, weight_decay: float,
    eps: float,
) -> None:  # fmt: skip
    """One step of RAdam over lists of tensors, in place."""
    check_kind(foreach, differentiable, capturable, params)
    lr = number(lr, differentiable)
    count(state_steps)
    most = 2 / (1 - beta2) - 1
    columns = (params, grads, exp_avgs, exp_avg_sqs, state_steps)
    for p, g, exp_avg, exp_avg_sq, counted in zip(*columns, strict=True):
        p, g, exp_avg, exp_avg_sq = real(p, g, exp_avg, exp_avg_sq)
        step = number(counted)
        g = -g if maximize else g
        if weight_decay and decoupled_weight_decay:
            p.sub_(p * (lr * weight_decay))
        elif weight_decay:
            g = g.add(p, alpha=weight_decay)
        exp_avg.lerp_(g, 1 - beta1)
        exp_avg_sq.mul_(beta2).add_(g * g, alpha=1 - beta2)
        rest = 1 - beta2**step
        length = most - 2 * step * beta2**step / rest
        change = exp_avg * (lr / (1 - beta1**step))
        if lu.is_tensor(length):  # a step that is captured: both ways, and a choice
            far = change * _trust(length, most, rest) / exp_avg_sq.sqrt().add(eps)
            change = lu.where(length > 5.0, far, change)
        elif length > 5.0:
            change = change * _trust(length, most, rest) / exp_avg_sq.sqrt().add(eps)
        p.sub_(change)


def _trust(length: Any, most: float, rest: Any) -> Any:
    ratio = (length - 4) * (length - 2) * most
    return (ratio / ((most - 4) * (most - 2) * length)) ** 0.5 * rest**0.5
