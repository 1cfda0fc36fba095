"""Attention kernels of others in place of the built-in fused one.

A provider registers a function under a name; a user activates it. The function is then called once
and returns the kernel: a callable `kernel(query, key, value, attn_mask, dropout_p, is_causal,
scale, enable_gqa)` that returns the result, or `NotImplemented` for calls it does not take. It is
asked wherever the fused kernel would be, and must be differentiable if gradients are needed (made
of ops, or an `autograd.Function`). If it has a method `remove`, that is called at the end.

>>> import lucerne as torch
>>> from lucerne.nn import attention
>>> def provide():
...     return lambda q, k, v, *rest: v + 1
>>> attention.register_flash_attention_impl("plus one", register_fn=provide)
>>> attention.activate_flash_attention_impl("plus one")
>>> x = torch.zeros(1, 1, 1, 2)
>>> torch.nn.functional.scaled_dot_product_attention(x, x, x)
tensor([[[[1., 1.]]]])
>>> attention.restore_flash_attention_impl()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.ops.nn.attention_choice import choice
from lucerne._src.tensor.eager import plans

_REGISTERED: dict[str, Callable[..., Any]] = {}


class _Active:
    """The implementation in use, if any, and what its provider returned."""

    name: str | None = None
    handle: Any = None


def register_flash_attention_impl(impl: str, *, register_fn: Callable[..., Any]) -> None:
    """Make an implementation known under a name; nothing changes until it is activated."""
    _REGISTERED[impl] = register_fn


def activate_flash_attention_impl(impl: str) -> None:
    """Let a registered implementation compute attention from now on."""
    if impl not in _REGISTERED:
        raise ValueError(
            f"Unknown flash attention impl '{impl}'. "
            f"Available implementations: {list_flash_attention_impls()}"
        )
    handle = _REGISTERED[impl]()
    _remove()
    _use(impl, handle)


def list_flash_attention_impls() -> list[str]:
    """The names of registered implementations."""
    return sorted(_REGISTERED)


def current_flash_attention_impl() -> str | None:
    """The name of the active implementation; None for the built-in one."""
    return _Active.name


def restore_flash_attention_impl(_raise_warn: bool = True) -> None:
    """Go back to the built-in kernel."""
    if _Active.name is None:
        if _raise_warn:
            notices.warn("Trying to restore default FA2 impl when no custom impl was activated")
        return
    _remove()
    _use(None, None)


def _remove() -> None:
    if hasattr(_Active.handle, "remove"):
        _Active.handle.remove()


def _use(name: str | None, handle: Any) -> None:
    _Active.name, _Active.handle = name, handle
    choice.set(choice.enabled, handle if callable(handle) else None, choice.warn)
    plans.clear_plans()  # remembered calls of attention know nothing of the new one
