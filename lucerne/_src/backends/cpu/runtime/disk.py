"""Compiled kernels on disk, so that a later process neither writes IR nor loads LLVM.

The files and what makes them safe are `base.folder`'s. The key hashes everything the machine code
depends on: the structural key of the kernel, the text of this package, the processor, the versions
of LLVM and Python (see `environment`).
"""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cache
from pathlib import Path

from lucerne._src.backends.cpu.emit.target import HOST
from lucerne._src.backends.cpu.runtime import llvm
from lucerne._src.base.config import config
from lucerne._src.base.process import source_digests
from lucerne._src.base.process.sealed_folder import HEAD as _HEAD  # noqa: F401
from lucerne._src.base.process.sealed_folder import MAGIC, Cache
from lucerne._src.base.process.sealed_folder import make_entry as make_entry
from lucerne._src.base.process.sealed_folder import parse_entry as parse_entry

SOURCES = ("backends/cpu", "backends/contract", "base", "ir", "ops")
"""Folders of the package whose text decides what kernels look like: this backend, what it imports,
and the bodies of ops, which it writes as machine code."""
_SAMPLE = 1 << 16


@cache
def environment() -> bytes | None:
    """A digest of all that machine code depends on besides its own key. None if the package was
    edited while this process ran: what it would keep is not what its files say."""
    text = _digest_of_sources(Path(__file__).parents[3])
    if text is None:
        return None
    digest = hashlib.sha256(MAGIC + text + _digest_of_llvm())
    for part in (HOST.identity, llvm.version(), sys.implementation.cache_tag or "", sys.abiflags):
        digest.update(part.encode() + b"\0")
    return digest.digest()


def _digest_of_sources(package: Path) -> bytes | None:
    return source_digests.digest(package, SOURCES, cache_of_process())


def _digest_of_llvm() -> bytes:
    """By its size and some of its bytes (where the file says what it holds), not by its times:
    kernels may be carried to another machine."""
    with open(llvm.library_path(), "rb") as file:
        size = file.seek(0, os.SEEK_END)
        digest = hashlib.sha256(str(size).encode())
        for start in (0, size // 2, max(size - _SAMPLE, 0)):
            file.seek(start)
            digest.update(file.read(_SAMPLE))
    return digest.digest()


def digest_of(key: object) -> bytes | None:
    """The 32 bytes that name a kernel on disk; None if its key means nothing to other processes
    (it holds an object that shows itself by its address)."""
    text, around = repr(key), environment()
    if around is None or " at 0x" in text:
        return None
    return hashlib.sha256(around + text.encode()).digest()


@cache
def cache_of_process() -> Cache:
    """The cache that the configuration names, opened when the first kernel is asked for."""
    return Cache(config.cache_dir, config.cache_megabytes << 20)
