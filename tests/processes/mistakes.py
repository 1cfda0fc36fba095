"""Ranks that do not agree: every one is told, at once, and with both lines."""

from __future__ import annotations

import random
import time
from typing import Any

import lucerne as lu
from tests.processes import ranks


def _call(dist: Any, odd: bool, kind: str, size: int) -> None:
    """What one rank does as a step; the odd one does another thing."""
    x = lu.ones(8)
    match kind:
        case "op":
            dist.all_gather([lu.empty(8) for _ in range(size)], x) if odd else dist.all_reduce(x)
        case "rooted op":
            dist.gather(x, None, 0) if odd else dist.broadcast(x, 0)
        case "shape":
            dist.all_reduce(lu.ones(9) if odd else x)
        case "large shape":
            dist.all_reduce(lu.ones(900_001) if odd else lu.ones(900_000))
        case "dtype":
            dist.all_reduce(x.double() if odd else x)
        case "reduction":
            dist.all_reduce(x, dist.ReduceOp.MAX) if odd else dist.all_reduce(x)
        case "root":
            dist.broadcast(x, 2 if odd else 0)
        case "order":
            if odd:
                dist.barrier()
                dist.all_reduce(x)
            else:
                dist.all_reduce(x)
                dist.barrier()
        case "one more":
            if odd:
                dist.barrier()
            dist.all_reduce(x)
        case _:
            raise AssertionError(kind)


KINDS = (
    "op",
    "rooted op",
    "shape",
    "large shape",
    "dtype",
    "reduction",
    "root",
    "order",
    "one more",
)


def job(rank: int, size: int, place: str, kind: str, odd: int, before: int) -> Any:
    """Some steps alike, one with a mistake, and steps after it: the error, and how long it took."""
    dist = ranks.join(lu, rank, size, place)
    x = lu.ones(4)
    start = time.monotonic()
    try:
        for _ in range(before):  # (one that is behind may hear of it here)
            dist.all_reduce(x)
        _call(dist, rank == odd, kind, size)
        for _ in range(3):
            dist.barrier()
    except RuntimeError as error:
        return type(error).__name__, str(error), time.monotonic() - start
    return "nothing", "", time.monotonic() - start


def problems(count: int, seed: int = 0, size: int = 3, limit: float = 1.0) -> list[str]:
    """What went wrong in so many mistakes of all kinds: none is to be."""
    draw = random.Random(seed)
    wrong = []
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        odd = draw.randrange(1, size - (kind == "root"))
        found = ranks.run(size, job, ranks.meeting(), kind, odd, draw.randrange(4), patience=30.0)
        for rank, (word, value) in enumerate(found):
            said = value if word == "done" else (word, value, 99.0)
            name, text, seconds = said
            lines = text.count("mistakes.py:")
            if name != "DistBackendError" or lines < 2 or seconds > limit:
                wrong.append(f"{number} {kind}, odd {odd}, rank {rank}: {said}")
    return wrong
