"""Compiled kernels on disk, so that a later process neither writes IR nor loads LLVM.

A file holds: magic, its own key, the SHA-256 of key and payload, the payload. What does not match
in every part is deleted and compiled anew; a file is never trusted by its name. The key hashes
everything the machine code depends on: the structural key of the kernel, the text of this package,
the processor, the versions of LLVM and Python (see `environment`).

The files are code that will run, so the folder must be the user's own: created with mode 0700,
refused if it is a link, somebody else's, or writable by others. It is opened once and every file
is reached through that handle. Writers make a temporary file and rename it, so that readers and
writers in any number of processes need no locks and may be killed at any time.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from lucerne.backends.cpu.emit.target import HOST
from lucerne.backends.cpu.runtime import llvm
from lucerne.base.config import config

_MAGIC = b"LUCERNE1"
_HEAD = struct.Struct("<8s32s32sQ")
_SUFFIX, _TEMPORARY, _SWEPT = ".kernel", ".writing", "swept"
_MAX_BYTES = 1 << 28
_WRITES_BETWEEN_SWEEPS = 256
_SWEEP_TO = 0.9
_STALE_SECONDS = 3600.0
_FRESH_SECONDS = 24 * 3600.0
_SETTLED_SECONDS = 3.0
"""A file changed twice within the clock's resolution would show one time: wait that long."""

_SOURCES = ("backends/cpu", "ir", "base")
"""Folders of the package whose text decides what kernels look like."""


@cache
def environment() -> bytes | None:
    """A digest of all that machine code depends on besides its own key. None if the package was
    edited while this process ran: what it would keep is not what its files say."""
    sources = _digest_of_sources(Path(__file__).parents[3])
    if sources is None:
        return None
    digest = hashlib.sha256(_MAGIC + sources)
    for part in (HOST.identity, llvm.version(), sys.implementation.cache_tag or "", sys.abiflags):
        digest.update(part.encode() + b"\0")
    library = llvm.library_path().stat()
    digest.update(struct.pack("<QQ", library.st_size, library.st_mtime_ns))
    return digest.digest()


def _digest_of_sources(package: Path) -> bytes | None:
    """A digest of the text of the source files. It is kept in the cache under what the system says
    of the files (times, size, number): reading them all takes longer than loading ten kernels."""
    paths = source_files(package)
    found = [os.stat(path) for path in paths]
    newest = max((max(f.st_mtime, f.st_ctime) for f in found), default=0.0)
    if newest > _process_start():
        return None
    facts = [(f.st_size, f.st_mtime_ns, f.st_ctime_ns, f.st_ino, f.st_dev) for f in found]
    key = hashlib.sha256(_MAGIC + repr((paths, facts)).encode()).digest()
    kept = cache_of_process().read(key)
    if kept is not None:
        return kept
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            text = file.read()
        digest.update(path[len(str(package)) :].encode() + struct.pack("<xQ", len(text)) + text)
    if time.time() - newest > _SETTLED_SECONDS:
        cache_of_process().write(key, digest.digest())
    return digest.digest()


def _process_start() -> float:
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


def source_files(package: Path) -> list[str]:
    """The source files that decide what kernels look like."""

    def walk(folder: str) -> Iterator[str]:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    yield entry.path
                elif entry.is_dir() and entry.name != "__pycache__":
                    yield from walk(entry.path)

    return sorted(path for part in _SOURCES for path in walk(str(package / part)))


def digest_of(key: object) -> bytes | None:
    """The 32 bytes that name a kernel on disk; None if its key means nothing to other processes
    (it holds an object that shows itself by its address)."""
    text, around = repr(key), environment()
    if around is None or " at 0x" in text:
        return None
    return hashlib.sha256(around + text.encode()).digest()


