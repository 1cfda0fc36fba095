"""Files that hold whole modules: their parameters and buffers, with no class of the file loaded.

`torch.save(model, f)` writes the model's class by name and all of its attributes. Here every name
that `load` does not know stands for an object that does nothing: it keeps what it is given. What a
module is made of lies in three dictionaries among its attributes, so a state dict can be read off.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lucerne._src.io import files, rebuild, safetensors
from lucerne._src.io.errors import UnsafeFileError, UnsupportedFileError
from lucerne._src.io.machine import PickleBuilder, PickleMachine
from lucerne._src.io.source import open_source

_MOST_DEPTH = 200
"""Of modules inside of modules."""


class InertObject:
    """What stands for an instance of a class that is not loaded."""

    __slots__ = ("args", "kind", "state")

    def __init__(self, kind: str, args: tuple[Any, ...]) -> None:
        self.kind, self.args = kind, args
        self.state: Any = None

    def attribute(self, name: str) -> Any:
        """One of its attributes, if it was saved with a dictionary of them."""
        return self.state.get(name) if type(self.state) is dict else None


def _stands_for(name: str) -> PickleBuilder:
    def made(m: PickleMachine, args: tuple[Any, ...]) -> Any:
        return InertObject(name, args)

    return PickleBuilder(name, made, made)


class InertContext(rebuild.LoadContext):
    """Unknown names stand for objects that do nothing; those of Python itself are still refused,
    as they are only there to attack."""

    def find(self, module: str, name: str) -> Any:
        if self.knows(module, name) or (module, name) in rebuild.UNSUPPORTED:
            return super().find(module, name)
        if module.partition(".")[0] in sys.stdlib_module_names - rebuild.DATA_MODULES:
            raise rebuild.unknown_name(module, name)
        return _stands_for(f"{module}.{name}")


def _set_state(m: PickleMachine, target: Any, state: Any) -> Any:
    if type(target) is not InertObject:
        return rebuild.set_state(m, target, state)
    target.state = state
    return target


class _ModuleReader(files.FileReader):
    context_of = InertContext
    set_state = staticmethod(_set_state)

    def _read_legacy(self) -> Any:
        raise UnsupportedFileError(
            "the file was written by torch before 1.6: save the module again with a newer one"
        )


def module_state(f: Any, *, memory_limit: int | None = None) -> tuple[dict[str, Any], list[str]]:
    """The state dict of a module that a file holds whole, and what it is made of: a line for each
    module inside, its path and the name of its class. No code is run, and no class is loaded."""
    with open_source(f) as source:
        root = _ModuleReader(source, None, False, True, memory_limit, "utf-8").read()
    if not _is_module(root):
        raise UnsupportedFileError(
            "the file does not hold a whole module: lucerne.load reads it as it is"
        )
    state: dict[str, Any] = {}
    layers: list[str] = []
    for path, module in _modules(root, "", 0):
        layers.append(f"{path or '(model)'}: {module.kind}")
        prefix = f"{path}." if path else ""
        unsaved = module.attribute("_non_persistent_buffers_set") or ()
        tensors = dict(module.attribute("_parameters") or {})
        buffers = module.attribute("_buffers") or {}
        tensors.update((k, t) for k, t in buffers.items() if k not in unsaved)
        state.update((prefix + k, t.detach()) for k, t in tensors.items() if t is not None)
    return state, layers


def _is_module(x: Any) -> bool:
    return type(x) is InertObject and isinstance(x.attribute("_modules"), dict)


def _modules(module: InertObject, path: str, depth: int) -> Iterator[tuple[str, InertObject]]:
    if depth > _MOST_DEPTH:
        raise UnsafeFileError(f"modules lie inside of each other more than {_MOST_DEPTH} deep")
    yield path, module
    for name, inner in module.attribute("_modules").items():
        if _is_module(inner):
            yield from _modules(inner, f"{path}.{name}" if path else str(name), depth + 1)


def convert(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> list[str]:
    """Write the state dict of a module that a `.pt` file holds whole: to a `.safetensors` file, or
    to one that `torch.load` reads. What the module is made of, a line each."""
    state, layers = module_state(source)
    if Path(target).suffix == ".safetensors":
        safetensors.save_file(state, target)
    else:
        files.save(state, target)
    return layers
