"""Adagrad: gradients divided by the root of the sum of their squares."""

from __future__ import annotations

from typing import Any

from lucerne._src.optim.lists import (
    ListOptimizer,
    Tensors,
    check_at_least_zero,
    check_fused,
    check_fused_param,
    check_kind,
    check_lr,
    column,
    count,
    number,
    options,
    real,
    slope,
    step_dtype,
)
from lucerne._src.tensor import api as lu
from lucerne.optim.optimizer import ParamsT, State


class Adagrad(ListOptimizer):
    """Duchi, Hazan and Singer, "Adaptive Subgradient Methods" (2011). Takes sparse gradients.

    >>> import lucerne
    >>> w = lucerne.ones(2, requires_grad=True)
    >>> optimizer = lucerne.optim.Adagrad([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.9000, 0.9000], requires_grad=True)
    """

    def __init__(
        self, params: ParamsT, lr: Any = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
        initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *,
        maximize: bool = False, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_at_least_zero(
            lr_decay=lr_decay, weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value, eps=eps,
        )  # fmt: skip
        defaults = {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)
        if fused:
            check_fused(self, foreach=foreach, differentiable=differentiable)
        for group in self.param_groups:
            for p in group["params"]:
                if group["fused"]:
                    check_fused_param(p)
                self.state[p] = self._begin(p, group)

    def share_memory(self) -> None:
        """Move the sums to memory that other processes can share."""
        for state in self.state.values():
            state["step"].share_memory_()
            state["sum"].share_memory_()

    def _begin(self, p: Any, group: dict[str, Any]) -> State:
        first = group["initial_accumulator_value"]
        value = complex(first, first) if p.is_complex() else first
        total = lu.full_like(p, value, memory_format=lu.preserve_format, requires_grad=False)
        return {"step": lu.tensor(0.0, dtype=step_dtype(group["fused"])), "sum": total}

    def _update(
        self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[State]
    ) -> None:
        adagrad(
            params, grads, column(states, "sum"), column(states, "step"),
            has_sparse_grad=any(g.is_sparse for g in grads),
            **options(group, "lr weight_decay lr_decay eps foreach maximize differentiable fused"),
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=getattr(self, "found_inf", None),
        )  # fmt: skip


def adagrad(
    params: Tensors, grads: Tensors, state_sums: Tensors, state_steps: Tensors,
    fused: bool | None = None, grad_scale: Any = None, found_inf: Any = None,
    has_sparse_grad: bool = False, foreach: bool | None = None, differentiable: bool = False,
    has_complex: bool = False, *, lr: Any, weight_decay: float, lr_decay: float, eps: float,
    maximize: bool,
) -> None:  # fmt: skip
    """One step of Adagrad over lists of tensors, in place."""
    check_kind(foreach, differentiable)
    if found_inf is not None and found_inf.item():
        return
    lr = number(lr, differentiable)
    count(state_steps)
    if fused and not has_sparse_grad:
        lu._fused_adagrad_(
            params, grads, state_sums, state_steps, lr=lr, lr_decay=lr_decay,
            weight_decay=weight_decay, eps=eps, maximize=maximize, grad_scale=grad_scale,
        )  # fmt: skip
        return
    for p, g, total, counted in zip(params, grads, state_sums, state_steps, strict=True):
        g = g if grad_scale is None else g.div_(grad_scale)
        rate = lr / (1 + (number(counted) - 1) * lr_decay)
        if g.is_sparse:
            _update_rows(p, g, total, rate, weight_decay, eps, maximize)
            continue
        p, g, total = real(p, slope(p, g, maximize, weight_decay), total)
        total.add_(g * g)
        p.sub_(g / (total.sqrt() + eps) * rate)


def _update_rows(
    p: Any, g: Any, total: Any, rate: Any, weight_decay: float, eps: float, maximize: bool
) -> None:
    """The update where the gradient has elements."""
    if weight_decay:
        raise RuntimeError("weight_decay option is not compatible with sparse gradients")
    g = g.coalesce()
    rows, values = tuple(g.indices()), g.values()
    values = -values if maximize else values
    total[rows] = found = total[rows] + values * values
    p[rows] = p[rows] - values / found.sqrt().add(eps) * rate
