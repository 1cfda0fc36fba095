"""What a step must not do where a result lies over something it reads: every element is read at the
turn that writes it.

The plan decides by rules (`lower.py`); this knows none of them. Every number that flows through a
step's graph is replaced by the turn that writes over the memory it was read from. In the end each
element of a result says which turns' memory it is made of, and that must be its own turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from lucerne._src.ir import op as op_
from lucerne._src.ir.checks.index_maps import read_by
from lucerne._src.ir.checks.lifetimes import ProgramError, bytes_of
from lucerne._src.ir.graph import Value, bases
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.program import Place, Step
from lucerne._src.loops.group import is_elementwise, squeezed

_NONE, _SEVERAL = -1, -2
"""Instead of a turn: nothing is written over what it was read from; several turns write there."""
_FEW = 1 << 16
"""Elements that are followed one by one; steps over more are not looked at."""

Numbers = np.ndarray[Any, np.dtype[np.int64]]


def check_overlaps(steps: Iterable[Step], whole: Collection[str]) -> None:
    """Follow some steps; ProgramError if one writes over what it has yet to read.

    `whole`: heavy ops that may write over an operand if it lies exactly where the result does, as
    updates of lists may.
    """
    for step in steps:
        _check_outputs(step)
        pairs = [(a, b) for a in _read(step) for b in step.outputs if _meet(a, b)]
        if not pairs or max(p.meta.numel for p in step.outputs) > _FEW:
            continue
        heavy = [n for n in step.graph.nodes if n.op.kind != op_.VIEW and not is_elementwise(n)]
        if not heavy:
            _follow(step)
            continue
        op = heavy[-1].op
        may = op.updates or op.qualified in whole
        if not may or not all(_is_same(a, b) for a, b in pairs):
            raise _error(step, "a result of an op that reads any element lies over an operand")


def _error(step: Step, problem: str) -> ProgramError:
    return ProgramError(f"the memory plan is wrong: {problem}: {step}\n{step.graph}")


def _check_outputs(step: Step) -> None:
    for k, a in enumerate(step.outputs):
        if any(_meet(a, b) for b in step.outputs[:k]):
            raise _error(step, "two results of one step share memory")


def _read(step: Step) -> list[Place]:
    """The places whose elements a step reads: not the target of a copy."""
    of = dict(zip(step.graph.inputs, step.inputs, strict=True))
    base = bases(step.graph)
    ops = [node for node in step.graph.nodes if node.op.kind != op_.VIEW]
    found = [base[v][0] for node in ops for v in read_by(node)]
    return [of[v] for v in dict.fromkeys(found) if type(of.get(v)) is Place]


def _meet(a: Place, b: Place) -> bool:
    if (a.kind, a.index) != (b.kind, b.index) or not (a.meta.numel and b.meta.numel):
        return False
    return a.offset < b.offset + bytes_of(b.meta) and b.offset < a.offset + bytes_of(a.meta)


def _is_same(a: Place, b: Place) -> bool:
    return a.offset == b.offset and a.meta == b.meta


# ---- element by element --------------------------------------------------------------------------


def _addresses(meta: TensorMeta, start: int) -> Numbers:
    """Of every element, in bytes."""
    found = np.full(meta.shape, start, np.int64)
    for d, (n, step) in enumerate(zip(meta.shape, meta.byte_strides, strict=True)):
        found += (np.arange(n) * step).reshape(n, *[1] * (meta.ndim - d - 1))
    return found


def _turns(step: Step) -> list[Numbers]:
    """Of every element of every result the turn that writes it: those of one shape are written
    together."""
    shapes: dict[tuple[int, ...], int] = {}
    found = []
    for place in step.outputs:
        first = shapes.setdefault(squeezed(place.meta.shape), len(shapes)) << 40
        found.append(np.arange(first, first + place.meta.numel).reshape(place.meta.shape))
    return found


def _writers(step: Step, given: Place, turns: list[Numbers]) -> Numbers:
    """Of every byte of something that is read the turn that writes over it."""
    found = np.full(bytes_of(given.meta), _NONE, np.int64)
    for place, turn in zip(step.outputs, turns, strict=True):
        if _meet(given, place):
            first = _addresses(place.meta, place.offset - given.offset)
            for byte in range(place.meta.dtype.itemsize):
                at = first + byte
                inside = (at >= 0) & (at < len(found))
                found[at[inside]] = turn[inside]
    return found


def _follow(step: Step) -> None:
    base, turns = bases(step.graph), _turns(step)
    written: dict[Value, Numbers] = {}
    """Of each byte of a value: the turn that writes over what it is made of."""
    for v, given in zip(step.graph.inputs, step.inputs, strict=True):
        if type(given) is Place:
            written[v] = _writers(step, given, turns)

    def read(v: Value) -> Numbers:
        source, start = base[v]
        at = _addresses(v.meta, start)
        return _joined(v.meta, [written[source][at + k] for k in range(v.meta.dtype.itemsize)])

    for node in step.graph.nodes:
        if node.op.kind != op_.VIEW:
            parts = [read(v) for v in read_by(node)]
            for v in node.outputs:
                made_of, at = _joined(v.meta, parts), _addresses(v.meta, 0)
                written[v] = np.full(bytes_of(v.meta), _NONE, np.int64)
                for byte in range(v.meta.dtype.itemsize):
                    written[v][at + byte] = made_of
    for v, place, turn in zip(step.graph.outputs, step.outputs, turns, strict=True):
        made_of = read(v)
        if (made_of != turn)[made_of != _NONE].any():
            raise _error(step, f"{place} is made of elements that another turn writes over")


def _joined(meta: TensorMeta, parts: list[Numbers]) -> Numbers:
    """The turns of all parts, element by element."""
    found = np.full(meta.shape, _NONE, np.int64)
    for part in parts:
        several = (found != _NONE) & (part != _NONE) & (found != part)
        found = np.where(several, _SEVERAL, np.where(part == _NONE, found, part))
    return found
