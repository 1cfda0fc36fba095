"""torch's zip file: what its records look like, and a reader that believes no single one of them.

A zip says everything twice, in a header before each entry and in the directory at the end, and
readers that believe different copies can be shown different files. Here every entry must begin
where the one before it ends, both copies must agree, every byte between entries must be one that
the format puts there, and the checksum of every entry is computed.

| part | bytes |
|---|---|
| header of an entry | 30, its name, an extra field that pads the content to a multiple of 64 |
| content | as stored: never compressed, never encrypted |
| descriptor | checksum and sizes, 16 bytes (24 in a file beyond 4 GiB) |
| directory | 46 bytes and the name, for each entry |
| ends | zip64 end (56), its locator (20), end (22 and the comment) |

A file that Lucerne wrote carries a digest in the comment, over every byte but the contents of
tensors, which the entries' checksums cover.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lucerne._src.io.errors import CorruptFileError, UnsafeFileError, UnsupportedFileError
from lucerne._src.io.source import ByteSource

LOCAL = struct.Struct("<4s5HIII2H")
CENTRAL = struct.Struct("<4s6HIII5HII")
END = struct.Struct("<4s4HIIH")
END64 = struct.Struct("<4sQHHIIQQQQ")
LOCATOR64 = struct.Struct("<4sIQI")
LOCAL_MAGIC, CENTRAL_MAGIC, END_MAGIC = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
END64_MAGIC, LOCATOR64_MAGIC, DESCRIPTOR_MAGIC = b"PK\x06\x06", b"PK\x06\x07", b"PK\x07\x08"
FULL = 0xFFFFFFFF
DESCRIPTOR_FLAG, UTF8_FLAG = 0x0008, 0x0800
ZIP64_EXTRA = 1
PADDING_EXTRA = 0x4246  # "FB": torch pads contents to a multiple of 64 bytes
ALIGNMENT = 64
MAX_FEW = 1 << 17  # entries that any file may have; more need more bytes
COMMENT = b"lucerne-digest:blake2b:"
DIGEST_DIGITS = 64
TORCHSCRIPT = (
    "this is a TorchScript archive: it holds a program. Load it with torch.jit.load and save its "
    "state_dict()"
)
COMMENT_LENGTH = len(COMMENT) + DIGEST_DIGITS


def new_digest() -> Any:
    return hashlib.blake2b(digest_size=DIGEST_DIGITS // 2)


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """One record of the archive, as its directory tells of it."""

    name: str
    raw_name: bytes
    size: int
    crc: int
    header: int
    """Where its local header begins."""
    twice: tuple[int, ...]
    """Version needed, flags, method, time and date: said in both headers."""
    once: tuple[int, ...]
    """Made by, and the attributes: said in the directory alone, so alike in all entries."""
    has_zip64: bool


@dataclass(frozen=True, slots=True)
class Record:
    """A checked entry: its content lies at `start`."""

    name: str
    start: int
    size: int
    crc: int


class Archive:
    """The records of a zip file by name, without the folder they all are in."""

    def __init__(self, source: ByteSource) -> None:
        self.source = source
        self.digest = ""
        self._digest = new_digest()
        directory, count, self._tail = self._read_ends()
        self.folder = ""
        self.records: dict[str, Record] = {}
        position = 0
        for entry in _entries(source, directory, self._tail, count):
            self._check_folder(entry.name)
            position = self._check_entry(entry, position)
        if position != directory:
            raise CorruptFileError(
                f"{directory - position} bytes at {position} belong to no entry of the archive"
            )
        if self.digest:
            self._check_digest(directory)

    # -- the end of the file ---------------------------------------------------------------------

    def _read_ends(self) -> tuple[int, int, int]:
        """Where the directory begins, how many entries it has, where it ends."""
        end_at, comment = self._find_end()
        raw = self.source.read(end_at, END.size)
        _, disk, disk_dir, here, count, size, start, _ = END.unpack(raw)
        if (disk, disk_dir) != (0, 0) or here != count:
            raise CorruptFileError("the archive's end speaks of several disks")
        if comment:
            self.digest = _digest_in(comment)
        wide = self._read_wide_end(end_at)
        if wide is None:
            tail = end_at
        else:
            tail, wide_count, wide_size, wide_start = wide
            for small, large, full in (
                (count, wide_count, 0xFFFF),
                (size, wide_size, FULL),
                (start, wide_start, FULL),
            ):
                if small != min(large, full):
                    raise CorruptFileError("the archive's two end records disagree")
            count, size, start = wide_count, wide_size, wide_start
        if start + size != tail:
            raise CorruptFileError("the archive's directory is not where its end says it is")
        if count > MAX_FEW + self.source.size // 256:
            raise UnsafeFileError(f"the archive claims {count} entries, too many for its size")
        return start, count, tail

    def _find_end(self) -> tuple[int, bytes]:
        """The end record is the last thing in the file, before at most our own comment."""
        size = self.source.size
        for length in (0, COMMENT_LENGTH):
            at = size - END.size - length
            if at >= 0:
                raw = self.source.read(at, END.size + length)
                if raw[:4] == END_MAGIC and raw[END.size - 2 : END.size] == struct.pack(
                    "<H", length
                ):
                    return at, raw[END.size :]
        raise CorruptFileError(
            "the file begins like a zip archive but has no end record: it is truncated, or "
            "something was appended to it"
        )

    def _read_wide_end(self, end_at: int) -> tuple[int, int, int, int] | None:
        """Position, entry count, directory size and start of the zip64 end, if there is one."""
        at = end_at - LOCATOR64.size
        if at < END64.size:
            return None
        magic, disk, wide_at, disks = LOCATOR64.unpack(self.source.read(at, LOCATOR64.size))
        if magic != LOCATOR64_MAGIC:
            return None
        if (disk, disks) != (0, 1) or wide_at != at - END64.size:
            raise CorruptFileError("the archive's zip64 locator points elsewhere")
        fields = END64.unpack(self.source.read(wide_at, END64.size))
        magic, size, made_by, needed, disk, disk_dir, here, count, dir_size, start = fields
        if magic != END64_MAGIC or size != END64.size - 12 or needed != 45:
            raise CorruptFileError("the archive's zip64 end record is damaged")
        if (disk, disk_dir) != (0, 0) or here != count or made_by not in (0x031E, 45, 0x032D):
            raise CorruptFileError("the archive's zip64 end record is damaged")
        return wide_at, count, dir_size, start

    # -- entries ---------------------------------------------------------------------------------

    def _check_folder(self, name: str) -> None:
        folder, slash, _ = name.partition("/")
        self.folder = self.folder or folder
        if not slash or folder != self.folder:
            raise UnsupportedFileError(
                "this zip archive is not a checkpoint: its entries are not in one folder, as "
                "torch.save writes them"
            )

    def _check_entry(self, entry: ArchiveEntry, position: int) -> int:
        """Compare the header before an entry with the directory; where the entry ends."""
        if entry.header != position:
            raise CorruptFileError(
                f"entry {entry.name!r} begins at byte {entry.header}, but the one before it ends "
                f"at {position}: entries overlap or hide something"
            )
        head = self.source.read(position, LOCAL.size)
        magic, *fields = LOCAL.unpack(head)
        twice, (crc, packed, size, name_length, extra_length) = tuple(fields[:5]), fields[5:]
        rest = self.source.read(position + LOCAL.size, name_length + extra_length)
        if magic != LOCAL_MAGIC or twice != entry.twice or rest[:name_length] != entry.raw_name:
            raise CorruptFileError(f"entry {entry.name!r}: its header and the directory disagree")
        start = position + LOCAL.size + name_length + extra_length
        wide = _check_extra(entry, rest[name_length:])
        said = (crc, packed, size)
        true = (entry.crc, min(entry.size, FULL), min(entry.size, FULL))
        end = start + entry.size
        after = b""
        if entry.twice[1] & DESCRIPTOR_FLAG:
            form = "<4sIQQ" if wide or entry.has_zip64 else "<4sIII"
            after = self.source.read(end, struct.calcsize(form))
            expected = struct.pack(form, DESCRIPTOR_MAGIC, entry.crc, entry.size, entry.size)
            if after != expected or said not in ((0, 0, 0), true):
                raise CorruptFileError(
                    f"entry {entry.name!r}: the sizes after it and the directory disagree"
                )
        elif said != true:
            raise CorruptFileError(f"entry {entry.name!r}: its header and the directory disagree")
        self._add(entry, start)
        if self.digest:
            self._digest.update(head + rest)
            if not is_payload(entry.name.partition("/")[2]):
                self._digest.update(self.source.read(start, entry.size))
            self._digest.update(after)
        return end + len(after)

    def _add(self, entry: ArchiveEntry, start: int) -> None:
        name = entry.name.partition("/")[2]
        if name in self.records:
            raise UnsafeFileError(f"the archive has two entries named {entry.name!r}")
        self.records[name] = Record(name, start, entry.size, entry.crc)

    def _check_digest(self, directory: int) -> None:
        covered = self.source.size - DIGEST_DIGITS - directory
        for chunk in self.source.chunks(directory, covered):
            self._digest.update(chunk)
        if self._digest.hexdigest() != self.digest:
            raise CorruptFileError("the file's digest does not match: it was altered or damaged")

    # -- contents --------------------------------------------------------------------------------

    def read(self, name: str, limit: int) -> bytes:
        """The content of a small record, its checksum verified."""
        record = self.records[name]
        if record.size > limit:
            raise UnsafeFileError(
                f"record {name!r} has {record.size} bytes, more than the {limit} allowed"
            )
        content = self.source.read(record.start, record.size)
        check_crc(record, zlib.crc32(content))
        return content

    def verify(self, record: Record) -> None:
        """Compute the checksum of a record without keeping its content."""
        crc = 0
        for chunk in self.source.chunks(record.start, record.size):
            crc = zlib.crc32(chunk, crc)
        check_crc(record, crc)


def is_payload(name: str) -> bool:
    """Whether a record holds the bytes of a storage."""
    return name.startswith("data/")


def check_crc(record: Record, crc: int) -> None:
    """Compare; a stored 0 means that the writer computed none (torch can be told not to)."""
    if record.crc not in (0, crc):
        raise CorruptFileError(
            f"record {record.name!r}: its checksum is {crc:08x}, but {record.crc:08x} was stored. "
            "The file is damaged"
        )


def _digest_in(comment: bytes) -> str:
    digits = comment[len(COMMENT) :]
    if not comment.startswith(COMMENT) or any(d not in b"0123456789abcdef" for d in digits):
        raise CorruptFileError("the archive's comment is damaged, or is not one Lucerne writes")
    return digits.decode("ascii")


def _entries(source: ByteSource, at: int, end: int, count: int) -> Iterator[ArchiveEntry]:
    """The directory's entries; it must be made of exactly these."""
    first: ArchiveEntry | None = None
    for _ in range(count):
        entry, at = _entry(source, at, end)
        if first is None:
            first = entry
        elif entry.once != first.once:
            raise CorruptFileError(f"entry {entry.name!r} differs in kind from the others")
        yield entry
    if at != end:
        raise CorruptFileError("the archive's directory is longer than its entries")


