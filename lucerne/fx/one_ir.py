"""Between the compiler's graphs (`lucerne._src.ir.graph`) and the ones people edit (`lucerne.fx`).

The compiler's graph knows ops, metas and nothing of Python; an fx graph can be read, changed and
run as a module. `from_ir` shows one as the other, `to_ir` gets back by tracing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lucerne._src.base.process.source_location import Place
from lucerne._src.capture.process_state import quiet
from lucerne._src.capture.trace.fake import CaptureError, fake_tensor
from lucerne._src.capture.trace.recorder import Recorder
from lucerne._src.ir import graph as ir
from lucerne._src.ir import op as op_
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.ops.view.slicing import strided_view
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.autograd.state import AutogradState
from lucerne._src.tensor.subclasses.torch_function import as_call
from lucerne._src.transforms.functionalize import functionalize
from lucerne.fx import _pytree as pytree
from lucerne.fx.graph import Graph
from lucerne.fx.graph_module import GraphModule
from lucerne.fx.node import Node, TensorMetadata, base_types

_STRIDED: Op = strided_view.op  # type: ignore[attr-defined]


# ---- from the compiler's graph -------------------------------------------------------------------


def from_ir(
    graph: ir.Graph,
    held: Mapping[ir.Value, Any] | None = None,
    names: Sequence[str] | None = None,
    places: Sequence[Place | None] | None = None,
) -> GraphModule:
    """A module that does what one of the compiler's graphs does; it returns a tuple.

    Each op is a call of its public function; `meta["val"]` is a tensor without bytes and
    `meta["tensor_meta"]` says the same as a tuple. `held` gives the tensors of inputs that are no
    parameters of the module but belong to it; `names` are those of the other inputs; `places` are
    the user's lines.

    >>> import lucerne as torch
    >>> graph, _ = torch.fx.to_ir(lambda x: torch.relu(x) + 1, torch.ones(2))
    >>> print(torch.fx.from_ir(graph).code.strip())
    def forward(self, arg0):
        relu = torch.relu(arg0);  arg0 = None
        add = torch.Tensor.add(relu, 1);  relu = None
        return (add,)
    """
    return _FromIr(graph, dict(held or {}), names, places).module()


def named_from_ir(graph: ir.Graph, names: Sequence[str]) -> tuple[GraphModule, dict[int, str]]:
    """`from_ir` with a name for every input, and the name that each value (by number) has there."""
    made = _FromIr(graph, {}, names, None)
    return made.module(), {v.index: node.name for v, node in made.nodes.items()}


class _FromIr:
    def __init__(
        self,
        graph: ir.Graph,
        held: dict[ir.Value, Any],
        names: Sequence[str] | None,
        places: Sequence[Place | None] | None,
    ) -> None:
        self.source, self.held, self.places = graph, held, places
        self.graph = Graph()
        self.attributes: dict[str, Any] = {}
        self.nodes: dict[ir.Value, Node] = {}
        given = iter(names or ())
        for k, value in enumerate(graph.inputs):
            if value in held:
                self.nodes[value] = self._attribute(held[value])
            else:
                self.nodes[value] = self.graph.placeholder(next(given, f"arg{k}"))
            _note(self.nodes[value], [value], several=False)

    def module(self, result: Any = None) -> GraphModule:
        for k, node in enumerate(self.source.nodes):
            made = self._call(node)
            if self.places is not None and self.places[k] is not None:
                code, line = self.places[k]  # type: ignore[misc]
                made.stack_trace = f'File "{code.co_filename}", line {line}, in {code.co_name}\n'
        for target, value in self.source.writes:
            args = (self.nodes[target], self.nodes[value])
            self.graph.create_node("call_function", _COPY, args, {}, "copy_")
        self.graph.output(tuple(self.nodes[v] for v in self.source.outputs))
        return GraphModule(self.attributes, self.graph)

    def _call(self, node: ir.Node) -> Node:
        args = tuple(self._argument(a) for a in node.args)
        if not node.outputs:  # a write that was not taken out yet
            return self.graph.create_node("call_function", _COPY, args[:2], {}, "copy_")
        function, positional, named = as_call(node.op, args, None)
        made = self.graph.call_function(function, positional, named)
        several = _returns_several(node)
        _note(made, node.outputs, several)
        if not several:
            self.nodes[node.outputs[0]] = made
            return made
        for i, value in enumerate(node.outputs):
            part = self.graph.call_function(operator.getitem, (made, i))
            _note(part, [value], several=False)
            self.nodes[value] = part
        return made

    def _argument(self, a: Any) -> Any:
        if isinstance(a, ir.Value):
            return self.nodes[a]
        if isinstance(a, (tuple, list)):
            return tuple(self._argument(x) for x in a)
        plain = a is None or (isinstance(a, base_types) and not isinstance(a, lu.Tensor))
        if plain or isinstance(a, type) or callable(a):
            return a
        return self._attribute(a)

    def _attribute(self, found: Any) -> Node:
        kind = "_tensor_constant" if isinstance(found, lu.Tensor) else "_constant"
        kind = "_graph" if isinstance(found, ir.Graph) else kind
        name = f"{kind}{sum(n.startswith(kind) for n in self.attributes)}"
        self.attributes[name] = found
        return self.graph.get_attr(name)


_COPY: Any = lu.Tensor.copy_


def _returns_several(node: ir.Node) -> bool:
    """Whether the function of a node returns a tuple."""
    if node.op.kind != op_.VIEW:
        return len(node.outputs) != 1
    metas = (a.meta if isinstance(a, ir.Value) else a for a in node.args)
    return isinstance(node.op.body(*metas), (list, tuple))


def _note(node: Node, values: Sequence[ir.Value], several: bool) -> None:
    """Put what is known of a value into the meta of its node."""
    found = [fake_tensor(v.meta) if isinstance(v.meta, TensorMeta) else v.meta for v in values]
    told = [_metadata(v.meta) for v in values]
    node.meta["val"] = tuple(found) if several else found[0]
    if all(t is not None for t in told):
        node.meta["tensor_meta"] = tuple(told) if several else told[0]


def _metadata(meta: Any) -> TensorMetadata | None:
    if not isinstance(meta, TensorMeta):
        return None
    form = lu.contiguous_format if meta.contiguous else None
    return TensorMetadata(meta.shape, meta.dtype, False, meta.strides, form)


# ---- to the compiler's graph ---------------------------------------------------------------------


class Traced:
    """A call of a function as a graph of ops, with the structure of what it returned."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], whole: Any) -> None:
        self.recorder = Recorder(whole or (lambda op, args: False))
        flat, self.spec = pytree.tree_flatten(tuple(args))
        given = [self._stand_in(x) for x in flat]
        with quiet(), self.recorder:
            result = function(*pytree.tree_unflatten(given, self.spec))
            leaves, self.out_spec = pytree.tree_flatten(result)
            self.leaves = leaves
            self.graph = self._finished([x for x in leaves if isinstance(x, lu.Tensor)])

    def _stand_in(self, x: Any) -> Any:
        """A tensor without bytes for one of the arguments."""
        if not isinstance(x, lu.Tensor):
            return x
        made = fake_tensor(x._meta)
        if x._needs_grad:
            made._auto = AutogradState(requires_grad=True)
        self.recorder.input(made)
        return made

    def _finished(self, results: list[Any]) -> ir.Graph:
        recorder = self.recorder
        graph = recorder.graph
        if all(n.outputs for n in graph.nodes):
            graph.outputs = tuple(recorder.value(t) for t in results)
            return graph
        roots = [recorder.root(t) for t in results]
        made = functionalize(graph, [r for r, _ in roots], frozenset(recorder.constants))
        outputs = []
        for t, value, (_, first) in zip(results, made.outputs, roots, strict=True):
            offset = t._offset - first._offset
            if t._meta is not first._meta or offset:
                if t._meta.dtype is not value.meta.dtype:
                    raise CaptureError("a result is a view of another dtype of what was written to")
                args = (value, tuple(t._meta.shape), t._meta.strides, offset)
                value = made.call(_STRIDED, args, [t._meta])[0]
            outputs.append(value)
        made.outputs = tuple(outputs)
        return made

    @property
    def held(self) -> dict[ir.Value, Any]:
        """Inputs that are not among the arguments: tensors the function found by itself."""
        outside = zip(self.graph.inputs, self.recorder.outside, strict=True)
        count = sum(1 for x in self.recorder.outside if _is_stand_in(x))
        return dict(list(outside)[count:])


def _is_stand_in(x: Any) -> bool:
    return isinstance(x, lu.Tensor) and not hasattr(x._storage.buffer, "nbytes")


def to_ir(
    function: Callable[..., Any],
    *args: Any,
    whole: Callable[[Op, tuple[Any, ...]], bool] | None = None,
) -> tuple[ir.Graph, list[Any]]:
    """The graph of ops that a function or module runs for arguments like these.

    Also returns the tensors of the inputs that follow those of the arguments: parameters and others
    that the function found by itself. `whole(op, args)` says which composites stay whole.

    >>> import lucerne as torch
    >>> layer = torch.nn.Linear(3, 2)
    >>> graph, held = torch.fx.to_ir(lambda x: torch.relu(x * 2), torch.ones(3))
    >>> print(graph)
    graph(%0: float32[3])
      %1: float32[3] = mul(%0, 2)
      %2: float32[3] = relu(%1)
      return %2
    """
    traced = Traced(function, args, whole)
    return traced.graph, list(traced.held.values())
