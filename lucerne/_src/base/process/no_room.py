"""The error of an allocator that finds no room: torch's text, and a note that says who has it."""

from __future__ import annotations

import threading

from lucerne._src.base.errors import OutOfMemoryError
from lucerne._src.base.process.error_notes import asked_here
from lucerne._src.base.process.late_bindings import LateBindings


class _Under(threading.local):
    way = False


_under = _Under()


def no_room(nbytes: int) -> OutOfMemoryError:
    """The error to raise where so many bytes are not to be had."""
    error = OutOfMemoryError(
        f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {nbytes} bytes. "
        "Error code 12 (Cannot allocate memory)"
    )
    if _under.way:
        return error
    _under.way = True
    try:
        asked_here(error)
        error.add_note(LateBindings.out_of_memory(nbytes))
    except Exception as other:  # there may be no room for the note either
        error.add_note(f"(what lies in memory could not be listed: {other!r})")
    finally:
        _under.way = False
    return error
