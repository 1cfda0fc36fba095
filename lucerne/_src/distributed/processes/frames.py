"""Frames: what goes over a connection, and what both sides must agree on.

A frame is a head, a text and a payload. The head has the generation of the job, the number of the
collective in its group, and the step inside it. The text of the first step has the *signature*
(name, dtype, shape, reduction, root), which must be the same on both sides, and the line of the
caller, which need not be. Whoever receives compares before it takes a byte of the payload.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from lucerne._src.base.process.source_location import Place, describe, user_place

MAGIC = b"LUC1"
HEAD = struct.Struct("<4sHHIQQ")
"""Magic, length of the text, step, generation, sequence number, length of the payload."""
MOST_TEXT = 4096
MOST_PAYLOAD = 1 << 40
_lines: dict[tuple[int, int], tuple[Place, str]] = {}


@dataclass(frozen=True)
class Call:
    """One call of a collective on this rank."""

    signature: str
    """What must be the same on all ranks."""
    line: str
    """Where the user called it."""

    def text(self) -> bytes:
        return f"{self.signature}\0{self.line}".encode()[:MOST_TEXT]


def caller() -> str:
    """`file:line in function` of the user's call, as short as it stays clear."""
    place = user_place()
    if place is None:
        return describe(None)
    key = (id(place[0]), place[1])
    known = _lines.get(key)
    if known is None:
        if len(_lines) > 4096:
            _lines.clear()
        known = _lines[key] = (place, describe(place))  # (the code object stays alive with its id)
    return known[1]


def split_text(text: bytes) -> tuple[str, str]:
    """Signature and line of a frame's text."""
    signature, _, line = text.decode(errors="replace").partition("\0")
    return signature, line
