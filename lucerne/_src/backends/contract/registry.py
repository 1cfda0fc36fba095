"""Which backends there are. Nobody imports one: `get` loads it by name."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from lucerne._src.backends.contract.backend import Backend
from lucerne._src.backends.contract.handshake import taken
from lucerne._src.base import device as dev
from lucerne._src.base.config import Config, config
from lucerne._src.base.device import HOST
from lucerne._src.base.process import forks, notices

_OF_THE_HOST = ("reference", "null", "cpu")
_IN_TREE = (*_OF_THE_HOST, "xla")
_FALLBACK = "reference"
GROUP = "lucerne.backends"
"""The entry point group that packages name their backends in."""
META = "meta"
"""Tensors without bytes: only shapes are computed. Served by no backend."""
_registered: dict[str, Backend] = {}
_TORCH_SAYS = {"cuda": "Torch not compiled with CUDA enabled: "}


class NoBackendError(RuntimeError, AssertionError):
    """Torch raises either for a device it can't use, depending on the device: this is both."""


def register(name: str, backend: Any) -> None:
    """Make `backend` serve the device type `name` (out-of-tree backends call this, or use the
    entry point group `lucerne.backends`)."""
    _registered[name] = taken(name, backend)


@cache
def _entry_points() -> dict[str, Any]:
    """Out-of-tree backends that are installed; imported late, because importing it is slow."""
    from importlib import metadata

    return {e.name: e for e in metadata.entry_points(group=GROUP)}


def installed() -> list[str]:
    """Out-of-tree backends that packages have brought."""
    return sorted(_entry_points())


def outside() -> list[str]:
    """Backends of devices other than the host: those in use or registered, then installed ones."""
    known = [name for name in _registered if name not in _OF_THE_HOST and name != HOST]
    return list(dict.fromkeys([*known, *installed()]))


def is_known(name: str) -> bool:
    return (
        name in _registered or name in (META, HOST) or name in _IN_TREE or name in _entry_points()
    )


def names() -> list[str]:
    """Every backend that `get` loads by its name."""
    return sorted({HOST, *_registered, *_IN_TREE, *_entry_points()})


def get(name: str) -> Backend:
    """The backend that serves a device type, loaded on first use."""
    found = _registered.get(name)
    if found is None:
        found = _registered[name] = _load_host() if name == HOST else _load(name)
    return found


def takes_graphs(name: str) -> bool:
    """Whether captured graphs run whole on a device type: all they read had better be there."""
    return name not in (META, HOST) and "take" in get(name).abilities


def engine() -> Backend:
    """The engine that serves the host unless somebody chooses another backend, though somebody may
    have: a process that only writes code computes by the reference."""
    return _load(Config().host_backend)


def _load_host() -> Backend:
    """The engine of the host; where it can't run, for whatever reason, the complete but slow
    reference. What it puts in front of the Python path is machine code already: it is the proof."""
    try:
        found = _load(config.host_backend)
        if config.fast_path:
            found.fast_path()
        return found
    except NoBackendError:  # there is none of that name
        raise
    except Exception as error:
        if config.host_backend == _FALLBACK:
            raise
        notices.warn(
            f"the host backend {config.host_backend!r} can't run here "
            f"({type(error).__name__}: {error}); using the slow {_FALLBACK!r} backend. "
            f"LUCERNE_HOST_BACKEND={_FALLBACK} chooses it without asking."
        )
        return _load(_FALLBACK)


def _load(name: str) -> Backend:
    if name in _IN_TREE:
        return _in_tree(name)
    point = _entry_points().get(name)
    if point is None and name == META:
        raise NoBackendError("tensors on the device 'meta' have no bytes: no backend computes them")
    if point is None:
        known = ", ".join(sorted({*_registered, *_IN_TREE, *_entry_points(), META}))
        raise NoBackendError(
            f"{_TORCH_SAYS.get(name, '')}no backend serves device {name!r}; known devices: {known}"
        )
    return _made(name, point)


def _in_tree(name: str) -> Backend:
    """A backend of the package; what one of another device needs is an extra."""
    try:
        made: Backend = forks.import_module(f"lucerne._src.backends.{name}").make()
    except ImportError as error:
        if name in _OF_THE_HOST or (error.name or "").startswith("lucerne"):
            raise
        raise NoBackendError(
            f"the device {name!r} needs {error.name}, which can't be imported here ({error}): "
            f"`pip install lucerne[{name}]`, and see docs/guide/{name}.md"
        ) from error
    return made


def _made(name: str, point: Any) -> Backend:
    """The backend of an installed package."""
    dist = getattr(point, "dist", None)
    source = f"{dist.name} {dist.version}, {point.value}" if dist is not None else point.value
    try:
        loaded: Any = point.load()()
    except (ImportError, AttributeError) as error:
        raise NoBackendError(
            f"the backend {name!r} ({source}) is installed but can't be loaded: {error}. Its "
            f"entry point in the group {GROUP!r} must name a class or function that takes no "
            "arguments and returns a backend."
        ) from error
    return taken(name, loaded, source)


def on_host(backend: Backend, buffer: Any) -> np.ndarray[Any, Any]:
    """A buffer's bytes; of memory that is the device's own a copy, which can't be written to."""
    found = backend.to_host(buffer)
    if backend.own_memory:
        found.flags.writeable = False
    return found


def fast_path() -> Any:
    """What the host's engine puts in front of the Python path, or None: the Python path then does
    everything."""
    return get(HOST).fast_path() if config.fast_path else None


def _count(name: str) -> int:
    return len(get(name).devices())


dev.set_known_types(is_known)
dev.set_count(_count)
