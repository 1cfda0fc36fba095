"""The old spellings of mixed precision: they tell that there is no GPU and do nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lucerne._src.base.process import notices
from lucerne.amp.autocast_mode import autocast as _autocast
from lucerne.amp.autocast_mode import custom_bwd as _custom_bwd
from lucerne.amp.autocast_mode import custom_fwd as _custom_fwd
from lucerne.amp.grad_scaler import GradScaler as _GradScaler


def _warn_old(name: str) -> None:
    notices.warn(
        f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use "
        f"`torch.amp.{name}('cuda', args...)` instead.",
        FutureWarning,
    )


class autocast(_autocast):
    """`lucerne.amp.autocast("cuda", ...)`."""

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> None:
        _warn_old("autocast")
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(_GradScaler):
    """`lucerne.amp.GradScaler("cuda", ...)`."""

    def __init__(
        self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        _warn_old("GradScaler")
        super().__init__(
            "cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, cast_inputs: Any = None
) -> Callable[..., Any]:
    """`lucerne.amp.custom_fwd(device_type="cuda")`."""
    return functools.partial(_custom_fwd, device_type="cuda", cast_inputs=cast_inputs)(fwd)


def custom_bwd(bwd: Callable[..., Any]) -> Callable[..., Any]:
    """`lucerne.amp.custom_bwd(device_type="cuda")`."""
    return _custom_bwd(bwd, device_type="cuda")
