"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lucerne._src.tensor import api as lu


def _same_device(param: Any, before: Any) -> Any:
    if before is not None and param.device != before:
        raise TypeError(
            "Found two parameters on different devices, this is currently not supported."
        )
    return param.device


def parameters_to_vector(parameters: Iterable[Any]) -> Any:
    """All parameters in one vector, one after the other."""
    parts, device = [], None
    for p in parameters:
        device = _same_device(p, device)
        parts.append(p.reshape(-1))
    return lu.cat(parts)


def vector_to_parameters(vec: Any, parameters: Iterable[Any]) -> None:
    """Let the parameters view the slices of a vector that belong to them.

    >>> import lucerne as torch
    >>> p = torch.nn.Parameter(torch.zeros(1, 2))
    >>> torch.nn.utils.vector_to_parameters(torch.tensor([1.0, 2.0]), [p])
    >>> p.data
    tensor([[1., 2.]])
    """
    if not isinstance(vec, lu.Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {lu.typename(vec)}")
    device, start = None, 0
    for p in parameters:
        device = _same_device(p, device)
        end = start + p.numel()
        p.data = vec[start:end].view_as(p).data
        start = end