def _entry(source: ByteSource, at: int, end: int) -> tuple[ArchiveEntry, int]:
    if at + CENTRAL.size > end:
        raise CorruptFileError("the archive's directory is shorter than its entries")
    fields = CENTRAL.unpack(source.read(at, CENTRAL.size))
    magic, made_by, *twice = fields[:7]
    crc, packed, size, name_length, extra_length, comment_length, disk = fields[7:14]
    inner, outer, header = fields[14:]
    after = at + CENTRAL.size + name_length + extra_length
    if magic != CENTRAL_MAGIC or comment_length or disk or after > end:
        raise CorruptFileError(f"the archive's directory is damaged at byte {at}")
    rest = source.read(at + CENTRAL.size, name_length + extra_length)
    raw, extra = rest[:name_length], rest[name_length:]
    name = check_name(raw)
    wide = [field for field in ((size, 0), (packed, 1), (header, 2)) if field[0] == FULL]
    if extra != b"" or wide:
        size, packed, header = _wide_fields(name, extra, [size, packed, header])
    if twice[2] != 0 or packed != size:
        if name.partition("/")[2].startswith("code/"):
            raise UnsupportedFileError(TORCHSCRIPT)
        raise UnsupportedFileError(
            f"entry {name!r} is compressed. torch.save never compresses, and unpacking could take "
            "any amount of memory: save the checkpoint again"
        )
    if twice[1] & ~(DESCRIPTOR_FLAG | UTF8_FLAG):
        raise UnsupportedFileError(f"entry {name!r} has flags {twice[1]:#x} (encrypted?)")
    known = ArchiveEntry(
        name, raw, size, crc, header, tuple(twice), (made_by, inner, outer), bool(extra)
    )
    return known, after


