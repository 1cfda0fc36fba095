"""One loop over consecutive elements: the commonest kernel, and the one with the least overhead.

Extra words: [status] [elements] [elements per chunk] [chunks].
"""

from __future__ import annotations

from lucerne._src.backends.cpu.elementwise.access import Lane
from lucerne._src.backends.cpu.elementwise.recipe import (
    Failures,
    Recipe,
    emit_span,
    read_numbers,
    read_pointers,
)
from lucerne._src.backends.cpu.emit.builder import I64, PTR, VOID, LLVMFunction, LLVMValue, Module

_STATUS, _COUNT, _CHUNK, _CHUNKS = range(4)


def extra_words(numel: int, chunk: int) -> list[int]:
    """The words a flat kernel reads after its numbers."""
    return [0, numel, chunk, -(-numel // chunk)]


def write_flat(m: Module, recipe: Recipe, ways: str, *, stream: bool = False) -> None:
    """The functions of a flat kernel; `stream`: results go past the cache when aligned."""
    failures = Failures(recipe)
    at = recipe.first_extra
    _write_run(m, recipe, ways, failures, stream)
    with m.function("task", [("block", PTR), ("chunk", I64), ("tid", I64)]) as f:
        block, chunk, _ = f.args
        size = f.word(block, at + _CHUNK)
        start = chunk * size
        stop = f.minimum(start + size, f.word(block, at + _COUNT))
        f.call("run", VOID, [block, start, stop])
    with m.function("entry", [("block", PTR)], I64) as f:
        (block,) = f.args
        failures.clear(f, block)
        chunks = f.word(block, at + _CHUNKS)
        with f.if_(chunks > 1) as several:
            f.call("lucerne_pfor", VOID, [f.symbol("task"), block, chunks])
        with several.else_():
            f.call("run", VOID, [block, 0, f.word(block, at + _COUNT)])
        f.ret(failures.status(f, block))


def _write_run(m: Module, recipe: Recipe, ways: str, failures: Failures, stream: bool) -> None:
    """Elements `start` to `stop`."""
    params = [("block", PTR), ("start", I64), ("stop", I64)]
    with m.function("run", params, internal=True) as f:
        block, start, stop = f.args
        ready = recipe.prepare(f, read_numbers(f, recipe, block))
        pointers = read_pointers(f, recipe, block)
        lanes = [
            Lane(element, way, pointer)
            for element, way, pointer in zip(recipe.operands, ways, pointers, strict=True)
        ]
        if not stream:
            emit_span(f, recipe, block, ready, lanes, start, stop, failures)
            return
        with f.if_(_may_stream(f, recipe, lanes)) as past_cache:
            emit_span(f, recipe, block, ready, lanes, start, stop, failures, stream=True)
            f.emit("fence seq_cst")
        with past_cache.else_():
            emit_span(f, recipe, block, ready, lanes, start, stop, failures)


def _may_stream(f: LLVMFunction, recipe: Recipe, lanes: list[Lane]) -> LLVMValue:
    """Outputs lie on full vectors and no input is written over."""
    fine = None
    count = len(recipe.outputs)
    for out in lanes[:count]:
        place = f.convert("ptrtoint", out.pointer, I64)
        checks = [f.compare("eq", place & 63, 0)]
        checks += [
            f.compare("ne", place, f.convert("ptrtoint", x.pointer, I64)) for x in lanes[count:]
        ]
        for check in checks:
            fine = check if fine is None else fine & check
    assert fine is not None
    return fine
