"""What runs a program for all sizes at some of them: a copy of its image, with words evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from lucerne._src.backends.cpu.gemm import kept as eager
from lucerne._src.backends.cpu.native.plans import RELEASE_ABOVE_NS
from lucerne._src.backends.cpu.program import state as S
from lucerne._src.backends.cpu.program.blocks import Blocks, Buffers, kernel_of
from lucerne._src.backends.cpu.program.image import RunnerTables, Words
from lucerne._src.backends.cpu.program.kept import KeptWeight, SharedWeight, WeightUse, form_of
from lucerne._src.backends.cpu.program.runner import NativeRunner, nbytes
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base.process import forks
from lucerne._src.base.process.forks import once
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.program import Program
from lucerne._src.ir.symbolic.at_sizes import StepAt, meta_at
from lucerne._src.ir.symbolic.numbers import values_at


class PackedUse:
    """A step that may read its right operand packed, for all sizes."""

    def __init__(self, number: int, which: int, left_out: int, kernel: NativeKernel | None) -> None:
        self.number, self.which, self.left_out, self.kernel = number, which, left_out, kernel
        """The step, the input that is packed, its number among the tensors; None for the kernel:
        it is made for each size."""
        self.start = 0
        """Of its block."""
        self.entry = 0
        """The number of the kernel's entry among what is evaluated."""


class SizedFailure:
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
    """All blocks of a runner, in its copy of the image."""

    def __init__(self, runner: SizedRunner) -> None:
        self.buffers, self.program = runner._buffers, runner._source.program
        self._source, self._sizes, self._tables = runner._source, runner._sizes, runner._tables
        self._image = runner._image
        self.base = runner._base
        self.addresses = [self.base + 8 * start for start in self._source.starts]

    @once
    def patches(self) -> list[list[tuple[int, int]]]:
        words = RunnerTables(self._source.image, self._image)["patches"].tolist()
        counts = np.cumsum([0, *map(len, self._source._patches)]).tolist()
        rows = [(words[2 * k], words[2 * k + 1]) for k in range(counts[-1])]
        return [rows[a:b] for a, b in pairwise(counts)]

    @once
    def numbers(self) -> list[tuple[int, str, int]]:
        return [(i, letter, self.base + 8 * at) for i, letter, at in self._source.numbers]

    def restore(self) -> None:
        words = self._source.blocks_at(self._sizes)
        blocks = self._tables["blocks"]
        for _, uses in self._source.weights:
            for use in uses:
                if use.kernel is not None:
                    at = use.start + use.kernel.outputs + use.left_out
                    words[at] = blocks[at]
        blocks[:] = words


