"""The processor that kernels are written for: the one this process runs on, unless told otherwise.

Read from /proc/cpuinfo rather than asked from LLVM, because a process whose kernels all come from
the disk cache never loads LLVM. Kernels that look different on different processors ask here.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lucerne._src.backends.contract.machines import MACHINES, NATIVE
from lucerne._src.base.config import config

_CPUINFO = Path("/proc/cpuinfo")
_IDENTITY_FIELDS = (
    "vendor_id", "cpu family", "model", "stepping", "model name",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part",
)  # fmt: skip
_FLAG_FIELDS = ("flags", "Features")
_AVX512 = {"avx512f", "avx512bw", "avx512vl", "avx512dq"}


@dataclass(frozen=True)
class Target:
    """One processor. `features` are named as the operating system names them."""

    system: str
    machine: str
    name: str
    features: frozenset[str]
    threads_per_core: int = 1

    @property
    def is_x86(self) -> bool:
        return self.machine == "x86_64"

    @property
    def is_arm(self) -> bool:
        return self.machine == "aarch64"

    def has(self, *features: str) -> bool:
        return self.features.issuperset(features)

    @property
    def has_fma(self) -> bool:
        """Whether `a * b + c` is one instruction: everywhere but on old x86."""
        return not self.is_x86 or self.has("fma")

    @property
    def has_avx2(self) -> bool:
        return self.is_x86 and self.has("avx2", "fma")

    @property
    def has_avx512(self) -> bool:
        return self.is_x86 and self.features >= _AVX512

    @property
    def has_amx(self) -> bool:
        """bfloat16 tiles (a process must also ask the system for permission)."""
        return self.is_x86 and self.has("amx_tile", "amx_bf16")

    @property
    def vector_bytes(self) -> int:
        """Width of the vector registers kernels are written for."""
        return 64 if self.has_avx512 else 32 if self.has_avx2 else 16

    @property
    def identity(self) -> str:
        """Everything the generated machine code may depend on, as one line."""
        return "|".join((self.system, self.machine, self.name, " ".join(sorted(self.features))))


def parse_cpuinfo(lines: Iterable[str]) -> tuple[str, frozenset[str], int]:
    """(name, features, hardware threads per core) of the first processor that is listed."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line.strip():
            break
        field, _, value = line.partition(":")
        fields[field.strip()] = value.strip()
    named = ",".join(f"{field}={fields[field]}" for field in _IDENTITY_FIELDS if field in fields)
    flags = frozenset(word for field in _FLAG_FIELDS for word in fields.get(field, "").split())
    siblings, cores = (int(fields.get(field, 0)) for field in ("siblings", "cpu cores"))
    return named, flags, max(1, siblings // cores if cores else 1)


def left_out(text: str) -> tuple[str, ...]:
    """How the names of features begin that `LUCERNE_CPU_FEATURES` takes away."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if len(word) < 2 or word[0] != "-":
            raise ValueError(
                f"LUCERNE_CPU_FEATURES={text!r}: expected names with a minus before each, like "
                f"'-amx,-avx512', got {word!r}. Features can be taken away, not added."
            )
    return tuple(_plain(word) for word in words)


def is_left_out(name: str, less: tuple[str, ...]) -> bool:
    """Whether a feature, as the system or as LLVM spells it, is one of those."""
    return _plain(name).startswith(less)


def _plain(name: str) -> str:
    """Without what they spell differently: avx512_bf16 is LLVM's avx512bf16."""
    return name.replace("_", "").replace("-", "")


def detect() -> Target:
    """This machine, without what the settings leave out. Where there is no /proc/cpuinfo only the
    architecture is known."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    name, features, threads_per_core = "", frozenset[str](), 1
    if _CPUINFO.exists():
        with _CPUINFO.open() as lines:
            name, features, threads_per_core = parse_cpuinfo(lines)
    less = left_out(config.cpu_features)
    features = frozenset(f for f in features if not is_left_out(f, less))
    return Target(sys.platform, machine, name or platform.processor(), features, threads_per_core)


def chosen(name: str) -> Target:
    """A machine of the table, or this one."""
    if name in ("", NATIVE):
        return detect()
    known = MACHINES[name]
    return Target(known.system, known.kind, name, frozenset(known.features.split()))


WRITES_ONLY = bool(config.target)
"""Whether this process writes kernels that it does not run."""
HOST = chosen(config.target)
"""The processor that kernels are written for: this one, unless the process only writes."""
VECTOR_BYTES = HOST.vector_bytes
