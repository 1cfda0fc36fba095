"""From a recipe and the metas of its operands to a kernel: which loops, how many chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.backends.cpu.elementwise import flat, nest
from lucerne._src.backends.cpu.elementwise.recipe import Recipe
from lucerne._src.backends.cpu.elementwise.space import TURNED, UNIT, Space, space_of
from lucerne._src.backends.cpu.elementwise.turn import turn_address
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.runtime.code import Code, compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.symbolic.numbers import if_at_least, most

CHUNK = 32768
"""Elements of a chunk of the cheapest work: some microseconds."""
_BEYOND_CACHE = 32 << 20
"""Bytes of traffic from which on results are written past the cache."""

Fail = Callable[[int, int], None]


def chunk_of(numel: int, cost: float) -> int:
    """Elements per chunk by shape alone; everything in one chunk when threads would not pay."""
    size = max(512, int(CHUNK / cost) // 512 * 512)
    found: int = if_at_least(numel, 2 * size, size, most(numel, 1))
    return found


def loop_kernel(
    recipe: Recipe, out: TensorMeta, inputs: Sequence[TensorMeta], fail: Fail | None = None
) -> NativeKernel:
    """The kernel of a recipe with one output and operands that broadcast to it."""
    return space_kernel(recipe, space_of(out, inputs), fail)


def space_kernel(recipe: Recipe, space: Space, fail: Fail | None = None) -> NativeKernel:
    """The kernel of a recipe over an iteration space (operands: outputs, then inputs)."""
    code, extra = loops_of(recipe, space)
    return NativeKernel(
        code["entry"],
        len(recipe.outputs),
        len(recipe.inputs) + recipe.unused,
        recipe.numbers,
        extra,
        work=0.1 * recipe.cost * space.numel,
        fail=fail,
    )


def loops_of(recipe: Recipe, space: Space) -> tuple[Code, list[int]]:
    """The code of the loops (`entry`, and `task` for one chunk) and their extra words."""
    chunk = chunk_of(space.numel, recipe.cost)
    if space.flat:
        stream = _streams(recipe, space)
        return flat_code(recipe, space.ways, stream=stream), flat.extra_words(space.numel, chunk)
    turns = [
        turn_address(e.size) if way == TURNED else 0
        for e, way in zip(recipe.operands, space.ways, strict=True)
    ]
    return nest_code(recipe, space.ways), nest.extra_words(space, chunk, turns)


def flat_code(recipe: Recipe, ways: str, *, stream: bool = False) -> Code:
    """`i64 entry(block)` over consecutive elements."""
    key = ("flat", recipe.key, ways, stream, VECTOR_BYTES)
    return compiled(key, lambda m: flat.write_flat(m, recipe, ways, stream=stream))


def nest_code(recipe: Recipe, ways: str) -> Code:
    """`i64 entry(block)` for any strides."""
    key = ("nest", recipe.key, ways, VECTOR_BYTES)
    return compiled(key, lambda m: nest.write_nest(m, recipe, ways))


def _streams(recipe: Recipe, space: Space) -> bool:
    """Whether the traffic is beyond the cache and the results fill whole vectors."""
    moved = sum(e.size for e, way in zip(recipe.operands, space.ways, strict=True) if way == UNIT)
    whole = all(e.parts == 1 and e.size * recipe.lanes == VECTOR_BYTES for e in recipe.outputs)
    return whole and recipe.unroll > 0 and moved * space.numel >= _BEYOND_CACHE


def no_work(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """The executable of a call that has nothing to write."""
