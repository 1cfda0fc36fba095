"""Machine code from modules: compile, link, keep.

`compiled(key, write)` is what kernels call: the key names the code for ever (every choice that
changes the text must be in it), `write(module)` writes the functions on a miss. Code found on disk
is loaded without calling `write`, so `write` must do nothing but write, and the key must show all
of itself in its `repr`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from lucerne.backends.cpu.emit.builder import Module
from lucerne.backends.cpu.emit.target import HOST
from lucerne.backends.cpu.runtime import disk, link, orc
from lucerne.backends.cpu.runtime.image import ImageError
from lucerne.backends.cpu.runtime.llvm import llvm

Write = Callable[[Module], None]
Job = tuple[Any, Write]
"""A key and what writes its module."""
OWN_LOADER = HOST.is_x86 and HOST.system == "linux"
"""Whether objects are linked by `runtime.link`; LLVM's linker does it elsewhere."""

_codes: dict[Any, Code] = {}
_lock = threading.RLock()


def _renew_lock() -> None:
    """In a forked child: whoever held the lock does not exist here."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class Code:
    """Linked machine code: addresses of the module's exports."""

    __slots__ = ("addresses",)

    def __init__(self, addresses: dict[str, int]) -> None:
        self.addresses = addresses

    def __getitem__(self, name: str) -> int:
        return self.addresses[name]


def compiled(key: Any, write: Write) -> Code:
    """The code for `key`: of this process, else from disk, else compiled now."""
    found = _codes.get(key)
    if found is None:
        with _lock:
            found = _codes.get(key) or _kept(key) or _made(key, build(write))
    return found


def compile_all(wanted: Iterable[Job]) -> list[Code]:
    """The codes for many keys. Those that must be compiled are, on all cores."""
    listed = list(wanted)
    with _lock:
        missing: dict[Any, Write] = {
            key: write for key, write in listed if key not in _codes and _kept(key) is None
        }
        modules = [_written(write) for write in missing.values()]
        for key, payload in zip(missing, _on_all_cores(_payload, modules), strict=True):
            _made(key, payload)
    return [_codes[key] for key, _ in listed]


def _kept(key: Any) -> Code | None:
    """The code that the disk holds for `key`."""
    digest = disk.digest_of(key)
    kept = disk.cache_of_process()
    payload = None if digest is None else kept.read(digest)
    if payload is None or digest is None:
        return None
    try:
        found = _codes[key] = Code(load(payload))
    except (ImageError, LookupError):
        kept.drop(digest)
        return None
    return found


def _made(key: Any, payload: bytes) -> Code:
    """The code of a fresh payload, which is kept on disk."""
    made = _codes[key] = Code(load(payload))
    digest = disk.digest_of(key)
    if digest is not None:
        disk.cache_of_process().write(digest, payload)
    return made


# ---- from text to payload to addresses --------------------------------------------------------


def build(write: Write) -> bytes:
    """The payload of the module that `write` writes."""
    return _payload(_written(write))


def _written(write: Write) -> Module:
    module = Module()
    write(module)
    return module


def _payload(module: Module) -> bytes:
    made = llvm().emit_object(module.text(), optimize=module.optimize)
    return link.prepare(made) if OWN_LOADER else orc.prepare(made, module.exports, module.imports())


def load(payload: bytes) -> dict[str, int]:
    """Addresses of a payload's exports, now in memory."""
    return link.load(payload) if OWN_LOADER else orc.load(payload)


def _on_all_cores(function: Callable[[Module], bytes], modules: list[Module]) -> list[bytes]:
    """`map`, by as many threads as there are cores: LLVM runs without Python's lock."""
    results: dict[int, bytes | BaseException] = {}
    left = iter(enumerate(modules))

    def work() -> None:
        for i, module in left:
            try:
                results[i] = function(module)
            except BaseException as error:
                results[i] = error

    helpers = [
        threading.Thread(target=work, daemon=True)
        for _ in range(min(os.cpu_count() or 1, len(modules)) - 1)
    ]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()
    made = []
    for i in range(len(modules)):
        result = results[i]
        if isinstance(result, BaseException):
            raise result
        made.append(result)
    return made


def link_module(module: Module) -> Code:
    """The code of a module that is kept nowhere (tests, measurements)."""
    return Code(load(_payload(module)))
