"""Muon: momentum whose matrices are made orthogonal before they are applied."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.ir.dispatch import recording
from lucerne._src.optim.lists import ListOptimizer, Tensors, check_lr, column, number
from lucerne._src.tensor import api as lu
from lucerne.optim.optimizer import ParamsT, State


class Muon(ListOptimizer):
    """Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024).

    For matrices only: give embeddings, heads, biases and norms to another optimizer.

    >>> import lucerne
    >>> w = lucerne.eye(2).requires_grad_()
    >>> optimizer = lucerne.optim.Muon([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> bool(w[0, 0] < 1)
    True
    """

    _sparse = "Muon does not support sparse gradients"

    def __init__(
        self, params: ParamsT, lr: Any = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None,
    ) -> None:  # fmt: skip
        check_lr(lr, "Learning rate should be >= 0 but is: {}")
        if not momentum >= 0.0:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        defaults = {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(
                        "Muon only supports 2D parameters whereas we found a parameter with size: "
                        f"{p.size()}"
                    )

    @lu.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Change the parameters once; returns what `closure` returns."""
        return self._step(closure)

    def _begin(self, p: Any, group: dict[str, Any]) -> State:
        return {"momentum_buffer": lu.zeros_like(p, memory_format=lu.preserve_format)}

    def _update(
        self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[State]
    ) -> None:
        if any(p.is_complex() for p in params):
            raise RuntimeError("Muon does not support complex parameters")
        muon(
            params, grads, column(states, "momentum_buffer"), lr=group["lr"],
            weight_decay=group["weight_decay"], momentum=group["momentum"],
            nesterov=group["nesterov"], ns_coefficients=group["ns_coefficients"],
            eps=group["eps"], ns_steps=group["ns_steps"], adjust_lr_fn=group["adjust_lr_fn"],
            has_complex=False,
        )  # fmt: skip


def muon(
    params: Tensors, grads: Tensors, muon_momentum_bufs: Tensors, *, foreach: bool | None = None,
    lr: Any, weight_decay: float, momentum: float, nesterov: bool,
    ns_coefficients: tuple[float, float, float], ns_steps: int, eps: float,
    adjust_lr_fn: str | None, has_complex: bool,
) -> None:  # fmt: skip
    """One step of Muon over lists of matrices, in place."""
    lr = number(lr) if recording() else float(lr)
    for p, g, buffer in zip(params, grads, muon_momentum_bufs, strict=True):
        if g.ndim != 2:
            raise ValueError("Param gradient must be a 2D matrix")
        buffer.lerp_(g, 1 - momentum)
        change = g.lerp(buffer, momentum) if nesterov else buffer
        change = orthogonal(change, ns_coefficients, ns_steps, eps)
        rows, columns = p.shape
        if adjust_lr_fn == "match_rms_adamw":
            rate = lr * 0.2 * math.sqrt(max(rows, columns))
        else:
            rate = lr * math.sqrt(max(1, rows / columns))
        p.sub_(p * (lr * weight_decay))
        p.sub_(change.to(p.dtype) * rate)


def orthogonal(
    matrix: Any, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Any:
    """Nearly the orthogonal matrix next to `matrix`, by Newton and Schulz's iteration in bfloat16.

    Singular values end near one rather than at it, which is enough and takes few products.
    """
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if matrix.ndim != 2:
        raise ValueError("Input tensor gradient must be a 2D matrix")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    x = matrix.bfloat16()
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = lu.addmm(x, lu.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
