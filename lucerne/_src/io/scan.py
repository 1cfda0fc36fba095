"""Walks through a pickle without executing it: which names does it use, which values again?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lucerne._src.io.errors import CorruptFileError

_FIXED = {
    **dict.fromkeys(b"KUCqh\x80\x82\x8c\x8a", 1), **dict.fromkeys(b"M\x83", 2),
    **dict.fromkeys(b"JXTBrj\x84\x8b", 4), **dict.fromkeys(b"G\x95\x8d\x8e\x96", 8),
}  # fmt: skip
"""Bytes of operand by instruction; all others have none."""
_COUNTED = frozenset(b"UTXBC\x8c\x8d\x8e\x8a\x8b\x96")
"""Instructions whose operand says how many bytes follow."""
_TEXT = frozenset(b"X\x8c\x8d")
_LINES = {**dict.fromkeys(b"FILSVPpg", 1), **dict.fromkeys(b"ci", 2)}
"""Instructions followed by lines of text."""
_STOP, _LONG_BINGET = 46, 106
_SHORT = frozenset(range(256))
"""The numbers that BINGET can recall."""


def _quiet() -> re.Pattern[bytes]:
    """A run of instructions that neither count, nor end by a line, nor stop, nor LONG_BINGET.

    The pattern walks over millions of them in C: a file can't make the scan slow.
    """
    heard = {*_COUNTED, *_LINES, _STOP, _LONG_BINGET}
    by_size: dict[int, bytes] = {}
    for code in range(256):
        if code not in heard:
            size = _FIXED.get(code, 0)
            by_size[size] = by_size.get(size, b"") + re.escape(bytes([code]))
    kinds = [b"[%s].{%d}" % (codes, size) for size, codes in by_size.items()]
    return re.compile(b"(?s:%s)*+" % b"|".join(kinds))


_QUIET = _quiet()


def _steps(data: bytes, quiet: bool = True) -> Iterator[tuple[int, int, int]]:
    """Instruction, and where its operand (or the bytes it counts) begins and ends.

    Without `quiet` those of `_QUIET` are left out.
    """
    at, end = 0, len(data)
    while at < end:
        if not quiet:
            at = _QUIET.match(data, at).end()  # type: ignore[union-attr]  # matches nothing, too
            if at == end:
                break
        code = data[at]
        at += 1
        if code in _LINES:
            start = at
            for _ in range(_LINES[code]):
                at = data.find(b"\n", at) + 1
                if not at:
                    raise CorruptFileError("the pickle has a name that does not end")
            yield code, start, at
            continue
        start = at
        at += _FIXED.get(code, 0)
        if code in _COUNTED:
            count = int.from_bytes(data[start:at], "little")
            start, at = at, at + count
        yield code, start, at
        if code == _STOP:
            return
    raise CorruptFileError("the pickle ends without its STOP instruction")


def global_names(data: bytes) -> list[tuple[str, str]]:
    """Module and name of every global, in order and once each."""
    found: dict[tuple[str, str], None] = {}
    recent = ["", ""]
    for code, start, end in _steps(data):
        if _LINES.get(code) == 2:
            module, name, _ = data[start:end].decode("utf-8", "replace").split("\n")
            found[module, name] = None
        elif code == 0x93:
            found[recent[0], recent[1]] = None
        elif code in _TEXT:
            recent = [recent[1], data[start:end].decode("utf-8", "replace")]
    return list(found)


def recalled(data: bytes) -> frozenset[int] | None:
    """Numbers of the noted values that may be used again (None: the pickle is damaged)."""
    found = set(_SHORT)  # so few that looking for each would cost more than it saves
    try:
        for code, start, end in _steps(data, quiet=False):
            if code == _LONG_BINGET:
                found.add(int.from_bytes(data[start:end], "little"))
    except CorruptFileError:
        return None
    return frozenset(found)
