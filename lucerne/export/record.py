"""From a module and example arguments to a blueprint: captured once, and once more with symbolic
sizes when some may change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from lucerne._src.base.process.source_location import describe, place_of_error
from lucerne._src.capture import Exporting
from lucerne._src.capture.guards.reachable import ReachableState
from lucerne._src.capture.symbolic.shapes import SizedCapture
from lucerne._src.capture.trace.capture import Capture
from lucerne._src.capture.trace.captured import Captured, CapturedResult
from lucerne._src.capture.trace.decompositions import Decompositions
from lucerne._src.capture.trace.fake import CaptureError, fake_tensor
from lucerne._src.capture.trace.input_sources import ARGUMENT, CONSTANT, HELD, InputSource
from lucerne._src.capture.trace.pytree import flatten, rebuild
from lucerne._src.ir.graph import Graph, Value
from lucerne._src.ir.meta import TensorMeta, make_meta, with_flip
from lucerne._src.ir.op import Op
from lucerne._src.ir.symbolic.expressions import FORMULAS, SMALLEST
from lucerne._src.ir.symbolic.numbers import SizeGuards
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.layers import conjugate
from lucerne._src.transforms.functionalize import MutationError
from lucerne._src.transforms.generalize import Template, first_difference, formula_of, generalize
from lucerne.export import blueprint as bp
from lucerne.export import generators
from lucerne.export.dims import Dynamic
from lucerne.export.errors import ExportError
from lucerne.export.ranges import check_guards, exceptions, fixed_roots, ranges_of, symbols_of
from lucerne.export.whole import Explicit
from lucerne.nn.modules.module import Module


class _Forward(Capture):
    """A capture without the backward pass, which keeps the values of what is returned."""

    def _differentiate(
        self, leaves: list[Any], outcomes: list[Any]
    ) -> tuple[list[InputSource], list[CapturedResult | None]]:
        self._tangents: list[Any] = []
        self._backward_at, self._differentiated = 0, []
        return [], []

    def _read_off(self, result: Any, uses: Any) -> Captured:
        leaves: list[Any] = []
        shape = flatten(result, leaves)
        leaves = [conjugate.computed(x) for x in leaves]  # a program's values are what is in memory
        made = super()._read_off(rebuild(shape, iter(leaves)), uses)
        self.returned = [self.recorder.value(x) for x in leaves if isinstance(x, TensorBase)]
        self.count = len(leaves)
        flags = [self.recorder.value(flag) for flag, _ in self.recorder.checks]
        self.checks = [_words(error) for _, error in self.recorder.checks]
        made.graph.outputs = (*self.returned, *flags)
        return made


def _words(error: Any) -> tuple[str, str]:
    """The kind and the text of what a check raises, which may need values that are not there."""
    try:
        made = error()
    except Exception as unknown:
        made = unknown
    kind = next((k.__name__ for k in type(made).__mro__ if k in bp.RAISED.values()), "RuntimeError")
    return kind, "an argument has values that the module refuses" if _is_vague(made) else str(made)


def _is_vague(error: Exception) -> bool:
    return isinstance(error, CaptureError) or not str(error)


class _SizedForward(_Forward, SizedCapture):
    """The same with symbolic sizes."""


class Recording:
    """One module on its way to a blueprint."""

    def __init__(
        self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, apart: bool = False,
        table: Mapping[Any, Any] | None = None,
        keep: Callable[[Op, tuple[Any, ...]], bool] | None = None,
    ) -> None:  # fmt: skip
        """`apart`: in primitives; with a `table`, by its decompositions and no others; `keep`: the
        composites that may stay whole."""
        self.fn = fn
        self.whole = Explicit(apart, keep) if table is None else Decompositions(table, Explicit())
        self.leaves: list[Any] = []
        self.shape = flatten((args, kwargs), self.leaves)
        self.tensors: dict[tuple[str, str], Any] = {}
        """By kind and name: what the graph reads of the module."""

    def blueprint(self, dynamic: Dynamic, names: list[str]) -> bp.Blueprint:
        self.names = names
        made = self._static(self._captured(_Forward, {}))
        while dynamic.roots:
            try:
                found = self._sized(made, dynamic)
                if found is not None:
                    return found
            except ExportError:
                if not dynamic.optional:
                    raise
                dynamic.drop(max(dynamic.optional))
        return made

    # ---- capturing -----------------------------------------------------------------------------

    def _captured(self, kind: Any, sizes: Mapping[Any, int], *more: Any) -> Captured:
        leaves = [
            _stand_in(x, _resized(x._meta, k, sizes)) if isinstance(x, TensorBase) else x
            for k, x in enumerate(self.leaves)
        ]
        args, kwargs = rebuild(self.shape, iter(leaves))
        self.capture = kind(
            self.fn, args, kwargs, ReachableState(self.fn, leaves), self.whole, *more
        )
        Exporting.active += 1
        try:
            with lu.no_grad():
                found: Captured = self.capture.run()
        except (CaptureError, MutationError) as error:
            raise ExportError(f"export: {with_line(error)}") from error
        finally:
            Exporting.active -= 1
        _refuse_effects(found)
        found.leaves = found.leaves[: self.capture.count]
        return found

    def _static(self, captured: Captured) -> bp.Blueprint:
        inputs = self._inputs(captured)
        order = sorted(range(len(inputs)), key=lambda k: _ORDER[inputs[k].kind])
        graph = _ordered(captured.graph, order)
        self.order = order
        leaves = [bp.TENSOR if isinstance(x, CapturedResult) else x for x in captured.leaves]
        for x in leaves:
            if x is not bp.TENSOR and not isinstance(x, (int, float, str, type(None), lu.Size)):
                raise ExportError(
                    f"export: the module returns a {type(x).__name__}, which a file can't hold; "
                    "return tensors, numbers, text, and tuples, lists and dicts of them"
                )
        return bp.Blueprint(
            graph,
            [inputs[k] for k in order],
            self.shape,
            [bp.TENSOR if isinstance(x, TensorBase) else x for x in self.leaves],
            self.names,
            captured.shape,
            leaves,
            checks=self.capture.checks,
        )

    def _inputs(self, captured: Captured) -> list[bp.Input]:
        named = dict(_named_tensors(self.fn))
        taken: set[str] = set()
        written = _written(captured)
        found = []
        pairs = zip(captured.graph.inputs, captured.sources, strict=True)
        for v, source in pairs:
            made = self._input(v, source, named, captured)
            if v.index in written and made.kind == bp.CONSTANT and not made.fresh:
                raise ExportError(
                    "export: the module writes to a tensor that is neither an argument, a "
                    "parameter nor a buffer; use register_buffer for what it keeps"
                )
            made.name = _free_name(made.name, taken)
            found.append(made)
        return found

    def _input(
        self, v: Value, source: InputSource, named: Mapping[int, Any], captured: Captured
    ) -> bp.Input:
        if source.kind == ARGUMENT:
            name = _identifier(self.names[source.index])
            name = f"arg_{name}" if name[0].isdigit() or name == "self" else name
            return bp.Input(bp.ARGUMENT, name, leaf=source.index)
        if source.kind not in (HELD, CONSTANT):
            raise ExportError(f"export: {_WHY.get(source.kind, source.kind)}")
        t = source.thing
        if t._meta.flipped:
            raise ExportError(
                "export: the module holds a conjugate or negated view; keep a copy of its own "
                "(resolve_conj(), resolve_neg())"
            )
        kind, target, persistent = named.get(id(t), (bp.CONSTANT, "", False))
        if not target:
            target = f"lifted_tensor_{sum(k[0] == bp.CONSTANT for k in self.tensors)}"
        self.tensors[kind, target] = t
        prefix = {bp.PARAMETER: "p", bp.BUFFER: "b", bp.CONSTANT: "c"}[kind]
        return bp.Input(
            kind, f"{prefix}_{_identifier(target)}", target, persistent=persistent,
            requires_grad=t._needs_grad, fresh=v in captured.fresh,
        )  # fmt: skip

    # ---- sizes that change ---------------------------------------------------------------------

    def _sized(self, made: bp.Blueprint, dynamic: Dynamic) -> bp.Blueprint | None:
        """The blueprint for all sizes; None: sizes that nobody insists on were found to be fixed,
        and are no longer among those that change."""
        template, captured = self._template(made, dynamic, {})
        made = replace(made, template=template, ranges=ranges_of(template, made, dynamic))
        fixed = fixed_roots(made, dynamic, self.capture.guards)
        for name in fixed:
            dynamic.drop(name)
        if fixed:
            return None
        if first_difference(template.instantiate(made.example_sizes()), made.graph):
            raise ExportError("export: the module does something else when it is traced again")
        self._numbers(made, captured)
        guards = self._needed(made, dynamic, self.capture.guards)
        template.guards = tuple(guards)
        check_guards(made, dynamic, guards)
        self._small_sizes(made, dynamic)
        return made

    def _needed(self, made: bp.Blueprint, dynamic: Dynamic, guards: SizeGuards) -> SizeGuards:
        """Ops ask whether a size is 0 or 1, and mostly do the same if it is. A decision that comes
        out otherwise at a few sizes only restricts nothing if the program is the same there."""
        tried: dict[Any, bool] = {}
        kept = SizeGuards()
        for guard, by_value in guards.items():
            symbol, sizes = exceptions(guard, made)
            for n in sizes:
                if (symbol, n) not in tried:
                    tried[symbol, n] = self._is_same_at(made, dynamic, symbol, n)
            if not sizes or not all(tried[symbol, n] for n in sizes):
                kept[guard] = by_value
        return kept

    def _template(
        self, made: bp.Blueprint, dynamic: Dynamic, sizes: Mapping[Any, int]
    ) -> tuple[Template, Captured]:
        """One trace with symbols; `sizes`: dimensions that have a constant size after all."""
        symbols = symbols_of(dynamic, sizes)
        try:
            captured = self._captured(_SizedForward, sizes, symbols)
        except ExportError:
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {with_line(error)}"
            raise ExportError(f"export: the module does not take symbolic sizes: {told}") from error
        graph = _ordered(captured.graph, self.order)
        places: dict[str, tuple[int, int]] = {}
        for k, each in enumerate(made.inputs):
            for (leaf, d), name in symbols.names.items():
                if each.kind == bp.ARGUMENT and each.leaf == leaf:
                    places.setdefault(name, (k, d))
        return generalize(graph, places, self.capture.guards), captured

    def _numbers(self, made: bp.Blueprint, captured: Captured) -> None:
        """Numbers that are returned and follow from sizes are formulas."""
        made.out_leaves = [
            bp.TENSOR if isinstance(x, CapturedResult) else formula_of(x) for x in captured.leaves
        ]
        for x in made.out_leaves:
            if isinstance(x, tuple) and any(isinstance(y, FORMULAS) for y in x):
                raise ExportError("export: a Size that changes is returned; return its numbers")

    def _small_sizes(self, made: bp.Blueprint, dynamic: Dynamic) -> None:
        """Size 1 is taken in if a trace at 1 is what the program gives there."""
        assert made.template is not None
        for symbol, known in made.ranges.items():
            root = dynamic.roots.get(known.name)
            if root is None or root.min > 1 or known.least > SMALLEST:
                continue
            same = made.template.admits({**made.example_sizes(), symbol: 1})
            same = same and self._is_same_at(made, dynamic, symbol, 1)
            known.least = 1 if same else SMALLEST

    def _is_same_at(self, made: bp.Blueprint, dynamic: Dynamic, symbol: str, n: int) -> bool:
        """Whether a trace with a constant in place of a symbol is what the program gives there,
        whatever the other sizes are."""
        assert made.template is not None
        name = made.ranges[symbol].name
        at = {(p.leaf, p.dim): p.size(n) for p in dynamic.places if p.root.name == name}
        example = made.example_sizes()
        try:
            other, _ = self._template(made, dynamic, at)
            for factor in (1, 2, 3):
                sizes = {s: factor * n + factor - 1 for s, n in example.items()}
                sizes[symbol] = n
                found = other.bind(made.template.metas(sizes))
                if found is None:
                    return False
                raw = made.template.instantiate(sizes)
                if first_difference(raw, other.instantiate(found)):
                    return False
        except Exception:  # the module, or one of its ops, does not take these sizes
            return False
        return True


def _stand_in(t: Any, meta: TensorMeta) -> Any:
    """What stands for an argument: without its bytes, and without a history."""
    made = fake_tensor(meta)
    made.__class__ = type(t)
    return made


_WHY = {
    "gradient": "the module reads gradients of tensors, which a program has not",
    "number": "the module reads a number of an optimizer",
    "slot": "the module keeps tensors from call to call; use register_buffer",
    "cover": "the module reads a part of a larger memory: give it tensors of their own (clone())",
}
_ORDER = {bp.PARAMETER: 0, bp.BUFFER: 1, bp.CONSTANT: 2, bp.ARGUMENT: 3}


def _refuse_effects(captured: Captured) -> None:
    if captured.effects:
        raise ExportError(
            "export: the module sets gradients (backward() inside); use autograd.grad, which "
            "returns them"
        )
    if captured.stored:
        slot = captured.stored[0][0]
        raise ExportError(
            f"export: the module keeps a tensor from call to call ({slot}); use register_buffer "
            "and write to the buffer in place"
        )


def _written(captured: Captured) -> set[int]:
    """Numbers of the values that are written to, or are views of such."""
    source = {
        v.index: n.args[0] for n in captured.graph.nodes if n.op.kind == "view" for v in n.outputs
    }
    found: set[int] = set()
    for node in captured.graph.nodes:
        if not node.outputs:
            v = node.args[0]
            while v.index in source:
                v = source[v.index]
            found.add(v.index)
    return found


def _ordered(graph: Graph, order: list[int]) -> Graph:
    """The graph with its inputs in another order."""
    made = Graph()
    made.inputs = [graph.inputs[k] for k in order]
    made.nodes, made.outputs, made._next = graph.nodes, graph.outputs, graph._next
    generators.check(made)
    return made


def _resized(meta: TensorMeta, leaf: int, sizes: Mapping[Any, int]) -> TensorMeta:
    meta = with_flip(meta, False)
    shape = tuple(sizes.get((leaf, d), int(n)) for d, n in enumerate(meta.shape))
    if not meta.is_dense:  # calls give such tensors in another layout, and so does this one
        return make_meta(meta.dtype, shape, None, meta.device)
    if shape == tuple(meta.shape):
        return meta
    if not meta.contiguous:
        raise ExportError("export: an argument with a dimension that changes must be contiguous")
    return make_meta(meta.dtype, shape, None, meta.device)


def _named_tensors(fn: Any) -> Iterator[tuple[int, tuple[str, str, bool]]]:
    owner = fn if isinstance(fn, Module) else getattr(fn, "__self__", None)
    if not isinstance(owner, Module):
        return
    for prefix, module in owner.named_modules():
        dot = f"{prefix}." if prefix else ""
        for name, t in module._buffers.items():
            if t is not None:
                yield id(t), (bp.BUFFER, dot + name, name not in module._non_persistent_buffers_set)
    for name, t in owner.named_parameters():
        yield id(t), (bp.PARAMETER, name, True)


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name).strip("_") or "arg"


def _free_name(name: str, taken: set[str]) -> str:
    made, k = name, 1
    while made in taken:
        made, k = f"{name}_{k}", k + 1
    taken.add(made)
    return made


def with_line(error: BaseException) -> str:
    """What an error says, with the user's line that it comes from."""
    place, text = place_of_error(error), str(error)
    return text if place is None or describe(place) in text else f"{text} ({describe(place)})"
