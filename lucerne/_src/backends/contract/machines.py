"""The machines that programs can be built for, as the system and as LLVM name them.

The engine of the host writes code for the machine it runs on. A process that is started with
`LUCERNE_TARGET` set to one of these names writes code for that machine instead, and runs none of
it: see `backends/cpu/aot` and `lucerne.export.aot`.
"""

from __future__ import annotations

from typing import NamedTuple

NATIVE = "native"
"""This machine, with all it has."""


class TargetMachine(NamedTuple):
    """A kind of processor under an operating system."""

    triple: str
    system: str
    """As `sys.platform` says it."""
    kind: str
    """As `platform.machine` says it."""
    features: str
    """As the operating system names them."""
    cpu: str
    """LLVM's name of it."""
    llvm_features: str = ""
    elf: tuple[int, int] = (0, 0)
    """What ELF calls the machine, and flags of its calling convention."""


_LINUX = "unknown-linux-gnu"
_WIDE = "-prefer-256-bit,+prefer-no-gather"
_V2 = "sse4_2"
_V3 = f"{_V2} avx avx2 bmi1 bmi2 f16c fma"
_V4 = f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl"
_AMX = f"{_V4} avx512_bf16 avx512_fp16 avx512_vnni amx_tile amx_bf16 amx_int8"
_RISCV = "+m,+a,+f,+d,+c,+v,+zvl128b"
_ELF_X86, _ELF_ARM, _ELF_RISCV = 62, 183, 243
_DOUBLES_AND_SHORT = 5
"""RISC-V: doubles in registers, and instructions of two bytes."""

CANT_RUN_HERE = (-5, -6)
"""Errors of built programs: tiles are not allowed, instructions are missing."""
MACHINES = {
    "x86-64-v2": TargetMachine(
        f"x86_64-{_LINUX}", "linux", "x86_64", _V2, "x86-64-v2", "", (_ELF_X86, 0)
    ),
    "x86-64-v3": TargetMachine(
        f"x86_64-{_LINUX}", "linux", "x86_64", _V3, "x86-64-v3", "", (_ELF_X86, 0)
    ),
    "x86-64-v4": TargetMachine(
        f"x86_64-{_LINUX}", "linux", "x86_64", _V4, "x86-64-v4", _WIDE, (_ELF_X86, 0)
    ),
    "x86-64-amx": TargetMachine(
        f"x86_64-{_LINUX}", "linux", "x86_64", _AMX, "sapphirerapids",
        f"{_WIDE},+amx-tile,+amx-bf16,+amx-int8", (_ELF_X86, 0),
    ),
    "aarch64": TargetMachine(
        f"aarch64-{_LINUX}", "linux", "aarch64", "fp asimd", "generic", "+neon,+fp-armv8",
        (_ELF_ARM, 0),
    ),
    "riscv64": TargetMachine(
        f"riscv64-{_LINUX}", "linux", "riscv64", "", "generic-rv64", _RISCV,
        (_ELF_RISCV, _DOUBLES_AND_SHORT),
    ),
}  # fmt: skip
