"""`autocast`, and what autograd functions of your own need to work under it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.ir.dispatch import call_back
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.eager import autocast as state

_SUPPORTED = (lu.bfloat16, lu.float16)


def is_autocast_available(device_type: str) -> bool:
    """Whether `autocast` knows such devices. It converts on those that are there."""
    state._checked(device_type)
    return True


def _check_type(device_type: Any) -> None:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")


class autocast:
    """Inside the block (or the decorated function) products run in `dtype`, bfloat16 by default,
    and ops that need it in float32; parameters and gradients keep their dtype.

    >>> import lucerne
    >>> w, x = lucerne.ones(2, 2, requires_grad=True), lucerne.ones(2, 2)
    >>> with lucerne.autocast("cpu"):
    ...     y = x @ w
    >>> y.dtype
    torch.bfloat16
    >>> y.sum().backward()
    >>> w.grad.dtype
    torch.float32
    """

    def __init__(
        self,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        _check_type(device_type)
        self.fast_dtype = lu.get_autocast_dtype(device_type) if dtype is None else dtype
        self.device = device_type
        self.custom_backend_name = "privateuseone"
        kept = lu.is_autocast_cache_enabled()
        self._cache_enabled = kept if cache_enabled is None else cache_enabled
        self._enabled = bool(enabled) and self._is_possible(bool(enabled))

    def _is_possible(self, enabled: bool) -> bool:
        if self.device == "cuda" and not state.is_there("cuda"):
            notices.warn("CUDA is not available or torch_xla is imported. Disabling autocast.")
            return False
        if state.is_there(self.device) and self.fast_dtype not in _SUPPORTED:
            name = self.device.upper()
            notices.warn(
                f"In {name} autocast, but the target dtype is not supported. Disabling autocast.\n"
                f"{name} Autocast only supports dtypes of torch.bfloat16, torch.float16 currently."
            )
            return False
        return enabled

    def __enter__(self) -> autocast:
        self.prev_cache_enabled = lu.is_autocast_cache_enabled()
        self.prev = lu.is_autocast_enabled(self.device)
        self.prev_fastdtype = lu.get_autocast_dtype(self.device)
        lu.set_autocast_enabled(self.device, self._enabled)
        lu.set_autocast_dtype(self.device, self.fast_dtype)
        lu.autocast_increment_nesting()
        lu.set_autocast_cache_enabled(self._cache_enabled)
        return self

    def __exit__(self, kind: Any = None, error: Any = None, trace: Any = None) -> None:
        if lu.autocast_decrement_nesting() == 0:
            lu.clear_autocast_cache()
        lu.set_autocast_enabled(self.device, self.prev)
        lu.set_autocast_dtype(self.device, self.prev_fastdtype)
        lu.set_autocast_cache_enabled(self.prev_cache_enabled)

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """`func` with autocast around each call."""

        @functools.wraps(func)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return call_back(func, *args, **kwargs)

        return decorated

    def _again(self) -> autocast:
        """The same settings for one more entry: a decorated function may call itself."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made


# ---- autograd functions of your own -----------------------------------------------------------


def _cast(value: Any, device_type: str, dtype: Any) -> Any:
    """Floating tensors of a device in another dtype, wherever they stand in a structure."""
    if isinstance(value, lu.Tensor):
        eligible = (
            value.is_floating_point()
            and value.device.type == device_type
            and value.dtype is not lu.float64
        )
        return value.to(dtype) if eligible else value
    if isinstance(value, (str, bytes)):
        return value
    if isinstance(value, Mapping):
        return {k: _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_cast(v, device_type, dtype) for v in value)
    return value


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: Any = None
) -> Callable[..., Any]:
    """Decorate the `forward` of an `autograd.Function`; its `backward` takes `custom_bwd`.

    With `cast_inputs` tensors arrive in that dtype and autocast is off inside.
    """
    _check_type(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        ctx._dtype = lu.get_autocast_dtype(device_type)
        on = lu.is_autocast_enabled(device_type)
        if cast_inputs is None:
            ctx._fwd_used_autocast = on
            return call_back(fwd, *args, **kwargs)
        ctx._fwd_used_autocast = False
        if not on:
            return call_back(fwd, *args, **kwargs)
        with autocast(device_type, enabled=False):
            given = _cast(args, device_type, cast_inputs)
            return call_back(fwd, *given, **_cast(kwargs, device_type, cast_inputs))

    return decorated


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorate the `backward` of an `autograd.Function`: it runs under the autocast of the
    forward."""
    _check_type(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        with autocast(device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return call_back(bwd, *args, **kwargs)

    return decorated
