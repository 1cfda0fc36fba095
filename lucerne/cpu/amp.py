"""The old spellings of mixed precision: `lucerne.amp` with the device filled in."""

from __future__ import annotations

from typing import Any

from lucerne._src.base.process import notices
from lucerne.amp.autocast_mode import autocast as _autocast
from lucerne.amp.grad_scaler import GradScaler as _GradScaler


class autocast(_autocast):
    """`lucerne.amp.autocast("cpu", ...)`."""

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> None:
        notices.warn(
            "`torch.cpu.amp.autocast(args...)` is deprecated. Please use "
            "`torch.amp.autocast('cpu', args...)` instead.",
            FutureWarning,
        )
        super().__init__("cpu", dtype, enabled, cache_enabled)


class GradScaler(_GradScaler):
    """`lucerne.amp.GradScaler("cpu", ...)`."""

    def __init__(
        self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        notices.warn(
            "`torch.cpu.amp.GradScaler(args...)` is deprecated. Please use "
            "`torch.amp.GradScaler('cpu', args...)` instead.",
            FutureWarning,
        )
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
