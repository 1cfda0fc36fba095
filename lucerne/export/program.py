"""ExportedProgram: a module as a graph with its weights, free of the module's source."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from lucerne._src.base.process.forks import once
from lucerne._src.capture.trace.decompositions import warn_of_strangers
from lucerne._src.capture.trace.fake import fake_tensor
from lucerne._src.capture.trace.pytree import flatten, rebuild
from lucerne._src.ir import dispatch
from lucerne._src.ir.symbolic.expressions import Expr
from lucerne._src.ir.symbolic.numbers import is_symbolic
from lucerne._src.tensor import api as lu
from lucerne.export import blueprint as bp
from lucerne.export.dims import Dim, Dynamic, Place
from lucerne.export.errors import ArgumentError, ExportError
from lucerne.export.pipeline import Compiled
from lucerne.export.record import Recording
from lucerne.export.run import Steps
from lucerne.export.shapes import plain_shape
from lucerne.export.signature import ExportGraphSignature, signature_of
from lucerne.fx.graph import Graph
from lucerne.fx.graph_module import GraphModule
from lucerne.fx.one_ir import named_from_ir
from lucerne.nn.modules.module import Module
from lucerne.nn.parameter import Parameter

_MOST_SIZES = 64


class ExportedModule(Module):
    """An exported program as a module: parameters under their old names, gradients flow.

    It runs op by op, or, after `compiled()`, as a program of the compiler where no gradients are
    needed.
    """

    def __init__(self, plan: bp.Blueprint, tensors: Mapping[tuple[str, str], Any]) -> None:
        super().__init__()
        self.__dict__["_plan"] = plan
        self.__dict__["_sized"] = {}
        self.__dict__["_compiled"] = None
        self.__dict__["_constants"] = {}
        for (kind, target), t in tensors.items():
            if kind == bp.CONSTANT:
                self._constants[target] = t
            else:
                _register(self, kind, target, t, plan)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        plan: bp.Blueprint = self._plan
        leaves: list[Any] = []
        if plain_shape(flatten((args, kwargs), leaves)) != plain_shape(plan.in_shape):
            args, kwargs = _arranged(plan, args, kwargs)
            leaves = []
            flatten((args, kwargs), leaves)
        sizes = plan.bind(leaves)
        inputs = [leaves[i.leaf] if i.kind == bp.ARGUMENT else self._tensor(i) for i in plan.inputs]
        outputs, constants = self._run(sizes, inputs)
        for flag, (kind, text) in zip(reversed(outputs), reversed(plan.checks), strict=False):
            dispatch.raise_if(flag, functools.partial(bp.RAISED[kind], text))
        found = iter(outputs)
        out = [next(found) if x is bp.TENSOR else x for x in constants]
        return rebuild(plan.out_shape, iter(out))

    def _run(self, sizes: tuple[Any, ...], inputs: list[Any]) -> tuple[list[Any], list[Any]]:
        if self._compiled is not None:
            grad = lu.is_grad_enabled() and any(t.requires_grad for t in inputs)
            if not grad:
                made: tuple[list[Any], list[Any]] = self._compiled(sizes, inputs)
                return made
        if is_symbolic([n for _, n in sizes]):  # it is traced: expressions are no keys
            graph, constants = self._plan.at(dict(sizes))
            return Steps(graph)(inputs), constants
        found = self._sized.get(sizes)
        if found is None:
            if len(self._sized) >= _MOST_SIZES:
                self._sized.clear()
            graph, constants = self._plan.at(dict(sizes))
            found = self._sized[sizes] = Steps(graph), constants
        return found[0](inputs), found[1]

    def _tensor(self, i: bp.Input) -> Any:
        if i.kind == bp.CONSTANT:
            return self._constants[i.target]
        *path, name = i.target.split(".")
        owner: Any = self
        for part in path:
            owner = owner._modules[part]
        return owner._parameters[name] if i.kind == bp.PARAMETER else owner._buffers[name]

    def compiled(self, backend: str | None = None, mode: str | None = None) -> ExportedModule:
        """Run through the compiler's pipeline from now on, where no gradients are needed."""
        self.__dict__["_compiled"] = Compiled(self._plan, backend, mode)
        return self

    def extra_repr(self) -> str:
        return f"{len(self._plan.graph.nodes)} ops"


