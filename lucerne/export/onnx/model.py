"""A program as an ONNX model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.ir.graph import Graph, Value
from lucerne._src.ir.symbolic.expressions import Expr
from lucerne.export import blueprint as bp
from lucerne.export.onnx.errors import NotExpressibleError, OnnxExporterError, Refusal
from lucerne.export.onnx.packages import onnx_package
from lucerne.export.onnx.translate import Translation, needed_values
from lucerne.export.onnx.types import code_of, tensor_proto
from lucerne.export.program import ExportedProgram

OPSETS = {20: 9, 21: 10, 22: 10, 23: 11}
"""The versions of operators that can be written, and of the file format that came with each."""


class Names:
    """What inputs and outputs are called in the file."""

    def __init__(self, inputs: Sequence[str] = (), outputs: Sequence[str] = ()) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)


def has_mutation(graph: Graph) -> bool:
    """Whether a graph writes to memory: inside, or to its inputs."""
    return any(not node.outputs for node in graph.nodes) or bool(graph.writes)


def model_of(program: ExportedProgram, opset: int, names: Names) -> Any:
    """The model; raises an error with every refusal if there are any."""
    made = _Model(program, opset, names)
    if made.refusals:
        told = "\n".join(f"  {r}" for r in made.refusals)
        raise OnnxExporterError(
            f"onnx.export: {len(made.refusals)} things of this program have no form in ONNX:\n"
            f"{told}",
            made.refusals,
        )
    return made.model


class _Model:
    def __init__(self, program: ExportedProgram, opset: int, names: Names) -> None:
        self.program, self.plan, self.opset = program, program.plan, opset
        plan = self.plan
        self.template = plan.template if plan.template and not has_mutation(plan.graph) else None
        if self.template is not None:
            self.graph, formulas = self.template.graph, self.template.formulas
            self.shapes = self.template.inputs
        else:
            self.graph, formulas = plan.at(plan.example_sizes())[0], {}
            self.shapes = [None] * len(plan.inputs)
        self.c = Translation(opset)
        self.refusals: list[Refusal] = self.c.refusals
        self._refuse_state()
        count = sum(x is bp.TENSOR for x in plan.out_leaves)
        self.results = list(self.graph.outputs[:count])
        self.needed = needed_values(self.graph, self.results)
        self.inputs = self._inputs(names)
        self._symbols()
        if self.refusals:
            return
        self.c.run(self.graph, formulas, self.needed)
        if not self.refusals:
            self.model = self._model(names)

    def _refuse_state(self) -> None:
        for target, _ in self.graph.writes:
            i = self.plan.inputs[self.graph.inputs.index(target)]
            what = "an argument" if i.kind == bp.ARGUMENT else f"the buffer {i.target}"
            self.refusals.append(Refusal(
                "copy_", i.name, f"the module writes to {what}, and an ONNX model keeps nothing "
                "from call to call: call eval() first, or return the new value",
            ))  # fmt: skip
        if self.plan.template is not None and self.template is None:
            self.refusals.append(Refusal(
                "copy_", "the module", "it writes to tensors while sizes change",
            ))  # fmt: skip

    # ---- inputs ----------------------------------------------------------------------------------

    def _inputs(self, names: Names) -> list[Any]:
        c, found = self.c, []
        arguments = [i.name for i in self.plan.inputs if i.kind == bp.ARGUMENT]
        if len(names.inputs) > len(arguments):
            raise ValueError(
                f"onnx.export: {len(names.inputs)} input_names for {len(arguments)} tensors: "
                f"{', '.join(arguments)}"
            )
        called = dict(zip(arguments, [*names.inputs, *arguments[len(names.inputs) :]], strict=True))
        c.taken |= {*called.values(), *names.outputs}
        for v, i, formula in zip(self.graph.inputs, self.plan.inputs, self.shapes, strict=True):
            try:
                if i.kind == bp.ARGUMENT:
                    c.names[v.index] = called[i.name]
                    if formula is not None:
                        c.shapes[v.index] = tuple(formula[0])
                    found.append(self._info(called[i.name], v))
                elif v.index in self.needed:
                    c.names[v.index] = self._weight(i)
            except NotExpressibleError as error:
                self.refusals.append(Refusal("input", i.name, str(error)))
        return found

    def _weight(self, i: Any) -> str:
        t = self.program.tensors[i.kind, i.target].detach()
        name = i.target
        while name in self.c.taken or name in self.c.initializers:
            name += "_"
        self.c.initializers[name] = tensor_proto(t, name)
        return name

    def _info(self, name: str, v: Value) -> Any:
        shape = [
            self.plan.renamed(repr(n)) if isinstance(n, Expr) else int(n)
            for n in self.c.sizes_of(v)
        ]
        return onnx_package().helper.make_tensor_value_info(name, code_of(v.meta.dtype), shape)

    def _symbols(self) -> None:
        if self.template is None:
            return
        for symbol, (k, d) in self.template.symbols.items():
            name = self.c.names[self.graph.inputs[k].index]
            self.c.sizes[symbol] = self.c.shape(name, d, d + 1)
        for k, results in (self.template.results or {}).items():
            pairs = zip(self.graph.nodes[k].outputs, results, strict=True)
            self.c.shapes.update((v.index, tuple(f[0])) for v, f in pairs if f is not None)

    # ---- the whole -------------------------------------------------------------------------------

    def _model(self, names: Names) -> Any:
        c, onnx = self.c, onnx_package()
        outputs = []
        if len(names.outputs) > len(self.results):
            raise ValueError(
                f"onnx.export: {len(names.outputs)} output_names for {len(self.results)} results"
            )
        for k, v in enumerate(self.results):
            given = names.outputs[k] if k < len(names.outputs) else f"output{k}"
            c.nodes.append(onnx.helper.make_node("Identity", [c.of(v)], [given]))
            outputs.append(self._info(given, v))
        graph = self._graph(outputs)
        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", self.opset)],
            ir_version=OPSETS[self.opset], producer_name="lucerne",
        )  # fmt: skip
        if sum(len(t.raw_data) for t in graph.initializer) < _MOST_CHECKED:
            onnx.checker.check_model(model)
        return model

    def _graph(self, outputs: Any) -> Any:
        nodes, kept = _needed_only(self.c.nodes, self.c.initializers, outputs)
        return onnx_package().helper.make_graph(nodes, "lucerne", self.inputs, outputs, kept)


_MOST_CHECKED = 2**30


def _needed_only(nodes: Any, initializers: Any, outputs: Any) -> tuple[list[Any], list[Any]]:
    """The nodes that the outputs follow from, and the constants that they read."""
    read = {o.name for o in outputs}
    kept = []
    for node in reversed(nodes):
        if any(name in read for name in node.output):
            kept.append(node)
            read.update(_reads(node))
    return kept[::-1], [t for name, t in initializers.items() if name in read]


def _reads(node: Any) -> set[str]:
    """Names that a node reads, those of graphs inside included."""
    found = set(node.input)
    for attribute in node.attribute:
        for inner in attribute.g.node:
            found |= _reads(inner)
    return found
