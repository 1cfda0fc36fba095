"""Process-wide settings with torch's names: defaults, determinism, threads, printing."""

from __future__ import annotations

import os
from typing import Any

from lucerne._src import backends
from lucerne._src.base import defaults
from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device as Device
from lucerne._src.base.process import notices
from lucerne._src.tensor.autograd.graph import set_detect_anomaly
from lucerne._src.tensor.eager import plans
from lucerne._src.tensor.interop.construct import DefaultDevice


def set_default_dtype(d: Any) -> None:
    """Make `d` the dtype of floating results that have no other.

    >>> import lucerne
    >>> lucerne.set_default_dtype(lucerne.float64)
    >>> lucerne.tensor(1.5).dtype
    torch.float64
    >>> lucerne.set_default_dtype(lucerne.float32)
    """
    defaults.set_default_dtype(d)
    plans.clear_plans()


_LEGACY = {
    "FloatTensor": dt.float32, "DoubleTensor": dt.float64, "HalfTensor": dt.float16,
    "BFloat16Tensor": dt.bfloat16,
}  # fmt: skip


def set_default_tensor_type(t: Any) -> None:
    """The old spelling: `set_default_tensor_type("torch.DoubleTensor")`."""
    name = t if isinstance(t, str) else t.__name__
    try:
        set_default_dtype(_LEGACY[name.rsplit(".", 1)[-1]])
    except KeyError:
        raise TypeError(
            "only floating-point types are supported as the default type: one of "
            f"{', '.join(_LEGACY)}, got {name!r}"
        ) from None


def set_default_device(device: Any) -> None:
    """New tensors go to `device` unless told otherwise; None restores the host."""
    DefaultDevice.value = None if device is None else Device(device)
    plans.clear_plans()


def get_default_device() -> Device:
    return DefaultDevice.get()


class _Flags:
    """Switches that change nothing yet but that programs set and read back."""

    deterministic = False
    warn_only = False
    matmul_precision = "highest"
    warn_always = False
    threads = os.cpu_count() or 1
    interop_threads = 1


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Results never depend on threads or order: this only sets the flag that is read back."""
    _Flags.deterministic, _Flags.warn_only = bool(mode), bool(warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    return _Flags.deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    return _Flags.warn_only


def set_deterministic_debug_mode(debug_mode: Any) -> None:
    levels = {"default": 0, "warn": 1, "error": 2}
    level = levels[debug_mode] if isinstance(debug_mode, str) else int(debug_mode)
    use_deterministic_algorithms(level > 0, warn_only=level == 1)


def get_deterministic_debug_mode() -> int:
    return 0 if not _Flags.deterministic else 1 if _Flags.warn_only else 2


def set_float32_matmul_precision(precision: str) -> None:
    """How exact float32 products must be: all three settings give the accuracy of float32.

    The setting is a permission to be less exact, and nothing here makes use of it. Tile units
    multiply float32 numbers in three parts, with errors no larger than those of float32
    multiplication (decision record 13); the environment's `LUCERNE_FLOAT32_PARTS=0` switches that
    off.
    """
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"expected one of 'highest', 'high', 'medium', got {precision!r}")
    _Flags.matmul_precision = precision


def get_float32_matmul_precision() -> str:
    return _Flags.matmul_precision


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """The switch behind `autograd.set_detect_anomaly`."""
    set_detect_anomaly(mode, check_nan)


def set_warn_always(b: bool) -> None:
    _Flags.warn_always = bool(b)


def is_warn_always_enabled() -> bool:
    return _Flags.warn_always


def set_num_threads(n: int) -> None:
    """How many threads kernels may use (the reference backend uses NumPy's own). Results never
    depend on it."""
    if n <= 0:
        raise RuntimeError("set_num_threads expects a positive integer")
    _Flags.threads = int(n)
    backends.get(backends.HOST).set_threads(_Flags.threads)
    plans.clear_plans()


def get_num_threads() -> int:
    """How many threads kernels use: the host's backend knows, where it has its own."""
    return backends.get(backends.HOST).threads() or _Flags.threads


def set_num_interop_threads(n: int) -> None:
    if n <= 0:
        raise RuntimeError("set_num_interop_threads expects a positive integer")
    notices.once(
        "set_num_interop_threads: kept, and of no effect: ops run one after the other, each on all "
        "the threads of set_num_threads()"
    )
    _Flags.interop_threads = int(n)


def get_num_interop_threads() -> int:
    return _Flags.interop_threads


def set_flush_denormal(mode: bool) -> bool:
    """Treat denormal numbers as zero in this thread and in workers that work for it. False where
    the backend can't: the reference backend keeps them, as NumPy does."""
    return backends.get(backends.HOST).set_flush_denormal(bool(mode))


def get_device_module(device: Any = None) -> Any:
    """The backend object that serves a device."""
    return backends.get(DefaultDevice.get().type if device is None else Device(device).type)
