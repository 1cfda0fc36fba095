"""A program in stages, written as one Python function: calls of compiled stages, ops that run by
themselves, and between them the sizes that are found.

    v7, v9 = stage0((v0, v3))
    v10 = run(op4, (v9,))
    s['_unbacked0'] = _unbacked0 = v10._meta.shape[0] + 2
    v11 = run(op5, (v7, v10))
    if v11._meta.shape != (_unbacked0 - 2, 64) ...: v11 = fitted(...)

Each result is compared with what the capture has told of it. Nothing is written to before the end:
a run that finds other sizes than the program is good for leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lucerne._src.capture.staged.cut import Cut, ProgramStage, subgraph
from lucerne._src.capture.trace.fake import CaptureError, OtherSizesError
from lucerne._src.ir import op as op_
from lucerne._src.ir.dispatch import entry, state, unseen
from lucerne._src.ir.graph import Graph, Node, Value, operands
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.symbolic.expressions import SMALLEST, Expr, FloatExpr, Guard
from lucerne._src.ir.symbolic.unbacked import DIMENSION, GUESS, NEGATIVE, number_of
from lucerne._src.tensor.base import new_tensor
from lucerne._src.tensor.interop.outside import item
from lucerne._src.tensor.random.api import mark, rewind
from lucerne._src.transforms.generalize import GraphOf, MetaOf, formula_of, meta_formula

Compile = Callable[[Graph], Any] | None
"""Makes of a graph what runs it (a `CompiledStage`); None: all nodes run by themselves."""


class CompiledStage:
    """Calls the program of a stage."""

    def __init__(self, runner: Any, metas: Sequence[TensorMeta]) -> None:
        self.runner, self.launch, self.metas = runner, runner.launch, metas

    def __call__(self, given: tuple[Any, ...]) -> Sequence[Any]:
        found = None if self.launch is None else self.launch((), given, ())
        if found is None:
            found = [new_tensor(meta) for meta in self.metas]
            self.runner(given, (), found)
        return found


class StagedProgram:
    """Runs a graph without mutation whose sizes are partly told by the run.

    `bound`: by number of a value, (symbol, what it counts: see `ir.symbolic.unbacked`). `exposed`:
    the numbers of outputs that somebody gets, so that each must be memory of its own.
    """

    def __init__(
        self, graph: Graph, constants: Mapping[int, Any], bound: Mapping[int, tuple[str, int]],
        guards: Sequence[Guard], names: Sequence[str], exposed: set[int], compile_graph: Compile,
    ) -> None:  # fmt: skip
        self.written = [graph.inputs.index(target) for target, _ in graph.writes]
        self.draws = any(n.op.kind == op_.RANDOM for n in graph.nodes)
        self.names, self.signs, self.guards = list(names), dict(bound.values()), list(guards)
        writer = _Writer(graph, constants, bound, guards, exposed, compile_graph)
        self.source = writer.text()
        self.stages = writer.stages
        scope = {**writer.scope, "run": entry.run, "fitted": fitted, "item": item, "owned": owned}
        scope["check"] = self._check
        exec(compile(self.source, "<staged program>", "exec"), scope)
        self._function: Any = scope["program"]

    def __call__(self, arguments: Sequence[Any], sizes: dict[str, int]) -> list[Any]:
        """The outputs; `sizes` gets the symbols that are found."""
        before = mark() if self.draws else None
        grad, cast = state.grad_enabled, state.cast
        try:
            state.grad_enabled = False
            if cast is not None:
                state.set_cast(None)
            if state.kernel_level or state.call_level:
                with unseen():
                    return self._function(arguments, sizes)
            return self._function(arguments, sizes)
        except OtherSizesError:
            if before is not None:
                rewind(before)
            raise
        finally:
            if cast is not None:
                state.set_cast(cast)
            state.grad_enabled = grad

    def _check(self, good: bool, sizes: Mapping[str, int], guards: Sequence[Guard] = ()) -> None:
        """Raise where the program is not good for sizes."""
        wrong = [g for g in guards if not g.holds(sizes)]
        if good and not wrong:
            return
        names = [name for name in self.names if name in sizes]
        found = [number_of(sizes[name], self.signs[name]) for name in names]
        pairs = zip(names, found, strict=True)
        raise OtherSizesError(found, [self._hint(name, n) if good else n for name, n in pairs])

    def _hint(self, name: str, number: int) -> int:
        """What to take for a number. A capture with 0 or 1 is good for nothing else: one that
        decides as they do may be good for them too."""
        if number not in (0, 1):
            return number
        guards = [g for g in self.guards if g.symbols() == {name}]
        decided = [g.holds({name: number + SMALLEST}) for g in guards]
        for other in (GUESS, 2, 3, 4, 5, 7, 15):
            if [g.holds({name: other + SMALLEST}) for g in guards] == decided:
                return other
        return number


def fitted(t: Any, shape: tuple[int, ...], strides: tuple[int, ...], check: Any, sizes: Any) -> Any:
    """A result as it was told: with these strides, if they make a difference."""
    meta = t._meta
    check(meta.shape == shape, sizes)
    told = zip(shape, strides, meta.strides, strict=True)
    if not meta.numel or all(n == 1 or a == b for n, a, b in told):
        return t
    made = new_tensor(make_meta(meta.dtype, shape, strides, meta.device))
    made.copy_(t)
    return made


def owned(t: Any, others: Sequence[Any]) -> Any:
    """A result in memory of its own, where the first element is."""
    memory = t._storage.buffer
    if not t._offset and not any(x._storage.buffer is memory for x in others):
        return t
    made = new_tensor(t._meta)
    made.copy_(t)
    return made


class _Writer:
    """The text of the function, and what it finds by name."""

    def __init__(
        self, graph: Graph, constants: Mapping[int, Any], bound: Mapping[int, tuple[str, int]],
        guards: Sequence[Guard], exposed: set[int], compile_graph: Compile,
    ) -> None:  # fmt: skip
        self.graph, self.constants, self.bound = graph, constants, bound
        self.guards, self.exposed, self.compile_graph = list(guards), exposed, compile_graph
        self.scope: dict[str, Any] = {}
        self.lines: list[str] = []
        self.stages: list[Any] = []
        self.known: set[str] = set()
        self.made = {v.index: n for n in graph.nodes for v in n.outputs}

    def text(self) -> str:
        graph = self.graph
        names = {k: name for k, (name, _) in self.bound.items()}
        decisive = frozenset().union(*[g.symbols() for g in self.guards])
        cut = Cut(graph, names, decisive, compiles=self.compile_graph is not None)
        stages = cut.stages()
        self._begin(cut)
        for k, stage in enumerate(stages):
            later = {v.index for s in stages[k + 1 :] for n in s.nodes for v in operands(n.args)}
            later |= {v.index for v in graph.outputs} | {w.index for _, w in graph.writes}
            later |= self.bound.keys()
            (self._compiled if stage.compiled else self._single)(stage, later)
            self._forget(stage, later)
        self._end()
        return "def program(a, s):\n" + "\n".join(f"    {line}" for line in self.lines) + "\n"

    def _begin(self, cut: Cut) -> None:
        given = [v for k, v in enumerate(self.graph.inputs) if k not in self.constants]
        if any(not isinstance(v.meta, TensorMeta) for v in given):
            raise CaptureError("numbers are given to a program with sizes that depend on the data")
        for k, t in self.constants.items():
            self.scope[f"c{k}"] = t
            self.lines.append(f"v{self.graph.inputs[k].index} = c{k}")
        if given:
            self.lines.append(f"{''.join(f'v{v.index}, ' for v in given)} = a")
        here = {name for name, _ in self.bound.values()}
        for name in sorted({s for found in cut.symbols.values() for s in found} - here):
            self.lines.append(f"{name} = s[{name!r}]")
            self.known.add(name)

    def _compiled(self, stage: ProgramStage, later: set[int]) -> None:
        made, given, results = subgraph(stage.nodes, later)
        if not results:
            return
        assert self.compile_graph is not None
        name = f"stage{len(self.stages)}"
        self.stages.append(self.compile_graph(made))
        self.scope[name] = self.stages[-1]
        left, right = ("".join(f"v{v.index}, " for v in values) for values in (results, given))
        self.lines.append(f"{left}= {name}(({right}))")
        for v in results:
            self._bind(v)

    def _single(self, stage: ProgramStage, later: set[int]) -> None:
        for k, node in enumerate(stage.nodes):
            self._node(node)
            rest = {v.index for n in stage.nodes[k + 1 :] for v in operands(n.args)}
            dead = {v.index for v in operands(node.args)} - rest - later
            self._drop(dead)

    def _forget(self, stage: ProgramStage, later: set[int]) -> None:
        if stage.compiled:
            self._drop({v.index for n in stage.nodes for v in operands(n.args)} - later)

    def _drop(self, dead: set[int]) -> None:
        dead = {k for k in dead if k in self.made and self.made[k].op.kind != op_.VIEW}
        if dead:
            self.lines.append(" = ".join(f"v{k}" for k in sorted(dead)) + " = None")

    def _node(self, node: Node) -> None:
        if any(type(a) is Graph for a in node.args):
            raise CaptureError("control flow with sizes that depend on the data")
        op = f"op{len(self.lines)}"
        self.scope[op] = node.op
        args = "".join(f"{self._argument(a)}, " for a in node.args)
        left = ", ".join(f"v{v.index}" for v in node.outputs)
        self.lines.append(f"{left} = run({op}, ({args}))")
        for v in node.outputs:
            if self.bound.get(v.index, ("", 1))[1] == DIMENSION:
                self._bind(v)
                self._told(v)
            else:
                self._told(v)
                self._bind(v)

    def _argument(self, a: Any) -> str:
        if type(a) is Value:
            return f"v{a.index}"
        if type(a) is tuple:
            return f"({''.join(f'{self._argument(x)}, ' for x in a)})"
        return self._formula(formula_of(a))

    def _formula(self, x: Any) -> str:
        if type(x) is Expr and all(a.op == "symbol" for m in x.terms for a in m):
            return f"({x!r})"
        if isinstance(x, MetaOf | GraphOf):
            raise CaptureError("a meta with sizes that depend on the data is an argument")
        name = f"k{len(self.scope)}"
        self.scope[name] = x
        return f"{name}.at(s)" if isinstance(x, Expr | FloatExpr) else name

    def _told(self, v: Value) -> None:
        """Compare a result with what the capture has told."""
        formula = meta_formula(v.meta)
        at = f"v{v.index}"
        if formula is None:
            name = f"m{v.index}"
            self.scope[name] = v.meta
            told = f"{name}.shape, {name}.strides"
            self.lines.append(f"if {at}._meta is not {name}: {at} = fitted({at}, {told}, check, s)")
            return
        shape, strides = (
            f"({''.join(f'{self._number(n)}, ' for n in numbers)})" for numbers in formula
        )
        self.lines.append(
            f"if {at}._meta.shape != {shape} or {at}._meta.strides != {strides}: "
            f"{at} = fitted({at}, {shape}, {strides}, check, s)"
        )

    def _number(self, n: Any) -> str:
        return self._formula(n) if isinstance(n, Expr | FloatExpr) else repr(n)

    def _bind(self, v: Value) -> None:
        if v.index not in self.bound:
            return
        name, counts = self.bound[v.index]
        found = f"v{v.index}._meta.shape[0]" if counts == DIMENSION else f"item(v{v.index})"
        found = f"{SMALLEST - 1} - {found}" if counts == NEGATIVE else f"{found} + {SMALLEST}"
        if name in self.known:  # the same mask once more
            self.lines.append(f"check({name} == {found}, s)")
            return
        self.known.add(name)
        self.lines.append(f"s[{name!r}] = {name} = {found}")
        if counts != DIMENSION:
            self.lines.append(f"if {name} < {SMALLEST}: check(False, s)")
        ready = [g for g in self.guards if g.symbols() <= self.known]
        if ready:
            self.guards = [g for g in self.guards if g not in ready]
            self.scope[f"g{v.index}"] = ready
            self.lines.append(f"check(True, s, g{v.index})")

    def _end(self) -> None:
        """Results, in memory of their own where somebody gets them, and writes."""
        if self.guards:
            raise CaptureError("a size that decides is not known to the program")
        outputs: list[str] = []
        once: set[int] = set()
        for k, v in enumerate(self.graph.outputs):
            made = self.made.get(v.index)
            new = made is not None and made.op.kind not in (op_.VIEW, op_.COMPOSITE)
            if k in self.exposed and (not new or v.index in once):
                others = "".join(f"{x}, " for x in outputs)
                self.lines.append(f"r{k} = owned(v{v.index}, (*a, {others}))")
                outputs.append(f"r{k}")
            else:
                outputs.append(f"v{v.index}")
            once.add(v.index)
        self._writes(outputs)
        self.lines.append(f"return [{', '.join(outputs)}]")

    def _writes(self, outputs: list[str]) -> None:
        shared = "".join(f"{x}, " for x in outputs)
        for k, (_, value) in enumerate(self.graph.writes):
            self.lines.append(f"w{k} = owned(v{value.index}, (*a, {shared}))")
        for k, (target, _) in enumerate(self.graph.writes):
            self.lines.append(f"v{target.index}.copy_(w{k})")
