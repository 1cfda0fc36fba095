"""Weights that a program reads and does not write: packed once, used until they change.

A product whose right operand is an argument has two kernels: the plain one, and one that reads a
packed copy. `launch` looks at each such argument (its memory's counter of writes, its storage's
version, its address, whether the address was given away) and Python changes the kernels when
something changed: a weight that comes a second time unchanged is packed, one that was written is
read as it is again. See `gemm/kept.py`, which does the same for eager calls.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from lucerne._src.backends.cpu.gemm import kept as eager
from lucerne._src.backends.cpu.gemm.fuse import PRODUCTS, packed_fused_product, right_operand
from lucerne._src.backends.cpu.gemm.prepack import (
    PackedOperand,
    packed_operand,
    packed_product,
    prepack_into,
)
from lucerne._src.backends.cpu.program.blocks import Blocks, Buffers, kernel_of
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.program import ARGUMENT, Place, Program, Step

_PRODUCT = "batch_matmul"
_TYPES = ("float32", "bfloat16")


class PackedForm(NamedTuple):
    """A product whose right operand may come packed."""

    which: int
    """The input of the step that holds it."""
    offset: int
    """Where in that input it begins, in bytes."""
    meta: TensorMeta
    """How it is read, as a matrix (k, n)."""
    make: Callable[[], NativeKernel | None]
    """The kernel that reads the packed copy in the place of that input."""


_alive: weakref.WeakSet[PackedOperand] = weakref.WeakSet()


class WeightUse:
    """One step that reads a kept weight."""

    def __init__(
        self, number: int, step: Step, which: int, make: Callable[[], NativeKernel | None]
    ) -> None:
        self.number, self.step, self.which, self._make = number, step, which, make
        self.kernel: NativeKernel | None = None
        """None: not made yet, or this step reads the weight as it is."""
        self.blocks: Blocks | None = None
        self._word = 0
        """Where the block says where the copy is."""
        self._tried = False

    @property
    def target(self) -> tuple[int, int] | None:
        """The entry and the block of the kernel that reads the copy; None: there is none yet."""
        if self.kernel is None or self.blocks is None:
            return None
        return self.kernel.entry, self.blocks.addresses[0]

    def packed_kernel(self) -> NativeKernel | None:
        """The kernel that reads the copy, made once; None: the step reads the weight as it is."""
        if self.kernel is None and not self._tried:
            self._tried = True
            try:
                self.kernel = self._make()
            except ValueError:  # rows that do not lie as the packed form wants them
                self.kernel = None
        return self.kernel

    def prepare(self, buffers: Buffers, program: Program, copy: int) -> int:
        """Make the kernel and its block, which points at the copy; the workspace it needs."""
        kernel = self.packed_kernel()
        if kernel is None:
            return 0
        if self.blocks is None and kernel.workspace <= buffers.workspace:
            self.blocks = Blocks([kernel], buffers, program)
            tensors = [k for k, x in enumerate(self.step.inputs) if type(x) is Place]
            left_out = tensors.index(self.which)
            self.blocks.fill(0, kernel, self.step, left_out)
            self._word = self.blocks.addresses[0] + 8 * (kernel.outputs + left_out)
        if self.blocks is not None:  # (a weight that was written is packed elsewhere)
            ctypes.c_int64.from_address(self._word).value = copy
            self.blocks.finish()
        return kernel.workspace


class KeptWeight:
    """A weight with its copy and the steps that read it."""

    def __init__(self, argument: int, offset: int, meta: TensorMeta) -> None:
        self.argument, self.offset, self.meta = argument, offset, meta
        """The right operand: in this argument, from this byte on, read so."""
        self.uses: list[WeightUse] = []
        self.active = False
        self.token: tuple[int, ...] = ()
        """Writes, version and address of the weight when it was last looked at."""
        self._copy: PackedOperand | None = None

    def pack(self, address: int) -> PackedOperand | None:
        """Pack what lies at `address` now; None if copies take too much memory already."""
        if self._copy is None:
            if kept_bytes() >= eager.MOST_BYTES:
                return None
            self._copy = packed_operand(self.meta)
            _alive.add(self._copy)
        prepack_into(self._copy, address + self.offset)
        return self._copy


class SharedWeight(KeptWeight):
    """A weight that programs of several sizes read: what one has packed, the others take."""

    def __init__(
        self, argument: int, offset: int, meta: TensorMeta, copies: dict[Any, Any]
    ) -> None:
        super().__init__(argument, offset, meta)
        self.key, self._copies = (argument, offset, meta), copies
        """Copies by weight, each with the token of what was packed."""

    def pack(self, address: int) -> PackedOperand | None:
        token, copy = self._copies.get(self.key, ((), None))
        if copy is not None and token == self.token:
            self._copy = copy
            return copy
        self._copy = None  # (another thread may read the one that is there)
        copy = super().pack(address)
        if copy is not None:
            self._copies[self.key] = self.token, copy
        return copy

    def take(self, token: tuple[int, ...], copy: PackedOperand) -> None:
        """It is in use as somebody else has packed it."""
        self.token, self._copy, self.active = token, copy, True


def kept_bytes() -> int:
    """What all copies of all programs take."""
    return sum(p.block.nbytes for p in _alive)


def kept_weights(program: Program, executables: Sequence[Any]) -> list[KeptWeight]:
    """The weights of a program that may be kept packed."""
    found: dict[tuple[int, int, TensorMeta], KeptWeight] = {}
    for number, (step, execute) in enumerate(zip(program.steps, executables, strict=True)):
        form = packed_form(step, execute)
        if form is None:
            continue
        place = step.inputs[form.which]
        if type(place) is not Place or place.kind != ARGUMENT or place.index in program.written:
            continue
        key = place.index, place.offset + form.offset, form.meta
        kept = found.setdefault(key, KeptWeight(*key))
        kept.uses.append(WeightUse(number, step, form.which, form.make))
    return list(found.values())


def packed_form(step: Step, execute: Any) -> PackedForm | None:
    """How a step could read its right operand packed; None: it is no product worth it."""
    kernel = kernel_of(execute)
    if kernel is None or kernel.work <= eager.WORTH_NS:
        return None
    return form_of(step, execute, kernel)


def form_of(step: Step, execute: Any, kernel: NativeKernel) -> PackedForm | None:
    """The same for a step that runs long enough."""
    if len(step.graph.nodes) > 1:
        return _form_of_group(step.graph)
    node = step.graph.nodes[0]
    if isinstance(execute, eager.Linear):
        weight: TensorMeta = node.args[1].meta
        turned = weight.like(shape=weight.shape[::-1], strides=weight.strides[::-1])
        return PackedForm(1, 0, turned, partial(execute.packed_kernel, turned))
    if node.op.qualified != _PRODUCT:
        return None
    a, b, c = node.args[0].meta, node.args[1].meta, node.outputs[0].meta
    if c.dtype.name not in _TYPES or b.ndim != 2 or not eager.is_worth_it(kernel, a):
        return None
    return PackedForm(1, 0, b, partial(packed_product, a, b, c))


def _form_of_group(graph: Graph) -> PackedForm | None:
    if not any(n.op.qualified in PRODUCTS for n in graph.nodes):
        return None
    try:
        operand = right_operand(graph)
    except NotImplementedError:  # a group around something else
        return None
    if operand is None or operand[2].dtype.name not in _TYPES:
        return None
    return PackedForm(*operand, partial(packed_fused_product, graph))
