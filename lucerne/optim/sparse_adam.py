"""Adam for sparse gradients: only the elements that have one are touched."""

from __future__ import annotations

from typing import Any

from lucerne._src.optim.lists import ListOptimizer, check_betas, check_lr
from lucerne._src.tensor import api as lu
from lucerne.optim.optimizer import ParamsT, State


class SparseAdam(ListOptimizer):
    """Adam with masks: averages decay only where the gradient has elements.

    >>> import lucerne
    >>> w = lucerne.ones(2, 2, requires_grad=True)
    >>> w.grad = lucerne.sparse_coo_tensor([[1]], [[3.0, 3.0]], (2, 2))
    >>> lucerne.optim.SparseAdam([w], lr=0.1).step()
    >>> w.detach()
    tensor([[1.0000, 1.0000],
            [0.9000, 0.9000]])
    """

    def __init__(
        self, params: ParamsT, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, maximize: bool = False,
    ) -> None:  # fmt: skip
        if isinstance(lr, lu.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not lr > 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not eps > 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        check_lr(lr)
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        self._refuse("Sparse")
        self._refuse("Complex")

    def _refuse(self, what: str) -> None:
        found = [
            [i, k]
            for i, group in enumerate(self.param_groups)
            for k, p in enumerate(group["params"])
            if (p.is_sparse if what == "Sparse" else p.is_complex())
        ]
        if found:
            ends = {
                "Sparse": "SparseAdam requires dense parameter tensors",
                "Complex": "SparseAdam does not support complex parameters",
            }
            raise ValueError(f"{what} params at indices {found}: {ends[what]}")

    def __setstate__(self, state: dict[str, Any]) -> None:
        super(ListOptimizer, self).__setstate__(state)

    @lu.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Change the parameters once; returns what `closure` returns."""
        return self._step(closure)

    def _begin(self, p: Any, group: dict[str, Any]) -> State:
        zeros = lu.zeros_like(p, memory_format=lu.preserve_format)
        return {"step": 0, "exp_avg": zeros, "exp_avg_sq": lu.zeros_like(zeros)}

    def _update(
        self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[State]
    ) -> None:
        if not all(g.is_sparse for g in grads):
            raise RuntimeError(
                "SparseAdam does not support dense gradients, please consider Adam instead"
            )
        beta1, beta2 = group["betas"]
        for p, g, state in zip(params, grads, states, strict=True):
            state["step"] += 1
            step = state["step"]
            size = float(group["lr"]) * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
            _update_rows(p, g, state, (beta1, beta2), group["eps"], size, group["maximize"])


def _update_rows(
    p: Any, g: Any, state: State, betas: tuple[float, float], eps: float, size: float,
    maximize: bool,
) -> None:  # fmt: skip
    g = g.coalesce()
    rows, values = tuple(g.indices()), g.values()
    if not values.numel():
        return
    values = -values if maximize else values
    mean = state["exp_avg"][rows].lerp(values, 1 - betas[0])
    square = state["exp_avg_sq"][rows].lerp(values * values, 1 - betas[1])
    state["exp_avg"][rows] = mean
    state["exp_avg_sq"][rows] = square
    p[rows] = p[rows] - mean / square.sqrt().add(eps) * size
