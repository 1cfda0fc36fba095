"""Gradients of bounded size."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

from lucerne import linalg
from lucerne._src.base.process import notices
from lucerne._src.tensor import api as lu


def _tensors(given: Any) -> list[Any]:
    return [given] if isinstance(given, lu.Tensor) else list(given)


def get_total_norm(
    tensors: Any,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """The norm of all tensors together, as if they were one vector.

    >>> import lucerne as torch
    >>> torch.nn.utils.get_total_norm([torch.tensor([3.0]), torch.tensor([4.0])])
    tensor(5.)
    """
    norm_type = float(norm_type)
    found = _tensors(tensors)
    if not found:
        return lu.tensor(0.0)
    with lu.no_grad():
        device = found[0].device
        norms = [linalg.vector_norm(t, norm_type).to(device) for t in found]
        total = linalg.vector_norm(lu.stack(norms), norm_type)
        if error_if_nonfinite and not bool(total.isfinite()):
            raise RuntimeError(
                f"The total norm of order {norm_type} for gradients from `parameters` is "
                "non-finite, so it cannot be clipped. To disable this error and scale the "
                "gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
            )
    return total


def clip_grads_with_norm_(
    parameters: Any, max_norm: float, total_norm: Any, foreach: bool | None = None
) -> None:
    """Scale gradients so that their norm, which is `total_norm` now, becomes at most `max_norm`."""
    grads = [p.grad for p in _tensors(parameters) if p.grad is not None]
    if not grads:
        return
    with lu.no_grad():
        # Always multiplied, by one if need be: looking at the norm would wait for it.
        factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
        for g in grads:
            g.mul_(factor.to(g.device))


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """Scale gradients down if their total norm exceeds `max_norm`; returns the norm before.

    >>> import lucerne as torch
    >>> p = torch.nn.Parameter(torch.zeros(2))
    >>> p.grad = torch.tensor([30.0, 40.0])
    >>> torch.nn.utils.clip_grad_norm_([p], max_norm=1.0)
    tensor(50.)
    >>> p.grad
    tensor([0.6000, 0.8000])
    """
    if isinstance(parameters, lu.Tensor):
        parameters = [parameters]
    else:
        single = isinstance(parameters, GeneratorType)
        parameters = list(parameters)
        if single and not parameters:
            notices.warn(
                "`parameters` is an empty generator, no gradient clipping will occur.",
                stacklevel=3,
            )
    grads = [p.grad for p in parameters if p.grad is not None]
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """The old name of `clip_grad_norm_`."""
    notices.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of "
        "`torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Bring every element of every gradient into [-clip_value, clip_value]."""
    limit = float(clip_value)
    with lu.no_grad():
        for p in _tensors(parameters):
            if p.grad is not None:
                p.grad.clamp_(min=-limit, max=limit)
