"""A program for all sizes: laid out once, with the words that follow from sizes written per size.

Machine code takes sizes as words of its block, so a new size needs no code, and no plan: the words
are formulas (`ir.symbolic`), which one function evaluates. What does not depend on sizes is copied
from an image of all blocks.

    made = NativeSizedProgram(program, executables, native, ["s0"])
    runner, metas = made.at([24])
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from lucerne._src.backends.contract import backend as contract
from lucerne._src.backends.contract.backend import Executable, OneSizeError, Runner
from lucerne._src.backends.cpu.gemm import kept as eager
from lucerne._src.backends.cpu.native.plans import RELEASE_ABOVE_NS
from lucerne._src.backends.cpu.program import state as S
from lucerne._src.backends.cpu.program.assemble import runner_of
from lucerne._src.backends.cpu.program.blocks import ALIGNMENT, Blocks, Buffers, kernel_of, signed
from lucerne._src.backends.cpu.program.compile import executables
from lucerne._src.backends.cpu.program.kept import KeptWeight, SharedWeight, WeightUse, form_of
from lucerne._src.backends.cpu.program.late import LateKernel
from lucerne._src.backends.cpu.program.runner import NativeRunner, guess
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel, address_of, encode_number
from lucerne._src.backends.cpu.runtime.llvm import release_code
from lucerne._src.base.config import config
from lucerne._src.base.exact import exact
from lucerne._src.base.process.forks import once
from lucerne._src.base.unspecialized import Symbolic
from lucerne._src.ir.meta import TensorMeta, is_sized
from lucerne._src.ir.program import ARGUMENT, CONSTANT, NumberArgument, Place, Program, Step
from lucerne._src.ir.symbolic.at_sizes import StepAt, meta_at, program_at, thing_at
from lucerne._src.ir.symbolic.evaluate import things_at
from lucerne._src.ir.symbolic.numbers import most, values_at

Words = np.ndarray[Any, np.dtype[np.int64]]
_LINE = ALIGNMENT // 8


def sized(program: Program, backend: Any, names: Sequence[str]) -> NativeSizedProgram:
    """Compile the steps of a program whose numbers follow from sizes with these names."""
    made = NativeSizedProgram(program, executables(program.steps, backend), backend.native, names)
    release_code()
    return made


class _Written:
    """Words that follow from sizes: where they go, and what they are."""

    def __init__(self) -> None:
        self.at: list[int] = []
        self.what: list[Any] = []

    def add(self, at: int, what: Any) -> None:
        self.at.append(at)
        self.what.append(what)

    @once
    def places(self) -> Words:
        return np.array(self.at, np.int64)


class NativeSizedProgram(contract.SizedProgram):
    """What `NativeRunner` lays out for one size, laid out for all."""

    def __init__(
        self, program: Program, made: Sequence[Executable], native: Any, names: Sequence[str]
    ) -> None:
        self.program, self.made, self.native, self.names = program, list(made), native, list(names)
        self.written = program.written
        self.kernels = [_kernel_of(x, step) for x, step in zip(made, program.steps, strict=True)]
        self.copies: dict[Any, Any] = {}
        """Weights that the programs of all sizes keep packed."""
        self.late = {k: x for k, x in enumerate(made) if isinstance(x, LateKernel)}
        self._words, self._offsets, self._fixed = _Written(), _Written(), _Written()
        self._chosen = _Written()
        self._letters: list[str] = []
        """Of the numbers that follow from sizes."""
        self._numbers: list[tuple[int, str, int]] = []
        self._lay_out()
        self._find_kept()
        works = [
            k.work if isinstance(k.work, Symbolic) or k.work else guess(s)
            for k, s in zip(self.kernels, program.steps, strict=True)
        ]
        self._works = [w for w in works if isinstance(w, Symbolic)]
        self._work = sum(w for w in works if not isinstance(w, Symbolic))
        arguments = [(k, m) for k, m in enumerate(program.arguments) if is_sized(m)]
        self._sized_arguments = [k for k, _ in arguments]
        self._evaluate = things_at(
            [
                tuple(self._chosen.what), tuple(self._words.what), tuple(self._offsets.what),
                tuple(self._fixed.what),
                tuple(self._works), self._workspace_at, self._workspace,
                [m for _, m in arguments], list(program.results),
                tuple(self.kernels[k].work for k, *_ in self._kept),
            ],
            self.names,
        )  # fmt: skip
        del self._words.what, self._offsets.what

    # ---- the image -----------------------------------------------------------------------------

    def _lay_out(self) -> None:
        program, total, starts = self.program, 0, []
        for kernel in self.kernels:
            starts.append(total)
            total += -(-kernel.words // _LINE) * _LINE
        self._image: Words = np.zeros(total, np.int64)
        self._starts = np.array(starts, np.int64)
        self._entries: Words = np.zeros(len(self.kernels), np.int64)
        for k, kernel in enumerate(self.kernels):
            if isinstance(kernel.entry, Symbolic):
                self._chosen.add(k, kernel.entry)
            else:
                self._entries[k] = kernel.entry
        self._workspace_at = -(-program.arena // ALIGNMENT) * ALIGNMENT
        self._workspace = most(0, *{exact(k.workspace): k.workspace for k in self.kernels}.values())
        buffers = Buffers(program, 0)
        self._count = buffers.count
        patches: list[list[tuple[int, Any]]] = [[] for _ in range(buffers.count)]
        for start, kernel, step in zip(starts, self.kernels, program.steps, strict=True):
            self._fill(start, kernel, step, patches, buffers)
        rows = [row for found in patches for row in found]
        self._patched = np.array([word for word, _ in rows], np.int64)
        self._patch_offsets = np.zeros(len(rows), np.int64)
        for k, (_, offset) in enumerate(rows):
            if isinstance(offset, Symbolic):
                self._offsets.add(k, offset)
            else:
                self._patch_offsets[k] = offset
        self._first = np.cumsum([0, *map(len, patches)], dtype=np.int64)

    def _fill(  # (of a late kernel nothing is known yet)
        self, at: int, kernel: NativeKernel, step: Step,
        patches: list[list[tuple[int, Any]]], buffers: Buffers,
    ) -> None:  # fmt: skip
        """As `Blocks.fill`, in words of the image."""
        if kernel is _LATE:
            return
        for place in [*step.outputs, *(x for x in step.inputs if type(x) is Place)]:
            if place.kind != CONSTANT:
                patches[buffers.number(place)].append((at, place.offset))
            else:
                start = address_of(self.program.constants[place.index])
                self._word(at, start + place.offset)
            at += 1
        if isinstance(kernel.workspace, Symbolic) or kernel.workspace:
            patches[buffers.scratch].append((at, self._workspace_at))
        at += 1
        values = [x for x in step.inputs if type(x) is not Place]
        for letter, value in zip(kernel.numbers, values, strict=True):
            if type(value) is NumberArgument:
                self._numbers.append((value.index, letter, at))
            elif isinstance(value, Symbolic):
                self._fixed.add(at, value)
                self._letters.append(letter)
            else:
                self._image[at : at + 2] = encode_number(letter, value)
            at += 2
        for k, word in enumerate(kernel.extra):
            self._word(at + k, word)

    def _word(self, at: int, word: Any) -> None:
        if isinstance(word, Symbolic):
            self._words.add(at, word)
        else:
            self._image[at] = signed(word)

    def _find_kept(self) -> None:
        """Products that may read a packed copy of a weight (see `kept_weights`)."""
        self._kept: list[tuple[int, tuple[int, int, TensorMeta], int]] = []
        written = self.program.written
        triples = zip(self.program.steps, self.made, self.kernels, strict=True)
        for number, (step, execute, kernel) in enumerate(triples):
            if self.native is None or kernel is _LATE:
                continue
            form = form_of(step, execute, kernel)
            if form is None or is_sized(form.meta) or isinstance(form.offset, Symbolic):
                continue
            place = step.inputs[form.which]
            if type(place) is not Place or place.kind != ARGUMENT or place.index in written:
                continue
            key = place.index, place.offset + form.offset, form.meta
            self._kept.append((number, key, form.which))

    # ---- one size ------------------------------------------------------------------------------

    def at(self, sizes: Sequence[int]) -> tuple[Runner, list[TensorMeta]]:
        if config.program_memory:
            program = self.program_at(sizes)
            made = [self.executable_at(k, sizes) for k in range(len(self.made))]
            return runner_of(program, made, self.native), list(program.results)
        found = SizedRunner(self, sizes)
        return found, list(found.results)

    def evaluated(self, sizes: Sequence[int]) -> list[Any]:
        """All that follows from sizes."""
        try:
            return self._evaluate(*sizes)
        except (ArithmeticError, ValueError, KeyError) as error:
            raise OneSizeError(f"at {self.sizes_of(sizes)}: {error}") from error

    def sizes_of(self, sizes: Sequence[int]) -> dict[str, int]:
        return dict(zip(self.names, sizes, strict=True))

    def program_at(self, sizes: Sequence[int]) -> Program:
        return program_at(self.program, self.sizes_of(sizes))

    def executable_at(self, number: int, sizes: Sequence[int]) -> Any:
        """The executable of a step at these sizes."""
        named, old, execute = self.sizes_of(sizes), self.kernels[number], self.made[number]
        if isinstance(execute, LateKernel):
            found = execute.at(named)
            if kernel_of(found) is None:
                raise OneSizeError(f"{self.program.steps[number].name} has no kernel at {named}")
            return found
        kernel = NativeKernel(
            thing_at(old.entry, named), old.outputs, old.tensors, old.numbers,
            thing_at(old.extra, named), thing_at(old.workspace, named), thing_at(old.work, named),
            None if old.fail is None else _Fail(old.fail, named),
        )  # fmt: skip
        kernel.kept = old.kept
        if isinstance(execute, eager.Linear):
            return execute.at(kernel, lambda meta: meta_at(meta, named))
        return kernel


_LATE = NativeKernel(0, 0, 0)
"""Stands for a kernel that is made for each size."""


def _kernel_of(execute: Any, step: Step) -> NativeKernel:
    if isinstance(execute, LateKernel):
        return _LATE
    found = kernel_of(execute)
    if found is None:
        raise OneSizeError(f"{step.name} is run by Python, for one size")
    return found


class _Fail:
    """What a kernel raises, with the sizes of the call."""

    def __init__(self, fail: Any, sizes: dict[str, int]) -> None:
        self.fail, self.sizes = fail, sizes

    def __call__(self, status: int, detail: int) -> None:
        with values_at(self.sizes):
            self.fail(status, detail)


class _SizedBuffers(Buffers):
    """The buffers of a program at some sizes."""

    def __init__(self, program: Program, workspace_at: int, workspace: int) -> None:
        self._results = len(program.arguments)
        self.scratch = self._results + len(program.results)
        self.count = self.scratch + 1
        self.workspace_at, self.workspace = workspace_at, workspace


class _SizedBlocks(Blocks):
    """All blocks of a program at some sizes, copied from the image."""

    def __init__(self, source: NativeSizedProgram, buffers: Buffers, words: Words) -> None:
        self.buffers, self.program, self._source = buffers, source.program, source
        self._memory = (ctypes.c_int64 * (len(words) + _LINE))()
        first = ctypes.addressof(self._memory)
        self._first_word = -first % ALIGNMENT // 8
        self.base = first + 8 * self._first_word
        ctypes.memmove(self.base, words.ctypes.data, 8 * len(words))
        self.offsets: Words = source._patch_offsets.copy()
        self._words = words

    @once
    def addresses(self) -> list[int]:
        return [int(x) for x in self.base + 8 * self._source._starts]

    @once
    def patches(self) -> list[list[tuple[int, int]]]:
        source = self._source
        words = (self.base + 8 * source._patched).tolist()
        rows = list(zip(words, self.offsets.tolist(), strict=True))
        first = source._first.tolist()
        return [rows[a:b] for a, b in pairwise(first)]

    @once
    def numbers(self) -> list[tuple[int, str, int]]:
        return [(i, letter, self.base + 8 * at) for i, letter, at in self._source._numbers]

    def restore(self) -> None:
        ctypes.memmove(self.base, self._words.ctypes.data, 8 * len(self._words))


class SizedRunner(NativeRunner):
    """A program for all sizes, at some of them."""

    def __init__(self, source: NativeSizedProgram, sizes: Sequence[int]) -> None:
        (
            chosen, words, offsets, fixed, works, workspace_at, workspace, metas, results, kept,
        ) = source.evaluated(sizes)  # fmt: skip
        self._entries = source._entries.copy()
        self._entries[source._chosen.places] = chosen
        self._source, self._sizes = source, tuple(sizes)
        self.packed: dict[int, NativeKernel | None] = {}
        """By executable: the kernel that reads a packed copy of its weight."""
        self._kernels = list(source.kernels)
        arguments = list(source.program.arguments)
        for k, meta in zip(source._sized_arguments, metas, strict=True):
            arguments[k] = meta
        image = source._image.copy()
        image[source._words.places] = words
        for at, letter, value in zip(source._fixed.at, source._letters, fixed, strict=True):
            image[at : at + 2] = encode_number(letter, value)
        self._buffers = _SizedBuffers(source.program, workspace_at, workspace)
        blocks = _SizedBlocks(source, self._buffers, image)
        blocks.offsets[source._offsets.places] = offsets
        self._blocks = blocks
        self._begin(arguments, results, source.program, source.native)
        self._kept = self._kept_at(kept)
        late = self._late_kernels()
        self._buffers.workspace = max(workspace, *(k.workspace for k in late.values()), 0)
        self._lay_out_sized(blocks, sum(works) + source._work + sum(k.work for k in late.values()))
        if late:
            self._add_late(late)

    def _late_kernels(self) -> dict[int, NativeKernel]:
        """Those that are made for each size; equal ones once."""
        source = self._source
        made: dict[int, Any] = {}
        found: dict[int, NativeKernel] = {}
        for number, late in source.late.items():
            if id(late) not in made:
                made[id(late)] = kernel_of(source.executable_at(number, self._sizes))
            found[number] = self._kernels[number] = made[id(late)]
        return found

    def _add_late(self, late: dict[int, NativeKernel]) -> None:
        """Blocks of their own, and the patches of all."""
        named = self._source.sizes_of(self._sizes)
        more = Blocks(list(late.values()), self._buffers, self._source.program)
        steps = self._tables["steps"]
        for k, (number, kernel) in enumerate(late.items()):
            more.fill(k, kernel, StepAt(self._source.program.steps[number], named))
            at = number * S.STEP_WORDS
            steps[at], steps[at + 1] = kernel.entry, more.addresses[k]
        more.finish()
        self._more_blocks.append(more)
        self._lay_out_patches()

    @once
    def program(self) -> Program:
        return self._source.program_at(self._sizes)

    @once
    def _executables(self) -> list[Any]:
        count = len(self._source.made)
        return [self._source.executable_at(k, self._sizes) for k in range(count)]

    def _kept_at(self, works: Sequence[float]) -> list[KeptWeight]:
        found: dict[Any, KeptWeight] = {}
        source = self._source
        for (number, key, which), work in zip(source._kept, works, strict=True):
            if work > eager.WORTH_NS:
                kept = found.setdefault(key, SharedWeight(*key, source.copies))
                kept.uses.append(_SizedUse(number, self, which))
        return list(found.values())

    def _lay_out_sized(self, blocks: _SizedBlocks, work: float) -> None:
        source, count = self._source, self._buffers.count
        steps = np.empty((len(source._starts), S.STEP_WORDS), np.int64)
        steps[:, 0] = self._entries
        steps[:, 1] = blocks.base + 8 * source._starts
        self._array("steps", steps.reshape(-1), S.STEPS)
        self._segments = [[0, len(steps), int(work > RELEASE_ABOVE_NS), -1]]
        self._set(S.SEGMENTS, self._table("segments", self._segments[0]))
        self._set(S.SEGMENT_COUNT, 1)
        self._lay_out_buffers(count)
        patches = np.empty((len(blocks.offsets), S.PATCH_WORDS), np.int64)
        patches[:, 0] = blocks.base + 8 * source._patched
        patches[:, 1] = blocks.offsets
        self._array("patches", patches.reshape(-1), S.PATCHES)
        self._array("first", source._first, S.FIRST)
        self._numbers = blocks.numbers
        self._lay_out_numbers()
        self._lay_out_launch()
        for which, kept in enumerate(self._kept):
            known = kept.known if isinstance(kept, SharedWeight) else ()
            if known:  # it was used before, by the program of another size
                at = which * S.KEPT_WORDS
                self._tables["kept"][at + S.KEPT_WRITES : at + S.KEPT_WORDS] = [*known, S.SEEN]

    @once
    def _plain_steps(self) -> list[int]:
        return [int(w) for w in self._tables["steps"]]

    def _array(self, name: str, words: Words, at: int) -> None:
        self._tables[name] = words
        self._set(at, words.ctypes.data)

    def _name_of(self, step: int) -> str:
        return self._source.program.steps[step].name

    def _fail_of(self, step: int) -> Any:
        if step in self._source.late:
            return super()._fail_of(step)
        fail = self._source.kernels[step].fail
        return None if fail is None else _Fail(fail, self._source.sizes_of(self._sizes))


class _SizedUse(WeightUse):
    """A step that reads a kept weight; what it is at these sizes is made when it is needed."""

    def __init__(self, number: int, runner: SizedRunner, which: int) -> None:
        self._runner = runner
        super().__init__(number, None, which, self._packed)  # type: ignore[arg-type]

    def _packed(self) -> NativeKernel | None:
        source, sizes = self._runner._source, self._runner._sizes
        named = source.sizes_of(sizes)
        self.step = StepAt(source.program.steps[self.number], named)
        execute, known = source.made[self.number], self._runner.packed
        if id(execute) not in known:  # (blocks that repeat have equal kernels)
            found: Any = execute
            if isinstance(execute, eager.Linear):
                found = execute.at(_LONG, lambda meta: meta_at(meta, named))
            form = form_of(self.step, found, _LONG)
            known[id(execute)] = None if form is None else form.make()
        return known[id(execute)]


_LONG = NativeKernel(0, 0, 0, work=float("inf"))
"""Stands for a kernel that runs long enough for a packed copy."""
