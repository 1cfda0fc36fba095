"""Files that are either the old one or the new one, whatever happens in between.

Content goes to a temporary file in the same folder, is forced to disk, takes the place of the
target in one step, and that step is forced to disk too. A crash leaves at worst a temporary file,
which the next save to the same name removes. All calls to the system go through a `FileOps`, which
tests replace by one that records, fails or crashes.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable
from typing import Any

try:
    import fcntl
except ImportError:  # not on Windows: temporary files of a killed process stay there
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".lucerne-tmp"
CHUNK = 1 << 26
SMALL = 1 << 18


class FileOps:
    """The calls that an atomic save makes."""

    def create(self, path: str) -> int:
        """A new file that only its owner may read; locked while it is written."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
        return os.open(path, flags, 0o600)

    def write(self, fd: int, data: memoryview) -> int:
        return os.write(fd, data)

    def chmod(self, fd: int, mode: int) -> None:
        os.fchmod(fd, mode)

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def sync_folder(self, folder: str) -> None:
        """Make a rename survive a power loss (systems that can't open folders need no help)."""
        try:
            fd = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        except PermissionError:
            return
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems can't
                raise
        finally:
            os.close(fd)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def list(self, folder: str) -> list[str]:
        return os.listdir(folder)


OPS = FileOps()


def write_atomic(
    path: str | os.PathLike[str],
    produce: Callable[[Callable[[Any], None]], None],
    ops: FileOps = OPS,
) -> None:
    """Replace the file at `path` by what `produce` writes through the function it is given."""
    target = os.path.realpath(os.fspath(path))  # a link stays a link to the new content
    if os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode):
        _write_through(target, produce, ops)
        return
    folder, name = os.path.split(target)
    remove_stale(folder, name, ops)
    temporary, fd = _create(folder, name, ops)
    opened = True
    try:
        _fill(fd, produce, ops)
        ops.chmod(fd, _mode_for(target))
        ops.sync(fd)
        ops.replace(temporary, target)
        opened = False
        ops.close(fd)
    except BaseException:
        _abandon(temporary, fd if opened else None, ops)
        raise
    ops.sync_folder(folder)


def _fill(fd: int, produce: Callable[[Callable[[Any], None]], None], ops: FileOps) -> None:
    small = bytearray()  # headers and paddings, gathered so that not each of them is a call

    def put(view: memoryview) -> None:
        while len(view):
            view = view[ops.write(fd, view[:CHUNK]) :]

    def write(data: Any) -> None:
        view = memoryview(data).cast("B")
        if len(view) < SMALL:
            small.extend(view)
            if len(small) < SMALL:
                return
            view = memoryview(b"")
        put(memoryview(bytes(small)))
        small.clear()
        put(view)

    produce(write)
    put(memoryview(bytes(small)))


def _write_through(
    target: str, produce: Callable[[Callable[[Any], None]], None], ops: FileOps
) -> None:
    """Devices and pipes can't be replaced, only written to."""
    fd = os.open(target, os.O_WRONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        _fill(fd, produce, ops)
    finally:
        os.close(fd)


def _create(folder: str, name: str, ops: FileOps) -> tuple[str, int]:
    """A locked temporary file; another process may have taken an unlocked one for stale."""
    for _ in range(100):
        temporary = os.path.join(folder, f".{name[:100]}.{secrets.token_hex(6)}{SUFFIX}")
        try:
            fd = ops.create(temporary)
        except FileExistsError:
            continue
        except FileNotFoundError:
            raise RuntimeError(f"Parent directory {folder} does not exist.") from None
        if _lock(fd) and os.fstat(fd).st_nlink:
            return temporary, fd
        ops.close(fd)
    raise FileExistsError(f"no free temporary name in {folder}")


def _abandon(temporary: str, fd: int | None, ops: FileOps) -> None:
    """Remove what a failed save left; the error that made it fail is the one to report."""
    try:
        ops.remove(temporary)
    except OSError:
        pass
    if fd is not None:
        try:
            os.close(fd)
        except OSError:
            pass


def remove_stale(folder: str, name: str, ops: FileOps = OPS) -> list[str]:
    """Remove temporary files that killed saves to `name` left; those in use are locked."""
    return _remove_stale(folder, f".{name[:100]}.", ops)


def remove_stale_in(folder: str, ops: FileOps = OPS) -> list[str]:
    """Remove all temporary files that killed saves left in a folder of checkpoints."""
    return _remove_stale(folder, ".", ops)


def _remove_stale(folder: str, prefix: str, ops: FileOps) -> list[str]:
    removed: list[str] = []
    try:
        found = ops.list(folder)
    except OSError:
        return removed
    for each in found:
        if each.startswith(prefix) and each.endswith(SUFFIX):
            path = os.path.join(folder, each)
            if _is_stale(path):
                try:
                    ops.remove(path)
                    removed.append(path)
                except OSError:
                    continue
    return removed


def _is_stale(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return False
    try:
        return fcntl is not None and _lock(fd, unknown=False)
    finally:
        os.close(fd)


def _lock(fd: int, unknown: bool = True) -> bool:
    """Lock until closed (or killed); whether nobody else holds the lock (if that can be known)."""
    if fcntl is None:
        return True  # type: ignore[unreachable]
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return unknown
    return True


def _mode_for(target: str) -> int:
    """The permissions of the file that is replaced, or what the umask leaves of 0666."""
    try:
        return stat.S_IMODE(os.stat(target).st_mode)
    except FileNotFoundError:
        return 0o666 & ~_umask()


def _umask() -> int:
    """The process's umask; read without setting it where the system tells."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
