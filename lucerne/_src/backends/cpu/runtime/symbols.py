"""Addresses of what kernels call by name: the runtime's own functions, Python's, and C's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

_LIBRARIES = ("libm.so.6", "libgcc_s.so.1")
"""Looked in after the process itself: a statically linked Python may lack them."""

_provided: dict[str, Callable[[], int]] = {}
_known: dict[str, int] = {}
_opened: list[ctypes.CDLL] = []


def provide(name: str, address: int | Callable[[], int]) -> None:
    """Let kernels call `name`. A function is asked for the address when it is first needed."""
    _known.pop(name, None)
    _provided[name] = address if callable(address) else lambda: address


def resolve(name: str) -> int:
    """The address of a function or variable that a kernel names."""
    found = _known.get(name)
    if found is None:
        maker = _provided.get(name)
        found = _known[name] = maker() if maker is not None else _in_libraries(name)
    return found


def _in_libraries(name: str) -> int:
    for library in (*_process(), *_more()):
        try:
            address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except AttributeError:
            continue
        if address:
            return address
    raise LookupError(f"a kernel calls {name!r}, which neither the runtime nor the C library has")


def _process() -> list[ctypes.CDLL]:
    if not _opened:
        _opened.extend((ctypes.CDLL(None), ctypes.pythonapi))
    return _opened[:2]


def _more() -> list[ctypes.CDLL]:
    if len(_opened) == 2:
        for name in _LIBRARIES:
            try:
                _opened.append(ctypes.CDLL(name))
            except OSError:
                continue
    return _opened[2:]
