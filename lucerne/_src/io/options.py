"""Settings of loading: classes the user vouches for, byte order, mapping flags."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from lucerne._src.ir.namespaces import home_of


class LoadEndianness(Enum):
    """Byte order of files that don't say it."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


class _Settings:
    def __init__(self) -> None:
        self.safe: list[Any] = []
        self.endianness: LoadEndianness | None = None
        self.mmap_flags = mmap.MAP_PRIVATE


_settings = _Settings()
Global = Callable[..., Any] | tuple[Callable[..., Any], str]


def add_safe_globals(safe_globals: Iterable[Global]) -> None:
    """Vouch for classes or functions, so that checkpoints which name them load.

    An item is a class or function, or a pair of one and the "module.name" that files call it.
    Whoever writes a file can then have it called with arguments of their choice: a class is made
    by `cls.__new__` (or `cls(*args)` where its pickle says so) and gets its attributes. Vouch only
    for plain data classes of your own.

    >>> import lucerne as torch
    >>> class Config: ...
    >>> torch.serialization.add_safe_globals([Config])
    >>> torch.serialization.get_safe_globals()[-1] is Config
    True
    >>> torch.serialization.clear_safe_globals()
    """
    for item in list(safe_globals):
        _spellings(item)  # complains about what can't be one
        if item not in _settings.safe:
            _settings.safe.append(item)


def clear_safe_globals() -> None:
    """Vouch for nothing any more."""
    _settings.safe.clear()


def get_safe_globals() -> list[Any]:
    """What the user vouches for."""
    return list(_settings.safe)


class safe_globals:
    """`add_safe_globals` for the duration of a `with` block."""

    def __init__(self, safe_globals: Iterable[Global]) -> None:
        self._added = list(safe_globals)

    def __enter__(self) -> None:
        self._before = get_safe_globals()
        add_safe_globals(self._added)

    def __exit__(self, *exc: object) -> None:
        _settings.safe[:] = self._before


def safe_table() -> dict[tuple[str, str], Any]:
    """What the user vouches for, by module and name: its own and, last, that of torch's files."""
    return {
        spelling: item[0] if isinstance(item, tuple) else item
        for item in _settings.safe
        for spelling in _spellings(item)
    }


def _spellings(item: Any) -> list[tuple[str, str]]:
    if isinstance(item, tuple):
        if len(item) != 2 or not callable(item[0]) or not isinstance(item[1], str):
            raise ValueError(
                "Expected either a global or tuple of (global, str of path to global), got "
                f"{item!r}"
            )
        module, _, name = item[1].rpartition(".")
        return [(module, name)]
    if not callable(item) or not hasattr(item, "__qualname__"):
        raise TypeError(f"add_safe_globals: expected classes or functions, got {item!r}")
    own = [(item.__module__, item.__qualname__)]
    home = home_of(item)
    if home is not None:  # (torch's files find some in C++, as `torch._C._nn.gelu`)
        return [*own, ("torch._C._nn", home[1]), home]
    top, dot, rest = item.__module__.partition(".")
    return [*own, ("torch" + dot + rest, item.__qualname__)] if top == "lucerne" else own


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Byte order for files without a record of it (None: this machine's)."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    _settings.endianness = endianness


def get_default_load_endianness() -> LoadEndianness | None:
    return _settings.endianness


def get_default_mmap_options() -> int:
    """How `load(mmap=True)` maps files."""
    return _settings.mmap_flags


class set_default_mmap_options:
    """Set the flags of `load(mmap=True)`; also usable in a `with` block.

    Only `mmap.MAP_PRIVATE` is accepted: with a shared mapping a training step would write into the
    checkpoint.
    """

    def __init__(self, flags: int) -> None:
        if flags != mmap.MAP_PRIVATE:
            raise ValueError(
                f"set_default_mmap_options: expected mmap.MAP_PRIVATE, got {flags}. A shared "
                "mapping would let tensors write into the checkpoint"
            )
        self._before = _settings.mmap_flags
        _settings.mmap_flags = flags

    def __enter__(self) -> None:
        """The flags are set already."""

    def __exit__(self, *exc: object) -> None:
        _settings.mmap_flags = self._before
