"""Recipe: what an element-wise kernel computes, apart from how its loops run.

The loops (`flat`, `nest`) hand a recipe raw lanes of its inputs and store the raw lanes it returns.
`key` must say everything that changes the code the recipe writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lucerne._src.backends.cpu.elementwise.access import (
    Element,
    Lane,
    Parts,
    hold_still,
    load_lanes,
    store_lanes,
)
from lucerne._src.backends.cpu.emit.builder import F64, I64, PTR, LLVMFunction, LLVMValue

Step = Callable[[LLVMFunction, "Round"], list[Parts]]


@dataclass
class Round:
    """One visit of the loop body: what the recipe may read."""

    index: LLVMValue
    """Position of the first lane in the innermost loop."""
    mask: LLVMValue | None
    loaded: list[Parts]
    ready: Any
    """What `prepare` returned."""
    fail: Callable[[LLVMValue], None]
    """Say that the call fails if this i1 is on."""


def _nothing(f: LLVMFunction, numbers: list[Parts]) -> Any:
    return None


@dataclass(frozen=True)
class Recipe:
    """Elements in, elements out. `numbers` are letters as in `Kernel`."""

    key: Any
    outputs: tuple[Element, ...]
    inputs: tuple[Element, ...]
    lanes: int
    compute: Step = field(compare=False)
    prepare: Callable[[LLVMFunction, list[Parts]], Any] = field(default=_nothing, compare=False)
    numbers: str = ""
    unroll: int = 1
    cost: float = 1.0
    """Time per element against that of a plain sum: what decides on threads."""
    moves: bool = False
    """Whether the one output simply gets the elements of the one input."""
    unused: int = 0
    """Tensors of the call, before its inputs, that are not read."""

    @property
    def operands(self) -> tuple[Element, ...]:
        return (*self.outputs, *self.inputs)

    @property
    def first_number(self) -> int:
        """The word of the block where the numbers begin."""
        return len(self.operands) + self.unused + 1

    @property
    def first_extra(self) -> int:
        return self.first_number + 2 * len(self.numbers)


def read_pointers(f: LLVMFunction, recipe: Recipe, block: LLVMValue) -> list[LLVMValue]:
    """Where the operands of the call are, outputs first."""
    outputs = len(recipe.outputs)
    return [
        f.word(block, k if k < outputs else k + recipe.unused, PTR)
        for k in range(len(recipe.operands))
    ]


def read_numbers(f: LLVMFunction, recipe: Recipe, block: LLVMValue) -> list[Parts]:
    """The numbers of the call: an i64, a double, or two doubles each."""
    found: list[Parts] = []
    for k, letter in enumerate(recipe.numbers):
        at = recipe.first_number + 2 * k
        if letter == "c":
            found.append((f.word(block, at, F64), f.word(block, at + 1, F64)))
        else:
            found.append((f.word(block, at, I64 if letter == "i" else F64),))
    return found


class Failures:
    """Failures of a call, noted in a word of the block; code that can't fail shows no trace."""

    def __init__(self, recipe: Recipe) -> None:
        self.word = recipe.first_extra
        self.possible = False

    def note(self, f: LLVMFunction, block: LLVMValue, failed: LLVMValue) -> None:
        self.possible = True
        with f.if_(failed):
            f.atomic_store(f.constant(1), f.at(block, self.word * 8), "monotonic")

    def clear(self, f: LLVMFunction, block: LLVMValue) -> None:
        if self.possible:
            f.store(f.constant(0), f.at(block, self.word * 8))

    def status(self, f: LLVMFunction, block: LLVMValue) -> LLVMValue:
        return f.word(block, self.word) if self.possible else f.constant(0)


def emit_span(
    f: LLVMFunction,
    recipe: Recipe,
    block: LLVMValue,
    ready: Any,
    lanes: list[Lane],
    start: LLVMValue,
    stop: LLVMValue,
    failures: Failures,
    *,
    stream: bool = False,
) -> None:
    """The innermost loop from `start` to `stop`: whole vectors, then the rest under a mask."""
    for lane in lanes[len(recipe.outputs) :]:
        hold_still(f, lane, recipe.lanes)
    whole = start
    if recipe.unroll:
        step = recipe.lanes * recipe.unroll
        whole = start + ((stop - start) & -step)
        with f.loop(start, whole, step) as loop:
            for k in range(recipe.unroll):
                index = loop.index + k * recipe.lanes
                _visit(f, recipe, block, ready, lanes, index, None, failures, stream)
    with f.loop(whole, stop, recipe.lanes) as loop:
        mask = f.low_mask(stop - loop.index, recipe.lanes)
        _visit(f, recipe, block, ready, lanes, loop.index, mask, failures, False)


def _visit(
    f: LLVMFunction,
    recipe: Recipe,
    block: LLVMValue,
    ready: Any,
    lanes: list[Lane],
    index: LLVMValue,
    mask: LLVMValue | None,
    failures: Failures,
    stream: bool,
) -> None:
    """One vector: load, compute, store."""
    count = len(recipe.outputs)
    loaded = [load_lanes(f, x, index, recipe.lanes, mask) for x in lanes[count:]]
    visit = Round(index, mask, loaded, ready, lambda failed: failures.note(f, block, failed))
    results = recipe.compute(f, visit)
    for lane, parts in zip(lanes[:count], results, strict=True):
        store_lanes(f, lane, index, parts, mask, stream=stream)
