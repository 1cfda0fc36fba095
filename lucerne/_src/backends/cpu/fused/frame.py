"""What the code of a fused program reads: the fixed words of its kernel, loaded per function."""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.elementwise.apply import apply_point
from lucerne._src.backends.cpu.emit.builder import F64, I64, PTR, LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.fused.layout import ALONG, STILL, LoopLayout
from lucerne._src.backends.cpu.fused.monoids import Monoid, in_blocks
from lucerne._src.backends.cpu.fused.passes import Schedule
from lucerne._src.backends.cpu.fused.program import (
    NOWHERE,
    Fold,
    FusedExpr,
    FusedNumber,
    FusedOp,
    Load,
)
from lucerne._src.backends.cpu.machine import LlvmScalar
from lucerne._src.backends.cpu.math.number import Num
from lucerne._src.backends.cpu.runtime.kernel import number_word
from lucerne._src.base import dtype as dt


class FusedWords:
    """The fixed words of a kernel: their values here, their place in the code."""

    def __init__(self, layout: LoopLayout) -> None:
        program = layout.program
        self.first = len(program.results) + program.inputs + 1
        self.values: list[int] = []
        self.at: dict[Any, int] = {}
        for name in ("units", "chunk", "chunks", "splits", "split_size", "strips"):
            self.add(name, getattr(layout, name))
        for n, loop in enumerate((*layout.kept, *layout.folded)):
            self.add(("size", n), loop.size)
            for k, step in enumerate(loop.steps):
                self.add(("step", n, k), step)
        for k, memory in enumerate(layout.operands):
            self.add(("offset", k), memory.offset)
        for e in program.exprs:
            if isinstance(e, FusedNumber) and not e.baked:
                self.add(e, number_word(e.value))
        self.space = 0
        if layout.splits > 1:
            slot = 8 * (1 if layout.way == ALONG else layout.width)
            self.add("slot", slot)
            for fold in program.folds:
                for c in range(2):
                    self._room(("stat", fold, c), slot * layout.units)
                    self._room(("partial", fold, c), slot * layout.units * layout.splits)

    def add(self, name: Any, value: int) -> None:
        self.at[name] = self.first + len(self.values)
        self.values.append(value)

    def _room(self, name: Any, nbytes: int) -> None:
        self.add(name, self.space)
        self.space += -(-nbytes // 64) * 64


class FusedFrame:
    """A function being written: its machines and the words it reads, loaded at the start."""

    def __init__(
        self, f: LLVMFunction, schedule: Schedule, words: FusedWords, block: LLVMValue
    ) -> None:
        self.f, self.block, self.schedule, self.layout = f, block, schedule, schedule.layout
        self.one, self.wide = LlvmScalar(f, 1), LlvmScalar(f, self.layout.lanes)
        self.words = words
        self._loaded: dict[Any, LLVMValue] = {}
        for name, at in words.at.items():
            is_float = isinstance(name, FusedNumber) and isinstance(name.value, float)
            self._loaded[name] = f.word(block, at, F64 if is_float else I64)
        self.pointers = [self._pointer(k, memory) for k, memory in enumerate(self.layout.operands)]
        self.still: dict[FusedExpr, Num] = {}
        """Values worth computing once for all units."""
        for e in self.layout.program.exprs:
            if isinstance(e, FusedOp) and e.op.qualified == "counted_key":
                self.still[e] = apply_point(e, self.one, self._still)
        self.workspace = f.word(block, words.first - 1, PTR)
        self.scratch: LLVMValue | None = None
        self.monoids: dict[Fold, Monoid] = {
            e: in_blocks(e.how, e.compute, self.layout.fold_size) for e in self.layout.program.folds
        }

    def __getitem__(self, name: Any) -> LLVMValue:
        return self._loaded[name]

    def _pointer(self, k: int, memory: Any) -> LLVMValue:
        if memory.slot == NOWHERE:
            return self.block  # distances are counted from there
        start = self.f.word(self.block, memory.slot, PTR)
        return self.f.at(start, self[("offset", k)]) if memory.offset else start

    def _still(self, e: FusedExpr) -> Num:
        """A number, or an element that is the same everywhere."""
        if isinstance(e, FusedNumber):
            return self.number(e, self.one)
        assert isinstance(e, Load), e
        loads = [x for x in self.layout.program.exprs if isinstance(x, Load)]
        k = len(self.layout.program.results) + loads.index(e)
        return self.one.load(e.dtype, self.pointers[k])

    def number(self, e: FusedNumber, machine: LlvmScalar) -> Num:
        """A Python number in every lane."""
        compute = e.dtype.compute
        if e.baked:
            return machine.to(e.value, compute)
        kind = dt.float64 if isinstance(e.value, float) else dt.int64
        return machine.splat(self.one.to(Num(kind, self[e]), compute))

    def step(self, k: int, n: int) -> LLVMValue | int:
        """Byte stride of operand `k` along loop number `n`."""
        loop = (*self.layout.kept, *self.layout.folded)[n]
        return 0 if self.layout.step_class(k, loop) == STILL else self[("step", n, k)]

    def place_in_workspace(self, name: Any, slot: LLVMValue) -> LLVMValue:
        return self.f.at(self.f.at(self.workspace, self[name]), slot * self["slot"])
