"""From a relocatable object file (ELF, x86-64) to an image that can be run anywhere in memory.

Only what LLVM writes for our modules is understood (position-independent code, the small model, no
exceptions, no thread-local variables); anything else is refused by name. External functions are
called through stubs, external variables are reached through a table of addresses (the GOT).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from lucerne._src.backends.cpu.runtime import image as images
from lucerne._src.backends.cpu.runtime.image import Image, page_up

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_SYMBOL_TABLE, _RELA, _NOBITS = 2, 4, 8
_WRITE, _ALLOC, _EXECUTE, _THREAD_LOCAL = 1, 2, 4, 0x400
_UNDEFINED, _FIRST_RESERVED, _LOCAL = 0, 0xFF00, 0

_ABS64, _PC32, _PLT32, _PC64 = 1, 2, 4, 24
_GOT_RELATIVE = (9, 41, 42)
_RELOCATION_NAMES = {
    3: "GOT32", 10: "32", 11: "32S", 17: "DTPOFF64", 18: "TPOFF64", 19: "TLSGD", 20: "TLSLD",
    21: "DTPOFF32", 22: "GOTTPOFF", 23: "TPOFF32", 25: "GOTOFF64", 26: "GOTPC32", 36: "TLSDESC",
}  # fmt: skip

_STUB_BYTES = 8
_CONSTRUCTORS = (".init_array", ".fini_array", ".ctors", ".dtors")
_DROPPED = (".eh_frame", ".note", ".llvm", ".comment", ".stack_sizes")


class LinkError(ValueError):
    """The object holds something this loader does not understand."""


@dataclass
class _Section:
    name: str
    kind: int
    flags: int
    content: bytes
    size: int
    link: int
    info: int
    align: int
    start: int = -1
    """Offset in the image; -1: not part of it."""


@dataclass
class _Symbol:
    name: str
    section: int
    value: int
    is_local: bool


def prepare(raw: bytes) -> bytes:
    """The packed image of an object file: what the disk cache keeps."""
    return link(raw).pack()


def load(payload: bytes) -> dict[str, int]:
    """Addresses of the exports of a packed image, now in memory."""
    return images.load(images.unpack(payload))


def link(raw: bytes) -> Image:
    """The image of an object file."""
    sections = _read_sections(raw)
    return _Linker(sections, _read_symbols(sections)).run()


def _read_sections(raw: bytes) -> list[_Section]:
    if raw[:6] != b"\x7fELF\x02\x01" or len(raw) < 64 or raw[16:20] != b"\x01\x00\x3e\x00":
        raise LinkError("not a relocatable ELF object for x86-64")
    at, size, count, names_index = (
        struct.unpack_from("<Q", raw, 0x28)[0],
        *struct.unpack_from("<HHH", raw, 0x3A),
    )
    if size != _SECTION.size or at + size * count > len(raw):
        raise LinkError("the section table of an object is damaged")
    heads = [_SECTION.unpack_from(raw, at + i * size) for i in range(count)]
    names = raw[heads[names_index][4] :]
    made = []
    for name, kind, flags, _, offset, length, link_, info, align, _ in heads:
        content = b"" if kind == _NOBITS else raw[offset : offset + length]
        text = names[name : names.index(b"\0", name)].decode()
        made.append(_Section(text, kind, flags, content, length, link_, info, max(1, align)))
    return made


def _read_symbols(sections: list[_Section]) -> list[_Symbol]:
    made = []
    for table in (s for s in sections if s.kind == _SYMBOL_TABLE):
        names = sections[table.link].content
        for name, info, _, section, value, _ in _SYMBOL.iter_unpack(table.content):
            text = names[name : names.index(b"\0", name)].decode()
            made.append(_Symbol(text, section, value, info >> 4 == _LOCAL))
    return made


class _Linker:
    def __init__(self, sections: list[_Section], symbols: list[_Symbol]) -> None:
        self.sections, self.symbols = sections, symbols
        self.code, self.data = bytearray(), bytearray()
        self.relative: list[tuple[int, int]] = []
        self.imports: list[tuple[str, int, int]] = []
        self.slots: dict[int, int] = {}
        self.stubs: dict[int, int] = {}

    def run(self) -> Image:
        self._lay_out()
        relocations = self._relocations()
        self._add_tables(relocations)
        for place, kind, symbol, added in relocations:
            self._relocate(place, kind, symbol, added)
        exports = {
            s.name: self._offset(s)
            for s in self.symbols
            if not s.is_local and s.section != _UNDEFINED
        }
        image = Image(
            bytes(self.code), bytes(self.data), self.data_size, exports, self.imports, self.relative
        )
        return image.check()

    # ---- where things lie --------------------------------------------------------------------

    def _lay_out(self) -> None:
        kept = [s for s in self.sections if s.flags & _ALLOC and not s.name.startswith(_DROPPED)]
        for s in kept:
            if s.flags & _THREAD_LOCAL or s.name.startswith(_CONSTRUCTORS):
                raise LinkError(f"section {s.name} (thread-local data or constructors) in a kernel")
        variables = [s for s in kept if _is_variable(s)]
        constants = [s for s in kept if not _is_variable(s)]
        for s in sorted(constants, key=lambda s: not s.flags & _EXECUTE):
            s.start = _append(self.code, s)
        self.variables = sorted(variables, key=lambda s: s.kind == _NOBITS)

    def _place_variables(self) -> None:
        """After the code has its full size: variables begin at the next page."""
        first = page_up(len(self.code))
        size = 0
        for s in self.variables:
            size = -(-size // s.align) * s.align
            if s.kind != _NOBITS:
                self.data.extend(bytes(size - len(self.data)) + s.content)
            s.start = first + size
            size += s.size
        self.data_size = size

    def _offset(self, symbol: _Symbol) -> int:
        if symbol.section >= _FIRST_RESERVED:
            raise LinkError(f"symbol {symbol.name!r} is absolute or common")
        section = self.sections[symbol.section]
        if section.start < 0:
            raise LinkError(f"symbol {symbol.name!r} lies in section {section.name}, dropped")
        return section.start + symbol.value

    # ---- relocations -------------------------------------------------------------------------

    def _relocations(self) -> list[tuple[tuple[_Section, int], int, int, int]]:
        """((section, offset in it), kind, symbol number, number added)"""
        found = []
        kept = {id(s) for s in self.variables} | {id(s) for s in self.sections if s.start >= 0}
        for table in (s for s in self.sections if s.kind == _RELA):
            section = self.sections[table.info]
            if id(section) not in kept:
                continue
            for offset, info, added in _RELOCATION.iter_unpack(table.content):
                found.append(((section, offset), info & 0xFFFFFFFF, info >> 32, added))
        return found

    def _add_tables(self, relocations: list[tuple[tuple[_Section, int], int, int, int]]) -> None:
        """Stubs for external functions, slots for what is reached through the table."""
        stubbed, slotted = [], []
        for _, kind, symbol, _ in relocations:
            external = self.symbols[symbol].section == _UNDEFINED
            if kind == _PLT32 and external and symbol not in stubbed:
                stubbed.append(symbol)
            needs_slot = kind in _GOT_RELATIVE or (kind == _PLT32 and external)
            if needs_slot and symbol not in slotted:
                slotted.append(symbol)
        self.code.extend(bytes(-len(self.code) % 16))
        for symbol in stubbed:
            self.stubs[symbol] = len(self.code)
            self.code.extend(bytes(_STUB_BYTES))
        for symbol in slotted:
            self.slots[symbol] = len(self.code)
            self.code.extend(bytes(8))
        self._place_variables()
        for symbol, at in self.slots.items():
            self._address_at(at, symbol, 0)
        for symbol, at in self.stubs.items():
            # jmp *slot(%rip), then traps up to the next stub
            jump = b"\xff\x25" + struct.pack("<i", self.slots[symbol] - (at + 6)) + b"\xcc\xcc"
            self.code[at : at + _STUB_BYTES] = jump

    def _address_at(self, place: int, symbol: int, added: int) -> None:
        found = self.symbols[symbol]
        if found.section == _UNDEFINED:
            self.imports.append((found.name, place, added))
        else:
            self.relative.append((place, self._offset(found) + added))

    def _relocate(self, where: tuple[_Section, int], kind: int, symbol: int, added: int) -> None:
        section, offset = where
        place = section.start + offset
        found = self.symbols[symbol]
        if kind == _ABS64:
            self._address_at(place, symbol, added)
        elif kind in _GOT_RELATIVE:
            self._write(section, place, self.slots[symbol] + added - place, 4)
        elif kind == _PLT32 and found.section == _UNDEFINED:
            self._write(section, place, self.stubs[symbol] + added - place, 4)
        elif kind in (_PC32, _PLT32, _PC64) and found.section != _UNDEFINED:
            self._write(
                section, place, self._offset(found) + added - place, 8 if kind == _PC64 else 4
            )
        else:
            name = _RELOCATION_NAMES.get(kind, str(kind))
            raise LinkError(f"relocation R_X86_64_{name} against {found.name!r} in {section.name}")

    def _write(self, section: _Section, place: int, number: int, size: int) -> None:
        part, at = self.code, place
        if _is_variable(section):
            part, at = self.data, place - page_up(len(self.code))
        if at < 0 or at + size > len(part):
            raise LinkError(f"a relocation in {section.name} lies outside it")
        try:
            part[at : at + size] = number.to_bytes(size, "little", signed=True)
        except OverflowError:
            raise LinkError(f"a relocation in {section.name} does not reach its target") from None


def _is_variable(section: _Section) -> bool:
    """Written at run time. Tables of addresses are written by the loader alone."""
    return bool(section.flags & _WRITE) and not section.name.startswith(".data.rel.ro")


def _append(part: bytearray, section: _Section) -> int:
    part.extend(bytes(-len(part) % max(16, section.align)))
    start = len(part)
    part.extend(section.content if section.kind != _NOBITS else bytes(section.size))
    return start
