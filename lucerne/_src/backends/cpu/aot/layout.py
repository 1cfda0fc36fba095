"""One program at known sizes as tables of words: its blocks, and what is written into them when.

A block's words are as `runtime.kernel` says. Here a word is a number or the name of a symbol. What
is known when a context is brought to these sizes (weights, scratch) and what comes with each call
(inputs, results) are lists of places: (word, base, offset).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from lucerne._src.backends.contract.objects import UnwrittenError, Variant
from lucerne._src.backends.cpu.gemm.prepack import WeightPacking, packing
from lucerne._src.backends.cpu.program.blocks import ALIGNMENT, kernel_of
from lucerne._src.backends.cpu.program.kept import WeightUse, kept_weights
from lucerne._src.backends.cpu.runtime import unlinked
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel, encode_number, signed
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.program import ARENA, CONSTANT, RESULT, NumberArgument, Place, Step

Word = int | str
"""A number, or a symbol with `+` and an offset."""
WEIGHTS, MODEL, SCRATCH = range(3)
"""The bases that a context knows."""
_LINE = ALIGNMENT // 8
C_LIBRARY = frozenset((
    "memcpy", "memset", "memmove", "syscall", "sched_yield", "sigfillset", "pthread_sigmask",
    "pthread_create", "pthread_detach", "pthread_mutex_lock", "pthread_mutex_unlock",
    "pthread_cond_wait", "pthread_cond_broadcast", "getauxval",
))  # fmt: skip
_MATHEMATICS = ("sin", "cos", "tan", "exp", "log", "pow", "fma", "floor", "ceil", "fmod", "rint")
COMES_ALONG = frozenset(("lucerne_pfor", "lucerne_threads"))
"""The pool's, which is part of a built program."""
HEAD_BYTES = ALIGNMENT
"""Of a model, before its packed weights."""


class Patch(NamedTuple):
    """A word that is `bases[base] + offset`."""

    word: int
    base: int
    offset: int


class PackJob(NamedTuple):
    """A weight that is packed when a model is loaded."""

    source: int
    """In the file of weights."""
    target: int
    """In the model."""
    packing: WeightPacking


