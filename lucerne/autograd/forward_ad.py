"""`lucerne.autograd.forward_ad`: derivatives carried along with the values, as dual tensors."""

from typing import Any

from lucerne._src.tensor.forward.dual import UnpackedDualTensor as UnpackedDualTensor
from lucerne._src.tensor.forward.dual import current_level as _current
from lucerne._src.tensor.forward.dual import dual_level as dual_level
from lucerne._src.tensor.forward.dual import enter_dual_level as enter_dual_level
from lucerne._src.tensor.forward.dual import exit_dual_level as exit_dual_level
from lucerne._src.tensor.forward.dual import is_fwd_grad_enabled as _is_fwd_grad_enabled
from lucerne._src.tensor.forward.dual import make_dual as make_dual
from lucerne._src.tensor.forward.dual import set_fwd_grad_enabled as _set_fwd_grad_enabled
from lucerne._src.tensor.forward.dual import unpack_dual as unpack_dual

__all__ = [
    "UnpackedDualTensor", "_is_fwd_grad_enabled", "_set_fwd_grad_enabled", "dual_level",
    "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """`_current_level` changes: it is looked up."""
    if name == "_current_level":
        return _current()
    raise AttributeError(f"module 'lucerne.autograd.forward_ad' has no attribute {name!r}")
