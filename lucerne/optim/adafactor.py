"""Adafactor: second moments of matrices kept as a row and a column."""

from __future__ import annotations

from typing import Any

from lucerne._src.base.refusals import only
from lucerne._src.ir.dispatch import recording
from lucerne._src.optim.lists import (
    ListOptimizer,
    Tensors,
    check_kind,
    check_lr,
    column,
    count,
    number,
    options,
    real,
    step_dtype,
)
from lucerne._src.tensor import api as lu
from lucerne.optim.optimizer import ParamsT, State


class Adafactor(ListOptimizer):
    """Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost" (2018).

    >>> import lucerne
    >>> w = lucerne.ones(2, 2, requires_grad=True)
    >>> optimizer = lucerne.optim.Adafactor([w])
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w[0]
    tensor([0.9900, 0.9900], grad_fn=<SelectBackward0>)
    """

    _sparse = "Adafactor does not support sparse gradients"

    def __init__(
        self, params: ParamsT, lr: Any = 1e-2, beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0,
        weight_decay: float = 0.0, *, foreach: bool | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr, "Learning rate should be >= 0 but is: {}")
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not eps[0] >= 0.0:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not eps[1] >= 0.0:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        defaults = {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d,
            "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    @lu.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Change the parameters once; returns what `closure` returns."""
        return self._step(closure)

    def _begin(self, p: Any, group: dict[str, Any]) -> State:
        begun = {"step": lu.tensor(0.0, dtype=step_dtype())}
        if p.dim() > 1:
            begun["row_var"] = p.new_zeros((*p.shape[:-1], 1))
            begun["col_var"] = p.new_zeros((*p.shape[:-2], 1, p.shape[-1]))
        else:
            begun["variance"] = lu.zeros_like(p, memory_format=lu.preserve_format)
        return begun

    def _update(
        self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[State]
    ) -> None:
        if any(p.is_complex() for p in params):
            raise RuntimeError("Adafactor does not support complex parameters")
        adafactor(
            params, grads, [s.get("row_var") for s in states], [s.get("col_var") for s in states],
            [s.get("variance") for s in states], column(states, "step"), eps1=group["eps"][0],
            eps2=group["eps"][1],
            **options(group, "d lr beta2_decay weight_decay maximize foreach"),
        )  # fmt: skip


def adafactor(
    params: Tensors, grads: Tensors, row_vars: Tensors, col_vars: Tensors, variances: Tensors,
    state_steps: Tensors, foreach: bool | None = None, grad_scale: Any = None,
    found_inf: Any = None, has_complex: bool = False, *, d: float, lr: Any, beta2_decay: float,
    weight_decay: float, eps1: float | None, eps2: float, maximize: bool,
) -> None:  # fmt: skip
    """One step of Adafactor over lists of tensors, in place."""
    check_kind(foreach, False)
    only("adafactor", "grad_scale", grad_scale, None, "give gradients that are unscaled")
    only("adafactor", "found_inf", found_inf, None, "leave the step out yourself")
    lr = number(lr) if recording() else float(lr)
    count(state_steps)
    for i, given in enumerate(zip(params, grads, strict=True)):
        p, g = real(*given)
        g = -g if maximize else g
        step = number(state_steps[i])
        fresh = step**beta2_decay
        fresh = fresh.to(p.dtype) if lu.is_tensor(fresh) else fresh
        least = lu.finfo(p.dtype).eps if eps1 is None else eps1
        size = _larger(eps2, number(p.norm(2)) / p.numel() ** 0.5) * _smaller(lr, 1 / step**0.5)
        if weight_decay:
            p.sub_(p * (lr * weight_decay))
        if g.dim() > 1:
            estimate = _outer(g, row_vars[i], col_vars[i], fresh, least)
        else:
            (estimate,) = real(variances[i])
            estimate.lerp_(g.square(), fresh)
        update = estimate.clamp(min=least * least).rsqrt().mul_(g)
        clip = _larger(1.0, number(update.norm(2)) / (update.numel() ** 0.5 * d))
        p.sub_(update * (size / clip))


def _larger(a: float, b: Any) -> Any:
    return b.clamp(min=a) if lu.is_tensor(b) else max(a, b)


def _smaller(a: Any, b: Any) -> Any:
    return lu.where(b < a, b, a) if lu.is_tensor(b) else min(a, b)


def _outer(g: Any, row_var: Any, col_var: Any, fresh: Any, least: float) -> Any:
    """The second moment of a matrix from those of its rows and columns."""
    row_mean = g.norm(dim=-1, keepdim=True).square().div_(g.shape[-1])
    row_var.lerp_(row_mean, fresh)
    col_mean = g.norm(dim=-2, keepdim=True).square().div_(g.shape[-2])
    col_var.lerp_(col_mean, fresh)
    return (row_var @ col_var).div_(row_var.mean(dim=-2, keepdim=True).clamp_(min=least))
