"""Rprop: only the signs of the gradients decide."""

from __future__ import annotations

from typing import Any

from lucerne._src.optim.lists import (
    ListOptimizer,
    Tensors,
    check_kind,
    check_lr,
    column,
    count,
    first_step,
    options,
    read,
    real,
    zeros,
)
from lucerne._src.tensor import api as lu
from lucerne.optim.optimizer import ParamsT, State


class Rprop(ListOptimizer):
    """Riedmiller and Braun, "A direct adaptive method for faster backpropagation learning" (1993).

    >>> import lucerne
    >>> w = lucerne.ones(2, requires_grad=True)
    >>> optimizer = lucerne.optim.Rprop([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.9000, 0.9000], requires_grad=True)
    """

    _sparse = "Rprop does not support sparse gradients"

    def __init__(
        self, params: ParamsT, lr: Any = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False,
        foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _begin(self, p: Any, group: dict[str, Any]) -> State:
        lr = float(group["lr"])
        size = lu.full_like(p, complex(lr, lr) if p.is_complex() else lr, requires_grad=False)
        return {"step": first_step(p, group), "prev": zeros(p), "step_size": size}

    def _update(
        self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[State]
    ) -> None:
        etaminus, etaplus = group["etas"]
        least, most = group["step_sizes"]
        rprop(
            params, grads, column(states, "prev"), column(states, "step_size"),
            column(states, "step"), etaminus=etaminus, etaplus=etaplus, step_size_min=least,
            step_size_max=most, **options(group, "foreach maximize differentiable capturable"),
        )  # fmt: skip


def rprop(
    params: Tensors, grads: Tensors, prevs: Tensors, step_sizes: Tensors, state_steps: Tensors,
    foreach: bool | None = None, capturable: bool = False, maximize: bool = False,
    differentiable: bool = False, has_complex: bool = False, *, step_size_min: float,
    step_size_max: float, etaminus: float, etaplus: float,
) -> None:  # fmt: skip
    """One step of Rprop over lists of tensors, in place."""
    check_kind(foreach, differentiable, capturable, params)
    count(state_steps)
    for given in zip(params, grads, prevs, step_sizes, strict=True):
        p, g, prev, step_size = real(*given)
        g = -g if maximize else g
        agreement = (g * read(prev, differentiable)).sign()
        turned = agreement < 0
        factor = lu.ones_like(step_size).masked_fill(agreement > 0, etaplus)
        factor = factor.masked_fill(turned, etaminus)
        step_size.mul_(factor).clamp_(step_size_min, step_size_max)
        g = g.masked_fill(turned, 0)  # a change of sign: wait one step
        p.addcmul_(g.sign(), read(step_size, differentiable), value=-1)
        prev.copy_(g)
