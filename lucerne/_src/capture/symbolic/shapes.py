"""Sizes that change from call to call: one capture for all of them.

The first capture of a function is made for the sizes it was called with. When the same function
comes with other sizes, it is captured once more (`SizedCapture`) on tensors whose sizes are symbols
where they were seen to change. Everything that follows from them is an expression, whoever computes
it, and every decision by them is a guard. From then on (`Sized`) a new size is not traced: formulas
are evaluated (`Sized.at`), and the passes run over what comes out. Machine code does not depend on
sizes, so mostly none is made.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from lucerne._src.base import shape as sh
from lucerne._src.base.process.forks import once
from lucerne._src.base.raw import is_a
from lucerne._src.base.shape import Size
from lucerne._src.base.unspecialized import Guarding
from lucerne._src.capture.guards.reachable import ReachableState
from lucerne._src.capture.guards.tensor_reads import IS
from lucerne._src.capture.trace.capture import Capture, Whole
from lucerne._src.capture.trace.captured import Captured, CapturedResult, GradientStore
from lucerne._src.capture.trace.fake import CaptureError, fake_tensor
from lucerne._src.capture.trace.input_sources import ARGUMENT, GRADIENT, HELD, TANGENT, InputSource
from lucerne._src.capture.trace.recorder import Recorder
from lucerne._src.capture.trace.stand_ins import Tracing
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.meta import Flips, TensorMeta, make_meta, with_flip
from lucerne._src.ir.symbolic.expressions import symbol
from lucerne._src.ir.symbolic.numbers import (
    SizeGuards,
    SymInt,
    guarding,
    is_symbolic,
    plain,
    values_at,
)
from lucerne._src.tensor.base import TensorBase
from lucerne._src.transforms.generalize import (
    Instance,
    SizeRefusedError,
    Template,
    formula_of,
    generalize,
)

Dims = set[tuple[int, int]]
"""Pairs (number of the leaf, dimension)."""


class Symbols:
    """Which dimensions of the leaves are symbols, and how they are called."""

    def __init__(self, names: Mapping[tuple[int, int], Any]) -> None:
        """`names`: by (leaf, dimension), something that is equal for those that share a symbol."""
        found: dict[Any, str] = {}
        self.names = {
            at: found.setdefault(key, f"s{len(found)}") for at, key in sorted(names.items())
        }
        self.exprs = {at: symbol(name) for at, name in self.names.items()}
        """The size of each dimension that is not constant."""

    def meta(self, leaf: int, meta: TensorMeta) -> TensorMeta:
        """The meta of a leaf, or of something that is shaped as it is, with symbols in it."""
        if not any((leaf, d) in self.exprs for d in range(meta.ndim)):
            return meta
        shape: tuple[Any, ...] = tuple(
            SymInt(int(n), self.exprs[leaf, d]) if (leaf, d) in self.exprs else n
            for d, n in enumerate(meta.shape)
        )
        return make_meta(meta.dtype, shape, _strides(meta, shape), meta.device, meta.flipped)


def _strides(meta: TensorMeta, shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """Strides as they follow from sizes if the memory is dense; those that do not are constant."""
    if not meta.is_dense:
        return meta.strides
    order = sorted(range(meta.ndim), key=lambda d: (meta.strides[d], meta.shape[d] != 1, -d))
    strides = sh.contiguous_strides(shape) if meta.contiguous else sh.ordered_strides(shape, order)
    return tuple([s if plain(s) == n else n for s, n in zip(strides, meta.strides, strict=True)])


class SizedRecorder(Recorder):
    """The values of a trace for all sizes are those of none of them."""

    knows_values = False


class SizedTracing(Tracing):
    """Arguments get metas with symbols."""

    symbols: Symbols
    shapes: list[Any]
    """The shapes of the leaves."""

    def meta_for(self, t: Any, source: InputSource) -> TensorMeta:
        meta: TensorMeta = t._meta
        return self.symbols.meta(source.index, meta) if source.kind == ARGUMENT else meta

    def gradient_for(self, t: Any, source: InputSource, grad: Any) -> Any:
        if source.kind != ARGUMENT or grad._meta.shape != self.shapes[source.index]:
            return grad
        meta = self.symbols.meta(source.index, grad._meta)
        return grad if meta is grad._meta else fake_tensor(meta)


class SizedCapture(Capture):
    """A capture in which some sizes are symbols: decisions become guards."""

    def __init__(
        self, fn: Any, args: Any, kwargs: Any, reach: ReachableState, whole: Whole, symbols: Symbols
    ) -> None:
        super().__init__(fn, args, kwargs, reach, whole)
        self.symbols = symbols
        self.guards = SizeGuards()

    def make_tracing(self) -> Tracing:
        made = SizedTracing(self.reach, SizedRecorder(self.whole))
        made.symbols = self.symbols
        made.shapes = [x._meta.shape if is_a(x, TensorBase) else None for x in self.leaves]
        return made

    def run(self) -> Captured:
        with guarding() as self.guards:
            return super().run()

    def sized(self) -> Sized:
        """The call for all sizes."""
        captured = self.run()
        why = _refusal(captured)
        if why:
            raise CaptureError(why)
        return Sized(captured, self.symbols, self.guards)


def _refusal(captured: Captured) -> str:
    """Why a capture can't be one for other sizes; empty: it can."""
    if captured.covered or any(f.kind == IS and f.value for f in captured.facts):
        return "arguments share memory with each other"
    if captured.stored or captured.counted:
        return "something is kept for the next call"
    return ""


