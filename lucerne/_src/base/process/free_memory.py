"""How much memory this process may still take: what the machine has free, and what it was given."""

from __future__ import annotations

import sys
from typing import Any

try:
    import resource

    _limits: Any = resource
except ImportError:
    _limits = None  # not a system with limits of this kind

UNKNOWN = -1
_GROUP = "/sys/fs/cgroup/"


def free_memory() -> int:
    """Bytes; `UNKNOWN` where the system does not say."""
    found = [n for n in (_of_machine(), _of_group(), _of_limit()) if n >= 0]
    return min(found, default=UNKNOWN)


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _of_machine() -> int:
    for line in _text("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return UNKNOWN


def _of_group() -> int:
    most, used = (_text(_GROUP + name).strip() for name in ("memory.max", "memory.current"))
    return int(most) - int(used) if most.isdigit() and used.isdigit() else UNKNOWN


def _of_limit() -> int:
    """What `ulimit -v` leaves."""
    if _limits is None:
        return UNKNOWN
    most, _ = _limits.getrlimit(_limits.RLIMIT_AS)
    pages = _text("/proc/self/statm").split()
    if most == _limits.RLIM_INFINITY or not pages:
        return UNKNOWN
    return max(0, most - int(pages[0]) * _limits.getpagesize())


def peak_memory() -> int:
    """Bytes that this process took at most so far; `UNKNOWN` where the system does not say."""
    if _limits is None:
        return UNKNOWN
    most: int = _limits.getrusage(_limits.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10
