"""Adamax: Adam with the largest gradient in place of their mean square."""

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
    read,
    real,
    slope,
    zeros,
)
from lucerne._src.tensor import api as lu
from lucerne.optim.optimizer import ParamsT, State


class Adamax(ListOptimizer):
    """Kingma and Ba, "Adam: A Method for Stochastic Optimization" (2014), section 7.1.

    >>> import lucerne
    >>> w = lucerne.ones(2, requires_grad=True)
    >>> optimizer = lucerne.optim.Adamax([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.9000, 0.9000], requires_grad=True)
    """

    _sparse = "Adamax does not support sparse gradients"

    def __init__(
        self, params: ParamsT, lr: Any = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, foreach: bool | None = None, *,
        maximize: bool = False, differentiable: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_at_least_zero(eps=eps)
        check_betas(betas)
        check_at_least_zero(weight_decay=weight_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _begin(self, p: Any, group: dict[str, Any]) -> State:
        return {"step": first_step(p, group), "exp_avg": zeros(p), "exp_inf": zeros(p)}

    def _update(
        self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[State]
    ) -> None:
        beta1, beta2 = group["betas"]
        adamax(
            params, grads, column(states, "exp_avg"), column(states, "exp_inf"),
            column(states, "step"), beta1=beta1, beta2=beta2,
            **options(group, "eps lr weight_decay foreach maximize differentiable capturable"),
        )  # fmt: skip


def adamax(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_infs: Tensors, state_steps: Tensors,
    foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    capturable: bool = False, has_complex: bool = False, *, eps: float, beta1: float,
    beta2: float, lr: Any, weight_decay: float,
) -> None:  # fmt: skip
    """One step of Adamax over lists of tensors, in place."""
    check_kind(foreach, differentiable, capturable, params)
    lr = number(lr, differentiable)
    count(state_steps)
    for p, g, exp_avg, exp_inf, step in zip(
        params, grads, exp_avgs, exp_infs, state_steps, strict=True
    ):
        g = slope(p, g, maximize, weight_decay)
        p, g, exp_avg, exp_inf = real(p, g, exp_avg, exp_inf)
        exp_avg.lerp_(g, 1 - beta1)
        exp_inf.copy_(lu.maximum(exp_inf * beta2, g.abs().add(eps)))
        size = lr / (1 - beta1 ** number(step))
        p.sub_(read(exp_avg, differentiable) / read(exp_inf, differentiable) * size)
