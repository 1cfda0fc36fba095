"""Sizes that only a run tells: how many elements `nonzero` finds, `int(batch.max()) + 1`.

Such a size is a symbol without a value (an unbacked symbol). The function is captured with a guess
in its place. What follows from it is an expression, as for sizes of arguments; what Python decides
by it is a guard, which the run checks as soon as it knows the size. Where it fails, nothing has
happened yet, and the call is captured once more with the sizes that were found
(`fake.OtherSizesError`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.capture.breaks import reasons
from lucerne._src.capture.breaks.reasons import BreakError
from lucerne._src.capture.guards.reachable import ReachableState
from lucerne._src.capture.staged.program import StagedProgram
from lucerne._src.capture.symbolic.shapes import SizedCapture, SizedRecorder, SizedTracing, Symbols
from lucerne._src.capture.trace.capture import Whole
from lucerne._src.capture.trace.captured import Captured
from lucerne._src.capture.trace.fake import (
    CaptureError,
    NotYetError,
    OtherSizesError,
    fake_tensor,
)
from lucerne._src.capture.trace.input_sources import tensor_of
from lucerne._src.capture.trace.stand_ins import Tracing
from lucerne._src.ir.graph import Value
from lucerne._src.ir.meta import make_meta
from lucerne._src.ir.op import Op
from lucerne._src.ir.symbolic.expressions import SMALLEST, Guard
from lucerne._src.ir.symbolic.numbers import (
    UNBACKED,
    ByValue,
    SymInt,
    checked_again,
    guarding,
    is_unbacked,
)
from lucerne._src.ir.symbolic.unbacked import (
    DIMENSION,
    GUESS,
    NEGATIVE,
    NUMBER,
    expression,
    number_of,
    symbol_at,
)
from lucerne._src.ops.copy.cast import clone_as
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.random.api import mark, rewind
from lucerne._src.transforms.functionalize import functionalize

_CLONE: Op = clone_as.op  # type: ignore[attr-defined]


@dataclass
class UnbackedSizes:
    """The unbacked symbols of a captured call."""

    hints: tuple[int, ...]
    """What is taken for them while the function is captured, as far as somebody has said so."""
    names: list[str] = field(default_factory=list)
    bound: list[tuple[str, Value, int]] = field(default_factory=list)
    """(symbol, value, what it counts of the value: DIMENSION, NUMBER, NEGATIVE)."""
    roots: list[int] = field(default_factory=list)
    """Of `bound`: which of the roots of the captured call has the value."""
    guards: list[Guard] = field(default_factory=list)
    """What was decided by them."""
    dropped: dict[Value, list[Guard]] = field(default_factory=dict)
    """By first result of a node: what its op decides again when it runs."""

    def new(self, counts: int) -> tuple[SymInt, int]:
        """The next number, and what it counts."""
        at = len(self.names)
        self.names.append(f"{UNBACKED}{at}")
        hint = self.hints[at] if at < len(self.hints) else GUESS
        counts = NEGATIVE if hint < 0 else counts
        return SymInt(hint, expression(self.names[-1], counts)), counts

    def admits(self, found: Sequence[int]) -> bool:
        """Whether what was decided comes out the same for these numbers, as far as they go."""
        signs = {name: counts for name, _, counts in self.bound}
        pairs = zip(self.names, found, strict=False)
        sizes = {name: symbol_at(n, signs[name]) for name, n in pairs}
        small = any(n < SMALLEST for n in sizes.values())
        ready = [g for g in self.guards if g.symbols() <= sizes.keys()]
        return not small and all(g.holds(sizes) for g in ready)


class UnbackedRecorder(SizedRecorder):
    """Makes a symbol of each size that depends on the data."""

    def __init__(self, whole: Whole, unbacked: UnbackedSizes) -> None:
        super().__init__(whole)
        self.unbacked = unbacked
        self._known_masks: dict[Any, SymInt] = {}

    def sized_by_data(self, op: Op, args: tuple[Any, ...], placed: tuple[Any, ...]) -> Any:
        given: Any = args[0]
        if len(args) != 1 or not isinstance(given, TensorBase):
            self._refuse(f"{op.name}: the shape of its result depends on the data")
        meta = given._meta
        key = self._content(placed[0])
        size = self._known_masks.get(key)
        if size is None:
            size = self._known_masks[key] = self.unbacked.new(DIMENSION)[0]
        strides = (meta.ndim, 1)
        shape: tuple[Any, ...] = (size, meta.ndim)
        made = fake_tensor(make_meta(dt.int64, shape, strides, meta.device))
        self._bind(op, placed, made, size, DIMENSION)
        return made

    def _bind(self, op: Op, placed: Any, made: Any, size: SymInt, counts: int) -> None:
        (value,) = self.node(op, placed, [made._meta])
        self._know(made, value)
        self._roots[id(made._storage.buffer)] = value, made
        (name,) = size.expr.symbols()
        self.unbacked.bound.append((name, value, counts))

    def _content(self, value: Value) -> Any:
        """Something that is equal for masks with the same elements: `x == k` written twice. What
        was written to a memory since is another thing."""
        writes = sum(not n.outputs for n in self.graph.nodes)
        made = {v.index: n for n in self.graph.nodes for v in n.outputs}

        def key(v: Any, depth: int) -> Any:
            node = made.get(v.index) if type(v) is Value else None
            if type(v) is not Value:
                return repr(v)
            if node is None or depth == 0 or node.op.kind == "random" or len(node.outputs) > 1:
                return v.index
            return (node.op.qualified, *[key(a, depth - 1) for a in node.args])

        return writes, key(value, _DEEPEST)

    def integer(self, t: Any) -> Any:
        if t._meta.dtype.category != dt.INTEGER or not self.has_seen(t):
            return None
        size, counts = self.unbacked.new(NUMBER)
        meta = t._meta
        kept = fake_tensor(make_meta(meta.dtype, tuple(meta.shape), None, meta.device))
        # (a copy of its own: the tensor may be written to later)
        self._bind(_CLONE, (self.value(t), lo.contiguous_format), kept, size, counts)
        return size


_DEEPEST = 6
"""How many ops two masks are compared through."""


class WrongGuessError(Exception):
    """What was taken for the sizes makes the function raise: these are those of the call."""

    def __init__(self, found: tuple[int, ...]) -> None:
        super().__init__(f"sizes {found} were found in the data")
        self.found = found


class UnbackedCapture(SizedCapture):
    """A capture in which sizes that depend on the data are symbols."""

    def __init__(
        self, fn: Any, args: Any, kwargs: Any, reach: ReachableState, whole: Whole,
        symbols: Symbols, hints: tuple[int, ...],
    ) -> None:  # fmt: skip
        super().__init__(fn, args, kwargs, reach, whole, symbols)
        self.unbacked = UnbackedSizes(hints)

    def make_tracing(self) -> Tracing:
        made = SizedTracing(self.reach, UnbackedRecorder(self.whole, self.unbacked))
        made.symbols = self.symbols
        made.shapes = [x._meta.shape if isinstance(x, TensorBase) else None for x in self.leaves]
        return made

    def _keep_roots(self) -> None:
        self.unbacked.roots = [
            self.roots.setdefault(value, len(self.roots)) for _, value, _ in self.unbacked.bound
        ]

    def run(self) -> Captured:
        try:
            captured = super().run()
        except (CaptureError, NotYetError):
            raise
        except Exception as error:
            found = self._sizes_so_far()
            if len(found) <= len(self.unbacked.hints):
                raise
            raise WrongGuessError(found) from error
        if self.unbacked.names:
            captured.unbacked = self.unbacked
            self.unbacked.dropped = self.recorder.dropped
            self._check_decisions()
            if captured.stored or captured.counted:
                raise CaptureError("a size depends on the data, and something is kept")
        return captured

    def _sizes_so_far(self) -> tuple[int, ...]:
        """The sizes that this call has, as far as the function has come: what it did until then is
        run without its writes."""
        recorder, found = self.recorder, dict[str, int]()
        values = [value for _, value, _ in self.unbacked.bound]
        given = [tensor_of(self.tracing.source_of(t), self.leaves) for t in recorder.outside]
        before = mark()
        with guarding(), checked_again():
            graph = functionalize(recorder.graph, values)
            graph.writes = []
            pairs = zip(graph.outputs, self.unbacked.bound, strict=True)
            bound = {v.index: (name, counts) for v, (name, _, counts) in pairs}
            program = StagedProgram(graph, {}, bound, (), self.unbacked.names, set(), None)
        try:
            program(given, found)
        except OtherSizesError as error:
            return tuple(error.found)
        finally:
            rewind(before)
        signs = dict(bound.values())
        return tuple(number_of(found[name], signs[name]) for name in self.unbacked.names)

    def _check_decisions(self) -> None:
        """Decisions are checked by the run. A number that Python needs as it is can't be given."""
        for guard, by_value in self.guards.items():
            if not is_unbacked(guard):
                continue
            if isinstance(by_value, ByValue):
                raise BreakError(reasons.made("size", by_value.place))
            self.unbacked.guards.append(guard)
