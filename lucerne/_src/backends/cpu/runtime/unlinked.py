"""Code without addresses: what a process hands out that writes kernels for elsewhere.

Kernels ask for the addresses of their functions and put them into words of their blocks. Here they
get numbers that are no addresses; whoever lays the blocks out finds the function's name by them.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import Module
from lucerne._src.base.process import forks

_FIRST, _STEP = 0x5A5A_0000_0000, 16

modules: list[Module] = []
"""In the order in which they were written; the functions of module k begin with `prefix_of(k)`."""
_names: dict[int, str] = {}
_module_of: dict[int, Module] = {}
_lock = forks.lock()


def prefix_of(module: int) -> str:
    """What stands before every name of a module once all are one: no name in C has a dot."""
    return f"k{module}."


def addresses(module: Module) -> dict[str, int]:
    """Numbers that stand for the addresses of a module's exports."""
    with _lock:
        prefix = prefix_of(len(modules))
        modules.append(module)
        found = {}
        for name in module.exports:
            found[name] = _FIRST + _STEP * len(_names)
            _names[found[name]], _module_of[found[name]] = prefix + name, module
    return found


def name_at(address: int) -> str | None:
    """The function that a number stands for; None: it is a number like others."""
    return _names.get(address)


def imports_of(address: int) -> list[str]:
    """What the module of a function calls of others; nothing for other numbers."""
    found = _module_of.get(address)
    return [] if found is None else found.imports()


def could_be(address: int) -> bool:
    """Whether a number lies where they do: a number that came about by chance does not."""
    return _FIRST <= address < _FIRST + _STEP * (len(_names) + 1)