_META = operator.attrgetter("_meta")


class _Asked(NamedTuple):
    """What `Sized.bind` looks at."""

    held: list[Any]
    metas: list[TensorMeta]
    """Of these tensors from outside, always the same."""
    fixed: list[tuple[int, TensorMeta]]
    """Leaves whose metas are always the same."""
    leaves: list[int]
    """Those whose metas depend on sizes."""


class Sized:
    """A captured call for all sizes."""

    def __init__(self, captured: Captured, symbols: Symbols, guards: SizeGuards) -> None:
        self.captured, self.guards = captured, guards
        graph = Graph()
        graph.inputs, graph.nodes = captured.graph.inputs, captured.graph.nodes
        graph.outputs, graph._next = tuple(captured.roots), captured.graph._next
        self.dims = symbols.names
        places: dict[str, tuple[int, int]] = {}
        for i, s in enumerate(captured.sources):
            for (k, d), name in symbols.names.items():
                if s.kind == ARGUMENT and s.index == k:
                    places.setdefault(name, (i, d))
        self.template: Template = generalize(graph, places, self._over(places, guards))
        self.beside = _beside(captured)
        self.versions: list[Any] = []
        """`SizedVersion`s: each holds for a range of sizes."""
        self.one_size = ""
        """Why there are none."""
        self.hints = {
            name: plain(captured.graph.inputs[i].meta.shape[d]) for name, (i, d) in places.items()
        }

    @staticmethod
    def _over(places: Mapping[str, Any], guards: SizeGuards) -> list[Any]:
        """(An argument that is no input decides nothing: its size is not known.)"""
        if any(not g.symbols() <= places.keys() for g in guards):
            raise CaptureError("a size of an argument decides that is not an input")
        return list(guards)

    def bind(self, leaves: Sequence[Any]) -> dict[str, int] | None:
        """The sizes of these leaves by the names of the symbols; None: it holds for others."""
        asked = None if Flips.met or Guarding.count else self._asked
        if asked is not None:
            if [*map(_META, asked.held)] != asked.metas:
                return None
            for k, meta in asked.fixed:
                if leaves[k]._meta is not meta:
                    return None
            return self.template.bind_sized(*[leaves[k]._meta for k in asked.leaves])
        metas = []
        for v, s in zip(self.template.graph.inputs, self.captured.sources, strict=True):
            t: Any = s.thing if s.kind == HELD else _given(s, leaves)
            if t is None:
                metas.append(None if s.kind == TANGENT else v.meta)
            else:
                meta = t._meta
                metas.append(with_flip(meta, False) if meta.flipped else meta)
        return self.template.bind(metas)

    @once
    def _asked(self) -> _Asked | None:
        """What `bind` looks at, where only metas of leaves depend on sizes."""
        sized, sources = self.template.sized_inputs, self.captured.sources
        if any(sources[k].kind != ARGUMENT for k in sized) or any(
            s.kind == GRADIENT for s in sources
        ):
            return None
        pairs = list(zip(sources, self.template.graph.inputs, strict=True))
        held = [(s.thing, v.meta) for s, v in pairs if s.kind == HELD]
        fixed = [
            (s.index, v.meta)
            for k, (s, v) in enumerate(pairs)
            if s.kind == ARGUMENT and k not in sized
        ]
        leaves = [sources[k].index for k in sized]
        return _Asked([t for t, _ in held], [m for _, m in held], fixed, leaves)

    def at(self, leaves: Sequence[Any]) -> Captured | None:
        """What a capture of a call with these leaves would give; None: it must be captured."""
        sizes = self.bind(leaves)
        if sizes is None:
            return None
        try:
            found = self.at_sizes(sizes)
        except SizeRefusedError:
            return None
        return found if self.fits(found, leaves) else None

    @staticmethod
    def fits(captured: Captured, leaves: Sequence[Any]) -> bool:
        """Whether gradients have the shapes of what they are gradients of."""
        for s, x in zip(captured.wanted, captured.gradients, strict=True):
            t = _given(s, leaves)
            if x is not None and t is not None and x.meta.shape != t._meta.shape:
                return False
        return True

    def at_sizes(self, sizes: dict[str, Any]) -> Captured:
        instance = Instance(self.template, sizes)
        return _moved(self.captured, instance, *instance.value_of(self.beside))

    def too_special(self, leaves: Sequence[Any]) -> Dims:
        """Dimensions that were needed as plain numbers, others than those of these leaves."""
        sizes = {name: int(leaves[k]._meta.shape[d]) for (k, d), name in self.dims.items()}
        names: set[str] = set()
        for guard, by_value in self.guards.items():
            if by_value is not None and not guard.holds(sizes):
                names |= guard.symbols()
        return {at for at, name in self.dims.items() if name in names}


