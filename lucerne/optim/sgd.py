"""Gradient descent, with momentum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.base.unspecialized import as_number
from lucerne._src.capture.trace.fake import CaptureError
from lucerne._src.ir.dispatch import recording, unseen
from lucerne._src.optim.fused_step import Lists, ReadyOptimizer, StepPart, laid_out_alike, split
from lucerne._src.optim.lists import (
    Tensors,
    check_at_least_zero,
    check_fused,
    check_fused_param,
    check_kind,
    check_lr,
    number,
)
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.optimizers import ready_sgd, record_sgd
from lucerne.optim.optimizer import ParamsT, State, _use_grad_for_differentiable


class SGD(ReadyOptimizer):
    """Stochastic gradient descent, with momentum as in Sutskever et al. (2013).

    All parameters are updated by one kernel, whatever `foreach` and `fused` say.

    >>> import lucerne
    >>> w = lucerne.ones(2, requires_grad=True)
    >>> optimizer = lucerne.optim.SGD([w], lr=0.1, momentum=0.9)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.8000, 0.8000], requires_grad=True)
    """

    _given = ("lr", "momentum", "dampening", "weight_decay")

    def __init__(
        self, params: ParamsT, lr: Any = 1e-3, momentum: float = 0, dampening: float = 0,
        weight_decay: Any = 0, nesterov: bool = False, *, maximize: bool = False,
        foreach: bool | None = None, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_at_least_zero(momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, "maximize": maximize, "foreach": foreach,
            "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)
        if fused:
            check_fused(self, foreach=foreach, differentiable=differentiable)

    @_use_grad_for_differentiable
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters once; returns what `closure` returns."""
        return self._step(closure)

    def _begin(self, p: Any, group: dict[str, Any]) -> State:
        """What a captured step begins with (see `_begin_momentum`)."""
        return _first_momentum(p)

    def _flags(self, group: dict[str, Any]) -> tuple[bool, ...]:
        return group["nesterov"], group["maximize"], group["momentum"] != 0

    def _numbers(self, group: dict[str, Any]) -> tuple[float, ...]:
        numbers = group["weight_decay"], group["momentum"], group["lr"], group["dampening"]
        return tuple([as_number(x) for x in numbers])

    def _states(self, params: Sequence[Any], group: dict[str, Any]) -> list[State]:
        if group["fused"]:
            for p in params:
                check_fused_param(p)
        if group["momentum"] == 0:
            return []
        states = [self.state[p] for p in params]
        if recording():
            _begin_momentum(params, states, group)
        return states

    def _lists(self, part: StepPart, grads: tuple[Any, ...] | None) -> Lists:
        return part.params, grads, tuple([s.get("momentum_buffer") for s in part.states])

    def _ready_step(self, lists: Lists, flags: tuple[bool, ...]) -> Any:
        nesterov, maximize, _ = flags
        buffers = lists[2] or ()
        if any(b is None for b in buffers):
            return None  # `_plain` makes the buffers
        given = [() if x is None else tuple(x) for x in lists]
        return ready_sgd(given, (bool(nesterov), bool(maximize), False))

    def _record(self, lists: Lists, flags: tuple[bool, ...], numbers: tuple[float, ...]) -> bool:
        nesterov, maximize, _ = flags
        record_sgd(lists, (bool(nesterov), bool(maximize), False), numbers)
        return True

    def _plain(self, group: dict[str, Any], part: StepPart, grads: list[Any]) -> None:
        buffers = [s.get("momentum_buffer") for s in part.states] or [None] * len(part.params)
        sgd(
            part.params, grads, buffers, any(g.is_sparse for g in grads), group["foreach"],
            weight_decay=group["weight_decay"], momentum=group["momentum"], lr=group["lr"],
            dampening=group["dampening"], nesterov=group["nesterov"], maximize=group["maximize"],
        )  # fmt: skip
        for state, buffer in zip(part.states, buffers, strict=False):
            state["momentum_buffer"] = buffer


