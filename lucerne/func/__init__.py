"""`lucerne.func`: transforms of functions (vmap, grad, ...) and modules called as functions."""

from __future__ import annotations

from lucerne.func.batching.loop import vmap_fallbacks
from lucerne.func.forward import jvp, linearize
from lucerne.func.functional import functionalize
from lucerne.func.helpers import debug_unwrap, replace_all_batch_norm_modules_
from lucerne.func.jacobian import hessian, jacfwd, jacrev
from lucerne.func.rearranging import rearrange
from lucerne.func.reverse import grad, grad_and_value, vjp
from lucerne.func.state import functional_call, stack_module_state
from lucerne.func.vmap import vmap

__all__ = [
    "debug_unwrap", "functional_call", "functionalize", "grad", "grad_and_value", "hessian",
    "jacfwd", "jacrev", "jvp", "linearize", "rearrange", "replace_all_batch_norm_modules_",
    "stack_module_state", "vjp", "vmap", "vmap_fallbacks",
]  # fmt: skip
