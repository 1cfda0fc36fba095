"""Writes torch's zip file, byte for byte as torch lays it out, with a digest in the comment."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable
from typing import Any

from lucerne._src.io import archive as form

Write = Callable[[Any], object]


class ArchiveWriter:
    """Writes records one after the other through `write`, then the directory (`finish`).

    Only known sizes are written and nothing is changed afterwards, so any stream will do.
    """

    def __init__(self, write: Write, folder: str) -> None:
        self._write = write
        self._folder = folder
        self._at = 0
        self._directory: list[bytes] = []
        self._digest = form.new_digest()
        self.crc = 0
        """Checksum over the checksums of all records, in order."""

    def add(self, name: str, content: Any) -> None:
        """Write one record; `content` is bytes-like."""
        view = memoryview(content).cast("B")
        raw = f"{self._folder}/{name}".encode()
        size, crc, header = len(view), zlib.crc32(view), self._at
        far = [header] if header >= form.FULL else []
        wide = [size, 0, *far] if size >= form.FULL else far  # torch leaves the second to the end
        extra = _zip64(wide)
        start = header + form.LOCAL.size + len(raw) + len(extra) + 4
        padding = -start % form.ALIGNMENT
        full_extra = extra + struct.pack("<HH", form.PADDING_EXTRA, padding) + b"Z" * padding
        flags = form.DESCRIPTOR_FLAG | form.UTF8_FLAG
        lengths = (len(raw), len(full_extra))
        head = form.LOCAL.pack(form.LOCAL_MAGIC, 0, flags, 0, 0, 0, 0, 0, 0, *lengths)
        self._put(head + raw + full_extra)
        self._put(view, hashed=not form.is_payload(name))
        kind = "<4sIQQ" if wide else "<4sIII"
        self._put(struct.pack(kind, form.DESCRIPTOR_MAGIC, crc, size, size))
        self._directory.append(_central(raw, crc, size, header))
        self.crc = zlib.crc32(struct.pack("<I", crc), self.crc)

    def finish(self) -> None:
        """Write the directory, the end records and the digest of everything but payloads."""
        start, count = self._at, len(self._directory)
        for entry in self._directory:
            self._put(entry)
        size, tail = self._at - start, self._at
        end64 = (form.END64_MAGIC, form.END64.size - 12, 0x031E, 45, 0, 0, count, count)
        self._put(form.END64.pack(*end64, size, start))
        self._put(form.LOCATOR64.pack(form.LOCATOR64_MAGIC, 0, tail, 1))
        few = min(count, 0xFFFF)
        small = (min(size, form.FULL), min(start, form.FULL))
        end = form.END.pack(form.END_MAGIC, 0, 0, few, few, *small, form.COMMENT_LENGTH)
        self._put(end + form.COMMENT)
        self._put(self._digest.hexdigest().encode("ascii"), hashed=False)

    def _put(self, content: Any, hashed: bool = True) -> None:
        if hashed:
            self._digest.update(content)
        if len(content):
            self._write(content)
        self._at += len(content)


def _zip64(values: list[int]) -> bytes:
    if not values:
        return b""
    return struct.pack(f"<HH{len(values)}Q", form.ZIP64_EXTRA, 8 * len(values), *values)


def _central(raw: bytes, crc: int, size: int, header: int) -> bytes:
    wide = [size, size] if size >= form.FULL else []
    extra = _zip64(wide + ([header] if header >= form.FULL else []))
    flags = form.DESCRIPTOR_FLAG | form.UTF8_FLAG
    sizes = (min(size, form.FULL), min(size, form.FULL))
    lengths = (len(raw), len(extra), 0, 0, 0, 0)
    fields = (form.CENTRAL_MAGIC, 0, 0, flags, 0, 0, 0, crc, *sizes, *lengths)
    return form.CENTRAL.pack(*fields, min(header, form.FULL)) + raw + extra


def write_checkpoint(write: Write, folder: str, pickled: bytes, payloads: list[Any]) -> None:
    """The records of a checkpoint in torch's order."""
    writer = ArchiveWriter(write, folder)
    writer.add("data.pkl", pickled)
    writer.add(".format_version", b"1")
    writer.add(".storage_alignment", str(form.ALIGNMENT).encode())
    writer.add("byteorder", sys.byteorder.encode())
    for n, payload in enumerate(payloads):
        writer.add(f"data/{n}", payload)
    writer.add("version", b"3\n")
    names = zlib.crc32(",".join(str(n) for n in range(len(payloads))).encode())
    writer.add(".data/serialization_id", f"{names:020d}{writer.crc:020d}".encode())
    writer.finish()