def _begin_momentum(params: Sequence[Any], states: list[State], group: dict[str, Any]) -> None:
    """A captured step finds buffers of zeros, from which the first step is like all others."""
    pairs = zip(params, states, strict=True)
    missing = [(p, s) for p, s in pairs if s.get("momentum_buffer") is None]
    if missing and group["dampening"] != 0:
        raise CaptureError(
            "SGD: the first step with dampening is unlike the others: run it before the function "
            "is compiled"
        )
    for p, state in missing:
        with unseen():
            state.update(_first_momentum(p))


def _first_momentum(p: Any) -> State:
    return {"momentum_buffer": lu.zeros_like(p, requires_grad=False)}


def sgd(
    params: Tensors, d_p_list: Tensors, momentum_buffer_list: list[Any],
    has_sparse_grad: bool = False, foreach: bool | None = None, fused: bool | None = None,
    grad_scale: Any = None, found_inf: Any = None, *, weight_decay: Any, momentum: float,
    lr: Any, dampening: float, nesterov: bool, maximize: bool,
) -> None:  # fmt: skip
    """One step of gradient descent over lists of tensors, in place.

    Momentum buffers that are None are made and put into their list.
    """
    if found_inf is not None and found_inf.item():
        return
    recorded = lu.is_grad_enabled()
    check_kind(foreach, recorded)
    if grad_scale is not None:
        for g in d_p_list:
            g.div_(grad_scale)
    where = {id(p): k for k, p in enumerate(params)}
    ready = not recorded and not recording()
    for some, slopes in split(params, d_p_list):
        places = [where[id(p)] for p in some]
        buffers = [momentum_buffer_list[k] for k in places] if momentum else []
        if ready and not any(g.is_sparse for g in slopes):
            numbers = (float(weight_decay), float(momentum), float(lr), float(dampening))
            if all(b is None for b in buffers):
                first, buffers = True, [lu.empty_like(p) for p in some] if momentum else []
            else:
                first = False
            alike = list(map(laid_out_alike, some, slopes))
            lists = [tuple(x) for x in (some, alike, buffers)]
            known = not any(b is None for b in buffers)
            step = ready_sgd(lists, (bool(nesterov), bool(maximize), first)) if known else None
            if step is not None and step.run(lists, numbers):
                for k, b in zip(places, buffers, strict=False):
                    momentum_buffer_list[k] = b
                continue
        for k, p, g in zip(places, some, slopes, strict=True):
            momentum_buffer_list[k] = _update(
                p, g, momentum_buffer_list[k], weight_decay, momentum, lr, dampening, nesterov,
                maximize,
            )  # fmt: skip


def _update(
    p: Any, g: Any, buffer: Any, weight_decay: Any, momentum: float, lr: Any, dampening: float,
    nesterov: bool, maximize: bool,
) -> Any:  # fmt: skip
    """The update as ops; gives back the momentum buffer."""
    recorded = lu.is_grad_enabled()
    lr, weight_decay = number(lr, recorded), number(weight_decay, recorded)
    g = -g if maximize else g
    if weight_decay:
        if g.is_sparse:
            raise RuntimeError(
                "add(sparse, dense) is not supported. Use add(dense, sparse) instead."
            )
        g = g + p * weight_decay
    if momentum:
        if buffer is None:
            buffer = g.detach().clone()
        else:
            buffer.mul_(momentum).add_(g * (1 - dampening))
        g = g + buffer * momentum if nesterov else buffer
    if g.is_sparse:
        _subtract_sparse(p, g, lr)
    else:
        p.sub_(g * lr)
    return buffer


def _subtract_sparse(p: Any, g: Any, lr: Any) -> None:
    g = g.coalesce()
    p.index_put_(tuple(g.indices()), g.values() * -lr, accumulate=True)
