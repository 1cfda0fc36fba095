"""Machine code from modules: compile, link, keep.

`compiled(key, write)` is what kernels call: the key names the code for ever (every choice that
changes the text must be in it), `write(module)` writes the functions on a miss.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm

from lucerne.backends.cpu.emit.builder import I64, PTR, Module

_codes: dict[Any, Code] = {}
_keep: list[Any] = []


class Code:
    """Linked machine code: addresses of the module's exports."""

    def __init__(self, addresses: dict[str, int]) -> None:
        self.addresses = addresses

    def __getitem__(self, name: str) -> int:
        return self.addresses[name]


def compiled(key: Any, write: Callable[[Module], None]) -> Code:
    """The code for `key`, compiled once per process (and found again on disk later)."""
    found = _codes.get(key)
    if found is None:
        module = Module()
        write(module)
        found = _codes[key] = link(module)
    return found


def link(module: Module) -> Code:
    _start()
    parsed = llvm.parse_assembly(module.text())
    parsed.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=_features(), opt=1
    )
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    _keep.append(engine)
    found = {}
    for name in module.exports:
        found[name] = engine.get_function_address(name) or engine.get_global_value_address(name)
    return Code(found)


def _features() -> str:
    host = llvm.get_host_cpu_features().flatten()
    return host + ",-prefer-256-bit,+prefer-no-gather,+amx-tile,+amx-bf16,+amx-int8"


def _start() -> None:
    """Interim: a serial pool until the real one stands here."""
    if _keep:
        return
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    _keep.append(None)
    m = Module()
    with m.function("lucerne_pfor", [("task", PTR), ("block", PTR), ("n", I64)]) as f:
        task, block, n = f.args
        with f.loop(0, n) as loop:
            from lucerne.backends.cpu.emit.builder import VOID

            f.call_at(task, VOID, [block, loop.index, 0])
    code = link(m)
    llvm.add_symbol("lucerne_pfor", code["lucerne_pfor"])
    libm = ctypes.CDLL("libm.so.6")
    _keep.append(libm)
