"""A store that one process keeps and the others ask over TCP."""

from __future__ import annotations

import datetime
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.base.process import forks
from lucerne._src.distributed.meeting.errors import DistNetworkError, DistStoreError
from lucerne._src.distributed.meeting.secret import introduced, job_secret, meet
from lucerne._src.distributed.meeting.stores import (
    DEFAULT_TIMEOUT,
    HashStore,
    KeyStore,
    as_bytes,
    seconds_of,
)

HELLO = b"store"
MOST = 64 << 20
"""Bytes of one question."""
_LENGTH = struct.Struct("<I")
_SLICE = 0.2


class StoreServer:
    """Keeps the values, and answers: a thread for each connection, none before its handshake."""

    def __init__(self, host: str, port: int, listening: socket.socket | None = None) -> None:
        self.values = HashStore()
        self._secret = job_secret()
        self._sock = listening or _listen(host, port)
        self.port: int = self._sock.getsockname()[1]
        self._closed = False
        self._open: set[socket.socket] = set()
        forks.tell(self)
        threading.Thread(target=self._accept, name="lucerne store", daemon=True).start()

    def forget(self) -> None:
        """A forked child does not keep the parent's sockets open."""
        self.close()

    def close(self) -> None:
        self._closed = True
        for sock in [self._sock, *self._open]:
            sock.close()

    def _accept(self) -> None:
        accept_all(self._sock, self._serve)

    def _serve(self, sock: socket.socket) -> None:
        self._open.add(sock)
        try:
            if meet(sock, self._secret) != HELLO:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not self._closed:
                sock.settimeout(None)
                answer = self._answer(_receive(sock), sock)
                _send(sock, answer)
        except (OSError, ValueError, TypeError, KeyError):
            return  # gone, or no client of ours
        finally:
            self._open.discard(sock)
            sock.close()

    def _answer(self, parts: list[bytes], sock: socket.socket) -> list[bytes]:
        verb, rest = parts[0].decode(), parts[1:]
        values = self.values
        try:
            match verb:
                case "set":
                    values.set(rest[0].decode(), rest[1])
                    return [b"ok"]
                case "add":
                    return [b"ok", str(values.add(rest[0].decode(), int(rest[1]))).encode()]
                case "append":
                    values.append(rest[0].decode(), rest[1])
                    return [b"ok"]
                case "compare":
                    return [b"ok", values.compare_set(rest[0].decode(), rest[1], rest[2])]
                case "delete":
                    return [b"ok", b"1" if values.delete_key(rest[0].decode()) else b""]
                case "names":
                    return [b"ok", json.dumps(values.list_keys()).encode()]
                case "peek":
                    found = values._peek(rest[0].decode())
                    return [b"ok"] if found is None else [b"ok", found]
                case "wait":
                    return self._wait(float(rest[0]), [key.decode() for key in rest[1:]], sock)
        except DistStoreError as error:
            return [b"error", str(error).encode()]
        return [b"error", f"no verb {verb[:40]!r}".encode()]

    def _wait(self, patience: float, keys: list[str], sock: socket.socket) -> list[bytes]:
        """A short while only: the client asks again, so that it can be interrupted."""
        end = time.monotonic() + min(patience, _SLICE)
        pause = 0.0005
        while not self.values.check(keys):
            if time.monotonic() >= end or self._closed:
                missing = [key for key in keys if self.values._peek(key) is None]
                return [b"later", json.dumps(missing).encode()]
            time.sleep(pause)
            pause = min(pause * 1.5, 0.01)
        return [b"ok"]


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise DistNetworkError(
            f"the store can't listen on {host}:{port} ({error.strerror}): is another job using the "
            "port? Choose another MASTER_PORT, or 0 for any"
        ) from None
    sock.listen(256)
    return sock


def _send(sock: socket.socket, parts: Sequence[bytes]) -> None:
    raw = b"".join(_LENGTH.pack(len(part)) + part for part in parts)
    sock.sendall(_LENGTH.pack(len(raw)) + raw)


def _receive(sock: Any) -> list[bytes]:
    total = _LENGTH.unpack(_all(sock, 4))[0]
    if total > MOST:
        raise ValueError("too long")
    raw, at, parts = _all(sock, total), 0, []
    while at + 4 <= len(raw):
        (length,) = _LENGTH.unpack_from(raw, at)
        if at + 4 + length > len(raw):
            raise ValueError("a part is longer than the whole")
        parts.append(raw[at + 4 : at + 4 + length])
        at += 4 + length
    if not parts:
        raise ValueError("empty")
    return parts


