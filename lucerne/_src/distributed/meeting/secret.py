"""The secret that processes of one job share, and the handshake that shows both sides know it.

`lucerne run` draws a secret for each job (`LUCERNE_JOB_TOKEN`). Processes started by other means
use the user's own, a file in the folder of caches that nobody else can read: one user's
processes find each other, and a stranger's connection is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
import struct
import time
from typing import Any

from lucerne._src.base.config import config, launch_variable
from lucerne._src.distributed.meeting.errors import DistNetworkError

TOKEN_VARIABLE = "LUCERNE_JOB_TOKEN"
NONCE = 32
MOST = 4096
"""Bytes that a stranger may make us read before it has shown that it knows the secret."""
PATIENCE = 5.0
"""Seconds a stranger may take for it."""
_HEAD = struct.Struct("<4sH")
_MAGIC = b"LUCH"


def job_secret() -> bytes:
    """The secret of this process's job."""
    given = launch_variable(TOKEN_VARIABLE)
    if given:
        return hashlib.sha256(given.encode()).digest()
    return hashlib.sha256(_users_own()).digest()


def _users_own() -> bytes:
    folder = config.cache_dir or os.path.join(os.path.expanduser("~"), ".cache", "lucerne")
    path = os.path.join(folder, "token")
    for _ in range(20):
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            fresh = f"{path}.{secrets.token_hex(6)}"
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(handle, secrets.token_hex(32).encode())
            finally:
                os.close(handle)
            try:
                os.link(fresh, path)  # whole or not at all, and the first one stays
            except FileExistsError:
                pass
            finally:
                os.unlink(fresh)
            return _read_own(path)
        except FileNotFoundError:
            continue  # somebody is clearing the folder
        except OSError as error:
            raise DistNetworkError(
                f"the secret that processes share can't be kept in {path!r} ({error}): start them "
                f"with `lucerne run`, or set {TOKEN_VARIABLE} to the same long random text in all"
            ) from None
    raise DistNetworkError(f"the secret that processes share can't be kept in {path!r}")


def _read_own(path: str) -> bytes:
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    try:
        found = os.fstat(handle)
        if hasattr(os, "geteuid") and (found.st_uid != os.geteuid() or found.st_mode & 0o077):
            raise DistNetworkError(
                f"{path!r} has the secret that your processes share, and others may read it or "
                f"own it: remove it, or set {TOKEN_VARIABLE}"
            )
        return os.read(handle, 1024)
    finally:
        os.close(handle)


def _proof(secret: bytes, role: bytes, *parts: bytes) -> bytes:
    mac = hmac.new(secret, role, hashlib.sha256)
    for part in parts:
        mac.update(struct.pack("<Q", len(part)) + part)
    return mac.digest()


def receive_exactly(sock: Any, count: int, deadline: float) -> bytes:
    """So many bytes, or `ConnectionError`; late ones are a `TimeoutError`."""
    found = bytearray()
    while len(found) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the other side says nothing")
        sock.settimeout(left)
        piece = sock.recv(count - len(found))
        if not piece:
            raise ConnectionError("the other side closed the connection")
        found += piece
    return bytes(found)


def greet(sock: socket.socket, secret: bytes, hello: bytes, deadline: float) -> None:
    """The side that connects: say who we are, and see that the other side knows the secret."""
    mine = secrets.token_bytes(NONCE)
    theirs = receive_exactly(sock, NONCE, deadline)
    sock.sendall(
        _HEAD.pack(_MAGIC, len(hello)) + mine + hello + _proof(secret, b"c", theirs, hello)
    )
    try:
        answer = receive_exactly(sock, 32, deadline)
    except ConnectionError:
        raise DistNetworkError(
            "the other process refused the connection: it does not share our secret. Start all "
            f"ranks with `lucerne run`, or set {TOKEN_VARIABLE} to the same text in each"
        ) from None
    if not hmac.compare_digest(answer, _proof(secret, b"s", mine, theirs, hello)):
        raise DistNetworkError("a process answered that does not know the secret of this job")


def introduced(
    address: tuple[str, int], secret: bytes, hello: bytes, deadline: float
) -> socket.socket:
    """A connection to an address, with both sides sure of each other."""
    sock = socket.create_connection(address, timeout=5.0)
    try:
        greet(sock, secret, hello, min(deadline, time.monotonic() + 10.0))
    except BaseException:
        sock.close()
        raise
    return sock


def meet(sock: socket.socket, secret: bytes) -> bytes | None:
    """The side that is connected to: what the other one says of itself; None: it is a stranger."""
    deadline = time.monotonic() + PATIENCE
    mine = secrets.token_bytes(NONCE)
    try:
        sock.settimeout(PATIENCE)
        sock.sendall(mine)
        magic, length = _HEAD.unpack(receive_exactly(sock, _HEAD.size, deadline))
        if magic != _MAGIC or length > MOST:
            return None
        theirs = receive_exactly(sock, NONCE, deadline)
        hello = receive_exactly(sock, length, deadline)
        proof = receive_exactly(sock, 32, deadline)
        if not hmac.compare_digest(proof, _proof(secret, b"c", mine, hello)):
            return None
        sock.sendall(_proof(secret, b"s", theirs, mine, hello))
        return hello
    except OSError:
        return None
