"""`lucerne.utils.hooks`: handles of hooks, and marks on them."""

from __future__ import annotations

from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.tensor.autograd.hooks import RemovableHandle as RemovableHandle
from lucerne.nn.modules.hooks import BackwardHook as BackwardHook


def unserializable_hook(f: Any) -> Any:
    """Mark a hook that must be left out when its tensor is saved, without a warning."""
    f.__torch_unserializable__ = True
    return f


def warn_if_has_hooks(tensor: Any) -> None:
    """Warn about each hook of a tensor that saving it would lose."""
    for hook in (tensor._auto.hooks or {}).values() if tensor._auto is not None else ():
        if not hasattr(hook, "__torch_unserializable__"):
            notices.warn(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, "
                "you can decorate the function with @torch.utils.hooks.unserializable_hook to "
                "suppress this warning"
            )
