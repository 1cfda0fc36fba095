"""Every kernel of a program with its block, in one piece of memory, and the patches of the blocks.

A block's words are laid out as `runtime.kernel` says. What is known now (constants, fixed numbers,
the extra words) is filled in; each word that points into a buffer becomes a patch, and each number
of the call a record.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.cpu.runtime.kernel import NativeKernel, address_of, encode_number, signed
from lucerne._src.ir.program import (
    ARENA,
    ARGUMENT,
    CONSTANT,
    RESULT,
    NumberArgument,
    Place,
    Program,
    Step,
)

ALIGNMENT = 64
_LINE = ALIGNMENT // 8


class Buffers:
    """The numbers of a program's buffers, and how scratch memory is divided."""

    def __init__(self, program: Program, workspace: int) -> None:
        self._results = len(program.arguments)
        self.scratch = self._results + len(program.results)
        self.count = self.scratch + 1
        self.workspace_at = -(-program.arena // ALIGNMENT) * ALIGNMENT
        self.workspace = workspace

    @property
    def scratch_bytes(self) -> int:
        return max(self.workspace_at + self.workspace, 1)

    def number(self, place: Place) -> int:
        if place.kind == ARGUMENT:
            return place.index
        if place.kind == RESULT:
            return self._results + place.index
        assert place.kind == ARENA, place.kind
        return self.scratch


class Blocks:
    """The memory of all blocks."""

    def __init__(self, kernels: Sequence[NativeKernel], buffers: Buffers, program: Program) -> None:
        self.buffers, self.program = buffers, program
        starts, total = [], 0
        for kernel in kernels:
            starts.append(total)
            total += -(-kernel.words // _LINE) * _LINE
        self._memory = (ctypes.c_int64 * (total + _LINE))()
        first = ctypes.addressof(self._memory)
        self._first_word = -first % ALIGNMENT // 8
        base = first + 8 * self._first_word
        self.addresses = [base + 8 * start for start in starts]
        self.patches: list[list[tuple[int, int]]] = [[] for _ in range(buffers.count)]
        """Per buffer: (address of the word, offset in the buffer)."""
        self.numbers: list[tuple[int, str, int]] = []
        """Number of the call, letter, address of its words."""
        self._template = b""
        self._extra: dict[int, tuple[Any, Any]] = {}
        """By id: the fixed words of kernels, as they are and as memory."""

    def fill(
        self, which: int, kernel: NativeKernel, step: Step, left_out: int | None = None
    ) -> None:
        """Lay out one kernel's block; `left_out`: the tensor input whose word the caller fills."""
        places = [*step.outputs, *(x for x in step.inputs if type(x) is Place)]
        values = [x for x in step.inputs if type(x) is not Place]
        tensors = len(places) - len(step.outputs)
        if (kernel.outputs, kernel.tensors) != (len(step.outputs), tensors):
            raise ValueError(
                f"step {step.name}: a kernel of {kernel.outputs} outputs and {kernel.tensors} "
                f"tensors for {len(step.outputs)} and {tensors}"
            )
        at = self.addresses[which]
        for k, place in enumerate(places):
            if left_out is None or k != len(step.outputs) + left_out:
                self._point(at + 8 * k, place)
        at += 8 * len(places)
        if kernel.workspace:
            self.patches[self.buffers.scratch].append((at, self.buffers.workspace_at))
        at += 8
        for letter, value in zip(kernel.numbers, values, strict=True):
            if type(value) is NumberArgument:
                self.numbers.append((value.index, letter, at))
            else:
                ctypes.memmove(at, (ctypes.c_int64 * 2)(*encode_number(letter, value)), 16)
            at += 16
        extra = self._extra_words(kernel)
        ctypes.memmove(at, extra, ctypes.sizeof(extra))

    def _extra_words(self, kernel: NativeKernel) -> Any:
        """The fixed words of a kernel, which many steps may share."""
        held, words = self._extra.get(id(kernel.extra), (None, None))
        if held is None:
            found = [signed(x) for x in kernel.extra]
            words = (ctypes.c_int64 * len(found))(*found)
            self._extra[id(kernel.extra)] = kernel.extra, words
        return words

    def _point(self, word: int, place: Place) -> None:
        if place.kind == CONSTANT:
            value = address_of(self.program.constants[place.index]) + place.offset
            ctypes.c_int64.from_address(word).value = value
        else:
            self.patches[self.buffers.number(place)].append((word, place.offset))

    def finish(self) -> None:
        """All blocks are filled: remember them as they are."""
        self._template = bytes(self._memory)

    def restore(self) -> None:
        """After a failure, which leaves its detail in a block: all as `finish` found it."""
        ctypes.memmove(self._memory, self._template, len(self._template))


def kernel_of(execute: Any) -> NativeKernel | None:
    """The kernel of an executable that is nothing but one, or can do with one."""
    if type(execute) is NativeKernel:
        return execute
    inner = getattr(execute, "kernel", None)
    return inner if type(inner) is NativeKernel else None
