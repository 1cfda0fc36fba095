"""L-BFGS: quasi-Newton steps from the last few changes of the gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.ir.dispatch import call_back
from lucerne._src.optim.line_search import SearchPoint, WolfeSearch
from lucerne._src.optim.lists import check_lr
from lucerne._src.tensor import api as lu
from lucerne.optim.optimizer import Optimizer, ParamsT, State

Closure = Callable[[], Any]


class LBFGS(Optimizer):
    """Liu and Nocedal, "On the limited memory BFGS method" (1989). One group of parameters.

    `step` takes a closure that clears the gradients, computes the loss and calls backward.

    >>> import lucerne
    >>> w = lucerne.ones(2, requires_grad=True)
    >>> optimizer = lucerne.optim.LBFGS([w], line_search_fn="strong_wolfe")
    >>> def loss():
    ...     optimizer.zero_grad()
    ...     value = ((w - 3) ** 2).sum()
    ...     value.backward()
    ...     return value
    >>> first = optimizer.step(loss)
    >>> w
    tensor([3., 3.], requires_grad=True)
    """

    def __init__(
        self, params: ParamsT, lr: Any = 1, max_iter: int = 20, max_eval: int | None = None,
        tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:  # fmt: skip
        check_lr(lr)
        defaults = {
            "lr": lr, "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._params = self.param_groups[0]["params"]

    # -- all parameters as one vector ------------------------------------------------------------

    def _flat_grad(self) -> Any:
        parts = []
        for p in self._params:
            g = p.new_zeros(p.numel()) if p.grad is None else p.grad
            g = g.to_dense() if g.is_sparse else g
            parts.append((lu.view_as_real(g) if g.is_complex() else g).reshape(-1))
        return lu.cat(parts, 0)

    def _move(self, size: Any, direction: Any) -> None:
        at = 0
        for p in self._params:
            p = lu.view_as_real(p) if p.is_complex() else p
            p.add_(direction[at : at + p.numel()].view_as(p), alpha=float(size))
            at += p.numel()

    def _loss_at(
        self, closure: Closure, start: list[Any], t: Any, direction: Any
    ) -> tuple[float, Any]:
        """Loss and gradient after a step, which is taken back."""
        self._move(t, direction)
        loss = float(call_back(closure))
        grad = self._flat_grad()
        for p, old in zip(self._params, start, strict=True):
            p.copy_(old)
        return loss, grad

    # -- steps -----------------------------------------------------------------------------------

    @lu.no_grad()
    def step(self, closure: Closure) -> Any:  # type: ignore[override]
        """Up to `max_iter` iterations; returns the loss before the first."""

        def recorded() -> Any:
            with lu.enable_grad():
                return call_back(closure)

        group = self.param_groups[0]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = recorded()
        loss = float(first)
        state["func_evals"] += 1
        grad = self._flat_grad()
        if not grad.abs().max() <= group["tolerance_grad"]:
            self._iterate(recorded, group, state, loss, grad)
        return first

    def _iterate(
        self, closure: Closure, group: dict[str, Any], state: State, loss: float, grad: Any
    ) -> None:
        lr = float(group["lr"])
        evaluations = 1
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            d = state["d"] = _direction(state, grad, group["history_size"])
            state["prev_flat_grad"] = grad.clone(memory_format=lu.contiguous_format)
            state["prev_loss"] = previous = loss
            small = 1.0
            if state["n_iter"] == 1:
                small = min(1.0, 1.0 / float(grad.abs().sum()))
            state["t"] = t = small * lr if state["n_iter"] == 1 else group["lr"]
            slope = grad.dot(d)
            if slope > -group["tolerance_change"]:
                break
            last = iteration == group["max_iter"]
            made = 0
            if group["line_search_fn"] is not None:
                start = SearchPoint(0, loss, grad, slope)
                found, made = self._search(closure, group, start, t, d)
                state["t"] = t = found.t
                loss, grad = found.value, found.grad
                self._move(t, d)
            else:
                self._move(t, d)
                if not last:
                    loss, grad, made = float(call_back(closure)), self._flat_grad(), 1
            evaluations += made
            state["func_evals"] += made
            if (
                last
                or evaluations >= group["max_eval"]
                or bool(grad.abs().max() <= group["tolerance_grad"])
                or bool((d * float(t)).abs().max() <= group["tolerance_change"])
                or abs(loss - previous) < group["tolerance_change"]
            ):
                break
        _reorder(state)

    def _search(
        self, closure: Closure, group: dict[str, Any], start: SearchPoint, t: Any, direction: Any
    ) -> tuple[SearchPoint, int]:
        if group["line_search_fn"] != "strong_wolfe":
            raise RuntimeError("only 'strong_wolfe' is supported")
        before = [p.clone(memory_format=lu.contiguous_format) for p in self._params]
        search = WolfeSearch(
            lambda t: self._loss_at(closure, before, t, direction), direction, start,
            group["tolerance_change"],
        )  # fmt: skip
        return search.run(t), search.points


def _direction(state: State, grad: Any, history_size: int) -> Any:
    """Minus the gradient, turned and scaled by what past changes tell of the curvature."""
    if state["n_iter"] == 1:
        state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
        return grad.neg()
    changes, steps, ro = state["old_dirs"], state["old_stps"], state["ro"]
    y, s = grad - state["prev_flat_grad"], state["d"] * float(state["t"])
    ys = y.dot(s)
    if ys > 1e-10:  # else the curvature is not positive: leave it out
        if len(changes) == history_size:
            for kept in (changes, steps, ro):
                kept.pop(0)
        changes.append(y)
        steps.append(s)
        ro.append(1.0 / ys)
        state["H_diag"] = ys / y.dot(y)
    al = state.setdefault("al", [None] * history_size)
    q = grad.neg()
    for i in reversed(range(len(changes))):
        al[i] = steps[i].dot(q) * ro[i]
        q -= changes[i] * al[i]
    d = q * state["H_diag"]
    for i in range(len(changes)):
        d += steps[i] * (al[i] - changes[i].dot(d) * ro[i])
    return d


def _reorder(state: State) -> None:
    """The state's entries in PyTorch's order."""
    names = ("d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss")
    for name in names:
        state[name] = state.pop(name)