class Cache:
    """One folder of kernels. Every method may be called by any number of threads and processes."""

    def __init__(self, folder: str, limit_bytes: int) -> None:
        self.folder, self.limit = folder, limit_bytes
        self.hits = self.misses = self.refused = 0
        self._handle = self._open() if folder else None
        self._writes = 0

    @property
    def is_on(self) -> bool:
        return self._handle is not None

    def _open(self) -> int | None:
        """A handle of the folder, or None (with one warning) if it can't be trusted."""
        if not hasattr(os, "geteuid") or os.open not in os.supports_dir_fd:
            return None
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            self._warn(f"it can't be opened ({error.strerror})")
            return None
        found = os.fstat(handle)
        if found.st_uid == os.geteuid() and not found.st_mode & 0o022:
            return handle
        os.close(handle)
        whose = found.st_uid == os.geteuid()
        self._warn("others may write to it" if whose else "it belongs to another user")
        return None

    def _warn(self, why: str) -> None:
        warnings.warn(
            f"compiled kernels are not kept: the folder {self.folder!r} is not used, because {why}",
            RuntimeWarning,
            stacklevel=2,
        )

    # ---- reading -----------------------------------------------------------------------------

    def read(self, key: bytes) -> bytes | None:
        """The payload kept for `key`. A file that is wrong in any part is deleted."""
        if self._handle is None:
            return None
        name = key.hex() + _SUFFIX
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._handle)
        except FileNotFoundError:
            self.misses += 1
            return None
        except OSError:  # a link, or unreadable
            self.drop(key)
            return None
        try:
            payload = self._checked(file, key)
        finally:
            os.close(file)
        if payload is None:
            self.drop(key)
            return None
        self.hits += 1
        return payload

    def _checked(self, file: int, key: bytes) -> bytes | None:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return None
        if found.st_mode & 0o022 or not _HEAD.size < found.st_size <= _MAX_BYTES:
            return None
        raw = os.read(file, found.st_size + 1)
        if len(raw) != found.st_size:
            return None
        payload = parse_entry(raw, key)
        if payload is not None and time.time() - found.st_mtime > _FRESH_SECONDS:
            os.utime(file)
        return payload

    def drop(self, key: bytes) -> None:
        """Delete what is kept for `key`."""
        self.refused += 1
        self._unlink(key.hex() + _SUFFIX)

    def _unlink(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._handle)
        except OSError:
            pass

    # ---- writing -----------------------------------------------------------------------------

    def write(self, key: bytes, payload: bytes) -> None:
        """Keep `payload` for `key`. A full or broken disk costs the entry, not the program."""
        if self._handle is None:
            return
        own = f"{key.hex()}.{os.getpid()}.{threading.get_ident()}{_TEMPORARY}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            file = os.open(own, flags, 0o600, dir_fd=self._handle)
            try:
                # not flushed to the disk: what a crash leaves half written fails its seal
                _write_all(file, make_entry(key, payload))
            finally:
                os.close(file)
            os.rename(own, key.hex() + _SUFFIX, src_dir_fd=self._handle, dst_dir_fd=self._handle)
        except OSError:
            self._unlink(own)
            return
        self._writes += 1
        if self._writes % _WRITES_BETWEEN_SWEEPS == 0 or (self._writes == 1 and self._is_unswept()):
            self.sweep()

    def _is_unswept(self) -> bool:
        """Whether nobody has swept for some time: it means a look at every file."""
        try:
            last = os.stat(_SWEPT, dir_fd=self._handle, follow_symlinks=False).st_mtime
        except OSError:
            return True
        return time.time() - last > _STALE_SECONDS

    def sweep(self) -> None:
        """Delete what killed writers left, and the least used files beyond the size limit."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            mark = os.open(_SWEPT, flags, 0o600, dir_fd=self._handle)
            os.utime(mark)
            os.close(mark)
        except OSError:
            pass
        now, kept = time.time(), []
        for name in os.listdir(self._handle):
            if not name.endswith((_SUFFIX, _TEMPORARY)):
                continue
            try:
                found = os.stat(name, dir_fd=self._handle, follow_symlinks=False)
            except OSError:
                continue
            if name.endswith(_SUFFIX):
                kept.append((found.st_mtime, found.st_size, name))
            elif now - found.st_mtime > _STALE_SECONDS:
                self._unlink(name)
        total = sum(size for _, size, _ in kept)
        if total <= self.limit:
            return
        for _, size, name in sorted(kept):
            self._unlink(name)
            total -= size
            if total <= self.limit * _SWEEP_TO:
                return


def make_entry(key: bytes, payload: bytes) -> bytes:
    """The bytes of a file."""
    return _HEAD.pack(_MAGIC, key, _seal(key, payload), len(payload)) + payload


def parse_entry(raw: bytes, key: bytes) -> bytes | None:
    """The payload of a file, or None unless it is whole and of this key."""
    if len(raw) < _HEAD.size:
        return None
    magic, kept_key, seal, length = _HEAD.unpack_from(raw)
    payload = raw[_HEAD.size :]
    if magic != _MAGIC or kept_key != key or length != len(payload):
        return None
    return payload if seal == _seal(key, payload) else None


def _seal(key: bytes, payload: bytes) -> bytes:
    digest = hashlib.sha256(key)
    digest.update(payload)
    return digest.digest()


def _write_all(file: int, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(file, view) :]


@cache
def cache_of_process() -> Cache:
    """The cache that the configuration names, opened when the first kernel is asked for."""
    return Cache(config.cache_dir, config.cache_megabytes << 20)