def _given(source: InputSource, leaves: Sequence[Any]) -> Any:
    """The tensor of an input, as far as a call decides about it."""
    if source.kind == ARGUMENT:
        return leaves[source.index]
    if source.kind == GRADIENT:
        owner = _given(source.thing, leaves)
        return None if owner is None else owner.grad
    return source.thing if source.kind == HELD else None


# ---- what stands beside the graph ---------------------------------------------------------------


def all_outcomes(captured: Captured) -> list[CapturedResult]:
    found = [
        *captured.leaves,
        *[e.outcome for e in captured.effects],
        *captured.gradients,
    ]
    found += [x.gradient for x in captured.leaves if type(x) is CapturedResult]
    return [x for x in found if type(x) is CapturedResult]


def with_gradients(moved: dict[int, CapturedResult]) -> None:
    """Have outcomes at other sizes name the gradients that leaves get there. `moved`: by id of an
    outcome as it was captured, what it is now."""
    for at, x in moved.items():
        if id(x.gradient) in moved:
            moved[at] = replace(x, gradient=moved[id(x.gradient)])


def _beside(captured: Captured) -> tuple[Any, Any]:
    """The formulas of what depends on sizes: where outcomes lie, and what is returned besides."""
    outcomes = [(x.offset, x.meta) for x in all_outcomes(captured)]
    others = [x for x in captured.leaves if type(x) is not CapturedResult]
    return formula_of(outcomes), [formula_of(x) for x in others]


class ErrorAt:
    """What a check raises, with the sizes of the call."""

    def __init__(self, error: Callable[[], Exception], sizes: Mapping[str, int]) -> None:
        self.error, self.sizes = error, sizes

    def __call__(self) -> Exception:
        with values_at(self.sizes):
            return self.error()


def checks_at(captured: Captured, sizes: Mapping[str, Any]) -> list[tuple[int, Any]]:
    """The checks of a call at other sizes, if they are known."""
    if is_symbolic(list(sizes.values())):
        return captured.checks
    return [(k, ErrorAt(error, sizes)) for k, error in captured.checks]


def _moved(old: Captured, instance: Instance, places: list[Any], others: list[Any]) -> Captured:
    """A captured call with the values, metas and numbers of other sizes."""
    new = instance.values
    rest = iter(others)
    outcomes: dict[int, CapturedResult] = {}
    for x, (offset, meta) in zip(all_outcomes(old), places, strict=True):
        value = None if x.value is None else new[x.value.index]
        outcomes.setdefault(id(x), replace(x, offset=offset, meta=meta, value=value))
    with_gradients(outcomes)

    def outcome(x: Any) -> Any:
        return outcomes[id(x)] if type(x) is CapturedResult else x

    def leaf(x: Any) -> Any:
        if type(x) is CapturedResult:
            return outcomes[id(x)]
        found = next(rest)
        return Size(found) if is_a(x, Size) else found

    graph = Graph()
    graph.inputs = [new[v.index] for v in old.graph.inputs]
    graph.nodes, graph._next = list(instance.graph.nodes), old.graph._next
    return replace(
        old,
        graph=graph,
        roots=[new[v.index] for v in old.roots],
        fresh=frozenset(new[v.index] for v in old.fresh),
        recorded=[new[v.index] for v in old.recorded],
        differentiated=[new[v.index] for v in old.differentiated],
        leaves=[leaf(x) for x in old.leaves],
        effects=[GradientStore(e.owner, outcome(e.outcome)) for e in old.effects],
        gradients=[outcome(x) for x in old.gradients],
        checks=checks_at(old, instance.sizes),
    )
