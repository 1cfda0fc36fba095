"""Settings of the process, read from the environment once. The only reader of the environment."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

ENVIRONMENT: Any = os.environ
VARIABLE_GETTER = os.getenv
"""What programs read variables by: captured ones are compared with what they have read."""


def user_cache_folder(environment: Mapping[str, str] = os.environ) -> str:
    """`lucerne` in the user's folder for caches, as the XDG convention says."""
    base = environment.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "lucerne") if os.path.isabs(base) else ""


def torch_home() -> str:
    """Where torch keeps downloads, as the environment says now: programs set it when they run."""
    base = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(base, "torch")))


def cxx_compiler() -> str:
    """What the variable names that build tools read, as the environment says now; or empty."""
    return os.environ.get("CXX", "")


@dataclasses.dataclass
class Config:
    """What a user may switch. `LUCERNE_<NAME>` in the environment sets a field at import."""

    host_backend: str = "cpu"
    """Which backend serves the device named `cpu`."""
    fast_path: bool = True
    """Let the host's engine put machine code in front of the Python path of eager calls."""
    known_calls: int = 8192
    """How many calls that machine code knows in full are remembered (a power of two, 2 at least);
    others take the way through Python, with the same results."""
    plan_cache_size: int = 65536
    """How many eager plans are kept before the cache starts anew."""
    user_lines: bool = True
    """Remember the user's line for saved tensors and in-place writes (for error messages)."""
    full_tracebacks: bool = False
    """Show the frames of the package in tracebacks of errors that it means to raise as well."""
    threads: int = 0
    """How many threads kernels use at first; 0: one for each core."""
    float32_parts: bool = True
    """Let tile units multiply float32 numbers in three parts each, as exact as whole ones (decision
    record 13); off: vector instructions only, which also keep denormal numbers."""
    cpu_features: str = ""
    """What kernels do without although the processor has it: "-amx", "-avx512", "-avx2" (all whose
    names begin so), with commas between. To see what a smaller processor would do."""
    target: str = ""
    """The machine (`backends/contract/machines.py`) that kernels are written for; nothing is run
    then. Empty: this one. `lucerne build` sets it for the process that writes."""
    cache_dir: str = user_cache_folder()
    """Where compiled kernels are kept between processes; empty: nowhere."""
    cache_megabytes: int = 512
    """How much the compiled kernels on disk may take; the ones unused for longest go first."""
    program_cache: bool = True
    """Keep compiled programs on disk as well, so that a new process need not capture a function
    that an earlier one has captured (docs/inside/program_cache.md)."""
    program_cache_megabytes: int = 256
    """How much the programs on disk may take; the ones unused for longest go first."""
    verify_passes: bool = True
    """Check a graph after each pass of the compiler."""
    verify_fusion: bool = False
    """Check every kernel of several ops: its loops read each value where it is made, and go through
    memory as it lies. One that does not is not used, and a warning says so. Memory plans too."""
    compile_disable: bool = False
    """Let `compile` give back what it is given: to see whether something is the compiler's doing.
    PyTorch's own variables for it (`TORCH_COMPILE_DISABLE=1`) do the same."""
    most_captures: int = 8
    """How many versions of one function are compiled before it runs as it is."""
    most_breaks: int = 1000
    """How often one call of a compiled function may go from a program to Python and back before the
    rest of the call runs as it is."""
    payoff_calls: int = 5
    """How many calls of a function in parts are timed each way, in parts and as it is, before the
    faster one stays; 0: none, it stays in parts, and small whole graphs are not timed either."""
    often_compiled: int = 20
    """At which compile of one function a warning says that it is compiled again and again; 0: at
    none."""
    progress_seconds: float = 2.0
    """After how long a first call that is still being compiled says so on stderr; 0: never."""
    break_budget: int = -1
    """How many places where a graph ends this process may find before it is an error; -1: any."""
    most_instances: int = 64
    """How many programs for other sizes of one function are kept; the ones unused for longest go
    first."""
    recompile_budget: int = -1
    """How many compiles of functions that were compiled before this process may do before it is an
    error; -1: as many as it takes."""
    compile_seconds: float = 0.0
    """How long this process may compile before it is an error; 0: as long as it takes."""
    dump: str = ""
    """A folder for the text of each stage of every compile; empty: none."""
    dump_kernels: bool = False
    """Whether the machine code's text is dumped with it (slow: every kernel is written again)."""
    shadow: int = 0
    """Of each compiled version, how many calls are made uncompiled as well and compared."""
    shadow_action: str = "warn"
    """What a difference does: "warn" and go on uncompiled, or "raise"."""
    memory_megabytes: int = 0
    """How much memory tensors on the host may take from the system; 0: as much as it gives."""
    lazy_nodes: int = 20000
    """How many ops lazy mode writes down before it runs them."""
    lazy_programs: int = 64
    """How many programs lazy mode keeps; the ones unused for longest go first."""
    fallback: str = "refuse"
    """What ops do that their device has no rule for: "refuse", or run on the "host" with copies,
    which `lucerne.backends.bill()` lists."""
    fallback_bill: bool = False
    """Print that list when the process ends."""
    guard_pages: int = 0
    """Debugging: if not 0, every allocation stands between inaccessible pages, aligned to so much
    (64 as usual, 16 to catch reads that go a little too far) and ending at one; if negative,
    beginning at one."""
    tile_interpret: bool = False
    """Debugging: run the kernels of `lucerne.tiles` in NumPy, program by program."""
    program_memory: str = ""
    """Debugging of compiled functions: "poison" fills their scratch memory with junk before each
    call, "guarded" gives every value in it pages of its own, between inaccessible ones."""


_DISABLES = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")


def _read(environment: dict[str, str]) -> Config:
    config = Config()
    for field in dataclasses.fields(Config):
        text = environment.get(f"LUCERNE_{field.name.upper()}")
        if text is not None:
            setattr(config, field.name, _parse(text, type(getattr(config, field.name))))
    config.compile_disable |= any(environment.get(name) == "1" for name in _DISABLES)
    return config


def _parse(text: str, kind: type) -> object:
    if kind is bool:
        return text.strip().lower() not in ("", "0", "false", "no", "off")
    return kind(text)


config = _read(dict(os.environ))


ENGINE_VARIABLE = "LUCERNE_ENGINE_ADDRESS"
"""Where engines of several processes meet that drive one mesh: `lucerne run` says it."""


def launch_variable(name: str) -> str | None:
    """What whoever started this process says about its place among others (`RANK`, `SLURM_PROCID`),
    as the environment says now: launchers and programs set it when they run."""
    return os.environ.get(name)


def set_launch_variable(name: str, value: str) -> None:
    """Say it to this process, and to those it starts."""
    os.environ[name] = value


def child_environment(changes: dict[str, str]) -> dict[str, str]:
    """The environment of a process that is started from here."""
    return {**os.environ, **changes}
