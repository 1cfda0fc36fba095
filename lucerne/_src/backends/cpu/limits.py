"""What this processor can do at best, measured: multiply-adds, tiles, caches, memory, threads.

Every figure is the best of several short runs of a kernel that does nothing else: rates of one core
by the processor time of the thread (others may use the machine), rates of all cores together by the
clock. The whole takes about a second, so it is kept on disk beside the kernels, per user; the key
names the processor and the number of cores, not this package's text.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

from lucerne._src.backends.cpu.emit.builder import (  # fmt: skip
    F32,
    F64,
    I8,
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.target import HOST, VECTOR_BYTES
from lucerne._src.backends.cpu.emit.types import Type
from lucerne._src.backends.cpu.gemm.amx import products
from lucerne._src.backends.cpu.runtime import disk, memory, pool
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel

_VERSION = 1
"""Raised when figures are measured in another way: kept ones are then measured anew."""
_CHAINS, _ROUNDS = 24, 4000
_TILE_ROUNDS = 4000
_TILE_PRODUCTS = 4 * _TILE_ROUNDS
_TILE_BYTES = 1024
_STREAMS = 8
"""Vectors that a walk through memory has in flight beside each other."""
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_MOST_MEMORY = 192 << 20
_PARTS_OF_FLOAT32 = 6
"""Products of bfloat16 parts in one float32 product on tiles (decision record 13)."""
_TRIES, _SECONDS = 12, 0.06
"""Runs of one kernel: so many, or as many as fit in this time, but three at least."""

Figures = dict[str, Any]


def limits(*, anew: bool = False) -> Figures:
    """The figures of this machine; measured when they are not on disk, or when `anew` is asked.

    Measured anew, a figure that was better the last time stays: a limit is the best ever seen.
    """
    key = _key()
    kept = disk.cache_of_process()
    payload = kept.read(key)
    before: Figures | None = None if payload is None else json.loads(payload)
    if before is not None and not anew:
        return before
    found = measure() if before is None else better(before, measure())
    kept.write(key, json.dumps(found, sort_keys=True).encode())
    return found


def _key() -> bytes:
    text = repr(("limits", _VERSION, HOST.identity, pool.threads()))
    return hashlib.sha256(text.encode()).digest()


def better(a: Any, b: Any, name: str = "") -> Any:
    """Of two measurements, figure by figure: the higher rate, the shorter time."""
    if isinstance(a, dict):
        return {k: better(a[k], b[k], k) if k in a and k in b else a.get(k, b.get(k)) for k in b}
    if isinstance(a, float):
        return min(a, b) if name.endswith("_us") else max(a, b)
    return b


def measure() -> Figures:
    """All figures, now. Rates of arithmetic twice, with the others in between: a neighbour who
    shares the core for a moment is not a limit."""
    first = peaks()
    found = {
        "processor": _processor_name(),
        "threads": pool.threads(),
        **_bandwidths(),
        "parallel_us": _parallel_us(),
    }
    return {**found, "peaks": better(first, peaks())}


def peaks() -> dict[str, dict[str, float]]:
    """GFLOP/s of one core now, by dtype: with vector instructions, and with tiles."""
    lanes = VECTOR_BYTES // 4
    vector = _rate(_plain("fma32", _write_fma(F32)), 2 * lanes * _CHAINS * _ROUNDS)
    double = _rate(_plain("fma64", _write_fma(F64)), lanes * _CHAINS * _ROUNDS)
    found = {
        "float32": {"fma": vector},
        "float64": {"fma": double},
        "bfloat16": {"fma": vector},
        "float16": {"fma": vector},
    }
    if products.has_amx():
        tiles = _rate(_plain("tiles", _write_tiles("tdpbf16ps")), _TILE_PRODUCTS * 2 * 16 * 16 * 32)
        found["bfloat16"]["tiles"] = tiles
        found["float32"]["tiles"] = tiles / _PARTS_OF_FLOAT32
        bytes_ = _plain("tiles8", _write_tiles("tdpbssd"))
        found["int8"] = {"tiles": _rate(bytes_, _TILE_PRODUCTS * 2 * 16 * 16 * 64)}
    return found


def _processor_name() -> str:
    fields = dict(part.partition("=")[::2] for part in HOST.name.split(","))
    return fields.get("model name") or HOST.name or HOST.machine


def _rate(run: Callable[[], Any], work: float) -> float:
    """Billions a second of `work`, on one core."""
    return work / _best(run, thread_time) / 1e9


def _best(run: Callable[[], Any], clock: Callable[[], float]) -> float:
    run()
    best, began = float("inf"), perf_counter()
    for k in range(_TRIES):
        start = clock()
        run()
        best = min(best, clock() - start)
        if k >= 2 and perf_counter() - began > _SECONDS:
            break
    return max(best, 1e-9)


# ---- arithmetic ---------------------------------------------------------------------------------


def _plain(name: str, write: Callable[[Module], None], *extra: int) -> Callable[[], int]:
    """A kernel that works in 16 KB of its own."""
    code = compiled(("limits", name, VECTOR_BYTES), write)
    return NativeKernel(code["limit"], 0, 0, extra=extra, workspace=1 << 14).bind([], [])


def _write_fma(type: Type) -> Callable[[Module], None]:
    """Independent chains of multiply-adds on registers."""

    def write(m: Module) -> None:
        wide = type.vector(VECTOR_BYTES * 8 // type.bits)
        with m.function("limit", [("block", PTR)], I64) as f:
            space = f.word(f.args[0], 0, PTR)
            f.fill_bytes(space, 0, 64 * (_CHAINS + 1))  # junk may be denormal, which is slow
            factor = f.load(wide, space)
            start = [f.load(wide, f.at(space, 64 * (i + 1))) for i in range(_CHAINS)]
            with f.loop(0, _ROUNDS, 1, start, at_least_once=True) as loop:
                loop.next(*[f.mul_add(factor, factor, c) for c in loop.carried])
            f.store(_total(loop.results), space)
            f.ret(0)

    return write


def _total(values: list[LLVMValue]) -> LLVMValue:
    total = values[0]
    for v in values[1:]:
        total = total + v
    return total


def _write_tiles(product: str) -> Callable[[Module], None]:
    """Four accumulating tiles from two rows and two columns of tiles, all in the first cache."""

    def write(m: Module) -> None:
        with m.function("limit", [("block", PTR)], I64) as f:
            space = f.word(f.args[0], 0, PTR)
            _configure_tiles(f, space)
            for t in range(8):
                place = f.at(space, _TILE_BYTES * (t + 1))
                _tile(f, "tileloadd64", [f.constant(t, I8), place, f.constant(64, I64)])
            with f.loop(0, _TILE_ROUNDS, at_least_once=True):
                for c, a, b in ((0, 4, 6), (1, 4, 7), (2, 5, 6), (3, 5, 7)):
                    _tile(f, product, [f.constant(x, I8) for x in (c, a, b)])
            _tile(f, "tilerelease", [])
            f.ret(0)

    return write


def _tile(f: LLVMFunction, name: str, args: list[Any]) -> None:
    f.call(f"llvm.x86.{name}", VOID, args)


def _configure_tiles(f: LLVMFunction, space: LLVMValue) -> None:
    """All eight tiles of 16 rows of 64 bytes; the work space is made zero."""
    f.fill_bytes(space, 0, 9 * _TILE_BYTES)
    f.store(f.constant(1, I8), space)
    for t in range(8):
        f.store(f.constant(64, I32), f.at(space, 16 + 2 * t), align=1)
    for t in range(8):
        f.store(f.constant(16, I8), f.at(space, 48 + t))
    f.store(f.constant(0, I8), f.at(space, 32))
    _tile(f, "ldtilecfg", [space])


# ---- memory -------------------------------------------------------------------------------------


def _bandwidths() -> Figures:
    """GB/s read from the caches of one core; read and copied from memory by one and by all."""
    second, last = cache_sizes()
    inner = max(second // 2, 1 << 18)
    outer = _MOST_MEMORY
    # bigger than the second level, and a part of the last one that a core may have to itself
    middle = min(max(4 * second, last // 64), outer // 4)
    rooms = [_Room(outer) for _ in range(pool.threads())]
    room = rooms[0]
    read = _rate(room.reading(outer), outer)
    copied = _rate(room.copying(outer), outer)
    together = max(_together([r.copying(outer) for r in rooms], outer), read, copied)
    return {
        "cache_bytes": {"L2": second, "last": last},
        "l2_gbs": _rate(room.reading(inner), inner * room.rounds(inner)),
        "last_level_gbs": _rate(room.reading(middle), middle * room.rounds(middle)),
        "memory_gbs_core": max(read, copied),
        "memory_gbs": together,
    }


def cache_sizes() -> tuple[int, int]:
    """Bytes of the second and of the last level of cache, as the system tells; or a usual size."""
    sizes: dict[int, int] = {}
    for folder in sorted(_CACHES.glob("index*")):
        try:
            level = int((folder / "level").read_text())
            text = (folder / "size").read_text().strip()
            kind = (folder / "type").read_text().strip()
        except (OSError, ValueError):
            continue
        unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
        digits = text.rstrip("KMG")
        if kind != "Instruction" and digits.isdigit():
            sizes[level] = int(digits) * unit
    second = sizes.get(2, 1 << 20)
    return second, sizes.get(max(sizes, default=2), second)


class _Room:
    """Memory to walk through."""

    def __init__(self, nbytes: int) -> None:
        self.block = memory.HostBlock(nbytes)
        _walk("fill", self.block.address, nbytes, 1)()

    @staticmethod
    def rounds(nbytes: int) -> int:
        """How often a small part is read in one run, so that a run is long enough to be timed."""
        return max(1, (16 << 20) // nbytes)

    def reading(self, nbytes: int) -> Callable[[], int]:
        return _walk("read", self.block.address, nbytes, self.rounds(nbytes))

    def copying(self, nbytes: int) -> Callable[[], int]:
        """The first half over the second: as many bytes read as written."""
        return _walk("copy", self.block.address, nbytes // 2, 1)


def _walk(how: str, address: int, nbytes: int, rounds: int) -> Callable[[], int]:
    step = VECTOR_BYTES * _STREAMS
    code = compiled(("limits", how, VECTOR_BYTES), lambda m: _write_walk(m, how))
    extra = (address, nbytes // step * step, rounds)
    return NativeKernel(code["limit"], 0, 0, extra=extra, workspace=1 << 10).bind([], [])


def _write_walk(m: Module, how: str) -> None:
    """Through `bytes` from `address`, `rounds` times."""
    wide, step = F32.vector(VECTOR_BYTES // 4), VECTOR_BYTES * _STREAMS
    with m.function("limit", [("block", PTR)], I64) as f:
        block = f.args[0]
        space, start = f.word(block, 0, PTR), f.word(block, 1, PTR)
        nbytes, rounds = f.word(block, 2), f.word(block, 3)
        zero = [f.zero(wide)] * _STREAMS
        with f.loop(0, rounds, 1, zero) as outer:
            with f.loop(0, nbytes, step, list(outer.carried)) as inner:
                places = [f.at(start, inner.index + k * VECTOR_BYTES) for k in range(_STREAMS)]
                inner.next(*_walked(f, how, places, nbytes, list(inner.carried)))
            outer.next(*inner.results)
        f.store(_total(outer.results), space)
        f.ret(0)


def _walked(
    f: LLVMFunction, how: str, places: list[LLVMValue], nbytes: LLVMValue, sums: list[LLVMValue]
) -> list[LLVMValue]:
    wide = sums[0].type
    if how == "fill":
        for place in places:
            f.store(f.zero(wide), place)
        return sums
    read = [f.load(wide, place) for place in places]
    if how == "read":
        return [s + x for s, x in zip(sums, read, strict=True)]
    for place, x in zip(places, read, strict=True):
        f.store(x, f.at(place, nbytes))
    return sums


def _together(runs: list[Callable[[], int]], nbytes: int) -> float:
    """GB/s of all threads at once, by the clock, in the best of a few tries."""
    best = float("inf")
    for _ in range(4):
        gate = threading.Barrier(len(runs) + 1)
        threads = [threading.Thread(target=_behind, args=(gate, run)) for run in runs]
        for t in threads:
            t.start()
        gate.wait()
        began = perf_counter()
        for t in threads:
            t.join()
        best = min(best, perf_counter() - began)
    return len(runs) * nbytes / max(best, 1e-9) / 1e9


def _behind(gate: threading.Barrier, run: Callable[[], int]) -> None:
    gate.wait()
    run()


# ---- threads ------------------------------------------------------------------------------------


def _parallel_us() -> float:
    """Microseconds to hand work to all threads and to take it back, while they are awake."""
    pool.pool()
    run = _plain("parallel", _write_parallel, pool.threads())
    return _best(run, perf_counter) / _PARALLEL_ROUNDS * 1e6


_PARALLEL_ROUNDS = 200


def _write_parallel(m: Module) -> None:
    params = [("block", PTR), ("chunk", I64), ("tid", I64)]
    with m.function("task", params, internal=True) as f:
        f.ret()
    with m.function("limit", [("block", PTR)], I64) as f:
        with f.loop(0, _PARALLEL_ROUNDS):
            f.call("lucerne_pfor", VOID, [f.symbol("task"), f.args[0], f.word(f.args[0], 1)])
        f.ret(0)
