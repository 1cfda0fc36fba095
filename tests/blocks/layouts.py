"""The layouts of memory in which a block may meet its inputs, the values being the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _turned(torch: Any, x: Any) -> Any:
    return x.transpose(-1, -2).contiguous().transpose(-1, -2) if x.dim() > 1 else None


def _outer(torch: Any, x: Any) -> Any:
    return x.transpose(0, 1).contiguous().transpose(0, 1) if x.dim() > 2 else None


def _strided(torch: Any, x: Any) -> Any:
    wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype) if x.dim() else None
    if wide is not None:
        wide[..., 1::2] = x
        wide = wide[..., 1::2]
    return wide


def _channels_last(torch: Any, x: Any) -> Any:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else None


def _expanded(torch: Any, x: Any) -> Any:
    return x[:1].expand(x.shape) if x.dim() and x.shape[0] > 1 else None


LAYOUTS: dict[str, Callable[[Any, Any], Any]] = {
    "plain": lambda torch, x: x,
    "channels_last": _channels_last,
    "transposed": _turned,
    "batch inside": _outer,
    "strided": _strided,
    "expanded": _expanded,
}
"""By name: a tensor in that layout, or None if its number of dimensions has no such layout."""


def laid_out(torch: Any, args: tuple[Any, ...], layout: str) -> tuple[Any, ...] | None:
    """Arguments whose floating tensors lie like this, as leaves; None if none of them can."""
    changed, made = False, []
    for x in args:
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            there = LAYOUTS[layout](torch, x)
            changed |= there is not None
            x = (x if there is None else there).detach().requires_grad_()
        made.append(x)
    return tuple(made) if changed else None
