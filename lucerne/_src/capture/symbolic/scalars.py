"""Numbers among the arguments that change from call to call.

A Python number is part of a program: another value is another program. Where an argument comes with
a second value, the function is captured once more with a number in its place that knows where it
comes from (`GivenFloat`, `GivenInt`): ops that take it then read it anew at each call, and what
Python decides by it (`if k > 2`) is a condition of the version. The new graph must be the one that
was captured for the earlier value, but for such numbers; else the number stays a part of the
program.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lucerne._src.base.raw import is_a
from lucerne._src.base.unspecialized import GivenFloat
from lucerne._src.base.unspecialized_ints import GivenInt
from lucerne._src.capture.trace.captured import Captured
from lucerne._src.capture.trace.input_sources import CONSTANT, NUMBER
from lucerne._src.ir.graph import Value
from lucerne._src.tensor.interop.outside import bits


class Holder(threading.local):
    """The numbers of the call at hand, by the names of their arguments."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.values[name] = value

    @contextmanager
    def with_values(self, values: dict[str, Any]) -> Iterator[None]:
        """Other numbers, for as long as the block runs."""
        before, self.values = self.values, values
        try:
            yield
        finally:
            self.values = before


def changed(
    entries: Sequence[Any], leaves: Sequence[Any], shape: Any, refused: set[int]
) -> tuple[Any, list[int]]:
    """A version that would do if some numbers were the same, and which; (None, []): there is none.

    `entries`: versions for tensors of the same metas; `refused`: integers that decide something.
    """
    for entry in reversed(entries):
        guards = entry.guards
        if guards.shape != shape:
            continue
        found = []
        for k, value in guards.values:
            x = leaves[k]
            if type(x) is type(value) and type(x) in (int, float) and k not in refused:
                if repr(x) != repr(value):
                    found.append(k)
            elif x is not value and not (type(x) is type(value) and is_same(x, value)):
                break
        else:
            if found:
                return entry, [*found, *(k for k, *_ in guards.given)]
    return None, []


def is_same(a: Any, b: Any) -> bool:
    """Whether two values that are not tensors are equal; nan is nan."""
    if is_a(a, float) and is_a(b, float):
        return repr(a + 0.0) == repr(b + 0.0)
    try:
        return type(a) is type(b) and bool(a == b)
    except Exception:
        return False


def with_numbers(leaves: Sequence[Any], places: Sequence[int]) -> tuple[Holder, list[Any]]:
    """The leaves with numbers in these places that are read anew at each call."""
    holder = Holder()
    made = list(leaves)
    for k in places:
        name = f"argument {k}"
        holder[name] = leaves[k]
        given = GivenInt if type(leaves[k]) is int else GivenFloat
        made[k] = given(leaves[k], (holder, name))
    return holder, made


def agrees(given: Captured, plain: Captured, holder: Holder, values: dict[str, Any]) -> bool:
    """Whether a capture with given numbers is what was captured for these values of them."""
    try:
        with holder.with_values(values):
            return _Pairs(given, plain).hold()
    except KeyError:  # a number of an argument that was none then
        return False


class _Pairs:
    """Values of two graphs that stand for each other."""

    def __init__(self, given: Captured, plain: Captured) -> None:
        self.given, self.plain = given, plain
        self.numbers = [_numbers(given), _numbers(plain)]
        self.other: dict[Value, Value] = {}

    def hold(self) -> bool:
        inputs = [
            [v for v in c.graph.inputs if v not in numbers]
            for c, numbers in zip((self.given, self.plain), self.numbers, strict=True)
        ]
        if not self._pair(*inputs) or not self._same_constants():
            return False
        nodes, others = self.given.graph.nodes, self.plain.graph.nodes
        if len(nodes) != len(others):
            return False
        for a, b in zip(nodes, others, strict=True):
            if a.op is not b.op or not self._same(a.args, b.args):
                return False
            if not self._pair(a.outputs, b.outputs):
                return False
        roots = [self.other.get(v) for v in self.given.roots]
        same_shape = is_same(self.given.shape, self.plain.shape)
        return roots == list(self.plain.roots) and same_shape

    def _same_constants(self) -> bool:
        """Tensors that were made from numbers of Python hold the same in both."""
        found = []
        for c in (self.given, self.plain):
            made = [s.thing for s in c.sources if s.kind == CONSTANT]
            found.append([bits(t).tobytes() for t in made])
        return found[0] == found[1]

    def _pair(self, ours: Sequence[Value], theirs: Sequence[Value]) -> bool:
        same = len(ours) == len(theirs)
        same = same and all(a.meta is b.meta for a, b in zip(ours, theirs, strict=True))
        if same:
            self.other.update(zip(ours, theirs, strict=True))
        return same

    def _same(self, a: Any, b: Any) -> bool:
        if is_a(a, tuple) and is_a(b, tuple):
            return len(a) == len(b) and all(map(self._same, a, b))
        number = type(a) is Value and a in self.numbers[0]
        a, b = self._plain(a, 0), self._plain(b, 1)
        if number and type(b) is int:  # ops of floats take integers as floats
            b = float(b)
        if type(a) is Value:
            return self.other.get(a) is b
        return a is b or is_same(a, b)

    def _plain(self, x: Any, side: int) -> Any:
        """A number that is given as the number it is now."""
        found = self.numbers[side].get(x) if type(x) is Value else None
        return x if found is None else found.now()


def _numbers(captured: Captured) -> dict[Value, GivenFloat]:
    pairs = zip(captured.graph.inputs, captured.sources, strict=True)
    return {v: s.thing for v, s in pairs if s.kind == NUMBER}
