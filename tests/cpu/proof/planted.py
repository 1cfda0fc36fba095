"""Wrong kernels, planted to show that the proof finds what it is looking for."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import lucerne
from lucerne._src.backends.cpu.emit.builder import F32, I64, PTR, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.ir.graph import Graph
from tests.cpu.proof.cases import Case
from tests.cpu.proof.guard import Proof
from tests.cpu.proof.layouts import laid
from tests.cpu.proof.watch import Watched, WatchedBackend

_N = 5
_LANES = 16
_SPACE = 64


def _long_read(f: LLVMFunction, out: LLVMValue, x: LLVMValue, space: LLVMValue) -> None:
    """Reads a whole vector where five elements are."""
    v = f.load(F32.vector(_LANES), x, align=4)
    f.masked_store(-v, out, f.low_mask(f.constant(_N), _LANES))


def _long_write(f: LLVMFunction, out: LLVMValue, x: LLVMValue, space: LLVMValue) -> None:
    """Writes a whole vector where five elements are."""
    v = f.masked_load(F32.vector(_LANES), x, f.low_mask(f.constant(_N), _LANES))
    f.store(-v, out, align=4)


def _early_write(f: LLVMFunction, out: LLVMValue, x: LLVMValue, space: LLVMValue) -> None:
    """Right results, and one element in front of them."""
    _right(f, out, x, space)
    f.store(f.load(F32, x), f.at(out, -4))


def _written_input(f: LLVMFunction, out: LLVMValue, x: LLVMValue, space: LLVMValue) -> None:
    """Right results, and an input overwritten."""
    _right(f, out, x, space)
    f.store(f.zero(F32), x)


def _written_gap(f: LLVMFunction, out: LLVMValue, x: LLVMValue, space: LLVMValue) -> None:
    """Right results, and something between two elements."""
    _right(f, out, x, space)
    f.store(f.zero(F32), f.at(x, 4))


def _written_space(f: LLVMFunction, out: LLVMValue, x: LLVMValue, space: LLVMValue) -> None:
    """Right results, and one element behind the workspace."""
    _right(f, out, x, space)
    f.store(f.zero(F32), f.at(space, _SPACE))


def _read_gap(f: LLVMFunction, out: LLVMValue, x: LLVMValue, space: LLVMValue) -> None:
    """Takes elements with a step of one where the step is two."""
    _right(f, out, x, space, step=1)


def _read_space(f: LLVMFunction, out: LLVMValue, x: LLVMValue, space: LLVMValue) -> None:
    """Adds what it finds in the workspace."""
    _right(f, out, x, space)
    f.store(f.load(F32, out) + f.load(F32, space), out)


def _unwritten(f: LLVMFunction, out: LLVMValue, x: LLVMValue, space: LLVMValue) -> None:
    """Leaves the last element out."""
    _right(f, out, x, space, count=_N - 1)


def _doubled(f: LLVMFunction, out: LLVMValue, x: LLVMValue, space: LLVMValue) -> None:
    """Touches what it should, and computes something else."""
    for i in range(_N):
        v = f.load(F32, f.at(x, 8 * i))
        f.store(v + v, f.at(out, 4 * i))


def _right(
    f: LLVMFunction,
    out: LLVMValue,
    x: LLVMValue,
    space: LLVMValue,
    *,
    step: int = 2,
    count: int = _N,
) -> None:
    """The negative of every element, `step` elements apart."""
    for i in range(count):
        f.store(-f.load(F32, f.at(x, 4 * step * i)), f.at(out, 4 * i))


STEPPED = (
    _early_write, _written_input, _written_gap, _written_space, _read_gap, _read_space, _unwritten,
    _doubled, _right,
)  # fmt: skip
PLAIN = (_long_read, _long_write)


class Planted(WatchedBackend):
    """`neg` is compiled wrongly, in the way the case at hand asks for."""

    way: Any = None

    def compile(self, graph: Graph) -> Any:
        made = super().compile(graph)
        if graph.nodes[0].op.qualified == "neg" and isinstance(made, Watched):
            made.run = _kernel(Planted.way)
        return made


def _kernel(way: Any) -> NativeKernel:
    def write(m: Module) -> None:
        with m.function("entry", [("block", PTR)], I64) as f:
            [block] = f.args
            way(f, *[f.word(block, i, PTR) for i in range(3)])
            f.ret(0)

    return NativeKernel(compiled(("planted", way.__name__), write)["entry"], 1, 1, workspace=_SPACE)


def _run(way: Any, layout: str) -> Any:
    Planted.way = way
    return lucerne.neg(laid(lucerne.arange(1.0, _N + 1), layout))


def _run_compiled(way: Any, layout: str) -> Any:
    """The same as a step of a program."""
    Planted.way = way
    return lucerne.compile(lucerne.neg)(laid(lucerne.arange(1.0, _N + 1), layout))


COMPILED = (_long_write, _read_space, _right)


def cases() -> list[Case]:
    listed = [(way, "stepped") for way in STEPPED] + [(way, "plain") for way in PLAIN]
    found = [
        Case(way.__name__.strip("_"), "float32", f"[{_N}]", layout, partial(_run, way, layout))
        for way, layout in listed
    ]
    for way in COMPILED:
        layout = "plain" if way in PLAIN else "stepped"
        run = partial(_run_compiled, way, layout)
        found.append(Case(f"compiled{way.__name__}", "float32", f"[{_N}]", layout, run))
    return found


class Fresh(Proof):
    """Each case in a process of its own: plans are kept by a process."""

    def run(self, processes: int) -> Proof:
        listed = list(self.cases)
        for case in listed:
            self.cases = [case]
            super().run(1)
        self.cases = listed
        return self


def main(options: argparse.Namespace) -> int:
    proof = Fresh(cases(), Planted, more=True).run(1)
    print(proof.table(every=True))
    print(proof.last_line())
    return 0
