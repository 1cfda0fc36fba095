"""Adam, and Adam with decoupled weight decay."""

from __future__ import annotations

from typing import Any

from lucerne._src.base.unspecialized import as_number
from lucerne._src.ir.dispatch import recording
from lucerne._src.optim.fused_step import Lists, ReadyOptimizer, StepPart, laid_out_alike, split
from lucerne._src.optim.lists import (
    Tensors,
    check_at_least_zero,
    check_betas,
    check_fused,
    check_fused_param,
    check_kind,
    check_lr,
    column,
    count,
    first_step,
    number,
    read,
    real,
    zeros,
)
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.optimizers import ready_adam, record_adam
from lucerne.optim.optimizer import ParamsT, State


class Adam(ReadyOptimizer):
    """Kingma and Ba, "Adam: A Method for Stochastic Optimization" (2014).

    All parameters are updated by one kernel, whatever `foreach` and `fused` say.

    >>> import lucerne
    >>> w = lucerne.ones(2, requires_grad=True)
    >>> optimizer = lucerne.optim.Adam([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.9000, 0.9000], requires_grad=True)
    """

    _given = ("lr", "betas", "weight_decay", "eps")
    _sparse = "Adam does not support sparse gradients, please consider SparseAdam instead"

    def __init__(
        self, params: ParamsT, lr: Any = 1e-3, betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, amsgrad: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
        differentiable: bool = False, fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:  # fmt: skip
        _check(lr, betas, foreach=bool(foreach), capturable=capturable)
        check_at_least_zero(eps=eps)
        check_betas(betas)
        check_at_least_zero(weight_decay=weight_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable, "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)
        if fused:
            check_fused(self, foreach=foreach, differentiable=differentiable)

    def _begin(self, p: Any, group: dict[str, Any]) -> State:
        if group["fused"]:
            check_fused_param(p)
        begun = {"step": first_step(p, group), "exp_avg": zeros(p), "exp_avg_sq": zeros(p)}
        if group["amsgrad"]:
            begun["max_exp_avg_sq"] = zeros(p)
        return begun

    def _flags(self, group: dict[str, Any]) -> tuple[bool, ...]:
        return group["decoupled_weight_decay"], group["amsgrad"], group["maximize"]

    def _numbers(self, group: dict[str, Any]) -> tuple[float, ...]:
        beta1, beta2 = group["betas"]
        numbers = group["lr"], beta1, beta2, group["weight_decay"], group["eps"]
        return tuple([as_number(x) for x in numbers])

    def _lists(self, part: StepPart, grads: tuple[Any, ...] | None) -> Lists:
        states = part.states
        tops = "max_exp_avg_sq" in states[0]
        return (
            part.params,
            grads,
            tuple([s["exp_avg"] for s in states]),
            tuple([s["exp_avg_sq"] for s in states]),
            tuple([s["max_exp_avg_sq"] for s in states]) if tops else (),
            tuple([s["step"] for s in states]),
        )

    def _ready_step(self, lists: Lists, flags: tuple[bool, ...]) -> Any:
        return _ready(lists, flags)

    def _record(self, lists: Lists, flags: tuple[bool, ...], numbers: tuple[float, ...]) -> bool:
        if bool(lists[4]) != bool(flags[1]):
            return False  # amsgrad was switched on or off after the first step
        record_adam(lists, flags, numbers)
        return True

    def _plain(self, group: dict[str, Any], part: StepPart, grads: list[Any]) -> None:
        states = part.states
        check_kind(group["foreach"], group["differentiable"], group["capturable"], part.params)
        _one_by_one(
            part.params, grads, column(states, "exp_avg"), column(states, "exp_avg_sq"),
            column(states, "max_exp_avg_sq") if group["amsgrad"] else [],
            column(states, "step"), group["differentiable"], group["decoupled_weight_decay"],
            group["lr"], group["betas"], group["weight_decay"], group["eps"], group["maximize"],
        )  # fmt: skip

    def _step_part(
        self, group: dict[str, Any], params: list[Any], grads: list[Any], flags: tuple[bool, ...]
    ) -> StepPart:
        check_kind(group["foreach"], group["differentiable"], group["capturable"], params)
        return super()._step_part(group, params, grads, flags)


def _check(lr: Any, betas: tuple[Any, Any], *, foreach: bool, capturable: bool) -> None:
    if isinstance(lr, lu.Tensor) and foreach and not capturable:
        raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
    check_lr(lr)
    kinds = [isinstance(b, lu.Tensor) for b in betas]
    if any(kinds) and not all(kinds):
        raise ValueError("betas must be either both floats or both Tensors")
    if all(kinds):
        for i, beta in enumerate(betas):
            if foreach and not capturable:
                raise ValueError(
                    f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True"
                )
            if beta.numel() != 1:
                raise ValueError(f"Tensor betas[{i}] must be 1-element")


def _ready(lists: Lists, flags: tuple[bool, ...]) -> Any:
    """The kernel of these lists; None: amsgrad was switched on or off after the first step."""
    decoupled, amsgrad, maximize = flags
    if bool(lists[4]) != bool(amsgrad):
        return None
    given = [() if x is None else tuple(x) for x in lists]
    return ready_adam(given, (bool(decoupled), bool(amsgrad), bool(maximize)))


def adam(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors, state_steps: Tensors, foreach: bool | None = None,
    capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
    grad_scale: Any = None, found_inf: Any = None, has_complex: bool = False,
    decoupled_weight_decay: bool = False, *, amsgrad: bool, beta1: Any, beta2: Any, lr: Any,
    weight_decay: float, eps: float, maximize: bool,
) -> None:  # fmt: skip
    """One step of Adam over lists of tensors, in place."""
    check_kind(foreach, differentiable, capturable, params)
    if found_inf is not None and found_inf.item():
        return
    if grad_scale is not None:
        for g in grads:
            g.div_(grad_scale)
    where = {id(p): k for k, p in enumerate(params)}
    tops = max_exp_avg_sqs if amsgrad else []
    columns = (exp_avgs, exp_avg_sqs, tops, state_steps)
    for some, slopes in split(params, grads):
        picked = [[c[where[id(p)]] for p in some] if c else [] for c in columns]
        if not differentiable and not recording():
            alike = list(map(laid_out_alike, some, slopes))
            lists = [tuple(x) for x in (some, alike, *picked)]
            step = _ready(lists, (decoupled_weight_decay, amsgrad, maximize))
            numbers = (float(lr), float(beta1), float(beta2), float(weight_decay), eps)
            if step is not None and step.run(lists, numbers):
                continue
        means, squares, largest, steps = picked
        _one_by_one(
            some, slopes, means, squares, largest, steps, differentiable, decoupled_weight_decay,
            lr, (beta1, beta2), weight_decay, eps, maximize,
        )  # fmt: skip


def _one_by_one(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors, tops: Tensors,
    state_steps: Tensors, differentiable: bool, decoupled: bool, lr: Any, betas: tuple[Any, Any],
    weight_decay: float, eps: float, maximize: bool,
) -> None:  # fmt: skip
    """The update as ops: for what the kernel does not take, and for autograd."""
    lr = number(lr, differentiable)
    beta1, beta2 = (number(b, differentiable) for b in betas)
    count(state_steps)
    for i, given in enumerate(zip(params, grads, exp_avgs, exp_avg_sqs, strict=True)):
        p, g, exp_avg, exp_avg_sq = real(*given)
        step = number(state_steps[i])
        g = -g if maximize else g
        if weight_decay and decoupled:
            p.sub_(p * (lr * weight_decay))
        elif weight_decay:
            g = g + p * weight_decay if differentiable else g.add(p, alpha=weight_decay)
        exp_avg.add_((g - exp_avg) * (1 - beta1))
        exp_avg_sq.mul_(beta2).add_(g * g * (1 - beta2))
        largest = exp_avg_sq
        if tops:
            (top,) = real(tops[i])
            largest = lu.maximum(read(top, differentiable), read(exp_avg_sq, differentiable))
            top.copy_(largest)
        denom = largest.sqrt() / (1 - beta2**step) ** 0.5 + eps
        mean = exp_avg.clone() if differentiable else exp_avg  # the next step writes into it
        p.sub_(mean / denom * (lr / (1 - beta1**step)))
