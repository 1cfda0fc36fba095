"""What this machine can do: the peaks that the measured rates are to be read against."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.timing import Effort, best_times
from lucerne.backends.cpu.emit.builder import F32, I8, I32, I64, PTR, VOID, Function, Module
from lucerne.backends.cpu.runtime.code import compiled
from lucerne.backends.cpu.runtime.kernel import Kernel

COPY_BYTES = 1 << 26
FMA_CHAINS, FMA_ROUNDS = 24, 4000
TILE_ROUNDS = 4000
TILE_FLOPS = 2 * 16 * 16 * 32


def limits(effort: Effort) -> dict[str, float]:
    """GFLOP/s of one core (f32 multiply-add, bf16 tiles), GB/s of a copy (read and write)."""
    source, target = np.ones(COPY_BYTES, np.uint8), np.zeros(COPY_BYTES, np.uint8)
    calls: dict[str, Any] = {
        "fma": _kernel("fma", _write_fma),
        "copy": lambda: np.copyto(target, source),
    }
    if _has_tiles():
        calls["tiles"] = _kernel("tiles", _write_tiles)
    times = best_times(calls, effort)
    lanes = _lanes()
    found = {
        "fma_gflops_core": 2 * lanes * FMA_CHAINS * FMA_ROUNDS / times["fma"] / 1e9,
        "copy_gbs_core": 2 * COPY_BYTES / times["copy"] / 1e9,
    }
    if "tiles" in times:
        found["tiles_gflops_core"] = 4 * TILE_FLOPS * TILE_ROUNDS / times["tiles"] / 1e9
    return found


def _flags() -> set[str]:
    try:
        with open("/proc/cpuinfo") as f:
            return set(next((line for line in f if line.startswith("flags")), "").split())
    except OSError:
        return set()


def _lanes() -> int:
    flags = _flags()
    return 16 if "avx512f" in flags else 8 if "avx2" in flags else 4


def _has_tiles() -> bool:
    return "amx_bf16" in _flags()


def _kernel(name: str, write: Any) -> Any:
    code = compiled(("benchmark", name, _lanes()), write)
    return Kernel(code[name], 0, 0, workspace=1 << 14).bind([], [])


def _write_fma(m: Module) -> None:
    """Independent chains of multiply-adds on registers."""
    wide = F32.vector(_lanes())
    with m.function("fma", [("block", PTR)], I64) as f:
        space = f.word(f.args[0], 0, PTR)
        f.fill_bytes(space, 0, 64 * (FMA_CHAINS + 1))  # garbage may hold denormals, which are slow
        factor = f.load(wide, space)
        start = [f.load(wide, f.at(space, 64 * (i + 1))) for i in range(FMA_CHAINS)]
        with f.loop(0, FMA_ROUNDS, 1, start, at_least_once=True) as loop:
            loop.next(*[f.fma(factor, factor, c) for c in loop.carried])
        total = loop.results[0]
        for c in loop.results[1:]:
            total = total + c
        f.store(total, space)
        f.ret(0)


def _write_tiles(m: Module) -> None:
    """Four accumulating tiles from two rows and two columns of tiles, all in the first cache."""
    with m.function("tiles", [("block", PTR)], I64) as f:
        space = f.word(f.args[0], 0, PTR)
        _allow_tiles(f)
        _configure_tiles(f, space)
        for t in range(8):
            place = f.at(space, 1024 * (t + 1))
            _tile(f, "tileloadd64", [f.constant(t, I8), place, f.constant(64, I64)])
        with f.loop(0, TILE_ROUNDS, at_least_once=True):
            for c, a, b in ((0, 4, 6), (1, 4, 7), (2, 5, 6), (3, 5, 7)):
                _tile(f, "tdpbf16ps", [f.constant(x, I8) for x in (c, a, b)])
        _tile(f, "tilerelease", [])
        f.ret(0)


def _tile(f: Function, name: str, args: list[Any]) -> None:
    f.call(f"llvm.x86.{name}", VOID, args)


def _allow_tiles(f: Function) -> None:
    """Ask the kernel for permission to use tile registers (arch_prctl)."""
    numbers = [f.constant(x) for x in (158, 0x1023, 18)]
    f.call("syscall", I64, numbers, more_after=1)


def _configure_tiles(f: Function, space: Any) -> None:
    """All eight tiles of 16 rows of 64 bytes; the work space is made zero."""
    f.fill_bytes(space, 0, 10240)
    f.store(f.constant(1, I8), space)
    for t in range(8):
        f.store(f.constant(64, I32), f.at(space, 16 + 2 * t), align=1)
    for t in range(8):
        f.store(f.constant(16, I8), f.at(space, 48 + t))
    f.store(f.constant(0, I8), f.at(space, 32))
    _tile(f, "ldtilecfg", [space])
