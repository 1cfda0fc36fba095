"""Recipes of data movement: elements as they are, converted, or made from a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.cpu.elementwise.access import Element, Parts, moving_cost
from lucerne._src.backends.cpu.elementwise.pointwise import element_of, from_parts, to_parts
from lucerne._src.backends.cpu.elementwise.recipe import Recipe, Round
from lucerne._src.backends.cpu.elementwise.space import UNIT, Space, iteration_space
from lucerne._src.backends.cpu.emit.builder import F64, I64, LLVMFunction
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.emit.types import I8, I16, I32
from lucerne._src.backends.cpu.machine import STORED, LlvmScalar, NotTaken, Num
from lucerne._src.backends.cpu.math.storage import pack
from lucerne._src.base import dtype as dt

_RAW = {1: I8, 2: I16, 4: I32, 8: I64}


def move_recipe(size: int, unused: int = 0) -> Recipe:
    """Elements of `size` bytes as they are."""
    element = Element(_RAW[size]) if size in _RAW else Element(I64, size // 8)
    return Recipe(
        key=("move", size, unused),
        outputs=(element,),
        inputs=(element,),
        lanes=VECTOR_BYTES // element.type.size,
        compute=lambda f, visit: [visit.loaded[0]],
        unroll=2,
        cost=moving_cost(element),
        moves=True,
        unused=unused,
    )


def move_over(
    shape: Sequence[int],
    target: Sequence[int],
    source: Sequence[int],
    size: int,
    unused: int = 0,
) -> tuple[Recipe, Space]:
    """How elements of `size` bytes go from one layout (byte strides) to another.

    Elements wider than a word go as words when they lie in a row on both sides.
    """
    space = iteration_space(shape, [(target, size), (source, size)])
    if size > 8 and space.ways == UNIT * 2:
        words = [((*steps, 8), 8) for steps in (target, source)]
        return move_recipe(8, unused), iteration_space((*shape, size // 8), words)
    return move_recipe(size, unused), space


def cast_recipe(source: dt.dtype, target: dt.dtype, unused: int = 0) -> Recipe:
    """Elements converted from one dtype to another."""
    _need_stored(source, target)
    inner, outer = element_of(source), element_of(target)
    lanes = VECTOR_BYTES // min(8, max(inner.type.size, outer.type.size, 2))

    def compute(f: LLVMFunction, visit: Round) -> list[Parts]:
        machine = LlvmScalar(f, lanes)
        return [to_parts(machine, from_parts(machine, visit.loaded[0], source), target)]

    return Recipe(
        key=("cast", source.name, target.name, unused),
        outputs=(outer,),
        inputs=(inner,),
        lanes=lanes,
        compute=compute,
        unroll=2,
        cost=moving_cost(inner, outer),
        unused=unused,
    )


def fill_recipe(letter: str, dtype: dt.dtype, unused: int = 0) -> Recipe:
    """Every element the number of the call."""
    _need_stored(dtype)
    element = element_of(dtype)
    lanes = VECTOR_BYTES // element.type.size

    def prepare(f: LLVMFunction, numbers: list[Parts]) -> Parts:
        one = LlvmScalar(f, 1)
        num = one.number(letter, numbers[0], dtype)
        stored = [pack(f, dtype, v) for v in (num.re, num.im) if v is not None]
        return tuple(f.splat(v, lanes) for v in stored)

    return Recipe(
        key=("fill", letter, dtype.name, unused),
        outputs=(element,),
        inputs=(),
        lanes=lanes,
        compute=lambda f, visit: [visit.ready],
        prepare=prepare,
        numbers=letter,
        unroll=2,
        cost=moving_cost(element),
        unused=unused,
    )


def count_recipe(letter: str, dtype: dt.dtype) -> Recipe:
    """`start + step * index`, counted in int64 ("i") or in doubles ("f")."""
    _need_stored(dtype)
    lanes = VECTOR_BYTES // 8
    wide = (I64 if letter == "i" else F64).vector(lanes)
    counted = dt.int64 if letter == "i" else dt.float64

    def prepare(f: LLVMFunction, numbers: list[Parts]) -> Any:
        return [f.splat(n[0], lanes) for n in numbers]

    def compute(f: LLVMFunction, visit: Round) -> list[Parts]:
        start, step = visit.ready
        index = f.splat(visit.index, lanes) + f.lanes(I64.vector(lanes))
        steps = index if letter == "i" else f.convert("sitofp", index, wide)
        found = Num(counted, start + step * steps)
        return [to_parts(LlvmScalar(f, lanes), found, dtype)]

    return Recipe(
        key=("count", letter, dtype.name),
        outputs=(element_of(dtype),),
        inputs=(),
        lanes=lanes,
        compute=compute,
        prepare=prepare,
        numbers=letter * 2,
        unroll=2,
    )


def _need_stored(*dtypes: dt.dtype) -> None:
    for t in dtypes:
        if t not in STORED:
            raise NotTaken(f"the CPU engine does not compute with {t}")
