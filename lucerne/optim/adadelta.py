"""Adadelta: step sizes from the ratio of past changes to past gradients."""

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
    real,
    slope,
    zeros,
)
from lucerne.optim.optimizer import ParamsT, State


class Adadelta(ListOptimizer):
    """Zeiler, "ADADELTA: An Adaptive Learning Rate Method" (2012).

    >>> import lucerne
    >>> w = lucerne.ones(2, requires_grad=True)
    >>> optimizer = lucerne.optim.Adadelta([w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.9968, 0.9968], requires_grad=True)
    """

    _sparse = "Adadelta does not support sparse gradients"

    def __init__(
        self, params: ParamsT, lr: Any = 1.0, rho: float = 0.9, eps: float = 1e-6,
        weight_decay: float = 0, foreach: bool | None = None, *, capturable: bool = False,
        maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_at_least_zero(eps=eps, weight_decay=weight_decay)
        defaults = {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "capturable": capturable, "foreach": foreach, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _begin(self, p: Any, group: dict[str, Any]) -> State:
        return {"step": first_step(p, group), "square_avg": zeros(p), "acc_delta": zeros(p)}

    def _update(
        self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[State]
    ) -> None:
        adadelta(
            params, grads, column(states, "square_avg"), column(states, "acc_delta"),
            column(states, "step"),
            **options(group, "lr rho eps weight_decay foreach maximize differentiable capturable"),
        )  # fmt: skip


def adadelta(
    params: Tensors, grads: Tensors, square_avgs: Tensors, acc_deltas: Tensors,
    state_steps: Tensors, capturable: bool = False, foreach: bool | None = None,
    differentiable: bool = False, has_complex: bool = False, *, lr: Any, rho: float, eps: float,
    weight_decay: float, maximize: bool,
) -> None:  # fmt: skip
    """One step of Adadelta over lists of tensors, in place."""
    check_kind(foreach, differentiable, capturable, params, devices=CAPTURABLE_DEVICES[:4])
    lr = number(lr, differentiable)
    count(state_steps)
    for given in zip(params, grads, square_avgs, acc_deltas, strict=True):
        p, g, square_avg, acc_delta = real(*given)
        g = slope(p, g, maximize, weight_decay)
        square_avg.mul_(rho).add_(g * g, alpha=1 - rho)
        delta = (acc_delta + eps).sqrt() / (square_avg + eps).sqrt() * g
        acc_delta.mul_(rho).add_(delta * delta, alpha=1 - rho)
        p.sub_(delta * lr)