def _all(sock: Any, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        piece = sock.recv(min(count - len(found), 1 << 20))
        if not piece:
            raise ConnectionError("the store's other side is gone")
        found += piece
    return bytes(found)


def accept_all(listening: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    """Give each connection a thread of its own, until the socket is closed."""
    while True:
        try:
            sock, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=serve, args=(sock,), daemon=True).start()


def is_loopback(host: str) -> bool:
    """Whether a name is of this machine's inner network."""
    return host in ("localhost", "::1") or host.startswith("127.")


class TCPStore(KeyStore):
    """The store that one process keeps (`is_master`) and all ask.

    The server listens on the loopback interface if `host_name` is one of its names, and otherwise
    on all interfaces; connections that do not know the job's secret are refused.
    """

    def __init__(
        self,
        host_name: str,
        port: int = 0,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: datetime.timedelta = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        super().__init__()
        self._timeout = timeout
        self._host = host_name
        self._server: StoreServer | None = None
        if is_master:
            self._server = self._serve(host_name, port, multi_tenant, master_listen_fd)
            port = self._server.port if self._server else port
        self._port = port
        self._lock = forks.rlock()
        self._sock: socket.socket | None = None
        forks.tell(self)
        self._connect(time.monotonic() + seconds_of(timeout))
        if wait_for_workers and world_size is not None and world_size > 0:
            self._wait_for_workers(world_size)

    def _serve(
        self, host: str, port: int, shared: bool, listening: int | None
    ) -> StoreServer | None:
        if listening is not None:
            return StoreServer(host, port, socket.socket(fileno=listening))
        try:
            return StoreServer("127.0.0.1" if is_loopback(host) else "", port)
        except DistNetworkError:
            if shared:  # somebody of this job listens there already
                return None
            raise

    def _wait_for_workers(self, world_size: int) -> None:
        come = self.add("init/workers", 1)
        end = time.monotonic() + seconds_of(self._timeout)
        while come % world_size and self._server is not None:
            if time.monotonic() > end:
                raise DistStoreError(f"{come} of {world_size} processes came to the store in time")
            time.sleep(0.01)
            come = self.add("init/workers", 0)

    @property
    def host(self) -> str:
        return self._host

    @property
    def port(self) -> int:
        return self._port

    @property
    def libuvBackend(self) -> bool:
        return False

    def forget(self) -> None:
        """A forked child opens a connection of its own."""
        if self._sock is not None:
            self._sock.close()
        self._sock = None

    def __del__(self) -> None:
        if getattr(self, "_sock", None) is not None:
            self.forget()

    def close(self) -> None:
        """End the connection, and the server if it is here."""
        self.forget()
        if self._server is not None:
            self._server.close()

    def _connect(self, deadline: float) -> socket.socket:
        secret = job_secret()
        host = "127.0.0.1" if is_loopback(self._host) and self._host != "::1" else self._host
        pause = 0.01
        while True:
            try:
                sock = introduced((host, self._port), secret, HELLO, deadline)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.settimeout(None)
                self._sock = sock
                return sock
            except OSError as error:
                if time.monotonic() > deadline:
                    raise DistNetworkError(
                        f"no store at {self._host}:{self._port} ({error}). Is rank 0 running, and "
                        "are MASTER_ADDR and MASTER_PORT the same in all processes?"
                    ) from None
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)

    def _ask(self, *parts: bytes) -> list[bytes]:
        with self._lock:
            if self._sock is None:
                self._connect(time.monotonic() + seconds_of(self._timeout))
            sock = self._sock
            assert sock is not None
            try:
                _send(sock, parts)
                answer = _receive(sock)
            except (OSError, ValueError) as error:
                self.forget()
                raise DistNetworkError(
                    f"the store at {self._host}:{self._port} is gone ({error}): the process that "
                    "kept it (rank 0, or the agent of `lucerne run`) has ended"
                ) from None
            except BaseException:
                self.forget()  # interrupted in the middle: the answer would be taken for the next
                raise
        if answer[0] == b"error":
            raise DistStoreError(answer[1].decode(errors="replace"))
        return answer

    def set(self, key: str, value: str | bytes) -> None:
        self._ask(b"set", key.encode(), as_bytes(value))

    def add(self, key: str, amount: int) -> int:
        return int(self._ask(b"add", key.encode(), str(int(amount)).encode())[1])

    def append(self, key: str, value: str | bytes) -> None:
        self._ask(b"append", key.encode(), as_bytes(value))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        return self._ask(b"compare", key.encode(), as_bytes(expected), as_bytes(desired))[1]

    def delete_key(self, key: str) -> bool:
        return bool(self._ask(b"delete", key.encode())[1])

    def wait(self, keys: Sequence[str], timeout: datetime.timedelta | None = None) -> None:
        patience = seconds_of(self._timeout if timeout is None else timeout)
        end = time.monotonic() + patience
        while True:
            left = max(end - time.monotonic(), 0.0)
            answer = self._ask(b"wait", str(left).encode(), *(key.encode() for key in keys))
            if answer[0] == b"ok":
                return
            if time.monotonic() >= end:
                missing = ", ".join(json.loads(answer[1]))
                raise DistStoreError(f"wait timeout after {patience * 1000:.0f}ms, keys: {missing}")

    def _peek(self, key: str) -> bytes | None:
        answer = self._ask(b"peek", key.encode())
        return answer[1] if len(answer) > 1 else None

    def _names(self) -> list[str]:
        found: list[str] = json.loads(self._ask(b"names")[1])
        return found

    def _change(self, key: str, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
        raise NotImplementedError("TCPStore changes values by its own verbs")
