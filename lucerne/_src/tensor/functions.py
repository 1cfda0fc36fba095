"""Functions of the top module that are no ops: in-place forms, sharing memory, numbers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base.defaults import get_default_dtype
from lucerne._src.base.device import HOST
from lucerne._src.base.refusals import no_pinned_memory
from lucerne._src.ir.convert import as_device, as_dtype, as_optional_device, as_optional_dtype
from lucerne._src.ir.symbolic import numbers
from lucerne._src.ops.creation.fills import make_empty, strided_only
from lucerne._src.tensor.autograd.state import requires_grad as needs_grad
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.interop import outside
from lucerne._src.tensor.interop.construct import build
from lucerne._src.tensor.tensor import Tensor

Function = Callable[..., Any]

IN_PLACE = [
    "abs_", "acos_", "acosh_", "addmv_", "arccos_", "arccosh_", "arcsin_", "arcsinh_", "arctan_",
    "arctanh_", "asin_", "asinh_", "atan_", "atanh_", "ceil_", "celu_", "clamp_", "clamp_max_",
    "clamp_min_", "clip_", "conj_physical_", "cos_", "cosh_", "deg2rad_", "detach_", "erf_",
    "erfc_", "exp2_", "exp_", "expm1_", "fill_", "fix_", "floor_", "frac_", "gcd_", "i0_",
    "index_put_", "lcm_", "ldexp_", "log10_", "log1p_", "log2_", "log_", "logit_", "nan_to_num_",
    "neg_", "negative_", "rad2deg_", "reciprocal_", "relu_", "resize_as_", "round_", "rrelu_",
    "rsqrt_", "selu_", "sigmoid_", "sin_", "sinc_", "sinh_", "sqrt_", "square_", "tan_", "tanh_",
    "threshold_", "trunc_", "xlogy_", "zero_",
]  # fmt: skip
"""The in-place methods that torch also has as functions."""


def in_place_functions() -> dict[str, Function]:
    """`lucerne.exp_(x)` is `x.exp_()`: those that Tensor has, as functions."""
    return {name: _as_function(name) for name in IN_PLACE if hasattr(Tensor, name)}


def _as_function(name: str) -> Function:
    def function(input: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(input, TensorBase):
            kind = type(input).__name__
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {kind}")
        return getattr(input, name)(*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`input.{name}(...)`: writes its result over `input`."
    return function


# ---- tensors from memory ----------------------------------------------------------------------


def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """`obj` as a tensor that shares its memory when that is possible and `copy` does not forbid it.

    >>> import lucerne, numpy
    >>> a = numpy.zeros(2)
    >>> lucerne.asarray(a)[0] = 5
    >>> a
    array([5., 0.])
    """
    dtype, device = as_optional_dtype(dtype), as_optional_device(device)
    shared = _sharing(obj, dtype)
    if shared is None:
        if copy is False:
            raise ValueError("can't alias arbitrary sequence into a tensor.")
        return build(obj, dtype, device).requires_grad_(requires_grad)
    target, place = dtype or shared.dtype, device or shared.device
    if target is not shared.dtype or place != shared.device:
        if copy is False:
            what = "device" if place != shared.device else "dtype"
            names = dt.cxx_name(shared.dtype), dt.cxx_name(target)
            here, there = (shared.device, place) if what == "device" else names
            raise ValueError(f"can't alias tensor with {what} '{here}' into {what} '{there}'.")
        shared = shared.to(place, target)
    elif copy:
        shared = shared.clone()
    return _with_grad(shared, requires_grad)


def _sharing(obj: Any, dtype: dt.dtype | None) -> Any:
    """A tensor over the memory of `obj`; None when it has none to share."""
    if isinstance(obj, TensorBase):
        return obj
    if isinstance(obj, np.ndarray) and all(s >= 0 for s in obj.strides):
        return outside.from_numpy(obj)
    if isinstance(obj, (np.ndarray, np.generic)):
        return None
    if isinstance(obj, outside.UntypedStorage):
        made = make_empty((0,), dtype or dt.uint8, obj.device, False)
        return made.set_(obj)
    if hasattr(obj, "__dlpack__"):
        return outside.from_dlpack(obj)
    if isinstance(obj, (bytes, bytearray, memoryview)) or type(obj).__name__ in ("array", "mmap"):
        return outside.frombuffer(obj, dtype=dtype or get_default_dtype())
    return None


def _with_grad(made: Any, requires_grad: bool) -> Any:
    return made.requires_grad_() if requires_grad and not needs_grad(made) else made


def from_file(
    filename: str, shared: bool | None = None, size: int = 0, *, dtype: Any = None,
    layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Any:  # fmt: skip
    """A 1-D tensor mapped from a file; with `shared`, writes go to the file (and make it grow)."""
    if pin_memory:
        no_pinned_memory()
    strided_only("from_file", layout)
    if device is not None and as_device(device).type != HOST:
        raise RuntimeError(f"from_file: a file is mapped into host memory, not to {device}")
    kind: dt.dtype = get_default_dtype() if dtype is None else as_dtype(dtype)
    need = size * kind.itemsize
    if shared:
        if not os.path.exists(filename) or os.path.getsize(filename) < need:
            with open(filename, "ab") as file:
                file.truncate(need)
    elif os.path.getsize(filename) < need:
        raise RuntimeError(
            f"file {filename!r} holds {os.path.getsize(filename)} bytes, needs {need}"
        )
    if not size:
        return outside.from_numpy(np.empty(0, kind.storage))
    memory = np.memmap(filename, np.uint8, "r+" if shared else "c", 0, (need,))
    made = outside.frombuffer(memory, dtype=kind)
    return made.requires_grad_() if requires_grad else made


def to_dlpack(tensor: Any) -> Any:
    """A DLPack capsule over the tensor's memory."""
    return tensor.__dlpack__()


# ---- numbers in torch's words -----------------------------------------------------------------
# torch has these so that code works on traced sizes too; on plain numbers they are Python's.


def sym_int(a: Any) -> int:
    return numbers.to_int(a)


def sym_float(a: Any) -> float:
    return numbers.to_float(a)


def sym_not(a: Any) -> bool:
    return not a


def sym_max(a: Any, b: Any) -> Any:
    """The larger; a float if one of them is."""
    found = numbers.call(max, (a, b))
    return numbers.to_float(found) if isinstance(a, float) or isinstance(b, float) else found


def sym_min(a: Any, b: Any) -> Any:
    """The smaller; a float if one of them is."""
    found = numbers.call(min, (a, b))
    return numbers.to_float(found) if isinstance(a, float) or isinstance(b, float) else found


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """`t` if `b` else `f`, which must be of one type."""
    if not isinstance(b, bool) or t.__class__ is not f.__class__:
        raise AssertionError(f"sym_ite: expected (bool, T, T), got {b!r}, {t!r}, {f!r}")
    return t if b else f


def sym_sqrt(a: Any) -> float:
    return numbers.sqrt(a)


def sym_sum(args: Any) -> Any:
    return sum(args)


# ---- facts about the build --------------------------------------------------------------------

BUILD = {"has_lapack": True, "has_spectral": True, "has_mkl": False, "has_openmp": False}
"""What torch tells as module attributes: NumPy brings LAPACK and FFT."""
