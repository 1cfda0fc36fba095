"""The folder of stored programs: asked before a function is captured, told afterwards.

    asked = store.ask(fn, options, leaves, shape)
    if asked.entry is None:            # nobody has stored it, or it may not be used
        with asked.watching():
            ...                        # capture the function
        asked.keep(entry)

A key is a digest of the package, the versions of Python and NumPy, the backend and processor, the
options of `compile`, the modes that change what ops do, and the function's world. A file is used if
its seal is right (see `base.folder`), the files of code that ran when it was made are as they were,
and every part of it fits; else it counts as not there.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import os
import platform
import struct
import types
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.base.config import config
from lucerne._src.base.defaults import DefaultDevice
from lucerne._src.base.device import entered
from lucerne._src.base.process import source_digests
from lucerne._src.base.process.sealed_folder import Cache
from lucerne._src.capture import faults
from lucerne._src.capture.aot.backward import Joint
from lucerne._src.capture.aot.pruned_backward import PrunedBackward
from lucerne._src.capture.cache.disk import guard_codec
from lucerne._src.capture.cache.disk.capture_codec import (
    CaptureReader,
    CaptureWriter,
    CodecStates,
    begin_states,
)
from lucerne._src.capture.cache.disk.dependencies import (
    CodeDependencies,
    digest_of_file,
    files_behind,
)
from lucerne._src.capture.cache.disk.key import CacheKey, TooLargeError, UnstorableError
from lucerne._src.capture.cache.disk.program_codec import StaleError
from lucerne._src.capture.cache.entry import CacheEntry, Guards, circumstances
from lucerne._src.capture.guards.reachable import ReachableState
from lucerne._src.capture.trace.captured import Captured
from lucerne._src.capture.trace.input_sources import KEY, InputSource
from lucerne._src.ir import dispatch
from lucerne._src.ir.checks.lifetimes import check_places
from lucerne._src.ir.program import Program
from lucerne._src.loops.run import make_runner
from lucerne._src.loops.stages import Stages
from lucerne._src.tensor.settings import _Flags

VERSION = 1
"""Of the format: raised when what is written changes its meaning."""
HIT, MISS = "hit", "miss"
_LENGTHS = struct.Struct("<QQ")
_NO_MATTER = frozenset(
    ("cache_dir", "cache_megabytes", "threads", "user_lines", "plan_cache_size", "program_cache",
     "program_cache_megabytes", "most_captures", "most_instances", "recompile_budget",
     "compile_seconds", "payoff_calls", "break_budget", "often_compiled",
     "dump", "dump_kernels", "shadow", "shadow_action")
)  # fmt: skip
"""Settings that change nothing about a program."""
READING = (
    KeyError, IndexError, ValueError, TypeError, AttributeError, RecursionError, StaleError,
    UnstorableError, NotImplementedError, struct.error,
)  # fmt: skip
"""What data that does not fit may raise."""


@dataclasses.dataclass
class CacheCounts:
    """What the store did in this process: `lucerne.compiler.program_cache()` shows it."""

    hits: int = 0
    misses: int = 0
    kept: int = 0
    stale: int = 0
    """Found, but of no use: counted as misses too."""
    graphs_found: int = 0
    """Of parts of functions, and functions that are not stored: their bodies ran, and what they
    did was found (`disk.graphs`)."""
    graphs_kept: int = 0
    refused: dict[str, str] = dataclasses.field(default_factory=dict)
    """By name of a function: why its programs are not stored."""

    def __str__(self) -> str:
        lines = [
            f"programs on disk: {self.hits} found, {self.misses} not found, {self.kept} stored, "
            f"{self.stale} of no use; {folder().folder or 'no folder'}"
        ]
        if self.graphs_found or self.graphs_kept:
            lines.append(f"  by their graphs: {self.graphs_found} found, {self.graphs_kept} stored")
        return "\n".join([*lines, *(f"  {name}: {why}" for name, why in self.refused.items())])


account = CacheCounts()


@functools.cache
def folder() -> Cache:
    """The folder that the configuration names, opened when the first program is asked for."""
    path = os.path.join(config.cache_dir, "programs") if config.cache_dir else ""
    room = config.program_cache_megabytes << 20
    return Cache(path, room, ".program", "compiled programs", inside=config.cache_dir)


@functools.cache
def surroundings(backend: str) -> str | None:
    """Versions, processor, the text of this package; None: they can't be told."""
    made_by = backends.get(backend).identity()
    package = source_digests.digest(source_digests.PACKAGE, ("",), folder())
    if made_by is None or package is None:
        return None
    versions = platform.python_version(), platform.python_implementation(), np.__version__
    return repr((VERSION, package.hex(), backend, made_by.hex(), versions))


