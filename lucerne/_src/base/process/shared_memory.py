"""Blocks of memory that processes share: no name in the file system, so nothing can be left over.

A block is an anonymous file in memory (memfd), mapped where it is needed and gone with its last
mapping, whoever is killed. Its pages are reserved when it is made: a machine that has no memory
says so there, and never by a SIGBUS at a later write.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from typing import Any

import numpy as np

from lucerne._src.base.process.free_memory import UNKNOWN, free_memory

if sys.platform == "linux":
    import fcntl

AVAILABLE = sys.platform == "linux"
_SEALS = 0x2 | 0x4  # F_SEAL_SHRINK, F_SEAL_GROW: nobody can pull the memory away


_LARGE = 1 << 26


def _refuse_too_much(nbytes: int) -> None:
    """Reserving more than there is would end some process of the machine, maybe this one."""
    if nbytes < _LARGE:
        return
    free = free_memory()
    if free != UNKNOWN and nbytes > free // 2:
        raise OSError(errno.ENOMEM, f"{nbytes} bytes are more than half of the memory that is free")


class SharedBlock:
    """Shared memory: `map` holds it in place, `fd` is its file until `close_fd`."""

    def __init__(self, fd: int, nbytes: int, private: bool = False) -> None:
        """Map the block behind `fd`, which now belongs to this object.

        With `private`, writes stay in this process (pages are copied when first written).
        """
        if sys.platform == "win32":
            raise OSError("shared blocks need a system with memfd")
        flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
        self.fd = fd
        self.nbytes = nbytes
        self.map = mmap.mmap(fd, nbytes, flags, mmap.PROT_READ | mmap.PROT_WRITE)
        self.array: np.ndarray[Any, Any] = np.frombuffer(self.map, np.uint8)
        self.address = int(self.array.__array_interface__["data"][0])

    @classmethod
    def make(cls, nbytes: int) -> SharedBlock:
        """A new block of zeros; OSError when the system has no memory (or files) left."""
        if sys.platform != "linux":
            raise OSError("shared blocks need a system with memfd")
        size = max(mmap.PAGESIZE, -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE)
        _refuse_too_much(size)
        fd = os.memfd_create("lucerne", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(fd, 0, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            return cls(fd, size)
        except BaseException:
            os.close(fd)
            raise

    def close_fd(self) -> None:
        """The mapping stays."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def holds(self, address: int, nbytes: int) -> bool:
        return self.address <= address and address + nbytes <= self.address + self.nbytes

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0:
            os.close(self.fd)
            self.fd = -1
