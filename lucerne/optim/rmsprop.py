"""RMSprop: gradients divided by their running mean square."""

from __future__ import annotations

from typing import Any

from lucerne._src.optim.lists import (
    CAPTURABLE_DEVICES,
    ListOptimizer,
    Tensors,
    check_at_least_zero,
    check_kind,
    check_lr,
    column,
    count,
    first_step,
    number,
    options,
    read,
    real,
    slope,
    zeros,
)
from lucerne.optim.optimizer import ParamsT, State


class RMSprop(ListOptimizer):
    """Hinton's RMSprop, with momentum and the centered form of Graves (2013).

    >>> import lucerne
    >>> w = lucerne.ones(2, requires_grad=True)
    >>> optimizer = lucerne.optim.RMSprop([w], lr=0.01)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.9000, 0.9000], requires_grad=True)
    """

    _sparse = "RMSprop does not support sparse gradients"

    def __init__(
        self, params: ParamsT, lr: Any = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0, momentum: float = 0, centered: bool = False,
        capturable: bool = False, foreach: bool | None = None, maximize: bool = False,
        differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_at_least_zero(eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        defaults = {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _begin(self, p: Any, group: dict[str, Any]) -> State:
        begun = {"step": first_step(p, group), "square_avg": zeros(p)}
        if group["momentum"] > 0:
            begun["momentum_buffer"] = zeros(p)
        if group["centered"]:
            begun["grad_avg"] = zeros(p)
        return begun

    def _update(
        self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[State]
    ) -> None:
        rmsprop(
            params, grads, column(states, "square_avg"),
            column(states, "grad_avg") if group["centered"] else [],
            column(states, "momentum_buffer") if group["momentum"] > 0 else [],
            column(states, "step"),
            **options(group, "lr alpha eps weight_decay momentum centered foreach maximize"),
            **options(group, "differentiable capturable"),
        )  # fmt: skip


def rmsprop(
    params: Tensors, grads: Tensors, square_avgs: Tensors, grad_avgs: Tensors,
    momentum_buffer_list: Tensors, state_steps: Tensors, foreach: bool | None = None,
    maximize: bool = False, differentiable: bool = False, capturable: bool = False,
    has_complex: bool = False, *, lr: Any, alpha: float, eps: float, weight_decay: float,
    momentum: float, centered: bool,
) -> None:  # fmt: skip
    """One step of RMSprop over lists of tensors, in place."""
    check_kind(foreach, differentiable, capturable, params, devices=CAPTURABLE_DEVICES)
    lr = number(lr, differentiable)
    count(state_steps)
    for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
        p, g, square_avg = real(param, slope(param, grad, maximize, weight_decay), square_avgs[i])
        square_avg.mul_(alpha).add_(g * g, alpha=1 - alpha)
        spread = square_avg
        if centered:
            (mean,) = real(grad_avgs[i])
            mean.lerp_(g, 1 - alpha)
            mean = read(mean, differentiable)
            spread = square_avg - mean * mean
        denom = spread.sqrt().add(eps)
        if momentum > 0:
            (buffer,) = real(momentum_buffer_list[i])
            buffer.mul_(momentum).addcdiv_(g, denom)
            change = buffer
        else:
            change = g / denom
        p.sub_(change * lr)
