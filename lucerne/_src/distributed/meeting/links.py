"""Connections between ranks: who listens where, who connects to whom, and who may."""

from __future__ import annotations

import concurrent.futures
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from lucerne._src.base.config import launch_variable
from lucerne._src.base.process import forks
from lucerne._src.distributed.meeting.errors import DistNetworkError
from lucerne._src.distributed.meeting.secret import introduced, job_secret, meet
from lucerne._src.distributed.meeting.stores import KeyStore
from lucerne._src.distributed.meeting.tcp_store import accept_all, is_loopback

BUFFER = 4 << 20
Key = tuple[str, str, int]
"""What a connection is for ("data", "control", "mail"), the group, and the rank that connects."""


class Listener:
    """This rank's door: others connect, say what for, and are handed to who waits for them."""

    def __init__(self, host: str, generation: int) -> None:
        self._secret = job_secret()
        self.generation = generation
        self._lock = forks.lock()
        self._come: dict[Key, concurrent.futures.Future[socket.socket]] = {}
        self._takers: dict[tuple[str, str], Callable[[int, socket.socket], None]] = {}
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._sock = socket.socket(family, socket.SOCK_STREAM)
        self._sock.bind((host, 0))
        self._sock.listen(1024)
        self.address: tuple[str, int] = (host, self._sock.getsockname()[1])
        self.refused = 0
        forks.tell(self)
        threading.Thread(target=self._accept, name="lucerne listener", daemon=True).start()

    def forget(self) -> None:
        self._sock.close()

    close = forget

    def _accept(self) -> None:
        accept_all(self._sock, self._admit)

    def _admit(self, sock: socket.socket) -> None:
        hello = meet(sock, self._secret)
        try:
            kind, group, rank, generation = json.loads(hello or b"")
            if generation != self.generation or not isinstance(rank, int):
                raise ValueError("of another generation")
        except (ValueError, TypeError):
            self.refused += 1
            sock.close()
            return
        tune(sock)
        with self._lock:
            taker = self._takers.get((kind, group))
            if taker is None:
                self._promise((kind, group, rank)).set_result(sock)
                return
        taker(rank, sock)

    def _promise(self, key: Key) -> concurrent.futures.Future[socket.socket]:
        return self._come.setdefault(key, concurrent.futures.Future())

    def take_all(self, kind: str, group: str, taker: Callable[[int, socket.socket], None]) -> None:
        """Hand all connections of a kind to a function, those that came before as well."""
        with self._lock:
            self._takers[kind, group] = taker
            early = [key for key in self._come if key[:2] == (kind, group)]
            found = [(key[2], self._come.pop(key)) for key in early]
        for rank, promise in found:
            taker(rank, promise.result())

    def wait(self, kind: str, group: str, rank: int, deadline: float) -> socket.socket:
        """The connection that `rank` makes to us."""
        with self._lock:
            promise = self._promise((kind, group, rank))
        try:
            found = promise.result(max(deadline - time.monotonic(), 0.0))
        except concurrent.futures.TimeoutError:
            raise DistNetworkError(
                f"rank {rank} did not connect in time: it has not come to this call, or it can't "
                f"reach {self.address[0]}:{self.address[1]}"
            ) from None
        with self._lock:
            self._come.pop((kind, group, rank), None)
        return found


def tune(sock: socket.socket) -> None:
    """Small frames at once, large ones in large pieces."""
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, BUFFER)


def connect(
    store: KeyStore, kind: str, group: str, me: int, peer: int, generation: int, deadline: float
) -> socket.socket:
    """A connection to another rank, whose address is in the store."""
    host, port = json.loads(store.get(f"address/{peer}"))
    hello = json.dumps([kind, group, me, generation]).encode()
    pause = 0.01
    while True:
        try:
            sock = introduced((host, port), job_secret(), hello, deadline)
            tune(sock)
            return sock
        except OSError as error:
            if time.monotonic() > deadline:
                raise DistNetworkError(
                    f"rank {me} can't reach rank {peer} at {host}:{port} ({error})"
                ) from None
        time.sleep(pause)
        pause = min(pause * 1.5, 0.25)


def own_address(store_host: str) -> str:
    """The address others reach this machine at: loopback unless the job is on several."""
    chosen = launch_variable("LUCERNE_ADDRESS")
    if chosen:
        return chosen
    if not store_host or is_loopback(store_host):
        return "127.0.0.1"
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        probe.connect((store_host, 9))  # sends nothing: which interface leads there
        found: str = probe.getsockname()[0]
        return found
    except OSError:
        return "127.0.0.1"
    finally:
        probe.close()


def host_identity() -> str:
    """What two processes share if they can see each other's memory files."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        return f"{boot}:{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{socket.gethostname()}:{os.getpid()}"


def close_quietly(sock: Any) -> None:
    """Close a socket that may be gone already."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    sock.close()
