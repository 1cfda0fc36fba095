"""Arguments that can't be followed here are refused by name, never accepted and forgotten."""

from __future__ import annotations

from typing import Any, NoReturn


def only(where: str, name: str, value: Any, usual: Any, reason: str) -> None:
    """Refuse an argument that has another value than the usual one.

    >>> only("save", "protocol", 3, 2, "files are written in one way")
    Traceback (most recent call last):
    NotImplementedError: save: protocol=3 is not supported: files are written in one way. ...
    """
    if value is not usual and value != usual:
        raise NotImplementedError(
            f"{where}: {name}={value!r} is not supported: {reason}. Leave it out, or give {usual!r}"
        )


def no_pinned_memory() -> NoReturn:
    """What torch says where no device wants pinned memory."""
    raise RuntimeError(
        "pin_memory=True requires a CUDA or other accelerator backend; no pinned memory allocator "
        "is available on this system. Leave pin_memory out: copies to a device need none"
    )
