"""Splitting arguments over devices, and putting results together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.tensor import api as lu


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """One copy of `inputs` for each device: tensors are split along `dim`, the rest is repeated.

    >>> import lucerne as torch
    >>> torch.nn.parallel.scatter((torch.arange(4), "x"), ["cpu", "cpu"])
    [(tensor([0, 1]), 'x'), (tensor([2, 3]), 'x')]
    """
    count = len(target_gpus)
    if isinstance(inputs, lu.Tensor):
        parts = inputs.chunk(count, dim)
        return tuple(t.to(device) for t, device in zip(parts, target_gpus, strict=False))
    if isinstance(inputs, tuple) and inputs:
        rows = list(zip(*(scatter(x, target_gpus, dim) for x in inputs), strict=False))
        return [type(inputs)(*r) for r in rows] if hasattr(inputs, "_fields") else rows
    if isinstance(inputs, list) and inputs:
        columns = [scatter(x, target_gpus, dim) for x in inputs]
        return [list(row) for row in zip(*columns, strict=False)]
    if isinstance(inputs, dict) and inputs:
        columns = [scatter(x, target_gpus, dim) for x in inputs.values()]
        return [dict(zip(inputs, row, strict=True)) for row in zip(*columns, strict=False)]
    return [inputs for _ in target_gpus]


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Sequence[Any], dim: int = 0
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """Positional and named arguments for each device, as many of one as of the other."""
    positional = list(scatter(inputs, target_gpus, dim)) if inputs else []
    named = list(scatter(kwargs, target_gpus, dim)) if kwargs else []
    size = max(len(positional), len(named))
    positional += [()] * (size - len(positional))
    named += [{}] * (size - len(named))
    return tuple(positional), tuple(named)


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """Results of several devices as one: tensors are concatenated along `dim`."""
    first = outputs[0]
    if isinstance(first, lu.Tensor):
        moved = [t.to(target_device) for t in outputs]
        if all(t.dim() == 0 for t in moved):
            return lu.stack(moved)
        return lu.cat(moved, dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if not all(len(first) == len(o) for o in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)((k, gather([o[k] for o in outputs], target_device, dim)) for k in first)
    parts = [gather(column, target_device, dim) for column in zip(*outputs, strict=True)]
    return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
