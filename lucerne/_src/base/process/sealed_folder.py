"""Files that only their owner may have written: a folder of entries, each sealed under its key.

A file holds: magic, its own key, the SHA-256 of key and payload, the payload. What does not match
in every part is deleted; a file is never trusted by its name.

What is kept will be run, so the folder must be the user's own: created with mode 0700, refused if
it is a link, somebody else's, or writable by others. It is opened once and every file is reached
through that handle. Writers make a temporary file and rename it, so that readers and writers in any
number of processes need no locks and may be killed at any time.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import threading
import time
import warnings

MAGIC = b"LUCERNE1"
HEAD = struct.Struct("<8s32s32sQ")
_TEMPORARY, _SWEPT = ".writing", "swept"
_MAX_BYTES = 1 << 28
_WRITES_BETWEEN_SWEEPS = 256
_SWEEP_TO = 0.9
_STALE_SECONDS = 3600.0
_FRESH_SECONDS = 24 * 3600.0
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_READ |= getattr(os, "O_NONBLOCK", 0)  # a pipe in a file's place must not make anybody wait


class Cache:
    """One folder. Every method may be called by any number of threads and processes.

    `what` names the files in a warning, `suffix` ends their names.
    """

    def __init__(
        self,
        folder: str,
        limit_bytes: int,
        suffix: str = ".kernel",
        what: str = "compiled kernels",
        inside: str = "",
    ) -> None:
        """`inside`: the folder that holds this one, which has to be the user's own as well: who
        may write there may put another folder in this one's place."""
        self.inside = inside
        self.folder, self.limit, self.suffix, self.what = folder, limit_bytes, suffix, what
        self.hits = self.misses = self.refused = 0
        self.used: dict[bytes, None] = {}
        """Keys that this process has read or written, in order."""
        self._handle = self._open() if folder else None
        self._writes = 0

    @property
    def is_on(self) -> bool:
        return self._handle is not None

    def _open(self) -> int | None:
        """A handle of the folder, or None (with one warning) if it can't be trusted."""
        if not hasattr(os, "geteuid") or os.open not in os.supports_dir_fd:
            return None
        if self.inside:
            outer = self._trusted(self.inside)
            if outer is None:
                return None
            os.close(outer)
        return self._trusted(self.folder)

    def _trusted(self, folder: str) -> int | None:
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            self._warn(folder, f"it can't be opened ({error.strerror})")
            return None
        found = os.fstat(handle)
        if found.st_uid == os.geteuid() and not found.st_mode & 0o022:
            return handle
        os.close(handle)
        whose = found.st_uid == os.geteuid()
        self._warn(folder, "others may write to it" if whose else "it belongs to another user")
        return None

    def _warn(self, folder: str, why: str) -> None:
        warnings.warn(
            f"{self.what} are not kept: the folder {folder!r} is not used, because {why}",
            RuntimeWarning,
            stacklevel=2,
        )

    # ---- reading -----------------------------------------------------------------------------

    def read(self, key: bytes) -> bytes | None:
        """The payload kept for `key`. A file that is wrong in any part is deleted."""
        if self._handle is None:
            return None
        name = key.hex() + self.suffix
        try:
            file = os.open(name, _READ, dir_fd=self._handle)
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
        self.used[key] = None
        return payload

    def _checked(self, file: int, key: bytes) -> bytes | None:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return None
        if found.st_mode & 0o022 or not HEAD.size < found.st_size <= _MAX_BYTES:
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
        self._unlink(key.hex() + self.suffix)

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
            os.rename(
                own, key.hex() + self.suffix, src_dir_fd=self._handle, dst_dir_fd=self._handle
            )
        except OSError:
            self._unlink(own)
            return
        self.used[key] = None
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
            if not name.endswith((self.suffix, _TEMPORARY)):
                continue
            try:
                found = os.stat(name, dir_fd=self._handle, follow_symlinks=False)
            except OSError:
                continue
            if name.endswith(self.suffix):
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
    return HEAD.pack(MAGIC, key, _seal(key, payload), len(payload)) + payload


def parse_entry(raw: bytes, key: bytes) -> bytes | None:
    """The payload of a file, or None unless it is whole and of this key."""
    if len(raw) < HEAD.size:
        return None
    magic, kept_key, seal, length = HEAD.unpack_from(raw)
    payload = raw[HEAD.size :]
    if magic != MAGIC or kept_key != key or length != len(payload):
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
