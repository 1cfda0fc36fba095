"""A file of weights as an object file that a linker takes: ELF, written by hand.

LLVM would want the bytes as text, three characters each; an object of one section is 64 bytes of
header, five section headers and a symbol.
"""

from __future__ import annotations

import struct

_ALIGN = 64
_RELOCATABLE, _VERSION, _LITTLE, _WIDE = 1, 1, 1, 2
_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3
_ALLOC = 2
_GLOBAL_OBJECT, _HIDDEN = (1 << 4) | 1, 2
_HEADER, _SECTION, _SYMBOL = 64, 64, 24


def weights_object(data: bytes, symbol: str, machine: int, flags: int) -> bytes:
    """An object whose hidden symbol names `data`, aligned to 64, in read-only memory."""
    names = b"\0.rodata\0.symtab\0.strtab\0.note.GNU-stack\0"
    texts = b"\0" + symbol.encode() + b"\0"
    symbols = bytes(_SYMBOL) + struct.pack(
        "<IBBHQQ", 1, _GLOBAL_OBJECT, _HIDDEN, 1, 0, len(data)
    )  # fmt: skip
    parts = [
        # name, kind, flags, link, info, alignment, size of an entry, content
        (b"", 0, 0, 0, 0, 0, 0, b""),
        (b".rodata", _PROGBITS, _ALLOC, 0, 0, _ALIGN, 0, data),
        (b".symtab", _SYMTAB, 0, 3, 1, 8, _SYMBOL, symbols),
        (b".strtab", _STRTAB, 0, 0, 0, 1, 0, texts + names),
        (b".note.GNU-stack", _PROGBITS, 0, 0, 0, 1, 0, b""),
    ]
    body, table, at = [], [], _HEADER
    for name, kind, flag, link, info, align, entry, content in parts:
        gap = -at % max(align, 1)
        body += [bytes(gap), content]
        at += gap
        where = len(texts) + names.index(b"\0" + name + b"\0") + 1 if name else 0
        table.append(
            struct.pack(
                "<IIQQQQIIQQ", where, kind, flag, 0, at if kind else 0, len(content), link, info,
                align, entry,
            )
        )  # fmt: skip
        at += len(content)
    gap = -at % 8
    head = struct.pack(
        "<4sBBBBQHHIQQQIHHHHHH", b"\x7fELF", _WIDE, _LITTLE, _VERSION, 0, 0, _RELOCATABLE, machine,
        _VERSION, 0, 0, at + gap, flags, _HEADER, 0, 0, _SECTION, len(parts), 3,
    )  # fmt: skip
    return b"".join([head, *body, bytes(gap), *table])
