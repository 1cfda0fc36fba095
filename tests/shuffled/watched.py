"""What a test may change and must put back: the state of the process that other tests see.

A state is a table from names to values that can be compared. Random streams and caches are not in
it: every test moves those, and results must not depend on them (the shuffled runs show it).
"""

from __future__ import annotations

import gc
import locale
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

PLAIN = (bool, int, float, str, bytes, type(None))
SWITCHES = (
    "get_default_dtype", "get_default_device", "is_grad_enabled", "is_inference_mode_enabled",
    "get_num_threads", "are_deterministic_algorithms_enabled", "is_anomaly_enabled",
    "is_deterministic_algorithms_warn_only_enabled", "is_autocast_cache_enabled",
    "get_float32_matmul_precision", "is_warn_always_enabled", "is_autocast_enabled",
)  # fmt: skip
_NOT_OURS = ("PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR")
"""Variables of the environment that pytest and torch set for themselves."""
_FOLDERS_NOT_OURS = os.path.join("setuptools", "_vendor")
_FROZEN_AT_START = gc.get_freeze_count()
_COUNTS = ("count", "number", "epoch", "serial", "stamp", "version", "age", "seen", "used")
"""Parts of names of numbers that only ever grow."""


def state() -> dict[str, object]:
    """Everything watched, now."""
    found: dict[str, object] = dict(_of_python())
    for name in ("lucerne", "torch"):
        module = sys.modules.get(name)
        if module is not None:
            found.update(_switches(name, module))
    found.update(_numpy())
    found.update(_of_modules("lucerne"))
    return found


def _of_python() -> Iterator[tuple[str, object]]:
    yield "the working folder", os.getcwd()
    for folder in sys.path:
        if not folder.endswith(_FOLDERS_NOT_OURS):
            yield f"sys.path: {folder}", True
    yield "sys.meta_path", tuple(map(_named, sys.meta_path))
    yield "the recursion limit", sys.getrecursionlimit()
    yield "the collector is on", gc.isenabled()
    yield "objects are set aside", gc.get_freeze_count() > _FROZEN_AT_START
    yield "locale", locale.setlocale(locale.LC_ALL)
    yield "the trace function", _named(sys.gettrace())
    yield "the profile function", _named(sys.getprofile())
    yield "sys.excepthook", _named(sys.excepthook)
    yield "threading.excepthook", _named(threading.excepthook)
    yield "the handler of SIGINT", _named(signal.getsignal(signal.SIGINT))
    yield "the handler of SIGALRM", _named(signal.getsignal(signal.SIGALRM))
    yield "the level of logging", logging.getLogger().level
    for name, value in os.environ.items():
        if name not in _NOT_OURS:
            yield f"${name}", value
    threads = [t.name for t in threading.enumerate() if not t.daemon]
    yield "threads", tuple(sorted(threads))


def _named(thing: Any) -> str:
    """A name that is the same for the same thing, without an address."""
    return str(getattr(thing, "__qualname__", None) or type(thing).__qualname__)


def _switches(name: str, module: Any) -> Iterator[tuple[str, object]]:
    for switch in SWITCHES:
        call = getattr(module, switch, None)
        if call is not None:
            yield f"{name}.{switch}()", str(call())


def _numpy() -> Iterator[tuple[str, object]]:
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        yield "numpy.geterr()", repr(numpy.geterr())
        yield "numpy.get_printoptions()", repr(numpy.get_printoptions())


def _of_modules(package: str) -> Iterator[tuple[str, object]]:
    """Plain values at the top of the package's modules, and those its settings and the values of
    this thread hold."""
    for name, module in list(sys.modules.items()):
        if module is None or not (name == package or name.startswith(package + ".")):
            continue
        for key, value in list(vars(module).items()):
            if key.startswith("__"):
                continue
            if type(value) in PLAIN:
                yield f"{name}.{key}", value
            elif isinstance(value, threading.local) or _is_settings(value, name):
                for field, inner in list(vars(value).items()):
                    if type(inner) in PLAIN:
                        yield f"{name}.{key}.{field}", inner


def _is_settings(value: Any, module: str) -> bool:
    return type(value).__name__ == "Config" and type(value).__module__ == module


def differences(before: dict[str, object], after: dict[str, object]) -> dict[str, str]:
    """Names whose values differ, each with both values.

    A name that came with a module is none (its first value was never seen), nor one that only
    counts upwards.
    """
    found = {}
    for name in before.keys() | after.keys():
        old, new = before.get(name, _ABSENT), after.get(name, _ABSENT)
        if old is new or (type(old) is type(new) and old == new) or _counts(name, old, new):
            continue
        if _ABSENT in (old, new) and not name.startswith(("$", "sys.path: ")):
            continue
        found[name] = f"{_short(old)} -> {_short(new)}"
    return found


def _counts(name: str, old: object, new: object) -> bool:
    last = name.rpartition(".")[2].lower()
    grows = type(old) is int and type(new) is int and new > old
    return grows and any(part in last for part in _COUNTS)


def _short(value: object) -> str:
    text = "nothing" if value is _ABSENT else repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


_ABSENT = object()