def _wide_fields(name: str, extra: bytes, fields: list[int]) -> tuple[int, int, int]:
    """Size, packed size and header offset, where those that overflow stand in the zip64 extra."""
    wide = [n for n, value in enumerate(fields) if value == FULL]
    if extra[:4] != struct.pack("<HH", ZIP64_EXTRA, 8 * len(wide)) or len(extra) != 4 + 8 * len(
        wide
    ):
        raise CorruptFileError(f"entry {name!r} has an extra field that is not torch's")
    if not wide:
        raise CorruptFileError(f"entry {name!r} has an empty zip64 field")
    for n, value in zip(wide, struct.unpack(f"<{len(wide)}Q", extra[4:]), strict=True):
        if value < FULL:
            raise CorruptFileError(f"entry {name!r} hides a size in a zip64 field")
        fields[n] = value
    return fields[0], fields[1], fields[2]


def _check_extra(entry: ArchiveEntry, extra: bytes) -> bool:
    """Allow the zip64 field with the true values, then padding; whether zip64 is there."""
    far = [entry.header] if entry.header >= FULL else []
    forms = [far] if far and entry.size < FULL else []
    if entry.size >= FULL or extra[:2] == struct.pack("<H", ZIP64_EXTRA):
        # torch leaves the second size to the descriptor, Python's zipfile gives both or none
        pairs = ([entry.size, 0], [entry.size, entry.size], [0, 0])
        forms += [pair + far for pair in pairs]
    at = 0
    for form in forms:
        field = struct.pack(f"<HH{len(form)}Q", ZIP64_EXTRA, 8 * len(form), *form)
        if extra.startswith(field):
            at = len(field)
            break
    if forms and not at:
        raise CorruptFileError(f"entry {entry.name!r}: its zip64 field and the directory differ")
    if at < len(extra):
        length = len(extra) - at - 4
        padding = struct.pack("<HH", PADDING_EXTRA, max(length, 0)) + b"Z" * max(length, 0)
        if extra[at:] != padding and extra[at:] != padding[:4] + b"\0" * max(length, 0):
            raise CorruptFileError(f"entry {entry.name!r} has an extra field that is not torch's")
    return at > 0


def check_name(raw: bytes) -> str:
    """The name of an entry; one that could leave its folder when unpacked is refused."""
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise CorruptFileError(f"entry name {raw!r} is not UTF-8") from None
    parts = name.split("/")
    if len(raw) > 4096 or "\0" in name or "\\" in name or name.endswith("/"):
        raise UnsafeFileError(f"entry name {name[:80]!r} is not one that torch.save writes")
    if any(part in ("", ".", "..") for part in parts) or ":" in parts[0][1:2]:
        raise UnsafeFileError(f"entry name {name[:80]!r} would leave its folder")
    return name