def modes() -> str:
    """Switches outside the function that change what it does."""
    settings = {
        f.name: getattr(config, f.name)
        for f in dataclasses.fields(config)
        if f.name not in _NO_MATTER
    }
    places = str(DefaultDevice.value), list(map(str, entered))
    flags = _Flags.deterministic, _Flags.warn_only, _Flags.matmul_precision
    return repr((circumstances(), places, flags, settings))


def is_on(options: Any) -> bool:
    """Whether programs are stored at all. (Shadow mode and dumps want to see how one is made.)"""
    if not config.program_cache or options.maker is not None or dispatch.state.special:
        return False
    return not options.shadow and not options.dump and not config.dump and folder().is_on


def _is_for_store(fn: Any, options: Any) -> bool:
    """Whether the store is on, and the function one that a later process will have again."""
    if not is_on(options) or options.too_large:
        return False
    while isinstance(fn, (functools.partial, types.MethodType)):
        fn = fn.func if isinstance(fn, functools.partial) else fn.__func__
    if not isinstance(fn, types.FunctionType):
        fn = getattr(type(fn), "forward", None) or type(fn).__call__
    call: Any = inspect.unwrap(fn)
    code = getattr(call, "__code__", None)
    return code is not None and os.path.isfile(code.co_filename)


class Lookup:
    """One question: `entry` is the answer, None if there is none; `keep` stores another one."""

    def __init__(self, fn: Any, options: Any, leaves: Sequence[Any], shape: Any) -> None:
        self.fn, self.options, self.leaves, self.shape = fn, options, leaves, shape
        self.entry: CacheEntry | None = None
        self.files: list[tuple[str, str]] | None = None
        """Files whose code ran; None: not known."""
        self._key: bytes | None = None
        self._watch: CodeDependencies | None = None
        if not _is_for_store(fn, options):
            return
        self.stages = Stages()
        with self.stages.timed("key"):
            self._key = self._look()
        if self._key is not None:
            self.entry = self._found()
            account.hits += self.entry is not None
            account.misses += self.entry is None

    def _look(self) -> bytes | None:
        """The key; None: nothing is stored for this function, and why is noted."""
        around = surroundings(self.options.backend)
        if around is None:
            self._refuse("the package was edited while the process ran")
            return None
        try:
            self.world = CacheKey(self.fn, self.leaves, self.shape)
            self.states = CodecStates(self.world)
        except UnstorableError as error:
            self._refuse(str(error))
            if isinstance(error, TooLargeError):
                self.options.too_large = True
            return None
        except Exception as error:  # objects of users may raise anything when they are looked at
            self._refuse(f"looking at what it sees raised {type(error).__name__}: {error}")
            return None
        return self.world.digest(around, modes(), _told(self.options))

    @property
    def is_refused(self) -> bool:
        """Whether later processes will find nothing."""
        return self._key is None

    def _refuse(self, why: str) -> None:
        name = getattr(self.fn, "__qualname__", type(self.fn).__name__)
        account.refused[name] = why
        self._key = None

    # ---- reading -------------------------------------------------------------------------------

    def _found(self) -> CacheEntry | None:
        assert self._key is not None
        with self.stages.timed("read"):
            payload = folder().read(self._key)
        if payload is None:
            return None
        try:
            data, raw = unpacked(payload)
            self._check_files(data["files"])
            return self._entry(data, raw)
        except READING:
            account.stale += 1
            return None
        except Exception as error:
            account.stale += 1
            self.options.tell(error, faults.NO_STORE)
            return None

    def _check_files(self, files: list[list[str]]) -> None:
        for path, digest in files:
            if digest_of_file(path) != digest:
                raise StaleError(f"{path} was edited")
        self.files = [(path, digest) for path, digest in files]

    def _entry(self, data: Any, raw: list[bytes]) -> CacheEntry:
        stages, world = self.stages, self.world
        joint_stages = Stages()
        with stages.timed("decode"):
            states = begin_states(data["capture"]["begun"], world)
            reach = ReachableState(self.fn, self.leaves)
            backend = backends.get(self.options.backend)
            reader = CaptureReader(data, raw, world, backend, states, reach)
            captured = reader.capture(data["capture"])
            program = reader.program(data["program"])
            joint = data["joint"]
            backward = None if joint is None else reader.program(joint["program"])
        with stages.timed("reach"):
            reach.loosen([(slot, slot.get()) for slot, _, _ in captured.stored], self.leaves)
            guard_codec.restore(data["reads"], reach, world, reader)
            reach.refresh()
            guards = Guards(self.leaves, self.shape, captured, reach)
        facts = all(fact.holds(self.leaves) for fact in captured.facts)
        if not facts or not all(use.holds() for use in captured.uses):
            raise StaleError("what it takes for granted is not so")
        runner = assembled(program, self.options.backend, stages)
        key = [InputSource(KEY)] if data["key"] else []
        entry = CacheEntry(
            captured, guards, runner, program.results, sorted(program.written), stages, key
        )
        if backward is not None:
            entry.joint = Joint(
                assembled(backward, self.options.backend, joint_stages),
                [(bool(given), k) for given, k in joint["saved"]],
                [reader.metas[k] for k in joint["tangents"]], backward.results,  # type: ignore[arg-type]
                captured.gradients, captured.wanted, joint_stages,
            )  # fmt: skip
            entry.joint.tell = self.options.tell
            entry.joint.make_lean = self._lean(joint["lean"], entry.joint, reader)
        reader.set_attributes(data["capture"])
        entry.cache, entry.is_instance = HIT, bool(data["instance"])
        return entry

    def _lean(self, data: Any, joint: Joint, reader: CaptureReader) -> PrunedBackward | None:
        """What makes the backward pass for some of the results; None: nothing does."""
        compile = self.options.compile_half
        if data is None or compile is None:
            return None
        graph, constants = reader.whole_graph(data["graph"]), data["constants"]
        known = {k: reader.constant(at) for k, at in constants}
        later = functools.partial(compile, self.options)
        return PrunedBackward(
            joint, graph, frozenset(data["sums"]), known, later, self.options.tell
        )

    # ---- writing -------------------------------------------------------------------------------

    def watching(self) -> AbstractContextManager[Any]:
        """Around capturing: notes which code runs."""
        if self._key is None:
            return nullcontext()
        self._watch = CodeDependencies()
        return self._watch

    def keep(self, entry: CacheEntry, files: list[tuple[str, str]] | None = None) -> None:
        """Store an entry. `files`: of the code it was made by, if it was not watched."""
        entry.cache = MISS if self._key is not None else ""
        if self._key is None:
            return
        began = perf_counter()
        try:
            if self._watch is not None:
                files = files_behind(self._watch, self.world)
            if files is None:
                raise UnstorableError("nobody knows what code it was made by")
            self._check_unchanged()
            self.files = files
            folder().write(self._key, packed(*self._data(entry, files)))
            account.kept += 1
        except UnstorableError as error:
            self._refuse(str(error))
        except Exception as error:  # what was compiled is right, whatever is wrong with storing it
            self._refuse(f"storing it raised {type(error).__name__}: {error}")
            self.options.tell(error, faults.NO_STORE)
        entry.stages.seconds["store"] = perf_counter() - began

    def _check_unchanged(self) -> None:
        """What capturing did besides, to something that nobody watches, would not happen again."""
        now = CacheKey(self.fn, self.leaves, self.shape, self.states.contents)
        if now.digest() != self.world.digest():
            raise UnstorableError("capturing it changes something that it can see")

    def _data(self, entry: CacheEntry, files: list[tuple[str, str]]) -> tuple[Any, list[bytes]]:
        captured: Captured = entry.captured
        writer = CaptureWriter(self.world, entry.guards.reach, self.states)
        joint: Joint | None = entry.joint
        if _elsewhere(entry.stages.program, self.options.backend):
            raise UnstorableError("its tensors are on another device, whose programs are not kept")
        if joint is not None and joint.numbers:
            raise UnstorableError("its backward pass reads numbers that are given at each call")
        data: dict[str, Any] = {
            "files": files,
            "capture": writer.capture(captured),
            "reads": guard_codec.written(entry.guards.reach, self.world, writer),
            "program": writer.program(entry.stages.program),
            "key": bool(entry.key),
            "instance": self._watch is None,
            "joint": None,
        }
        if joint is not None:
            data["joint"] = {
                "program": writer.program(joint.stages.program),
                "saved": joint.saved,
                "tangents": [writer.meta(m) for m in joint.tangents],
                "lean": _lean_data(joint.make_lean if len(joint.tangents) > 1 else None, writer),
            }
        return data | writer.tables(), [raw for _, raw in writer.constants]


