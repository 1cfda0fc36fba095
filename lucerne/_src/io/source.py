"""Where bytes are read from: a path or an open file, always by offset and never beyond the end."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from lucerne._src.io.errors import CorruptFileError, UnsupportedFileError

CHUNK = 1 << 20
Array = np.ndarray[Any, Any]


class ByteSource:
    """Bytes that can be read at any offset; `size` is how many there are."""

    size: int

    def readinto(self, offset: int, view: memoryview) -> None:
        """Fill `view` from `offset`, or raise."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to give back unless a subclass opened something."""

    def read(self, offset: int, count: int) -> bytes:
        """Exactly `count` bytes."""
        if offset < 0 or count < 0 or offset + count > self.size:
            raise CorruptFileError(
                f"the file ends at byte {self.size}, but bytes {offset} to {offset + count} are "
                "needed: it is truncated or damaged"
            )
        made = bytearray(count)
        self.readinto(offset, memoryview(made))
        return bytes(made)

    def chunks(self, offset: int, count: int) -> Iterator[bytes]:
        """The same bytes in pieces, for those who only look at each once."""
        for start in range(offset, offset + count, CHUNK):
            yield self.read(start, min(CHUNK, offset + count - start))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class FileSource(ByteSource):
    """A regular file, opened by path."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(self._fd)
            raise UnsupportedFileError(f"{os.fspath(path)!r} is not a regular file")
        self.size = found.st_size

    def readinto(self, offset: int, view: memoryview) -> None:
        done = 0
        while done < len(view):
            got = os.preadv(self._fd, [view[done : done + (1 << 30)]], offset + done)
            if not got:
                raise CorruptFileError(f"the file shrank to {offset + done} bytes while being read")
            done += got

    def map(self) -> Array:
        """All bytes as private memory: reads come from the file, writes stay in the process."""
        if not self.size:
            return np.empty(0, np.uint8)
        access = mmap.ACCESS_COPY
        return np.frombuffer(mmap.mmap(self._fd, self.size, access=access), np.uint8)

    def close(self) -> None:
        os.close(self._fd)


class StreamSource(ByteSource):
    """An open binary file (or anything that reads, seeks and tells), from where it stands."""

    def __init__(self, stream: Any) -> None:
        try:
            self.start = stream.tell()
            stream.seek(0, os.SEEK_END)
            self.size = stream.tell()
            stream.seek(self.start)
        except (AttributeError, OSError) as error:
            raise UnsupportedFileError(
                f"{error}. You can only torch.load from a file that is seekable. Please pre-load "
                "the data into a buffer like io.BytesIO and try to load from it instead."
            ) from error
        self.size -= self.start
        self._stream = stream

    def readinto(self, offset: int, view: memoryview) -> None:
        self._stream.seek(self.start + offset)
        done = 0
        while done < len(view):
            got = self._stream.read(len(view) - done)
            if not isinstance(got, bytes | bytearray | memoryview):
                raise TypeError(
                    f"read() gave {type(got).__name__}, not bytes: open the file in mode 'rb'"
                )
            if not len(got):
                raise CorruptFileError(f"the file ended after {offset + done} bytes")
            view[done : done + len(got)] = got
            done += len(got)

    def leave_at(self, offset: int) -> None:
        """Put the stream behind what was read, so that the next load begins there."""
        self._stream.seek(self.start + offset)


def open_source(f: Any) -> ByteSource:
    """A source for a path or an open file."""
    if isinstance(f, str | os.PathLike):
        return FileSource(f)
    if not (hasattr(f, "read") and hasattr(f, "seek") and hasattr(f, "tell")):
        raise AttributeError(
            f"expected a path or an open binary file with read, seek and tell, got "
            f"{type(f).__name__}. You can only torch.load from a file that is seekable."
        )
    return StreamSource(f)
