"""`lucerne.accelerator`: the device of this machine that is not the host, whichever it is.

It is the first backend that was registered (or whose package is installed) and has memory of its
own. Streams there are none: what is asked of a device is done in order.
"""

from __future__ import annotations

from typing import Any, NoReturn

from lucerne._src import backends
from lucerne._src.base.device import device as Device


def _found() -> str:
    """The name of the accelerator; "": there is none."""
    for name in backends.outside():
        try:
            backend = backends.get(name)
        except RuntimeError:  # installed, but it can't run here
            continue
        if backend.own_memory and backend.devices():
            return name
    return ""


def _backend() -> Any:
    name = _found()
    if not name:
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return backends.get(name)


def is_available() -> bool:
    return bool(_found())


def device_count() -> int:
    return len(_backend().devices()) if _found() else 0


def current_accelerator(check_available: bool = False) -> Device | None:
    """The device of the accelerator, or None."""
    name = _found()
    return Device(name) if name else None


def synchronize(device: Any = None) -> None:
    """Wait until the device has done all it was asked for."""
    if device is not None:
        _check_index(device)
    _backend().synchronize()


def current_device_index() -> int:
    _backend()
    return 0


def set_device_index(device: Any) -> None:
    """Choose a device by number: there is one of each type, number 0."""
    _check_index(device)


def _check_index(device: Any) -> None:
    index = device if isinstance(device, int) else (Device(device).index or 0)
    if not 0 <= index < len(_backend().devices()):
        raise RuntimeError(f"invalid device ordinal: {index}")


class device_index:
    """`with device_index(i):` as `set_device_index` for a block."""

    def __init__(self, device: int | None) -> None:
        self.index = device

    def __enter__(self) -> None:
        if self.index is not None:
            set_device_index(self.index)

    def __exit__(self, *exc: object) -> None:
        """There is one device, so nothing has changed."""


current_device_idx, set_device_idx = current_device_index, set_device_index


def _no_streams(*args: Any, **kwargs: Any) -> NoReturn:
    _backend()
    raise NotImplementedError(
        "streams: a device does what it is asked for in order; synchronize() waits for it"
    )


current_stream = set_stream = _no_streams


def empty_cache() -> None:
    """Nothing is kept for later: memory goes back to the device when a tensor goes."""


def _no_count(device_index: Any = None) -> NoReturn:
    _backend()
    raise NotImplementedError("the backend does not say how much memory its tensors take")


get_memory_info = _no_count


def memory_allocated(device_index: Any = None) -> int:
    return 0 if not _found() else _no_count()


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def reset_peak_memory_stats(device_index: Any = None) -> None:
    """No peaks are kept."""
