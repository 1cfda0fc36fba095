"""Stores: small values under names that all processes of a job see."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.base.process import forks
from lucerne._src.distributed.meeting.errors import DistStoreError, QueueEmptyError

try:
    import fcntl
except ImportError:  # not on Windows: FileStore refuses there
    fcntl = None  # type: ignore[assignment]

DEFAULT_TIMEOUT = datetime.timedelta(seconds=300)
_SOON = 0.005


def as_bytes(value: Any) -> bytes:
    """A value as it is stored."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a store keeps text or bytes, got {type(value).__name__}")


def seconds_of(timeout: Any) -> float:
    """A `timedelta`, or a number of seconds."""
    if isinstance(timeout, datetime.timedelta):
        return timeout.total_seconds()
    return float(timeout)


class KeyStore:
    """What all stores have: `set`, `get`, `add`, `wait` and the rest, in torch's spelling.

    A kind of store has `_change(key, change)`: let a function turn the value of a key into a new
    one, as one step; `_peek(keys)`; `_names()`.
    """

    def __init__(self) -> None:
        self._timeout = DEFAULT_TIMEOUT

    # -- what a kind of store does ---------------------------------------------------------------

    def _change(self, key: str, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
        raise NotImplementedError(f"{type(self).__name__} has no values: use a kind of Store")

    def _peek(self, key: str) -> bytes | None:
        raise NotImplementedError(f"{type(self).__name__} has no values: use a kind of Store")

    def _names(self) -> list[str]:
        raise NotImplementedError(f"{type(self).__name__} has no values: use a kind of Store")

    # -- what all have ---------------------------------------------------------------------------

    @property
    def timeout(self) -> datetime.timedelta:
        """How long `get` and `wait` wait."""
        return self._timeout

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._timeout = datetime.timedelta(seconds=seconds_of(timeout))

    def set(self, key: str, value: str | bytes) -> None:
        """Keep `value` under `key`."""
        data = as_bytes(value)
        self._change(key, lambda old: data)

    def get(self, key: str) -> bytes:
        """The value of `key`; waits until there is one."""
        self.wait([key])
        found = self._peek(key)
        if found is None:
            raise DistStoreError(f"the key {key!r} was removed while it was read")
        return found

    def add(self, key: str, amount: int) -> int:
        """Add to a counter, which begins at 0, and give its new value."""
        found = self._change(key, lambda old: str(_number(key, old) + int(amount)).encode())
        return _number(key, found)

    def append(self, key: str, value: str | bytes) -> None:
        """Add bytes behind those that are there."""
        data = as_bytes(value)
        self._change(key, lambda old: (old or b"") + data)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Set `desired` if the value is `expected` (or there is none and it is empty); the value
        that is there afterwards."""
        old_value, new_value = as_bytes(expected), as_bytes(desired)

        def change(old: bytes | None) -> bytes | None:
            return new_value if (old or b"") == old_value else old

        found = self._change(key, change)
        return old_value if found is None else found

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys have values."""
        return all(self._peek(key) is not None for key in keys)

    def wait(self, keys: Sequence[str], timeout: datetime.timedelta | None = None) -> None:
        """Wait until all keys have values."""
        patience = seconds_of(self._timeout if timeout is None else timeout)
        end = time.monotonic() + patience
        while not self.check(keys):
            if time.monotonic() >= end:
                missing = [key for key in keys if self._peek(key) is None]
                raise DistStoreError(
                    f"wait timeout after {patience * 1000:.0f}ms, keys: {', '.join(missing)}"
                )
            time.sleep(_SOON)

    def delete_key(self, key: str) -> bool:
        """Remove a key; whether it was there."""
        there = self._peek(key) is not None
        self._change(key, lambda old: None)
        return there

    def num_keys(self) -> int:
        return len(self._names())

    def list_keys(self) -> list[str]:
        return sorted(self._names())

    def has_extended_api(self) -> bool:
        """Whether there are `append`, `multi_get`, `multi_set` and queues: always."""
        return True

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Put a value at the end of a queue."""
        place = self.add(f"{key}/queue/end", 1)
        self.set(f"{key}/queue/{place}", value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take the value at the beginning of a queue."""
        if not block and not self.queue_len(key):
            raise QueueEmptyError(f"the queue {key!r} is empty")
        name = f"{key}/queue/{self.add(f'{key}/queue/begin', 1)}"
        found = self.get(name)
        self.delete_key(name)
        return found

    def queue_len(self, key: str) -> int:
        return self.add(f"{key}/queue/end", 0) - self.add(f"{key}/queue/begin", 0)

    def barrier(self, key: str, world_size: int, timeout: datetime.timedelta | None = None) -> None:
        """Wait until `world_size` processes have come here."""
        come = self.add(f"{key}/come", 1)
        if come % world_size == 0:
            self.set(f"{key}/gone/{come // world_size}", b"1")
        self.wait([f"{key}/gone/{-(-come // world_size)}"], timeout)

    def clone(self) -> KeyStore:
        """The same store, for another thread: all of them may be shared."""
        return self


def _number(key: str, value: bytes | None) -> int:
    try:
        return int(value or b"0")
    except ValueError:
        raise DistStoreError(f"the value of {key!r} is no number: {value!r}") from None


class HashStore(KeyStore):
    """A store for the threads of one process.

    >>> store = HashStore()
    >>> store.set("a", "1")
    >>> store.get("a"), store.add("n", 2), store.num_keys()
    (b'1', 2, 2)
    """

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[str, bytes] = {}
        self._lock = forks.rlock()

    def _change(self, key: str, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
        with self._lock:
            new = change(self._values.get(key))
            if new is None:
                self._values.pop(key, None)
            else:
                self._values[key] = new
            return new

    def _peek(self, key: str) -> bytes | None:
        return self._values.get(key)

    def _names(self) -> list[str]:
        with self._lock:
            return list(self._values)


class FileStore(KeyStore):
    """A store in a file that all processes can write to (one machine, or a shared file system)."""

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        if fcntl is None:
            raise DistStoreError("FileStore needs locks of files, which this system lacks")
        self._path = os.fspath(file_name)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        self._handle = os.open(self._path, flags, 0o600)
        self._lock = forks.rlock()
        self._at = 0
        self._values: dict[str, bytes] = {}

    @property
    def path(self) -> str:
        return self._path

    def _change(self, key: str, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
        with self._lock:
            fcntl.lockf(self._handle, fcntl.LOCK_EX)
            try:
                self._follow()
                new = change(self._values.get(key))
                raw = key.encode()
                size = 0 if new is None else len(new) + 1
                record = len(raw).to_bytes(4, "little") + size.to_bytes(8, "little") + raw
                os.lseek(self._handle, 0, os.SEEK_END)
                os.write(self._handle, record + (b"" if new is None else b"=" + new))
                self._follow()
                return new
            finally:
                fcntl.lockf(self._handle, fcntl.LOCK_UN)

    def _follow(self) -> None:
        """Read what was written since the last look."""
        size = os.fstat(self._handle).st_size
        raw = os.pread(self._handle, size - self._at, self._at) if size > self._at else b""
        at = 0
        while len(raw) - at >= 12:
            name = int.from_bytes(raw[at : at + 4], "little")
            length = int.from_bytes(raw[at + 4 : at + 12], "little")
            end = at + 12 + name + length
            if end > len(raw):
                break
            key = raw[at + 12 : at + 12 + name].decode(errors="replace")
            if length:
                self._values[key] = raw[at + 13 + name : end]
            else:
                self._values.pop(key, None)
            at = end
        self._at += at

    def _peek(self, key: str) -> bytes | None:
        with self._lock:
            fcntl.lockf(self._handle, fcntl.LOCK_SH)
            try:
                self._follow()
            finally:
                fcntl.lockf(self._handle, fcntl.LOCK_UN)
            return self._values.get(key)

    def _names(self) -> list[str]:
        with self._lock:
            self._peek("")
            return list(self._values)

    def __del__(self) -> None:
        if getattr(self, "_handle", -1) >= 0:
            os.close(self._handle)
            self._handle = -1


class PrefixStore(KeyStore):
    """Another store, with a prefix before each key.

    >>> inner = HashStore()
    >>> PrefixStore("a", inner).set("k", "1")
    >>> inner.list_keys()
    ['a/k']
    """

    def __init__(self, prefix: str, store: KeyStore) -> None:
        super().__init__()
        self._prefix, self._store = prefix, store
        self._timeout = store.timeout

    @property
    def underlying_store(self) -> KeyStore:
        return self._store

    @property
    def timeout(self) -> datetime.timedelta:
        return self._store.timeout

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._store.set_timeout(timeout)

    def _name(self, key: str) -> str:
        return f"{self._prefix}/{key}"

    def _change(self, key: str, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
        return self._store._change(self._name(key), change)

    def _peek(self, key: str) -> bytes | None:
        return self._store._peek(self._name(key))

    def _names(self) -> list[str]:
        return self._store._names()

    # the calls below go through: a store over a network does each in one step of its own

    def set(self, key: str, value: str | bytes) -> None:
        self._store.set(self._name(key), value)

    def get(self, key: str) -> bytes:
        return self._store.get(self._name(key))

    def add(self, key: str, amount: int) -> int:
        return self._store.add(self._name(key), amount)

    def append(self, key: str, value: str | bytes) -> None:
        self._store.append(self._name(key), value)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        return self._store.compare_set(self._name(key), expected, desired)

    def check(self, keys: Sequence[str]) -> bool:
        return self._store.check([self._name(key) for key in keys])

    def wait(self, keys: Sequence[str], timeout: datetime.timedelta | None = None) -> None:
        self._store.wait([self._name(key) for key in keys], timeout)

    def delete_key(self, key: str) -> bool:
        return self._store.delete_key(self._name(key))
