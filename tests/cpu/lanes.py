"""Run a body on the CPU engine's scalar machine over plain arrays: tests of the machine alone."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucerne._src.backends.cpu.emit.builder import I64, PTR, LLVMFunction, Module
from lucerne._src.backends.cpu.machine import LlvmScalar
from lucerne._src.backends.cpu.runtime.code import build, load
from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar.protocol import ScalarValue


def over_lanes(
    body: Callable[..., Any],
    inputs: Sequence[dt.dtype],
    output: dt.dtype,
    lanes: int = 16,
) -> Callable[..., np.ndarray[Any, Any]]:
    """`body` on Values as a function of stored arrays; it raises ZeroDivisionError on failure."""
    # Never from the disk cache: it does not know the bodies of tests.
    address = load(build(lambda m: _write(m, body, inputs, output, lanes)))["entry"]
    entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)

    def run(*arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        kept = [np.ascontiguousarray(a, d.storage) for a, d in zip(arrays, inputs, strict=True)]
        out = np.empty(kept[0].shape, output.storage)
        block = (ctypes.c_int64 * (len(kept) + 2))(
            out.ctypes.data, *[a.ctypes.data for a in kept], out.size
        )
        if entry(ctypes.addressof(block)):
            raise ZeroDivisionError
        return out

    return run


def _write(m: Module, body: Any, inputs: Sequence[dt.dtype], output: dt.dtype, lanes: int) -> None:
    with m.function("entry", [("block", PTR)], I64) as f:
        (block,) = f.args
        target = f.word(block, 0, PTR)
        sources = [f.word(block, 1 + k, PTR) for k in range(len(inputs))]
        n = f.word(block, 1 + len(inputs))
        whole = n // lanes * lanes if lanes > 1 else n

        def step(at: Any, mask: Any) -> Any:
            return _step(f, body, inputs, output, lanes, sources, target, at, mask)

        with f.loop(0, whole, lanes, [f.constant(0)]) as loop:
            (failed,) = loop.carried
            loop.next(failed | step(loop.index, None))
        (failed,) = loop.results
        if lanes > 1:
            with f.if_(whole < n) as rest:
                rest.give(failed | step(whole, f.low_mask(n - whole, lanes)))
            with rest.else_():
                rest.give(failed)
            (failed,) = rest.results
        f.ret(failed)


def _step(
    f: LLVMFunction, body: Any, inputs: Any, output: Any, lanes: int, sources: Any, target: Any,
    at: Any, mask: Any,
) -> Any:  # fmt: skip
    machine = LlvmScalar(f, lanes)
    machine.active = mask
    operands = [
        ScalarValue(machine, machine.load(d, f.at(p, at * d.itemsize), mask))
        for d, p in zip(inputs, sources, strict=True)
    ]
    found = body(*operands)
    raw = found.raw if type(found) is ScalarValue else found
    machine.store(raw, output, f.at(target, at * output.itemsize), mask)
    return f.constant(0) if machine.failed is None else f.convert("zext", machine.failed, I64)
