"""A program for all sizes: laid out once, with the words that follow from sizes written per size.

Machine code takes sizes as words of its block, so a new size needs no code, and no plan: the words
are formulas (`ir.symbolic`), which one function evaluates. What does not depend on sizes is copied
from an image of all that machine code reads.

    made = NativeSizedProgram(program, executables, native, ["s0"])
    runner, metas = made.at([24])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne._src.backends.contract import backend as contract
from lucerne._src.backends.contract.backend import Executable, OneSizeError, Runner
from lucerne._src.backends.cpu.gemm import kept as eager
from lucerne._src.backends.cpu.native.plans import LETTERS
from lucerne._src.backends.cpu.program import state as S
from lucerne._src.backends.cpu.program.assemble import runner_of
from lucerne._src.backends.cpu.program.blocks import ALIGNMENT, Buffers, kernel_of
from lucerne._src.backends.cpu.program.compile import executables
from lucerne._src.backends.cpu.program.image import RunnerImage, Words
from lucerne._src.backends.cpu.program.kept import form_of
from lucerne._src.backends.cpu.program.late import LateKernel, for_all_sizes
from lucerne._src.backends.cpu.program.runner import NOWHERE, alike, guess, nbytes
from lucerne._src.backends.cpu.program.sized_runner import PackedUse, SizedFailure, SizedRunner
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel, address_of, encode_number, signed
from lucerne._src.backends.cpu.runtime.llvm import release_code
from lucerne._src.base.config import config
from lucerne._src.base.exact import exact
from lucerne._src.base.process.forks import once
from lucerne._src.base.unspecialized import Symbolic
from lucerne._src.ir.meta import TensorMeta, is_sized
from lucerne._src.ir.program import ARGUMENT, CONSTANT, NumberArgument, Place, Program, Step
from lucerne._src.ir.symbolic.at_sizes import meta_at, program_at, thing_at
from lucerne._src.ir.symbolic.evaluate import things_at
from lucerne._src.ir.symbolic.numbers import most

_LINE = ALIGNMENT // 8


def sized(program: Program, backend: Any, names: Sequence[str]) -> NativeSizedProgram:
    """Compile the steps of a program whose numbers follow from sizes with these names."""
    made = NativeSizedProgram(program, executables(program.steps, backend), backend.native, names)
    release_code()
    return made


class _Formulas:
    """Words of the image that follow from sizes."""

    def __init__(self) -> None:
        self.at: list[int] = []
        self.what: list[Any] = []

    def add(self, at: int, what: Any) -> None:
        self.at.append(at)
        self.what.append(what)


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
        self.is_told = False
        """Whether its runners know what to ask of their arguments."""
        self.weights = self._find_weights()
        self.image = RunnerImage()
        self._formulas = _Formulas()
        self._letters: list[tuple[int, str, Any]] = []
        """Numbers of steps that follow from sizes: where, which letter, what."""
        self._lay_out_blocks()
        self._lay_out_tables()
        self.places = np.array(self._formulas.at + self._late_places(), np.int64)
        self._prepare_evaluation()

    def _prepare_evaluation(self) -> None:
        program, uses = self.program, [u for _, found in self.weights for u in found]
        works = [
            k.work if isinstance(k.work, Symbolic) or k.work else guess(s)
            for k, s in zip(self.kernels, program.steps, strict=True)
        ]
        self.work = sum(w for w in works if not isinstance(w, Symbolic))
        packed = [u.kernel for u in uses if u.kernel is not None]
        for k, use in enumerate(u for u in uses if u.kernel is not None):
            use.entry = k
        self._evaluate = things_at(
            [
                list(self._formulas.what), tuple(x for *_, x in self._letters),
                tuple(w for w in works if isinstance(w, Symbolic)), self._workspace_at,
                self._workspace, [program.arguments[k] for k in self.sized_arguments],
                list(program.results), tuple(k.entry for k in packed),
                tuple(self.kernels[u.number].work for u in uses),
            ],
            self.names,
        )  # fmt: skip
        del self._formulas

    # ---- the image -----------------------------------------------------------------------------

    def _find_weights(self) -> list[tuple[tuple[int, int, TensorMeta], list[PackedUse]]]:
        """Weights that may be kept packed, each with the products that read it (see `kept`)."""
        found: dict[tuple[int, int, TensorMeta], list[PackedUse]] = {}
        written, made = self.program.written, dict[int, Any]()
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
            if id(execute) not in made:  # (blocks that repeat have equal kernels)
                made[id(execute)] = self._packed_kernel(form.make)
            tensors = [k for k, x in enumerate(step.inputs) if type(x) is Place]
            use = PackedUse(number, form.which, tensors.index(form.which), made[id(execute)])
            key = place.index, place.offset + form.offset, form.meta
            found.setdefault(key, []).append(use)
        return list(found.items())

    def _packed_kernel(self, make: Any) -> NativeKernel | None:
        """The kernel that reads a packed copy, if there is one for all sizes."""
        try:
            holds, made = for_all_sizes(make)
        except ValueError:  # rows that do not lie as the packed form wants them
            return None
        return made if holds else None

    def _lay_out_blocks(self) -> None:
        program = self.program
        uses = [u for _, found in self.weights for u in found if u.kernel is not None]
        packed = [u.kernel for u in uses if u.kernel is not None]
        total, starts = 0, []
        for kernel in (*self.kernels, *packed):
            starts.append(total)
            total += -(-kernel.words // _LINE) * _LINE
        self.starts = starts[: len(self.kernels)]
        self._blocks: Words = np.zeros(total, np.int64)
        self._workspace_at = -(-program.arena // ALIGNMENT) * ALIGNMENT
        spaces = [k.workspace for k in (*self.kernels, *packed)]
        self._workspace = most(0, *{exact(n): n for n in spaces}.values())
        buffers = Buffers(program, 0)
        self._count = buffers.count
        self._patches: list[list[tuple[int, Any]]] = [[] for _ in range(buffers.count)]
        self.numbers: list[tuple[int, str, int]] = []
        """Numbers of the call: which, its letter, its word."""
        for start, kernel, step in zip(self.starts, self.kernels, program.steps, strict=True):
            self._fill(start, kernel, step, buffers)
        for start, use in zip(starts[len(self.kernels) :], uses, strict=True):
            use.start = start
            assert use.kernel is not None
            self._fill(start, use.kernel, program.steps[use.number], buffers, use.left_out)
        self.image.add("blocks", self._blocks)

    @once
    def alike(self) -> dict[str, Any]:
        """Attributes of the runners of all sizes."""
        return {"_source": self, **alike(self.program, self.native)}

    @once
    def state_at(self) -> int:
        return self.image.place("state")

    def _fill(
        self, at: int, kernel: NativeKernel, step: Step, buffers: Buffers,
        left_out: int | None = None,
    ) -> None:  # fmt: skip
        """As `Blocks.fill`, in words of the image."""
        if kernel is _LATE:  # nothing is known of it yet
            return
        for k, place in enumerate((*step.outputs, *(x for x in step.inputs if type(x) is Place))):
            if left_out is not None and k == len(step.outputs) + left_out:
                pass  # (where the copy is, is known when it is packed)
            elif place.kind != CONSTANT:
                self._patches[buffers.number(place)].append((at + k, place.offset))
            else:
                start = address_of(self.program.constants[place.index])
                self._word(at + k, start + place.offset)
        at += kernel.outputs + kernel.tensors
        if isinstance(kernel.workspace, Symbolic) or kernel.workspace:
            self._patches[buffers.scratch].append((at, self._workspace_at))
        at += 1
        values = [x for x in step.inputs if type(x) is not Place]
        for letter, value in zip(kernel.numbers, values, strict=True):
            if type(value) is NumberArgument:
                self.numbers.append((value.index, letter, at))
            elif isinstance(value, Symbolic):
                self._letters.append((at, letter, value))
            else:
                self._blocks[at : at + 2] = encode_number(letter, value)
            at += 2
        for k, word in enumerate(kernel.extra):
            self._word(at + k, word)

    def _word(self, at: int, word: Any) -> None:
        if isinstance(word, Symbolic):
            self._formulas.add(at, word)
        else:
            self._blocks[at] = signed(word)

    def _lay_out_tables(self) -> None:
        image, program, count = self.image, self.program, self._count
        image.add("state", [0] * S.STATE_WORDS)
        self._lay_out_steps()
        self._lay_out_patches()
        numbers = [w for i, letter, at in self.numbers for w in (i, LETTERS[letter], 8 * at)]
        self._table(S.NUMBER_TABLE, "numbers", numbers, S.NUMBER_COUNT, len(self.numbers))
        image.points("numbers", range(S.NUMBER_PLACE, len(numbers), S.NUMBER_WORDS))
        image.set("state", S.NUMBERS, program.numbers)
        self._table(S.SEGMENTS, "segments", [0, len(self.kernels), 0, -1], S.SEGMENT_COUNT, 1)
        self._table(S.BASES, "bases", [NOWHERE] * count, S.BUFFERS, count)
        self._table(S.FOUND, "found", [0] * count)
        written = sorted(self.written)
        self._table(S.WRITTEN_TABLE, "written", written, S.WRITTEN, len(written))
        records = [w for key, _ in self.weights for w in (key[0], 0, 0, 0, S.PLAIN)]
        self._table(S.KEPT_TABLE, "kept", records, S.KEPT, len(self.weights))
        self._lay_out_arguments()
        results = len(program.results)
        self._table(S.RESULT_TABLE, "results", [0] * (2 * results), S.RESULTS, results)

    def _table(
        self, at: int, name: str, words: Sequence[int], counted: int = -1, count: int = 0
    ) -> None:
        """Add a table, whose place and count words of the state tell."""
        self.image.add(name, words)
        self.image.point("state", at, self.image.place(name))
        if counted >= 0:
            self.image.set("state", counted, count)

    def _lay_out_steps(self) -> None:
        steps = np.zeros((len(self.kernels), S.STEP_WORDS), np.int64)
        steps[:, 1] = 8 * np.array(self.starts, np.int64)
        chosen = []
        for k, kernel in enumerate(self.kernels):
            if isinstance(kernel.entry, Symbolic):
                chosen.append((S.STEP_WORDS * k, kernel.entry))
            else:
                steps[k, 0] = kernel.entry
        self._table(S.STEPS, "steps", steps.reshape(-1).tolist())
        self.image.points("steps", range(1, steps.size, S.STEP_WORDS))
        for at, entry in chosen:
            self._formulas.add(self.image.first("steps") + at, entry)

    def _lay_out_patches(self) -> None:
        rows = [row for found in self._patches for row in found]
        offsets = [0 if isinstance(offset, Symbolic) else offset for _, offset in rows]
        words = [w for (at, _), n in zip(rows, offsets, strict=True) for w in (8 * at, n)]
        self._table(S.PATCHES, "patches", words)
        self.image.points("patches", range(0, len(words), S.PATCH_WORDS))
        for k, (_, offset) in enumerate(rows):
            if isinstance(offset, Symbolic):
                self._formulas.add(self.image.first("patches") + S.PATCH_WORDS * k + 1, offset)
        first = np.cumsum([0, *map(len, self._patches)], dtype=np.int64)
        self._table(S.FIRST, "first", first.tolist())

    def _lay_out_arguments(self) -> None:
        """As `NativeRunner.expect` without any wishes."""
        arguments = self.program.arguments
        self.sized_arguments = [k for k, m in enumerate(arguments) if is_sized(m)]
        count, sized = len(arguments), set(self.sized_arguments)
        writes = [int(k in self.written) for k in range(count)]
        known = [None if k in sized else m for k, m in enumerate(arguments)]
        records = [
            w
            for m, meta, write in zip(known, arguments, writes, strict=True)
            for w in (0 if m is None else id(m), meta.dtype.itemsize, 2, write, 0)
        ]
        self._table(S.ARGUMENT_TABLE, "arguments", records, S.ARGUMENTS, count)
        self._table(S.SPANS, "spans", [0 if m is None else nbytes(m) for m in known])
        self._table(S.GROUPS, "groups", [0] * count)
        self._table(S.WRITES, "writes", writes)

    def _late_places(self) -> list[int]:
        """Of the words that a runner adds to what is evaluated (`SizedRunner._own_words`)."""
        arguments, spans, results, state = map(
            self.image.first, ("arguments", "spans", "results", "state")
        )
        places = [
            *(arguments + S.ARGUMENT_WORDS * k + S.ARGUMENT_META for k in self.sized_arguments),
            *(spans + k for k in self.sized_arguments),
            *(results + S.RESULT_WORDS * k for k in range(len(self.program.results))),
            *(results + S.RESULT_WORDS * k + 1 for k in range(len(self.program.results))),
            self.image.first("segments") + S.SEGMENT_RELEASE,
            *(state + k for k in (S.SCRATCH, S.HOST_STEP, S.FAILED, S.REPACK)),
        ]
        return [int(n) for n in places]

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

    def blocks_at(self, sizes: Sequence[int]) -> Words:
        """The words of all blocks, but for the places of buffers and copies."""
        words, numbers, *_ = self.evaluated(sizes)
        found = self.image.words.copy()
        found[self.places[: len(words)]] = words
        self.write_numbers(found, numbers)
        return found[self.image.parts["blocks"]]

    def write_numbers(self, words: Words, numbers: Sequence[Any]) -> None:
        for (at, letter, _), value in zip(self._letters, numbers, strict=True):
            words[at : at + 2] = encode_number(letter, value)

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
            None if old.fail is None else SizedFailure(old.fail, named),
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
