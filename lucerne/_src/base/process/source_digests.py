"""Digests of source files: what something that is kept on disk was made by."""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from lucerne._src.base.process.sealed_folder import MAGIC, Cache

PACKAGE = Path(__file__).resolve().parents[3]
SETTLED_SECONDS = 3.0
"""A file changed twice within the clock's resolution would show one time: wait that long."""


def digest(package: Path, parts: Sequence[str], kept: Cache) -> bytes | None:
    """A digest of the text of the source files in some folders of a package; None if one was edited
    while this process ran: what it does is not what its files say.

    It is kept under what the system says of the files (times, size, number): reading them all takes
    longer than loading ten kernels.
    """
    return digest_of_files(files(package, parts), str(package), kept)


def digest_of_files(paths: list[str], prefix: str, kept: Cache) -> bytes | None:
    """The same for these files, whose names count without the prefix."""
    found = [os.stat(path) for path in paths]
    newest = max((max(f.st_mtime, f.st_ctime) for f in found), default=0.0)
    if newest > process_start():
        return None
    facts = [(f.st_size, f.st_mtime_ns, f.st_ctime_ns, f.st_ino, f.st_dev) for f in found]
    key = hashlib.sha256(MAGIC + repr((paths, facts)).encode()).digest()
    known = kept.read(key)
    if known is not None:
        return known
    made = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            text = file.read()
        made.update(path[len(prefix) :].encode() + struct.pack("<xQ", len(text)) + text)
    if time.time() - newest > SETTLED_SECONDS:
        kept.write(key, made.digest())
    return made.digest()


def files(package: Path, parts: Sequence[str]) -> list[str]:
    """The source files in these folders and below."""

    def walk(folder: str) -> Iterator[str]:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    yield entry.path
                elif entry.name != "__pycache__" and entry.is_dir():
                    yield from walk(entry.path)

    return sorted(path for part in parts for path in walk(str(package / part)))


def process_start() -> float:
    """When this process started, in the time of files; where the system does not say, when this
    module was imported."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError):
        return _IMPORTED
    return time.time() - age


_IMPORTED = time.time()
