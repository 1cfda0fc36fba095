"""Checkpoints of several ranks that are damaged, or whose save is killed."""

from __future__ import annotations

import os
import random
import signal
import tempfile
from pathlib import Path
from typing import Any

import lucerne as lu
import lucerne.distributed.checkpoint as dcp
from lucerne._src.distributed.checkpoint import saving
from lucerne._src.io import atomic
from lucerne._src.io.errors import LoadError
from tests.processes import ranks


def state(value: float, rank: int, size: int) -> dict[str, Any]:
    """A tensor in parts, whole ones, and plain values."""
    rows = lu.full((8, 3), value)
    a, b = 8 * rank // size, 8 * (rank + 1) // size
    return {
        "part": dcp.TensorPart(rows[a:b].clone(), (8, 3), (a, 0)),
        "model": {"w": lu.full((40,), value), "b": lu.full((5,), value, dtype=lu.bfloat16)},
        "step": int(value),
        "names": ["a", {"b": value}],
    }


def values(found: dict[str, Any]) -> set[float]:
    """All numbers of a state: one, if it is of one save."""
    seen = set(found["part"].tensor.reshape(-1).tolist()) | set(found["model"]["w"].tolist())
    seen |= set(found["model"]["b"].float().tolist())
    return seen | {float(found["step"]), float(found["names"][1]["b"])}


def save(rank: int, size: int, place: str, folder: str, value: float, kill_at: int) -> None:
    """Save, and on rank 1 (or 0, for a negative number) end at a call to the system."""
    ranks.join(lu, rank, size, place)
    if kill_at and rank == (0 if kill_at < 0 else 1):
        atomic.write_atomic.__defaults__ = (_Counting(abs(kill_at)),)
    dcp.save(state(value, rank, size), checkpoint_id=folder)


class _Counting(atomic.FileOps):
    """Ends the process at its n-th call."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if name in ("create", "write", "chmod", "sync", "close", "replace", "sync_folder"):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return found


def load(folder: str, rank: int = 0, size: int = 1) -> dict[str, Any]:
    found = state(-1.0, rank, size)
    dcp.load(found, checkpoint_id=folder, no_dist=True)
    return found


def flips(count: int, seed: int = 0) -> int:
    """Single bits that are changed in the files: how many were found."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        ranks.results(2, save, ranks.meeting(), folder, 7.0, 0)
        manifest = saving.read_manifest(folder)
        files = [folder + "/" + name for name in (*manifest.files, saving.MANIFEST)]
        found = 0
        for _ in range(count):
            path = Path(draw.choice(files))
            raw = bytearray(path.read_bytes())
            at = draw.randrange(len(raw))
            before = bytes(raw)
            raw[at] ^= 1 << draw.randrange(8)
            path.write_bytes(raw)
            try:
                load(folder)
            except (LoadError, FileNotFoundError):
                found += 1
            path.write_bytes(before)
    return found


def killed_saves(count: int, seed: int = 0) -> tuple[int, list[str]]:
    """Saves of which one rank is killed: how many were, and which left a checkpoint that can't be
    loaded, or that is of two saves."""
    draw = random.Random(seed)
    wrong: list[str] = []
    killed = 0
    with tempfile.TemporaryDirectory() as folder:
        ranks.results(2, save, ranks.meeting(), folder, 1.0, 0)
        last = 1.0
        for number in range(count):
            value = float(number % 200 + 2)  # (bfloat16 has no larger whole numbers)
            where = draw.choice([*range(1, 8), *range(-14, 0)])
            ends = ranks.run(2, save, ranks.meeting(), folder, value, where)
            killed += any(word == "gone" for word, _ in ends)
            try:
                seen = values(load(folder))
            except (LoadError, FileNotFoundError) as error:
                wrong.append(f"save {number}, killed at {where}: {error}")
                continue
            if seen not in ({last}, {value}):
                wrong.append(f"save {number}, killed at {where}: {seen}")
            last = max(seen)
    return killed, wrong


def report_flips(count: int = 10_000) -> list[str]:
    found = flips(count)
    print(f"{count} changed bits in checkpoints of 2 ranks: {found} found")
    return [] if found == count else ["a changed bit was not found"]


def report_saves(count: int = 1000) -> list[str]:
    killed, wrong = killed_saves(count)
    print(f"{killed} of {count} saves of 2 ranks were killed: {len(wrong)} can't be loaded after")
    return wrong