class PackedWeights:
    """The packed weights of a model, which all sizes share."""

    def __init__(self) -> None:
        self.jobs: dict[tuple[int, TensorMeta], PackJob] = {}
        self.nbytes = HEAD_BYTES

    def place(self, source: int, meta: TensorMeta) -> int:
        """Where the packed copy of a weight lies."""
        key = source, meta
        if key not in self.jobs:
            known = packing(meta)
            self.jobs[key] = PackJob(source, self.nbytes, known)
            self.nbytes += -(-known.nbytes // ALIGNMENT) * ALIGNMENT
        return self.jobs[key].target


class Tables:
    """Read-only memory that kernels point at, by the symbols that hold it."""

    def __init__(self) -> None:
        self.words: dict[str, list[Word]] = {}
        self._by_content: dict[tuple[Word, ...], str] = {}

    def symbol(self, words: Sequence[Word]) -> str:
        """The symbol of a table."""
        key = tuple(words)
        found = self._by_content.setdefault(key, f"table{len(self.words)}")
        self.words[found] = list(key)
        return found


class VariantTables:
    """The tables of one variant."""

    def __init__(self, variant: Variant, packed: PackedWeights, tables: Tables) -> None:
        runner: Any = variant.runner
        self.variant, self.program, self._tables = variant, runner.program, tables
        self.words: list[Word] = []
        self.steps: list[tuple[str, int]] = []
        """The function and the first byte of the block of each."""
        self.fixed: list[Patch] = []
        self.inputs: list[Patch] = []
        self.results: list[Patch] = []
        kernels = written(self.program.steps, runner.executables)
        self._packed_uses = _packed_uses(variant, runner)
        used = [self._form(k, kernel) for k, kernel in enumerate(kernels)]
        self._workspace_at = -(-self.program.arena // ALIGNMENT) * ALIGNMENT
        self.scratch = self._workspace_at + max((k.workspace for k in used), default=0)
        for number, (step, kernel) in enumerate(zip(self.program.steps, used, strict=True)):
            self._lay_out(number, step, kernel, packed)

    def _form(self, number: int, kernel: NativeKernel) -> NativeKernel:
        """The kernel of a step; that of a packed weight in its place."""
        use = self._packed_uses.get(number)
        return kernel if use is None else use.kernel

    def _lay_out(
        self, number: int, step: Step, kernel: NativeKernel, packed: PackedWeights
    ) -> None:
        self.words += [0] * (-len(self.words) % _LINE)
        self.steps.append((_symbol(kernel.entry), 8 * len(self.words)))
        use = self._packed_uses.get(number)
        places = [*step.outputs, *(x for x in step.inputs if type(x) is Place)]
        for k, place in enumerate(places):
            if use is not None and k == len(step.outputs) + use.which:
                self._add(self.fixed, MODEL, packed.place(use.source, use.meta))
            else:
                self._point(place)
        if kernel.workspace:
            self._add(self.fixed, SCRATCH, self._workspace_at)
        else:
            self.words.append(0)
        values = [x for x in step.inputs if type(x) is not Place]
        for letter, value in zip(kernel.numbers, values, strict=True):
            self.words += encode_number(letter, value)
        kept = list(_memories(kernel.kept))
        self.words += [self._word(x, kept) for x in kernel.extra]

    def _point(self, place: Place) -> None:
        variant = self.variant
        if place.kind == CONSTANT:
            self._add(self.fixed, WEIGHTS, variant.constants[place.index] + place.offset)
        elif place.kind == ARENA:
            self._add(self.fixed, SCRATCH, place.offset)
        elif place.kind == RESULT:
            self._add(self.results, place.index, place.offset)
        elif place.index in variant.inputs:
            self._add(self.inputs, variant.inputs[place.index], place.offset)
        else:
            self._add(self.fixed, WEIGHTS, variant.weights[place.index] + place.offset)

    def _add(self, patches: list[Patch], base: int, offset: int) -> None:
        patches.append(Patch(len(self.words), base, offset))
        self.words.append(0)

    def _word(self, x: int, kept: Sequence[_Memory]) -> Word:
        name = unlinked.name_at(x)
        if name is not None:
            return name
        assert not unlinked.could_be(x), f"{x:#x} looks like an address and is none"
        for memory in kept:
            if memory.start <= x < memory.start + memory.nbytes:
                words: list[Word] = [*memory.words]
                if memory.is_block:
                    words = [self._word(w, kept) for w in memory.words]
                symbol = self._tables.symbol(words)
                return f"{symbol}+{x - memory.start}"
        return signed(x)


class _Memory(NamedTuple):
    """Memory of this process that a kernel points at."""

    start: int
    nbytes: int
    words: list[int]
    is_block: bool
    """Whether its words are those of a kernel's block, addresses among them."""


def _memories(kept: Any) -> Iterator[_Memory]:
    """What a kernel keeps alive: arrays, and tuples of them (with numbers about them)."""
    if isinstance(kept, tuple):
        for x in kept:
            yield from _memories(x)
    elif isinstance(kept, (np.ndarray, ctypes.Array)):
        data = np.ascontiguousarray(kept)
        start = np.asarray(kept).__array_interface__["data"][0]
        raw = data.tobytes()
        words = np.frombuffer(raw + bytes(-len(raw) % 8), np.int64).tolist()
        yield _Memory(int(start), len(raw), words, isinstance(kept, ctypes.Array))


class PackedRead(NamedTuple):
    """A step that reads a packed weight."""

    kernel: NativeKernel
    which: int
    """The number of the weight among the step's tensors."""
    source: int
    """Where the weight begins in its file."""
    meta: TensorMeta


def _packed_uses(variant: Variant, runner: Any) -> dict[int, PackedRead]:
    """Which steps read a weight packed: those that would when this process ran them."""
    found: dict[int, PackedRead] = {}
    for kept in kept_weights(runner.program, runner.executables):
        if kept.argument not in variant.weights:
            continue
        source = variant.weights[kept.argument] + kept.offset
        for use in kept.uses:
            kernel = use.packed_kernel()
            if kernel is not None:
                found[use.number] = PackedRead(kernel, _number(use), source, kept.meta)
    return found


def _number(use: WeightUse) -> int:
    tensors = [k for k, x in enumerate(use.step.inputs) if type(x) is Place]
    return tensors.index(use.which)


def written(steps: Sequence[Step], executables: Sequence[Any]) -> list[NativeKernel]:
    """The kernels of all steps; raises `UnwrittenError` with those that have none."""
    found, refused = [], []
    for step, execute in zip(steps, executables, strict=True):
        kernel = kernel_of(execute)
        why = _objection(step, kernel)
        if kernel is None or why:
            refused.append((step.name, ", ".join(map(str, step.origins)), why))
        else:
            found.append(kernel)
    if refused:
        raise UnwrittenError(refused)
    return found


def _objection(step: Step, kernel: NativeKernel | None) -> str:
    """Why a step can't be written for another process; empty: it can."""
    if kernel is None:
        return "it has no machine code of its own"
    if unlinked.name_at(kernel.entry) is None:
        return "its machine code is part of this process"
    if any(type(x) is NumberArgument for x in step.inputs):
        return "a number comes anew with each call"
    called = {x for word in (kernel.entry, *kernel.extra) for x in unlinked.imports_of(word)}
    strangers = sorted(x for x in called if not is_of_c(x))
    return f"it calls {', '.join(strangers)} of this process" if strangers else ""


def is_of_c(name: str) -> bool:
    """Whether a function is the C library's, or comes with every built program."""
    return name in C_LIBRARY or name in COMES_ALONG or name.rstrip("f") in _MATHEMATICS


def _symbol(address: int) -> str:
    found = unlinked.name_at(address)
    assert found is not None, hex(address)
    return found
