"""The collectives, each written once with torch's names and run by both frameworks."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.processes import ranks

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")


class Setting:
    """What a case knows: the framework, the group, the dtype."""

    def __init__(self, m: Any, group: Any, dtype: str, async_op: bool) -> None:
        self.m, self.dist, self.group, self.async_op = m, m.distributed, group, async_op
        self.dtype = getattr(m, dtype)
        self.rank, self.size = self.dist.get_rank(group), self.dist.get_world_size(group)
        self.ranks = self.dist.get_process_group_ranks(group)

    def made(self, *shape: int, add: int = 0) -> Any:
        """Small whole numbers, which every dtype has and adds exactly."""
        count = int(np.prod(shape))
        numbers = self.m.arange(count) % 5 + self.rank + add
        return numbers.reshape(shape).to(self.dtype)

    def empty(self, *shape: int) -> Any:
        return self.m.zeros(shape, dtype=self.dtype)

    def call(self, name: str, *args: Any, **named: Any) -> None:
        done = getattr(self.dist, name)(*args, group=self.group, async_op=self.async_op, **named)
        if self.async_op:
            done.wait()


def _reduced(op: str) -> Callable[[Setting], Any]:
    def case(s: Setting) -> Any:
        x = s.made(3, 4)
        s.call("all_reduce", x, op=getattr(s.dist.ReduceOp, op))
        return [x]

    return case


def _strided(s: Setting) -> Any:
    x = s.made(4, 6)
    s.call("broadcast", x, s.ranks[-1])
    return [x]


def _large(s: Setting) -> Any:
    x = s.made(700_001)
    s.call("all_reduce", x)
    return [x[::1000].clone(), x[-3:].clone()]


def _reduce(s: Setting) -> Any:
    x = s.made(5)
    s.call("reduce", x, s.ranks[0])
    return [x] if s.rank == 0 else []


def _all_gather(s: Setting) -> Any:
    into = [s.empty(2, 3) for _ in range(s.size)]
    s.call("all_gather", into, s.made(2, 3))
    return into


def _all_gather_into(s: Setting) -> Any:
    x, y = s.empty(2 * s.size, 3), s.empty(s.size, 4)
    s.call("all_gather_into_tensor", x, s.made(2, 3))
    s.call("all_gather_into_tensor", y, s.made(4))
    return [x, y]


def _gather(s: Setting) -> Any:
    into = [s.empty(3) for _ in range(s.size)] if s.rank == s.size - 1 else None
    s.call("gather", s.made(3), into, s.ranks[-1])
    return into or []


def _scatter(s: Setting) -> Any:
    parts = [s.made(3, add=k) for k in range(s.size)] if s.rank == 0 else None
    x = s.empty(3)
    s.call("scatter", x, parts, s.ranks[0])
    return [x]


def _reduce_scatter(s: Setting) -> Any:
    x = s.empty(4)
    s.call("reduce_scatter", x, [s.made(4, add=k) for k in range(s.size)])
    return [x]


def _reduce_scatter_tensor(s: Setting) -> Any:
    x = s.empty(3)
    s.call("reduce_scatter_tensor", x, s.made(3 * s.size))
    return [x]


def _all_to_all(s: Setting) -> Any:
    into = [s.empty(2) for _ in range(s.size)]
    s.call("all_to_all", into, [s.made(2, add=k) for k in range(s.size)])
    return into


def _all_to_all_single(s: Setting) -> Any:
    x = s.empty(s.size, 2)
    s.call("all_to_all_single", x, s.made(s.size, 2))
    given = [k + 1 for k in range(s.size)]
    y = s.empty((s.rank + 1) * s.size, 2)
    s.call("all_to_all_single", y, s.made(sum(given), 2), [s.rank + 1] * s.size, given)
    return [x, y]


def _barrier(s: Setting) -> Any:
    s.call("barrier")
    return []


def _send(s: Setting) -> Any:
    x = s.made(6)
    if s.size == 1:
        return [x]
    if s.rank == 0:
        s.dist.send(x, s.ranks[1], group=s.group, tag=3)
        s.dist.recv(x, s.ranks[s.size - 1], group=s.group)
    else:
        y = s.empty(6)
        s.dist.recv(y, s.ranks[s.rank - 1], group=s.group, tag=3 if s.rank == 1 else 0)
        s.dist.send(y + x, s.ranks[(s.rank + 1) % s.size], group=s.group)
        x = y
    return [x]


def _batch(s: Setting) -> Any:
    x, y = s.made(50_000), s.empty(50_000)
    after, before = s.ranks[(s.rank + 1) % s.size], s.ranks[(s.rank - 1) % s.size]
    ops = [
        s.dist.P2POp(s.dist.isend, x, after, s.group),
        s.dist.P2POp(s.dist.irecv, y, before, s.group),
    ]
    for work in s.dist.batch_isend_irecv(ops):
        work.wait()
    return [y[:9].clone()]


def _objects(s: Setting) -> Any:
    every: list[Any] = [None] * s.size
    s.dist.all_gather_object(every, {"rank": s.rank, "x": s.made(2)}, group=s.group)
    one = [{"a": (s.rank, "é")}, None]
    s.dist.broadcast_object_list(one, s.ranks[0], group=s.group)
    got: list[Any] = [None]
    parts = [[k, "x" * k] for k in range(s.size)] if s.rank == 0 else None
    s.dist.scatter_object_list(got, parts, s.ranks[0], group=s.group)
    on_root = [None] * s.size if s.rank == 0 else None
    s.dist.gather_object(s.rank * 2, on_root, s.ranks[0], group=s.group)
    return [repr([e["rank"] for e in every]), repr(one), repr(got), repr(on_root), every[-1]["x"]]


CASES: dict[str, Callable[[Setting], Any]] = {
    "all_reduce sum": _reduced("SUM"), "all_reduce product": _reduced("PRODUCT"),
    "all_reduce min": _reduced("MIN"), "all_reduce max": _reduced("MAX"),
    "all_reduce band": _reduced("BAND"), "all_reduce bor": _reduced("BOR"),
    "all_reduce bxor": _reduced("BXOR"), "all_reduce large": _large, "broadcast": _strided,
    "reduce": _reduce, "all_gather": _all_gather, "all_gather_into_tensor": _all_gather_into,
    "gather": _gather, "scatter": _scatter, "reduce_scatter": _reduce_scatter,
    "reduce_scatter_tensor": _reduce_scatter_tensor, "all_to_all": _all_to_all,
    "all_to_all_single": _all_to_all_single, "barrier": _barrier, "send and recv": _send,
    "batch_isend_irecv": _batch, "objects": _objects,
}  # fmt: skip
BITS = ("all_reduce band", "all_reduce bor", "all_reduce bxor")
WAITS = ("barrier", "send and recv", "batch_isend_irecv", "objects")
"""Cases without a dtype of their own, or without `async_op`."""


def rows(dtypes: tuple[str, ...]) -> list[tuple[str, str, bool]]:
    """Case, dtype, async."""
    found = []
    for name in CASES:
        for dtype in dtypes:
            if name in BITS and "float" in dtype:
                continue
            found += [
                (name, dtype, flag) for flag in ((False,) if name in WAITS else (False, True))
            ]
    return found


def subgroups(size: int) -> list[tuple[int, ...]]:
    return [tuple(range(size)), tuple(range(1, size)), tuple(range(size))[::2]][
        : 1 if size < 3 else 3
    ]


def as_data(value: Any) -> Any:
    if isinstance(value, str):
        return value
    kind = str(value.dtype).rpartition(".")[2]
    wide = value.double() if "float" in kind else value
    return kind, tuple(value.shape), wide.detach().numpy().tolist()


def job(rank: int, size: int, framework: str, place: str, dtypes: tuple[str, ...]) -> Any:
    """All cases on this rank: what each gave, or its error."""
    m = importlib.import_module(framework)
    importlib.import_module(f"{framework}.distributed")
    dist = ranks.join(m, rank, size, place)
    found = {}
    for members in subgroups(size):
        group = dist.new_group(list(members)) if len(members) < size else dist.group.WORLD
        for name, dtype, async_op in rows(dtypes):
            if rank not in members:
                continue
            key = (members, name, dtype, async_op)
            try:
                given = CASES[name](Setting(m, group, dtype, async_op))
                found[key] = [as_data(v) for v in given]
            except (RuntimeError, ValueError) as error:
                if framework == "lucerne":
                    raise AssertionError(f"{key}: {error}") from error
                found[key] = f"refuses: {str(error)[:100]}"
        dist.barrier()
    dist.destroy_process_group()
    return found


def differences(size: int, dtypes: tuple[str, ...] = DTYPES) -> tuple[int, int, list[str]]:
    """How many rows were compared, how many torch refuses, and which differ."""
    ours, theirs = (
        ranks.results(size, job, name, ranks.meeting(), dtypes) for name in ("lucerne", "torch")
    )
    count, refused, wrong = 0, 0, []
    for rank in range(size):
        for key, expected in theirs[rank].items():
            if isinstance(expected, str):
                refused += 1
                continue
            count += 1
            if ours[rank][key] != expected:
                wrong.append(f"rank {rank} {key}: {ours[rank][key]} is not {expected}")
    return count, refused, wrong
