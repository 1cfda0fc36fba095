"""Strangers at the doors of a rank and of the store, and bytes that are no frames."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections import Counter
from typing import Any

from lucerne._src.distributed.meeting import secret, tcp_store
from lucerne._src.distributed.meeting.errors import DistError
from lucerne._src.distributed.meeting.links import Listener
from lucerne._src.distributed.meeting.tcp_store import StoreServer
from lucerne._src.distributed.processes import frames
from lucerne._src.distributed.processes.exchange import Mesh
from lucerne._src.distributed.processes.frames import HEAD, MAGIC, Call
from lucerne._src.distributed.processes.mailbox import Mailbox
from lucerne._src.distributed.run.board import Board

CALL = Call("all_reduce float32[4] SUM", "here.py:1 in f")


def _frame(draw: random.Random) -> bytes:
    """A frame that is wrong somewhere: its head, its text, its length, or all of it."""
    text = draw.choice([CALL.text(), b"", draw.randbytes(draw.randrange(200)), b"\xff" * 300])
    length = draw.choice([16, 0, 17, 1 << 40, (1 << 64) - 1, draw.getrandbits(64)])
    head = HEAD.pack(
        draw.choice([MAGIC, MAGIC, b"GET ", draw.randbytes(4)]),
        draw.choice([len(text), len(text), 0xFFFF, draw.getrandbits(16)]) & 0xFFFF,
        draw.choice([0, 0, 1, draw.getrandbits(16)]),
        draw.choice([0, 0, 7, draw.getrandbits(32)]),
        draw.choice([1, 1, 0, 2, draw.getrandbits(64)]),
        length,
    )
    raw = bytearray(head + text + draw.randbytes(draw.randrange(40)))
    if draw.random() < 0.5:
        raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
    return bytes(raw[: draw.randrange(1, len(raw) + 1)])


def good_frame() -> bytes:
    return HEAD.pack(MAGIC, len(CALL.text()), 0, 0, 1, 16) + CALL.text() + b"\0" * 16


def one_frame(raw: bytes) -> str:
    """What a rank makes of these bytes from a peer, which then closes."""
    ours, theirs = socket.socketpair()
    mesh = Mesh("g", 0, [0, 1], 0, Board())
    mesh.timeout = 2.0
    mesh.add(1, ours)
    mesh.begin(1, CALL)
    theirs.sendall(raw)
    theirs.shutdown(socket.SHUT_WR)
    into = bytearray(16)
    try:
        mesh.exchange(1, 0, {}, {1: memoryview(into)}, time.monotonic() + 2.0)
        return "accepted"
    except DistError:
        return "refused"
    finally:
        theirs.close()
        mesh.close()


def fuzz_frames(count: int, seed: int = 0) -> Counter[str]:
    """What became of so many wrong frames; anything but an error of ours is raised."""
    draw = random.Random(seed)
    exchange_wait, Mesh._reason = Mesh._reason, _at_once  # type: ignore[method-assign]
    try:
        found: Counter[str] = Counter()
        for _ in range(count):
            raw = _frame(draw)
            word = one_frame(raw)
            if word == "accepted" and raw[: HEAD.size] != good_frame()[: HEAD.size]:
                raise AssertionError(f"a wrong frame was accepted: {raw!r}")
            found[word if raw[: len(good_frame()) - 16] != good_frame()[:-16] else "right"] += 1
        return found
    finally:
        Mesh._reason = exchange_wait  # type: ignore[method-assign]


def _at_once(self: Mesh, gone: Any) -> Exception:
    return DistError(f"rank {gone.rank} is gone")


def knock(port: int, raw: bytes) -> bytes:
    """Send bytes to a door; what it answers beyond its greeting."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        got = b""
        with contextlib.suppress(OSError):
            sock.sendall(raw)
            sock.shutdown(socket.SHUT_WR)
            while piece := sock.recv(4096):
                got += piece
        return got[secret.NONCE :]


def knocks(count: int, seed: int = 0) -> tuple[int, int]:
    """Strangers at both doors: how many were let in, and whether the doors still open (2: both)."""
    draw = random.Random(seed)
    server, listener = StoreServer("127.0.0.1", 0), Listener("127.0.0.1", 0)
    let_in = 0
    for _ in range(count):
        body = draw.choice(
            [
                draw.randbytes(draw.randrange(300)),
                struct.pack("<4sH", b"LUCH", 5) + bytes(32) + b"store" + draw.randbytes(32),
                struct.pack("<4sH", b"LUCH", 0xFFFF) + draw.randbytes(100),
                b"GET / HTTP/1.1\r\n\r\n",
            ]
        )
        port = draw.choice([server.port, listener.address[1]])
        let_in += bool(knock(port, body))
    alive = 0
    store = tcp_store.TCPStore("127.0.0.1", server.port, wait_for_workers=False)
    store.set("a", "b")
    alive += store.get("a") == b"b"
    with socket.create_connection(listener.address, timeout=5) as sock:
        secret.greet(sock, secret.job_secret(), b'["data", "g", 1, 0]', time.monotonic() + 5)
        listener.wait("data", "g", 1, time.monotonic() + 5).close()
        alive += 1
    store.close()
    listener.close()
    return let_in, alive


def fuzz_mail(count: int, seed: int = 0) -> int:
    """Wrong messages to a mailbox: how many it took for one that somebody waits for."""
    draw = random.Random(seed)
    box = Mailbox(0, lambda peer: socket.socketpair()[0], lambda error: None)
    for _ in range(count):
        ours, theirs = socket.socketpair()
        box.take(1, ours)
        theirs.sendall(draw.randbytes(draw.randrange(1, 80)))
        theirs.close()
    kept = sum(map(len, box._kept.values()))
    box.close()
    return kept


assert frames.MOST_TEXT < 1 << 16