class SizedRunner(NativeRunner):
    """A program for all sizes, at some of them."""

    _source: Any
    _sizes: tuple[int, ...]
    _image: Words
    _base: int
    _entries: tuple[int, ...]
    """Of the kernels that read packed copies."""
    _works: tuple[float, ...]
    is_told: bool

    def __init__(self, source: Any, sizes: Sequence[int]) -> None:
        """`source`: a `NativeSizedProgram`."""
        (
            words, numbers, works, workspace_at, workspace, metas, results, entries, kept_works,
        ) = source.evaluated(sizes)  # fmt: skip
        arguments = list(source.program.arguments)
        for k, meta in zip(source.sized_arguments, metas, strict=True):
            arguments[k] = meta
        image, base = source.image.copy()
        vars(self).update(
            source.alike, _sizes=tuple(sizes), arguments=arguments, results=results,
            _more_blocks=[], _image=image, _base=base, address=base + source.state_at,
            is_told=source.is_told, _entries=entries, _works=kept_works, _checks={}, _checkers=[],
        )  # fmt: skip
        work = sum(works) + source.work
        if source.late:
            late = self._late_kernels()
            workspace = max(workspace, *(k.workspace for k in late.values()))
            work += sum(k.work for k in late.values())
        self._spaces = workspace_at, workspace
        self._segments = [[0, len(source.kernels), int(work > RELEASE_ABOVE_NS), -1]]
        image[source.places] = words + self._own_words(metas, max(workspace_at + workspace, 1))
        source.write_numbers(image, numbers)
        if source.weights:
            self._take_copies()
        if source.late:
            self._add_late(late)
        forks.tell(self)  # last: a fork beside this finds it whole or not at all

    @once
    def _tables(self) -> dict[str, Any]:
        return RunnerTables(self._source.image, self._image)

    @once
    def _state(self) -> Any:
        return self._tables["state"]

    @once
    def _buffers(self) -> Buffers:
        return _SizedBuffers(self._source.program, *self._spaces)

    @once
    def packed(self) -> dict[int, NativeKernel | None]:
        """By executable: the kernel that reads a packed copy of its weight."""
        return {}

    def _own_words(self, metas: Sequence[TensorMeta], scratch: int) -> list[int]:
        """In the order of `NativeSizedProgram._late_places`."""
        self._callbacks = self._called_back()
        return [
            *map(id, metas), *map(nbytes, metas), *map(id, self.results),
            *map(nbytes, self.results), self._segments[0][S.SEGMENT_RELEASE],
            scratch, *map(id, self._callbacks.values()),
        ]  # fmt: skip

    def expect(
        self,
        requires_grad: Sequence[bool | None] | None = None,
        groups: Sequence[int] | None = None,
        kinds: Sequence[type | None] | None = None,
    ) -> None:
        """The same is asked by those that are made for other sizes from now on."""
        count = len(self.arguments)
        wanted = [None] * count if requires_grad is None else requires_grad
        flags = [2 if grad is None else int(grad) for grad in wanted]
        classes = [0 if x is None else id(x) for x in kinds or [None] * count]
        image = self._source.image
        for tables in (self._tables, RunnerTables(image, image.words)):
            rows = tables["arguments"][: count * S.ARGUMENT_WORDS]
            rows[S.ARGUMENT_GRAD :: S.ARGUMENT_WORDS] = flags
            rows[S.ARGUMENT_CLASS :: S.ARGUMENT_WORDS] = classes
            tables["groups"][:count] = [0] * count if groups is None else groups
        self._source.is_told = True

    @once
    def _blocks(self) -> Blocks:
        return _SizedBlocks(self)

    @once
    def _numbers(self) -> list[tuple[int, str, int]]:
        return self._blocks.numbers

    @once
    def _kernels(self) -> list[NativeKernel | None]:
        return list(self._source.kernels)

    # ---- kernels that are made for each size ---------------------------------------------------

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

    # ---- packed weights ------------------------------------------------------------------------

    def _take_copies(self) -> None:
        """Read the copies that programs of other sizes have packed; `launch` looks whether they
        still hold."""
        source = self._source
        self._taken: dict[int, Any] = {}
        """By weight: the copy that it began with, with its token."""
        kept, works = self._tables["kept"], iter(self._works)
        for which, (key, uses) in enumerate(source.weights):
            at = which * S.KEPT_WORDS + S.KEPT_WRITES
            wanted = [u for u in uses if next(works) > eager.WORTH_NS]
            if not wanted:
                kept[at + 3] = S.NEVER
                continue
            token, copy = source.copies.get(key, ((), None))
            if copy is None:
                continue
            ready = all(u.kernel is not None for u in wanted)
            kept[at : at + 4] = (*token, S.PACKED if ready else S.SEEN)
            if ready:
                self._taken[which] = token, copy
                self._read_copy(wanted, copy.data_ptr())

    def _read_copy(self, uses: Sequence[PackedUse], copy: int) -> None:
        steps, blocks = self._tables["steps"], self._tables["blocks"]
        for use in uses:
            assert use.kernel is not None
            blocks[use.start + use.kernel.outputs + use.left_out] = copy
            at = use.number * S.STEP_WORDS
            steps[at], steps[at + 1] = self._entries[use.entry], self._base + 8 * use.start

    @once
    def _kept(self) -> list[KeptWeight]:
        found: list[KeptWeight] = []
        works = iter(self._works)
        for which, (key, uses) in enumerate(self._source.weights):
            argument, offset, meta = key
            kept = SharedWeight(argument, offset, meta, self._source.copies)
            wanted = [u for u in uses if next(works) > eager.WORTH_NS]
            kept.uses = [(_LateUse if u.kernel is None else _LaidOutUse)(u, self) for u in wanted]
            if which in self._taken:
                kept.take(*self._taken[which])
            found.append(kept)
        return found

    @once
    def _plain_steps(self) -> list[int]:
        source, image = self._source, self._source.image
        words, *_ = source.evaluated(self._sizes)
        found = image.words.copy()
        found[image.pointers] += self._base
        found[source.places[: len(words)]] = words
        steps: list[int] = found[image.parts["steps"]].tolist()
        return steps

    # ---- what is made when somebody asks -------------------------------------------------------

    @once
    def program(self) -> Program:
        return self._source.program_at(self._sizes)

    @property
    def _with_constants(self) -> Program:
        return self._source.program

    def _name_of(self, step: int) -> str:
        return self._source.program.steps[step].name

    def _fail_of(self, step: int) -> Any:
        if step in self._source.late:
            return super()._fail_of(step)
        fail = self._source.kernels[step].fail
        return None if fail is None else SizedFailure(fail, self._source.sizes_of(self._sizes))


class _LaidOutUse(WeightUse):
    """A step whose kernel for a packed weight has its block in the image."""

    def __init__(self, use: PackedUse, runner: SizedRunner) -> None:
        assert use.kernel is not None
        self.number, self.blocks = use.number, None
        self._at = use.start + use.kernel.outputs + use.left_out
        self._blocks_of_all = runner._tables["blocks"]
        self._target = int(runner._entries[use.entry]), runner._base + 8 * use.start

    @property
    def target(self) -> tuple[int, int]:
        return self._target

    def prepare(self, buffers: Buffers, program: Program, copy: int) -> int:
        self._blocks_of_all[self._at] = copy
        return 0


class _LateUse(WeightUse):
    """A step whose kernel for a packed weight is made for each size, when it is needed."""

    def __init__(self, use: PackedUse, runner: SizedRunner) -> None:
        self._runner = runner
        super().__init__(use.number, None, use.which, self._packed)  # type: ignore[arg-type]

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