class _Part(Module):
    """Holds parameters of an exported module under their old names."""


def _register(root: Module, kind: str, target: str, t: Any, plan: bp.Blueprint) -> None:
    *path, name = target.split(".")
    owner = root
    for part in path:
        if part not in owner._modules:
            owner._modules[part] = _Part()
        owner = owner._modules[part]
    if kind == bp.PARAMETER:
        owner.register_parameter(name, t)
        return
    kept = [i.persistent for i in plan.inputs if (i.kind, i.target) == (kind, target)]
    owner.register_buffer(name, t, persistent=not kept or kept[0])


def _arranged(
    plan: bp.Blueprint, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by position where the example had them by name, and the other way round."""
    positional, named = plan.in_shape[1]
    names = plan.top_names
    count, keys = len(positional[1]), list(named[1])
    given = dict(zip(names, args, strict=False))
    if len(args) <= len(names) and not given.keys() & kwargs.keys():
        given.update(kwargs)
        if given.keys() == set(names):
            ordered = tuple(given[n] for n in names[:count])
            rest = {k: given[k] for k in keys}
            if plain_shape(flatten((ordered, rest), [])) == plain_shape(plan.in_shape):
                return ordered, rest
    want = ", ".join(names)
    raise ArgumentError(
        f"the arguments are put together in another way than when the program was exported: "
        f"({want}) is expected, with the same lists, tuples and dicts inside"
    )


class ExportedProgram:
    """A module as one graph: made by `export`, kept in files by `save` and `load`.

    >>> import lucerne as torch
    >>> program = torch.export.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    >>> program.graph_signature.parameters
    ('weight', 'bias')
    >>> program.module()(torch.ones(4, 3)).shape
    torch.Size([4, 2])
    """

    def __init__(
        self, plan: bp.Blueprint, tensors: dict[tuple[str, str], Any], state: dict[str, Any],
        example: tuple[Any, Any] | None = None,
    ) -> None:  # fmt: skip
        self.plan, self.tensors = plan, tensors
        self._state = state
        self._example = example

    # ---- what it holds -------------------------------------------------------------------------

    @property
    def state_dict(self) -> dict[str, Any]:
        """Parameters and buffers by name, also those the graph does not read."""
        return self._state

    @property
    def constants(self) -> dict[str, Any]:
        """Tensors that are neither: buffers which are not saved, and values made in the code."""
        persistent = self._state.keys()
        return {n: t for (_, n), t in self.tensors.items() if n not in persistent}

    @property
    def tensor_constants(self) -> dict[str, Any]:
        return self.constants

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        for name, t in self._state.items():
            if isinstance(t, Parameter):
                yield name, t

    def parameters(self) -> Iterator[Any]:
        for _, t in self.named_parameters():
            yield t

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        for (kind, name), t in self.tensors.items():
            if kind == bp.BUFFER:
                yield name, t

    def buffers(self) -> Iterator[Any]:
        for _, t in self.named_buffers():
            yield t

    @property
    def example_inputs(self) -> tuple[Any, Any] | None:
        return self._example

    @property
    def range_constraints(self) -> dict[str, bp.Range]:
        """By name: from where to where a size may go."""
        return {r.name: r for r in self.plan.ranges.values()}

    @property
    def guards(self) -> list[str]:
        """What the module decided by sizes, which is so in the whole range."""
        return self.plan.guards

    @property
    def dialect(self) -> str:
        return "TRAINING"

    # ---- graphs --------------------------------------------------------------------------------

    @once
    def _shown(self) -> tuple[GraphModule, ExportGraphSignature]:
        graph, _ = self.plan.at(self.plan.example_sizes())
        names = [i.name for i in self.plan.inputs]
        module, told = named_from_ir(graph, names)
        return module, signature_of(self.plan, graph, told)

    @property
    def graph_module(self) -> GraphModule:
        """The graph as a module that people can read and change; parameters are its arguments."""
        return self._shown[0]

    @property
    def graph(self) -> Graph:
        return self.graph_module.graph

    @property
    def graph_signature(self) -> ExportGraphSignature:
        return self._shown[1]

    def __str__(self) -> str:
        sizes = "\n".join(f"  {r}" for r in self.plan.ranges.values())
        formulas = f"sizes:\n{sizes}\n" if sizes else ""
        return f"ExportedProgram:\n{self.graph_module.code.strip()}\n{formulas}"

    __repr__ = __str__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` "
            "instead."
        )

    def module(self, check_guards: bool = True) -> ExportedModule:
        """A module that runs the program; its parameters are those of the program."""
        made = ExportedModule(self.plan, self.tensors)
        register_unread(made, self)
        return made

    def compiled(self, backend: str | None = None, mode: str | None = None) -> ExportedModule:
        """`module()` that runs through the compiler's pipeline where no gradients are needed."""
        return self.module().compiled(backend, mode)

    def run_decompositions(self, decomp_table: Any = None) -> ExportedProgram:
        """The same program with other ops: those of the functions in `decomp_table`.

        The table maps operators (`torch.ops.aten.silu.default`) to functions of the same arguments.
        None is `default_decompositions()`: composites are taken apart into the ops of their bodies.
        """
        if decomp_table is not None:
            warn_of_strangers(decomp_table, exported=True)
        return self.recorded_again(apart=True, table=decomp_table)

    def recorded_again(self, **how: Any) -> ExportedProgram:
        """The same program without mutation, in other ops: see `Recording` for `how`."""
        plan, module = self.plan, self.module()
        metas = {i.leaf: v.meta for v, i in zip(plan.graph.inputs, plan.inputs, strict=True)
                 if i.kind == bp.ARGUMENT}  # fmt: skip
        leaves = [
            fake_tensor(metas[k]) if x is bp.TENSOR else x for k, x in enumerate(plan.in_leaves)
        ]
        args, kwargs = rebuild(plan.in_shape, iter(leaves))
        recording = Recording(module, args, kwargs, **how)
        made = recording.blueprint(dynamic_of(plan), plan.in_names)
        made.top_names, made.guards = plan.top_names, plan.guards
        for known in made.ranges.values():
            known.least = self.range_constraints[known.name].least
        return ExportedProgram(made, recording.tensors, self._state, self._example)

    def check(self) -> None:
        """Raise if the plan is at odds with its tensors."""
        for v, i in zip(self.plan.graph.inputs, self.plan.inputs, strict=True):
            if i.kind == bp.ARGUMENT:
                continue
            t = self.tensors.get((i.kind, i.target))
            if t is None or t._meta is not v.meta:
                raise ExportError(f"{i.target}: {v.typed()} is needed, not {t}")


def dynamic_of(plan: bp.Blueprint) -> Dynamic:
    """The sizes of a plan that may change, as `export` is told them."""
    found = Dynamic()
    if plan.template is None:
        return found
    roots = {s: Dim(r.name, min=r.least, max=r.most) for s, r in plan.ranges.items()}
    example = plan.example_sizes()
    found.roots = {d.name: d for d in roots.values()}
    found.example = {roots[s].name: n for s, n in example.items()}
    for i, formula in zip(plan.inputs, plan.template.inputs, strict=True):
        for d, size in enumerate(formula[0] if formula is not None else ()):
            if isinstance(size, Expr):
                [symbol] = size.symbols()
                at = functools.partial(_size_at, size, symbol)
                where = f"{plan.in_names[i.leaf]}, dimension {d}"
                found.places.append(Place(i.leaf, d, where, roots[symbol], at))
    return found


def _size_at(formula: Expr, symbol: str, n: int) -> int:
    return formula.at({symbol: n})


def register_unread(made: ExportedModule, program: ExportedProgram) -> None:
    """Give a module the state that its graph does not read: its state_dict stays complete."""
    for name, t in program.state_dict.items():
        kind = bp.PARAMETER if isinstance(t, Parameter) else bp.BUFFER
        if (kind, name) not in program.tensors:
            _register(made, kind, name, t, program.plan)