def _elsewhere(program: Program | None, backend: str) -> bool:
    """Whether it runs on another device than the one that compile was told."""
    metas = () if program is None else (*program.arguments, *program.results)
    return any(m.device.type not in (backend, backends.HOST) for m in metas)


def assembled(program: Program, backend_name: str, stages: Stages) -> Any:
    """What runs a program that was read from disk."""
    backend = backends.get(backend_name)
    if config.verify_passes:
        with stages.timed("check"):
            check_places(program)
    known = len(backend.kernels)
    with stages.timed("assemble"):
        runner = make_runner(program, backend)
    stages.program = program
    stages.kernels = backend.kernels[known:]
    return runner


def _lean_data(lean: Any, writer: CaptureWriter) -> Any:
    """The whole backward pass, to make one for some of the results of; None: there is none, or no
    plain form of it (noughts then stand for what does not arrive)."""
    if lean is None:
        return None
    before = len(writer.constants)
    try:
        constants = [[k, writer.constant(t)] for k, t in lean.constants.items()]
        graph = writer.whole_graph(lean.graph)
    except UnstorableError:
        del writer.constants[before:]
        return None
    return {"graph": graph, "sums": sorted(lean.sums), "constants": constants}


def _told(options: Any) -> str:
    off = sorted(options.disable)
    return repr((options.mode, off, options.budget, options.dynamic))


ask = Lookup


def packed(data: Any, raw: Sequence[bytes]) -> bytes:
    """Data and the bytes of constants as one piece."""
    text = json.dumps(data, separators=(",", ":")).encode()
    head = _LENGTHS.pack(len(text), len(raw))
    return b"".join([head, text, *(struct.pack("<Q", len(r)) + r for r in raw)])


def unpacked(payload: bytes) -> tuple[Any, list[bytes]]:
    """The same, back. Every length is checked."""
    size, count = _LENGTHS.unpack_from(payload)
    at = _LENGTHS.size + size
    if at > len(payload):
        raise StaleError("it ends too early")
    data = json.loads(payload[_LENGTHS.size : at])
    raw = []
    for _ in range(count):
        (length,) = struct.unpack_from("<Q", payload, at)
        at += 8
        if at + length > len(payload):
            raise StaleError("it ends too early")
        raw.append(payload[at : at + length])
        at += length
    if at != len(payload):
        raise StaleError("it goes on too long")
    return data, raw
