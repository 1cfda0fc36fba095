"""AdamW: Adam whose weight decay is no part of the gradient."""

from __future__ import annotations

from typing import Any

from lucerne._src.optim.lists import Tensors
from lucerne.optim.adam import Adam, adam
from lucerne.optim.optimizer import ParamsT


class AdamW(Adam):
    """Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2017).

    >>> import lucerne
    >>> w = lucerne.ones(2, requires_grad=True)
    >>> optimizer = lucerne.optim.AdamW([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.8990, 0.8990], requires_grad=True)
    """

    def __init__(
        self, params: ParamsT, lr: Any = 1e-3, betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, *,
        maximize: bool = False, foreach: bool | None = None, capturable: bool = False,
        differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize,
            capturable=capturable, differentiable=differentiable, fused=fused,
            decoupled_weight_decay=True,
        )  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


def adamw(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors, state_steps: Tensors, foreach: bool | None = None,
    capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
    grad_scale: Any = None, found_inf: Any = None, has_complex: bool = False, *, amsgrad: bool,
    beta1: Any, beta2: Any, lr: Any, weight_decay: float, eps: float, maximize: bool,
) -> None:  # fmt: skip
    """One step of AdamW over lists of tensors, in place."""
    adam(
        params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, foreach, capturable,
        differentiable, fused, grad_scale, found_inf, has_complex, True, amsgrad=amsgrad,
        beta1=beta1, beta2=beta2, lr=lr, weight_decay=weight_decay, eps=eps, maximize=maximize,
    )  # fmt: skip
