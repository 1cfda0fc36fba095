"""ASGD: gradient descent that also keeps the average of its path."""

from __future__ import annotations

from typing import Any

from lucerne._src.optim.lists import (
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
    step_dtype,
    zeros,
)
from lucerne._src.tensor import api as lu
from lucerne.optim.optimizer import ParamsT, State


class ASGD(ListOptimizer):
    """Polyak and Juditsky, "Acceleration of stochastic approximation by averaging" (1992).

    The averaged parameters are in the state, as "ax".

    >>> import lucerne
    >>> w = lucerne.ones(2, requires_grad=True)
    >>> optimizer = lucerne.optim.ASGD([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.8000, 0.8000], requires_grad=True)
    """

    _sparse = "ASGD does not support sparse gradients"

    def __init__(
        self, params: ParamsT, lr: Any = 1e-2, lambd: float = 1e-4, alpha: float = 0.75,
        t0: float = 1e6, weight_decay: float = 0, foreach: bool | None = None,
        maximize: bool = False, differentiable: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_at_least_zero(weight_decay=weight_decay)
        defaults = {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
            "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for values in self.state.values():
            for name in ("eta", "mu"):
                if name in values and not isinstance(values[name], lu.Tensor):
                    values[name] = lu.tensor(values[name], dtype=step_dtype())

    def _begin(self, p: Any, group: dict[str, Any]) -> State:
        begun = first_step(p, group)
        return {
            "step": begun,
            "eta": lu.full_like(begun, float(group["lr"])),
            "mu": lu.ones_like(begun),
            "ax": zeros(p),
        }

    def _update(
        self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[State]
    ) -> None:
        asgd(
            params, grads, column(states, "ax"), column(states, "mu"), column(states, "eta"),
            column(states, "step"),
            **options(group, "lambd lr t0 alpha weight_decay foreach maximize differentiable"),
            capturable=group["capturable"],
        )  # fmt: skip


def asgd(
    params: Tensors, grads: Tensors, axs: Tensors, mus: Tensors, etas: Tensors,
    state_steps: Tensors, foreach: bool | None = None, maximize: bool = False,
    differentiable: bool = False, capturable: bool = False, has_complex: bool = False, *,
    lambd: float, lr: Any, t0: float, alpha: float, weight_decay: float,
) -> None:  # fmt: skip
    """One step of ASGD over lists of tensors, in place."""
    what = "params, mus, etas, and state_steps"
    check_kind(foreach, differentiable, capturable, params, what)
    lr = number(lr, differentiable)
    count(state_steps)
    columns = (params, grads, axs, mus, etas, state_steps)
    for p, g, ax, mu, eta, counted in zip(*columns, strict=True):
        p, g, ax = real(p, g, ax)
        g = slope(p, g, maximize, weight_decay)
        rate, weight = number(eta), number(mu)
        step = number(counted)
        p.sub_(p * (lambd * rate))
        p.sub_(g * rate)
        if lu.is_tensor(weight):  # a step that is captured
            ax.copy_(lu.where(weight == 1, p, ax + (p - ax) * weight))
            eta.copy_(lr / (1 + lambd * lr * step) ** alpha)
            mu.copy_(1 / (step - t0).clamp(min=1))
            continue
        if weight == 1:
            ax.copy_(p)
        else:
            ax.add_((p - ax) * weight)
        eta.copy_(lu.tensor(number(lr / (1 + lambd * lr * step) ** alpha)))
        mu.copy_(lu.tensor(1 / max(1, step - t0)))
