"""A program that is ready to run: blocks laid out, machine code to call them.

runner = NativeRunner(program, executables, native)
runner(arguments, numbers, results)                   # from Python, on anything tensor-like
runner.launch(parameters, arguments, numbers)         # in machine code, gives the results
"""

from __future__ import annotations

import ctypes
import itertools
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import MethodType
from typing import Any, cast

from lucerne._src.backends.contract.backend import Executable, Runner, TensorState
from lucerne._src.backends.contract.step_runner import over
from lucerne._src.backends.cpu.native.plans import LETTERS, RELEASE_ABOVE_NS
from lucerne._src.backends.cpu.program import state as S
from lucerne._src.backends.cpu.program.blocks import Blocks, Buffers, kernel_of
from lucerne._src.backends.cpu.program.host import HostStep
from lucerne._src.backends.cpu.program.kept import KeptWeight, kept_weights
from lucerne._src.backends.cpu.runtime import memory
from lucerne._src.backends.cpu.runtime.code import Code, compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel, address_of, encode_number
from lucerne._src.base.process import forks
from lucerne._src.base.process.error_notes import step_failed
from lucerne._src.base.process.profiler_hook import PROGRAM, Watch
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.program import Place, Program, Step, places

NOWHERE = -1
"""The place of a buffer that has none yet."""
_BYTES_PER_NS = 10.0
"""What a kernel that does not say how long it runs is taken to do."""
_POISONS = (0xFF, 0xA5)
"""Bytes that make NaN of every float, and small negative numbers."""
_MOVE = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_RUN_PARAMETERS = (ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


@cache
def _code() -> Code:
    return compiled(("program", S.STATE_WORDS), lambda m: S.write_state_code(m))


@cache
def _functions() -> tuple[Any, Any, Any]:
    """`program_move`, and `program_run` with Python's lock and without it."""
    code = _code()
    held = ctypes.PYFUNCTYPE(*_RUN_PARAMETERS)(code["program_run"])
    released = ctypes.CFUNCTYPE(*_RUN_PARAMETERS)(code["program_run"])
    return _MOVE(code["program_move"]), held, released


def alike(program: Program, native: Any) -> dict[str, Any]:
    """Attributes that the runners of a program for several sizes may share."""
    move, run, released = _functions()
    return {
        "written": program.written, "_number_count": program.numbers, "_lock": forks.lock(),
        "_timing": forks.lock(), "_times": None, "_move": move, "_run": run,
        "_run_released": released, "_poison": None,
        "_launch": None if native is None else native.launch_program,
    }  # fmt: skip


class NativeRunner(Runner):
    """All steps in as few calls of machine code as there are steps for Python in between, plus one.

    One call runs at a time: another thread waits for it.
    """

    written: frozenset[int]
    _number_count: int
    _lock: Any
    _timing: Any
    _times: Any
    """Where steps note their times, while somebody watches."""
    _move: Any
    _run: Any
    _run_released: Any
    _launch: Any
    _poison: Iterator[int] | None

    def __init__(
        self,
        program: Program,
        executables: Sequence[Executable],
        native: Any = None,
        *,
        poison: bool = False,
    ) -> None:
        """`native`: the fast path's functions, for `launch`. `poison`: fill scratch memory and
        results with junk before each call (NaN and others by turns)."""
        self.program = program
        self._kernels = [kernel_of(x) for x in executables]
        steps = program.steps
        kernels = [k for k in self._kernels if k is not None]
        workspace = max((k.workspace for k in kernels), default=0)
        self._buffers = Buffers(program, workspace)
        self._blocks = Blocks(kernels, self._buffers, program)
        self._host = {
            i: HostStep(steps[i], executables[i], self._fixed)
            for i, k in enumerate(self._kernels)
            if k is None
        }
        self._begin(program.arguments, program.results, program, native, poison)
        self._tables: dict[str, Any] = {}
        self._state: Any = (ctypes.c_int64 * S.STATE_WORDS)()
        self.address = ctypes.addressof(self._state)
        self._kept = [] if native is None else kept_weights(program, executables)
        self._lay_out()
        self.expect()
        forks.tell(self)  # last: a fork beside this finds it whole or not at all

    def _begin(
        self,
        arguments: Sequence[TensorMeta],
        results: Sequence[TensorMeta],
        program: Program,
        native: Any,
        poison: bool = False,
    ) -> None:
        """What does not depend on how the blocks are laid out."""
        self.arguments, self.results = arguments, results
        self._more_blocks: list[Blocks] = []
        vars(self).update(alike(program, None if poison else native))
        if poison:
            self._poison = itertools.cycle(_POISONS)
        self._checks: dict[tuple[int, ...], tuple[Runner, TensorState, Any]] = {}
        """By results: what looks at them. They stay: a call may be running one."""
        self._checkers: list[tuple[int, ...]] = []
        """Who wants that done now."""

    def forget(self) -> None:
        """In a forked child: the call that another thread was in the middle of."""
        if self._state[S.BUSY]:
            self._state[S.BUSY] = 0
            self._forget_places()
            for kept in self._kept:
                self._use_copy(kept, kept.active)

    @property
    def scratch_bytes(self) -> int:  # type: ignore[override]
        """The arena and what kernels work in."""
        found: int = self._buffers.scratch_bytes
        return found

    def _fixed(self, place: Place) -> Any:
        return over(self.program.constants[place.index], place)

    # ---- tables ------------------------------------------------------------------------------

    def _table(self, name: str, words: Sequence[int]) -> int:
        """The address of a table, which lives as long as the runner."""
        made = self._tables[name] = (ctypes.c_int64 * max(len(words), 1))(*words)
        return ctypes.addressof(made)

    def _lay_out(self) -> None:
        steps, blocks, buffers = self.program.steps, self._blocks, self._buffers
        entries: list[int] = []
        number = 0
        for step, kernel in zip(steps, self._kernels, strict=True):
            if kernel is None:
                entries += [0, 0]
                continue
            blocks.fill(number, kernel, step)
            entries += [kernel.entry, blocks.addresses[number]]
            number += 1
        blocks.finish()
        self._plain_steps = entries
        self._set(S.STEPS, self._table("steps", entries))
        self._lay_out_buffers(buffers.count)
        self._lay_out_patches()
        self._segments = segments(steps, self._kernels)
        self._set(S.SEGMENTS, self._table("segments", [w for s in self._segments for w in s]))
        self._set(S.SEGMENT_COUNT, len(self._segments))
        self._lay_out_launch()

    def _lay_out_buffers(self, count: int) -> None:
        self._set(S.BUFFERS, count)
        self._set(S.SCRATCH, self._buffers.scratch_bytes)
        self._set(S.BASES, self._table("bases", [NOWHERE] * count))
        self._set(S.FOUND, self._table("found", [0] * count))
        self._set(S.NUMBERS, self._number_count)

    def _lay_out_patches(self) -> None:
        """The words to be written when buffers move, and those of numbers, in all blocks."""
        everything = [self._blocks, *self._more_blocks]
        first, patches = [0], []
        for b in range(self._buffers.count):
            patches += [word for x in everything for patch in x.patches[b] for word in patch]
            first.append(len(patches) // S.PATCH_WORDS)
        self._set(S.FIRST, self._table("first", first))
        self._set(S.PATCHES, self._table("patches", patches))
        self._numbers = [record for x in everything for record in x.numbers]
        self._lay_out_numbers()
        self._forget_places()

    def _lay_out_numbers(self) -> None:
        words = [w for i, letter, at in self._numbers for w in (i, LETTERS[letter], at)]
        self._set(S.NUMBER_TABLE, self._table("numbers", words))
        self._set(S.NUMBER_COUNT, len(self._numbers))

    def _forget_places(self) -> None:
        """All patches are applied at the next call."""
        bases = self._tables["bases"]
        bases[:] = [NOWHERE] * len(bases)

    def _called_back(self) -> dict[int, Any]:
        """What machine code calls, by the word that says where it is. (It does not keep the runner
        alive: that would stay until the next full collection.)"""
        me, kind = weakref.proxy(self), type(self)
        return {
            S.HOST_STEP: MethodType(kind._run_host, me), S.FAILED: MethodType(kind._fail, me),
            S.REPACK: MethodType(kind._repack, me),
        }  # fmt: skip

    def _lay_out_launch(self) -> None:
        """What only `launch` reads."""
        self._callbacks = self._called_back()
        for at, function in self._callbacks.items():
            self._set(at, id(function))
        self._set(S.ARGUMENTS, len(self.arguments))
        self._set(S.RESULTS, len(self.results))
        results = [w for m in self.results for w in (id(m), nbytes(m))]
        self._set(S.RESULT_TABLE, self._table("results", results))
        written = sorted(self.written)
        self._set(S.WRITTEN_TABLE, self._table("written", written))
        self._set(S.WRITTEN, len(written))
        records = [w for k in self._kept for w in (k.argument, 0, 0, 0, S.PLAIN)]
        self._set(S.KEPT_TABLE, self._table("kept", records))
        self._set(S.KEPT, len(self._kept))

    def _set(self, at: int, value: int) -> None:
        self._state[at] = value

    # ---- calls -------------------------------------------------------------------------------

    def expect(
        self,
        requires_grad: Sequence[bool | None] | None = None,
        groups: Sequence[int] | None = None,
        kinds: Sequence[type | None] | None = None,
    ) -> None:
        """What `launch` asks of the arguments besides their metas.

        `requires_grad`: of each argument, None: either. `groups`: arguments that may share memory
        though one of them is written have the same number, not 0; others may not. `kinds`: the
        class of each (who gives it keeps it), None: any class of plain tensors.
        """
        arguments = self.arguments
        wanted = [None] * len(arguments) if requires_grad is None else list(requires_grad)
        of_group = [0] * len(arguments) if groups is None else list(groups)
        classes = [0 if x is None else id(x) for x in kinds or [None] * len(arguments)]
        writes = [int(i in self.written) for i in range(len(arguments))]
        given = zip(arguments, wanted, writes, classes, strict=True)
        records = [
            (id(meta), meta.dtype.itemsize, 2 if grad is None else int(grad), write, kind)
            for meta, grad, write, kind in given
        ]
        for at, name, words in (
            (S.ARGUMENT_TABLE, "arguments", [w for record in records for w in record]),
            (S.SPANS, "spans", [nbytes(meta) for meta in arguments]),
            (S.GROUPS, "groups", of_group),
            (S.WRITES, "writes", writes),
        ):
            self._set(at, self._table(name, words))

    def launch(
        self, first: tuple[Any, ...], second: tuple[Any, ...], numbers: tuple[Any, ...] = ()
    ) -> tuple[Any, ...] | None:
        """Run on the tensors of both tuples, in this order: the results, as fresh tensors.

        `first` are those that stay from call to call (parameters): products keep packed copies of
        the ones that nobody writes.
        Writes to arguments are counted. None: some argument is not a plain tensor with the meta
        the program was made for, or another thread runs it now: `__call__` knows the way.
        """
        if self._launch is None:
            return None
        if Watch.current is not None:
            return self._timed(self._launch, self.address, first, second, numbers)
        found: tuple[Any, ...] | None = self._launch(self.address, first, second, numbers)
        return found

    def _timed(self, run: Callable[..., Any], *given: Any) -> Any:
        """What `run(*given)` gives; who watches is told when each step began and ended."""
        watcher = Watch.current
        span = None if watcher is None else watcher.begin("", PROGRAM, self.program)
        if watcher is None or span is None:
            return run(*given)
        with self._timing:
            # made once and never freed: a call that began unwatched may still write to it
            times = self._tables.get("times")
            if times is None:
                self._table("times", [0] * (len(self.program.steps) * S.TIME_WORDS))
                times = self._tables["times"]
            ctypes.memset(times, 0, ctypes.sizeof(times))
            self._times = times
            self._set(S.TIMES, ctypes.addressof(times))
            try:
                return run(*given)
            finally:
                self._set(S.TIMES, 0)
                self._times = None
                watcher.end(span)
                watcher.steps(span, self.program, list(times))

    def __call__(
        self,
        arguments: Sequence[TensorState],
        numbers: Sequence[float],
        results: Sequence[TensorState],
    ) -> None:
        found, state = self._tables["found"], self._state
        given = tuple(numbers)
        with self._lock:
            while state[S.BUSY]:  # a launch by another thread
                time.sleep(1e-4)
            state[S.BUSY] = 1
            scratch = memory.HostBlock(self._buffers.scratch_bytes)
            try:
                if self._poison is not None:
                    self._spoil(scratch, results, next(self._poison))
                places = [address_of(t) for t in (*arguments, *results)]
                found[:] = [*places, scratch.address]
                for index, letter, at in self._numbers:
                    words = (ctypes.c_int64 * 2)(*encode_number(letter, given[index]))
                    ctypes.memmove(at, words, 16)
                for kept in self._kept:
                    self._use_copy(kept, False)
                self._move(self.address)
                if Watch.current is None:
                    self._run_segments(given)
                else:
                    self._timed(self._run_segments, given)
            finally:
                for kept in self._kept:
                    self._use_copy(kept, kept.active)
                state[S.BUSY] = 0
                del scratch

    def _spoil(self, scratch: memory.HostBlock, results: Sequence[TensorState], junk: int) -> None:
        """Fill memory that holds nothing yet: scratch, and results, which are scratch at first."""
        ctypes.memset(scratch.address, junk, scratch.nbytes)
        for t in results:
            ctypes.memset(address_of(t), junk, nbytes(t._meta))

    def _run_segments(self, numbers: tuple[Any, ...]) -> None:
        for first, last, release, host in self._segments:
            run = self._run_released if release else self._run
            failed = run(self.address, first, last)
            if failed >= 0:
                self._fail(failed, numbers)
            if host >= 0:
                self._run_host(host, numbers)

    def _run_host(self, step: int, numbers: tuple[Any, ...]) -> None:
        times = self._times
        if times is not None:
            times[step * S.TIME_WORDS] = time.perf_counter_ns()
        self._host[step](self._address, numbers)
        if times is not None:
            times[step * S.TIME_WORDS + 1] = time.perf_counter_ns()

    def _address(self, place: Place) -> int:
        """Where a place is in the call that runs now."""
        return int(self._tables["bases"][self._buffers.number(place)]) + place.offset

    # ---- a look at the results ---------------------------------------------------------------

    def begin_checks(self, check: Runner, number: TensorState, results: Sequence[int]) -> bool:
        key = tuple(results)
        if self._launch is None or not isinstance(check, NativeRunner) or self is check:
            return False
        with self._lock:
            if any(other != key for other in self._checkers):
                return False
            kept, to, table = self._checks.setdefault(
                key, (check, number, (ctypes.c_int64 * len(key))(*key))
            )
            self._checkers.append(key)
            self._set(S.CHECK_NUMBER, address_of(to))
            self._set(S.CHECK_RESULTS, ctypes.addressof(table))
            self._set(S.CHECK, cast(NativeRunner, kept).address)
        return True

    def end_checks(self) -> None:
        with self._lock:
            self._checkers.pop()
            if not self._checkers:
                self._set(S.CHECK, 0)

    @property
    def alarms(self) -> int:  # type: ignore[override]
        found: int = self._state[S.ALARMS]
        return found

    # ---- kept weights ------------------------------------------------------------------------

    def _repack(self, which: int, stage: int) -> None:
        """`launch` found that a weight has to be packed, or that its copy no longer holds."""
        kept = self._kept[which]
        at = which * S.KEPT_WORDS
        noted = self._tables["kept"][at + S.KEPT_WRITES : at + S.KEPT_STAGE]
        kept.token = tuple(map(int, noted))
        copy = kept.pack(int(self._tables["bases"][kept.argument])) if stage == S.PACKED else None
        if stage == S.PACKED and copy is None:
            stage = S.NEVER
        if copy is not None:
            stage = self._prepare(kept, copy.data_ptr())
        kept.active = stage == S.PACKED
        self._use_copy(kept, kept.active)
        self._tables["kept"][which * S.KEPT_WORDS + S.KEPT_STAGE] = stage

    def _prepare(self, kept: KeptWeight, copy: int) -> int:
        """Make blocks for the kernels that read the copy; the stage that is reached."""
        buffers = self._buffers
        needed = max(use.prepare(buffers, self._with_constants, copy) for use in kept.uses)
        if needed > buffers.workspace:
            buffers.workspace = needed
            self._set(S.SCRATCH, buffers.scratch_bytes)
            return S.SEEN  # the next call has room enough
        made = [use.blocks for use in kept.uses if use.blocks is not None]
        fresh = [x for x in made if x not in self._more_blocks]
        if fresh:
            self._more_blocks += fresh
            self._lay_out_patches()
            self._move(self.address)
        return S.PACKED if any(use.target for use in kept.uses) else S.NEVER

    @property
    def _with_constants(self) -> Program:
        """A program with the constants of this one."""
        return self.program

    def _use_copy(self, kept: KeptWeight, on: bool) -> None:
        entries, plain = self._tables["steps"], self._plain_steps
        for use in kept.uses:
            at = use.number * S.STEP_WORDS
            target = use.target if on else None
            entries[at : at + 2] = plain[at : at + 2] if target is None else target

    def _fail(self, step: int, numbers: tuple[Any, ...]) -> None:
        """Raise what the kernel of a step says about its failure."""
        status, detail = int(self._state[S.STATUS]), int(self._state[S.DETAIL])
        for blocks in (self._blocks, *self._more_blocks):
            blocks.restore()
        self._forget_places()
        fail = self._fail_of(step)
        try:
            if fail is not None:
                fail(status, detail)
            raise RuntimeError(f"step {step} ({self._name_of(step)}) failed with status {status}")
        except Exception as error:
            self._note(error, step)
            raise

    def _note(self, error: Exception, step: int) -> None:
        """Add to an error which lines of the user's a step comes from, and what it is given."""
        failed = self._with_constants.steps[step]
        metas = [v.meta for v in failed.graph.inputs if isinstance(v.meta, TensorMeta)]
        step_failed(error, failed.name, metas, failed.origins)

    def _name_of(self, step: int) -> str:
        return self.program.steps[step].name

    def _fail_of(self, step: int) -> Any:
        kernel = self._kernels[step]
        return None if kernel is None else kernel.fail


def segments(steps: Sequence[Step], kernels: Sequence[NativeKernel | None]) -> list[list[int]]:
    """Stretches of machine code: first, last, whether long, and the step for Python behind it."""
    found, first, work = [], 0, 0.0
    for i, (step, kernel) in enumerate(zip(steps, kernels, strict=True)):
        if kernel is None:
            found.append([first, i, int(work > RELEASE_ABOVE_NS), i])
            first, work = i + 1, 0.0
        else:
            work += kernel.work or guess(step)
    if first < len(steps) or not found:
        found.append([first, len(steps), int(work > RELEASE_ABOVE_NS), -1])
    return found


def guess(step: Step) -> float:
    return sum(nbytes(p.meta) for p in (*places(step.inputs), *step.outputs)) / _BYTES_PER_NS


def nbytes(meta: TensorMeta) -> int:
    return meta.span * meta.dtype.itemsize
