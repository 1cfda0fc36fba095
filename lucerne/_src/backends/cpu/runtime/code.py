"""Machine code from modules: compile, link, keep.

`compiled(key, write)` is what kernels call: the key names the code for ever (every choice that
changes the text must be in it), `write(module)` writes the functions on a miss. Code found on disk
is loaded without calling `write`, so `write` must do nothing but write, and the key must show all
of itself in its `repr`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter, thread_time
from typing import Any, NamedTuple, TypeVar

from lucerne._src.backends.cpu.emit.builder import Module
from lucerne._src.backends.cpu.emit.target import HOST, WRITES_ONLY
from lucerne._src.backends.cpu.runtime import disk, link, orc, unlinked
from lucerne._src.backends.cpu.runtime.image import ImageError
from lucerne._src.backends.cpu.runtime.llvm import CompileError, llvm
from lucerne._src.base.process import forks
from lucerne._src.ir.symbolic.numbers import guarding, guards_now

Write = Callable[[Module], None]
Job = tuple[Any, Write]
"""A key and what writes its module."""
OWN_LOADER = HOST.is_x86 and HOST.system == "linux"
"""Whether objects are linked by `runtime.link`; LLVM's linker does it elsewhere."""

_codes: dict[Any, Code] = {}
log: list[tuple[Any, float, bool]] = []
"""All kernels of this process in the order in which they were made: key, seconds of the processor,
whether the disk had the code."""
_of_thread = threading.local()
"""`call_helpers`: what to do before something is compiled."""
_making: dict[Any, Any] = {}
"""A lock for each key whose code is being made: two threads make two kernels side by side, and
whoever wants the same one waits for it."""

forks.in_child(_making.clear)


class NoCodeError(CompileError):
    """A kernel was written, and this machine made nothing of it: LLVM is missing or refuses it, the
    linker does not know a symbol, the system gives no memory for code."""


class Listed(NamedTuple):
    """A module for people."""

    key: Any
    text: str
    """LLVM IR."""
    optimize: bool

    @property
    def assembly(self) -> str:
        return llvm().emit_assembly(self.text, optimize=self.optimize)


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
    if _Listing.jobs is not None:
        _Listing.jobs.append((key, write))
    if found is None:
        with _making.setdefault(key, forks.rlock()):
            found = _codes.get(key) or _new(key, write)
        _making.pop(key, None)
    return found


class _Listing:
    """The modules that are asked for, while somebody wants to see their text."""

    jobs: list[Job] | None = None
    lock = forks.lock()


def is_listed() -> bool:
    """Whether somebody wants to see what is asked for: whoever keeps addresses asks again then."""
    return _Listing.jobs is not None


def listed(make: Callable[[], Any]) -> list[Listed]:
    """The text of every module that `make()` asks for; other threads' may be among them."""
    with _Listing.lock:
        jobs: list[Job] = []
        _Listing.jobs = jobs
        try:
            make()
        finally:
            _Listing.jobs = None
    found: dict[str, Listed] = {}
    for key, write in jobs:
        if repr(key) not in found and key in _codes:  # (else it was refused, and nobody has it)
            module = _written(write)
            found[repr(key)] = Listed(key, module.text(), module.optimize)
    return list(found.values())


def _new(key: Any, write: Write) -> Code:
    """Code that this process does not have yet."""
    if WRITES_ONLY:
        return _codes.setdefault(key, Code(unlinked.addresses(_written(write))))
    began = thread_time()
    found = _kept(key)
    from_disk = found is not None
    if found is None:
        call_helpers = getattr(_of_thread, "call_helpers", None)
        if call_helpers is not None:
            call_helpers()
        found = _made(key, build(write))
    log.append((key, thread_time() - began, from_disk))
    return found


def compile_all(wanted: Iterable[Job]) -> list[Code]:
    """The codes for many keys. Those that must be compiled are, on all cores."""
    listed = list(wanted)
    missing: dict[Any, Write] = {
        key: write for key, write in listed if key not in _codes and _kept(key) is None
    }
    on_all_cores(lambda job: compiled(*job), list(missing.items()))
    return [_codes[key] for key, _ in listed]


def _kept(key: Any) -> Code | None:
    """The code that the disk holds for `key`."""
    if WRITES_ONLY:
        return None
    digest = disk.digest_of(key)
    kept = disk.cache_of_process()
    payload = None if digest is None else kept.read(digest)
    if payload is None or digest is None:
        return None
    with _or_no_code():
        try:
            found = _codes[key] = Code(load(payload))
        except (ImageError, LookupError):
            kept.drop(digest)
            return None
    return found


def _made(key: Any, payload: bytes) -> Code:
    """The code of a fresh payload, which is kept on disk."""
    with _or_no_code():
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
    with _or_no_code():
        made = llvm().emit_object(module.text(), optimize=module.optimize)
        if OWN_LOADER:
            return link.prepare(made)
        return orc.prepare(made, module.exports, module.imports())


@contextmanager
def _or_no_code() -> Iterator[None]:
    """What fails inside is told as one kind of error; short memory is another matter."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        told = f"no machine code could be made here: {type(error).__name__}: {error}"
        raise NoCodeError(told) from error


def load(payload: bytes) -> dict[str, int]:
    """Addresses of a payload's exports, now in memory."""
    return link.load(payload) if OWN_LOADER else orc.load(payload)


_LONG = 0.002
"""Seconds: what takes longer was compiled."""
T = TypeVar("T")
R = TypeVar("R")


def on_all_cores(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """`map`, by twice as many threads as there are cores: LLVM runs without Python's lock, and
    some wait for a kernel that another one makes.

    Helpers come once something is compiled, or an item took long: what is known already is found
    sooner than a thread starts. After an error no further item is begun.
    """
    results: dict[int, R] = {}
    errors: dict[int, BaseException] = {}
    left = iter(enumerate(items))
    helpers: list[threading.Thread] = []
    guards = guards_now()

    def help_out() -> None:
        if guards is None:
            return work()
        with guarding(guards):
            work()

    def call_helpers() -> None:
        if not helpers:
            for _ in range(min(2 * (os.cpu_count() or 1), len(items)) - 1):
                helpers.append(threading.Thread(target=help_out, daemon=True))
                helpers[-1].start()

    def work(may_call: bool = False) -> None:
        for i, item in left:
            if errors:
                break
            began = perf_counter()
            try:
                results[i] = function(item)
            except BaseException as error:
                errors[i] = error
            if may_call and perf_counter() - began > _LONG:
                call_helpers()

    before = getattr(_of_thread, "call_helpers", None)
    _of_thread.call_helpers = call_helpers
    try:
        work(may_call=True)
    finally:
        _of_thread.call_helpers = before
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[min(errors)]
    return [results[i] for i in range(len(items))]
