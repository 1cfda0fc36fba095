"""NAdam: Adam with Nesterov momentum."""

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
    step_dtype,
    zeros,
)
from lucerne._src.tensor import api as lu
from lucerne.optim.optimizer import ParamsT, State


class NAdam(ListOptimizer):
    """Dozat, "Incorporating Nesterov Momentum into Adam" (2016).

    >>> import lucerne
    >>> w = lucerne.ones(2, requires_grad=True)
    >>> optimizer = lucerne.optim.NAdam([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.8944, 0.8944], requires_grad=True)
    """

    _sparse = "NAdam does not support sparse gradients"

    def __init__(
        self, params: ParamsT, lr: Any = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_at_least_zero(eps=eps)
        check_betas(betas)
        check_at_least_zero(weight_decay=weight_decay, momentum_decay=momentum_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for values in self.state.values():
            if "mu_product" in values and not isinstance(values["mu_product"], lu.Tensor):
                values["mu_product"] = lu.tensor(values["mu_product"], dtype=step_dtype())

    def _begin(self, p: Any, group: dict[str, Any]) -> State:
        begun = first_step(p, group)
        return {
            "step": begun,
            "mu_product": lu.ones_like(begun),
            "exp_avg": zeros(p),
            "exp_avg_sq": zeros(p),
        }

    def _update(
        self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[State]
    ) -> None:
        beta1, beta2 = group["betas"]
        nadam(
            params, grads, column(states, "exp_avg"), column(states, "exp_avg_sq"),
            column(states, "mu_product"), column(states, "step"), beta1=beta1, beta2=beta2,
            **options(group, "lr weight_decay momentum_decay eps maximize foreach capturable"),
            **options(group, "decoupled_weight_decay differentiable"),
        )  # fmt: skip


def nadam(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors,
    mu_products: Tensors, state_steps: Tensors, decoupled_weight_decay: bool = False,
    foreach: bool | None = None, capturable: bool = False, differentiable: bool = False,
    has_complex: bool = False, maximize: bool = False, *, beta1: float, beta2: float, lr: Any,
    weight_decay: float, momentum_decay: float, eps: float,
) -> None:  # fmt: skip
    """One step of NAdam over lists of tensors, in place."""
    what = f"params, mu_products{',' if foreach else ''} and state_steps"
    check_kind(foreach, differentiable, capturable, params, what)
    lr = number(lr, differentiable)
    count(state_steps)
    columns = (params, grads, exp_avgs, exp_avg_sqs, mu_products, state_steps)
    for p, g, exp_avg, exp_avg_sq, mu_product, counted in zip(*columns, strict=True):
        p, g, exp_avg, exp_avg_sq = real(p, g, exp_avg, exp_avg_sq)
        step = number(counted)
        g = -g if maximize else g
        if weight_decay and decoupled_weight_decay:
            p.sub_(p * (lr * weight_decay))
        elif weight_decay:
            g = g.add(p, alpha=weight_decay)
        mu = beta1 * (1.0 - 0.5 * 0.96 ** (step * momentum_decay))
        next_mu = beta1 * (1.0 - 0.5 * 0.96 ** ((step + 1) * momentum_decay))
        (row,) = real(mu_product)
        row.copy_(row * mu)
        exp_avg.lerp_(g, 1 - beta1)
        exp_avg_sq.mul_(beta2).add_(g * g, alpha=1 - beta2)
        denom = (exp_avg_sq / (1 - beta2**step)).sqrt().add(eps)
        product = number(mu_product)
        near = lr * (1.0 - mu) / (1.0 - product)
        ahead = lr * next_mu / (1.0 - product * next_mu)
        p.sub_((g * near + exp_avg * ahead) / denom)
