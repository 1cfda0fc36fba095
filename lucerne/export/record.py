"""From a module and example arguments to a blueprint: captured once, or, when sizes may change, at
several sizes and generalized."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lucerne.base.where import describe, is_users
from lucerne.capture import Exporting
from lucerne.capture.dynamic import SizedCapture, difference
from lucerne.capture.fake import CaptureError
from lucerne.capture.families import Outline
from lucerne.capture.reach import Reach
from lucerne.capture.trace import (
    ARGUMENT,
    CONSTANT,
    HELD,
    Capture,
    Captured,
    Outcome,
    Source,
)
from lucerne.capture.tree import flatten, rebuild
from lucerne.export import blueprint as bp
from lucerne.export import generators
from lucerne.export.dims import Dim, Dynamic
from lucerne.export.errors import ExportError
from lucerne.export.ranges import (
    broken_decision,
    check_guards,
    narrow,
    ranges_of,
    refuse_decision,
    sizes_to_try,
    symbol_sizes,
    where_broken,
)
from lucerne.export.whole import Explicit
from lucerne.ir.graph import Graph, Value
from lucerne.ir.meta import TensorMeta, make_meta
from lucerne.ir.symbols import SMALLEST, Expr, Guard
from lucerne.nn.modules.module import Module
from lucerne.tensor import api as lu
from lucerne.tensor.base import TensorBase
from lucerne.transforms.functionalize import MutationError
from lucerne.transforms.generalize import DifferentError, Template, first_difference, generalize


class _Forward(Capture):
    """A capture without the backward pass, which keeps the values of what is returned."""

    def _differentiate(
        self, leaves: list[Any], outcomes: list[Any]
    ) -> tuple[list[Source], list[Outcome | None]]:
        self._tangents: list[Any] = []
        self._backward_at, self._differentiated = 0, []
        return [], []

    def _read_off(self, result: Any, uses: Any) -> Captured:
        made = super()._read_off(result, uses)
        leaves: list[Any] = []
        flatten(result, leaves)
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
    """The same at other sizes, in step with the first."""


class Recording:
    """One module on its way to a blueprint."""

    def __init__(
        self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, apart: bool = False
    ) -> None:
        self.fn, self.whole = fn, Explicit(apart)
        self.leaves: list[Any] = []
        self.shape = flatten((args, kwargs), self.leaves)
        self.tensors: dict[tuple[str, str], Any] = {}
        """By kind and name: what the graph reads of the module."""

    def blueprint(self, dynamic: Dynamic, names: list[str]) -> bp.Blueprint:
        self.names = names
        captured = self._captured(_Forward, {})
        made = self._static(captured)
        for name in sorted(dynamic.optional):
            if not self._may_change(captured, dynamic, name):
                dynamic.drop(name)
        while dynamic.roots:
            try:
                return self._sized(made, captured, dynamic)
            except ExportError:
                if not dynamic.optional:
                    raise
                dynamic.drop(max(dynamic.optional))
        return made

    def _may_change(self, first: Captured, dynamic: Dynamic, name: str) -> bool:
        """Whether the module takes another size in one place alone, and does the same there."""
        try:
            other = self._at(
                first, dynamic, {**dynamic.example, name: 2 * dynamic.example[name] + 1}
            )
        except ExportError:
            return False
        if other is None:
            return dynamic.roots[name].min < dynamic.roots[name].max
        graphs = first.graph, other.graph
        return len(graphs[0].nodes) == len(graphs[1].nodes)

    # ---- capturing -----------------------------------------------------------------------------

    def _captured(self, kind: Any, sizes: Mapping[Any, int], *more: Any) -> Captured:
        leaves = [
            Outline(x).tensor(_resized(x._meta, k, sizes)) if isinstance(x, TensorBase) else x
            for k, x in enumerate(self.leaves)
        ]
        for x in leaves:
            if isinstance(x, TensorBase):
                x._auto = None
        args, kwargs = rebuild(self.shape, iter(leaves))
        self.capture = kind(self.fn, args, kwargs, Reach(self.fn, leaves), self.whole, *more)
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
        leaves = [bp.TENSOR if isinstance(x, Outcome) else x for x in captured.leaves]
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
        self, v: Value, source: Source, named: Mapping[int, Any], captured: Captured
    ) -> bp.Input:
        if source.kind == ARGUMENT:
            name = _identifier(self.names[source.index])
            name = f"arg_{name}" if name[0].isdigit() or name == "self" else name
            return bp.Input(bp.ARGUMENT, name, leaf=source.index)
        if source.kind not in (HELD, CONSTANT):
            raise ExportError(f"export: {_WHY.get(source.kind, source.kind)}")
        t = source.thing
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

    def _sized(self, made: bp.Blueprint, first: Captured, dynamic: Dynamic) -> bp.Blueprint:
        captures, graphs = [first], [made.graph]
        guards: dict[Guard, None] = {}
        hints: Any = {}
        returned: list[Any] = [x for x in made.out_leaves if x is not bp.TENSOR]
        told: list[Any] = []
        for at in sizes_to_try(dynamic):
            other = self._at(first, dynamic, at)
            if other is None:  # a range has become smaller
                return self._sized(made, first, dynamic)
            if len(captures) == 1:
                hints = self.capture.told.hints
                told = [x for x in self.capture.told.leaves if not isinstance(x, Outcome)]
            guards.update(dict.fromkeys(self.capture.told.guards))
            captures.append(other)
            graphs.append(_ordered(other.graph, self.order))
        if len(graphs) == 1:
            raise ExportError("export: a Dim whose range has one size only is no dynamic dimension")
        template = generalize(*graphs, guards=guards, hints=hints)
        if not isinstance(template, Template):
            raise ExportError(
                f"export: the module is not one program for all sizes: {template}. A loop over a "
                "size, or a constant made of one, gives another program for each; make that "
                "dimension static (leave it out of dynamic_shapes)."
            )
        self._numbers(made, template, captures, returned, told)
        made.template = template
        made.ranges = ranges_of(template, made, dynamic)
        self._drop_vacuous(made, first, dynamic)
        check_guards(made, dynamic)
        self._small_sizes(made, first, dynamic)
        return made

    def _at(self, first: Captured, dynamic: Dynamic, at: Mapping[str, int]) -> Captured | None:
        """A capture at other sizes; None: the module decides otherwise there, and the range of a
        size that nobody insists on ends before."""
        sizes = ", ".join(f"{name} = {n}" for name, n in at.items())
        try:
            other = self._captured(_SizedForward, dynamic.sizes(at), first)
        except ExportError:
            raise
        except Exception as error:
            raise ExportError(
                f"export: the module does not take {sizes}, which dynamic_shapes allows: "
                f"{type(error).__name__}: {with_line(error)}. Give the Dim a range without such "
                "sizes, one Dim to dimensions that must agree, or `8 * Dim(...)` where multiples "
                "are needed."
            ) from error
        broken = broken_decision(self.capture.told.guards, dynamic, at)
        if broken is not None:
            name, guard = broken
            known = bp.Range(name, dynamic.roots[name].min, dynamic.roots[name].max)
            if name not in dynamic.optional:
                refuse_decision(guard, "s", known, repr(guard).replace("s", name, 1))
            narrow(guard, "s", known, dynamic.example[name])
            dynamic.roots[name] = Dim(name, min=known.least, max=known.most)
            return None
        why = difference(first, other)
        if why:
            raise ExportError(f"export: at {sizes} the module does something else: {why}")
        return other

    def _numbers(
        self, made: bp.Blueprint, template: Template, captures: list[Captured],
        first: list[Any], told: list[Any],
    ) -> None:  # fmt: skip
        """Numbers that are returned and follow from sizes become formulas."""
        seen = [
            [
                tuple(x) if isinstance(x, lu.Size) else x
                for x in c.leaves
                if not isinstance(x, Outcome)
            ]
            for c in captures
        ]
        try:
            found = iter(template.formula(seen, told))
        except DifferentError as error:
            raise ExportError(f"export: a number that is returned changes: {error}") from error
        made.out_leaves = [x if x is bp.TENSOR else next(found) for x in made.out_leaves]
        for x in made.out_leaves:
            if isinstance(x, tuple) and any(isinstance(y, Expr) for y in x):
                raise ExportError("export: a Size that changes is returned; return its numbers")

    def _drop_vacuous(self, made: bp.Blueprint, first: Captured, dynamic: Dynamic) -> None:
        """Ops compare sizes too, mostly to check them. Such a decision restricts nothing if a trace
        at sizes where it comes out the other way is the same program."""
        assert made.template is not None
        template, guards = made.template, made.template.guards
        template.guards = tuple(g for g in guards if g.users)
        tried: dict[Any, bool] = {}
        kept = []
        for guard in guards:
            at = None if guard.users else where_broken(guard, made, dynamic)
            if at is None:
                kept.append(guard)
                continue
            key = tuple(at.items())
            if key not in tried:
                tried[key] = self._is_same(made, first, dynamic, at)
            if not tried[key]:
                kept.append(guard)
        template.guards = tuple(kept)

    def _is_same(
        self, made: bp.Blueprint, first: Captured, dynamic: Dynamic, at: dict[str, int]
    ) -> bool:
        """Whether a trace at these sizes is what the program gives there."""
        assert made.template is not None
        sizes = symbol_sizes(made, dynamic, at)
        try:
            other = self._captured(_SizedForward, dynamic.sizes(at), first)
            raw = made.template.instantiate(sizes)
            return not difference(first, other) and not first_difference(
                raw, _ordered(other.graph, self.order)
            )
        except Exception:  # the module, or one of its ops, does not take these sizes
            return False

    def _small_sizes(self, made: bp.Blueprint, first: Captured, dynamic: Dynamic) -> None:
        """Size 1 is taken in if a trace at 1 is what the program gives there."""
        assert made.template is not None
        for known in made.ranges.values():
            root = dynamic.roots.get(known.name)
            if root is None or root.min > 1 or known.least > SMALLEST:
                continue
            same = self._is_same(made, first, dynamic, {**dynamic.example, known.name: 1})
            known.least = 1 if same else SMALLEST


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
    place, trace = None, error.__traceback__
    while trace is not None:
        if is_users(trace.tb_frame.f_code):
            place = trace.tb_frame.f_code, trace.tb_lineno
        trace = trace.tb_next
    text = str(error)
    return text if place is None or describe(place) in text else f"{text} ({describe(place)})"
