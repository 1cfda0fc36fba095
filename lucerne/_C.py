"""A few names of torch's extension module that code for subclasses uses."""

from __future__ import annotations

from lucerne._src.tensor.autograd.modes import no_grad as _AutoDispatchBelowAutograd
from lucerne._src.tensor.subclasses.torch_function import disable_all as DisableTorchFunction
from lucerne._src.tensor.subclasses.torch_function import (
    disable_overrides as DisableTorchFunctionSubclass,
)
from lucerne._src.tensor.subclasses.torch_function import (
    disabled_torch_function as _disabled_torch_function_impl,
)

__all__ = [
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "_AutoDispatchBelowAutograd",
    "_disabled_torch_function_impl",
]
