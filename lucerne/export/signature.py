"""Which input of an exported graph is which parameter, and what its outputs are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from lucerne._src.ir.graph import Graph
from lucerne.export import blueprint as bp


class InputKind(Enum):
    USER_INPUT = auto()
    PARAMETER = auto()
    BUFFER = auto()
    CONSTANT_TENSOR = auto()


class OutputKind(Enum):
    USER_OUTPUT = auto()
    BUFFER_MUTATION = auto()
    PARAMETER_MUTATION = auto()
    USER_INPUT_MUTATION = auto()


@dataclass
class TensorArgument:
    name: str


@dataclass
class ConstantArgument:
    name: str
    value: Any


@dataclass
class InputSpec:
    kind: InputKind
    arg: Any
    target: str | None
    persistent: bool | None = None


@dataclass
class OutputSpec:
    kind: OutputKind
    arg: Any
    target: str | None


@dataclass
class ExportGraphSignature:
    """The inputs and outputs of an exported graph, in order."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def _inputs(self, kind: InputKind) -> list[InputSpec]:
        return [s for s in self.input_specs if s.kind is kind]

    def _outputs(self, kind: OutputKind) -> list[OutputSpec]:
        return [s for s in self.output_specs if s.kind is kind]

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(str(s.target) for s in self._inputs(InputKind.PARAMETER))

    @property
    def buffers(self) -> tuple[str, ...]:
        return tuple(str(s.target) for s in self._inputs(InputKind.BUFFER))

    @property
    def non_persistent_buffers(self) -> set[str]:
        return {str(s.target) for s in self._inputs(InputKind.BUFFER) if not s.persistent}

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        return tuple(str(s.target) for s in self._inputs(InputKind.CONSTANT_TENSOR))

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        found = self._inputs(InputKind.USER_INPUT)
        return tuple(getattr(s.arg, "value", s.arg.name) for s in found)

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        found = self._outputs(OutputKind.USER_OUTPUT)
        return tuple(getattr(s.arg, "value", s.arg.name) for s in found)

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        return {s.arg.name: str(s.target) for s in self._inputs(InputKind.PARAMETER)}

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        return {s.arg.name: str(s.target) for s in self._inputs(InputKind.BUFFER)}

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        return {s.arg.name: str(s.target) for s in self._inputs(InputKind.CONSTANT_TENSOR)}

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        """By name of the output: the buffer that gets it."""
        return {s.arg.name: str(s.target) for s in self._outputs(OutputKind.BUFFER_MUTATION)}

    @property
    def parameters_to_mutate(self) -> Mapping[str, str]:
        return {s.arg.name: str(s.target) for s in self._outputs(OutputKind.PARAMETER_MUTATION)}

    @property
    def user_inputs_to_mutate(self) -> Mapping[str, str]:
        return {s.arg.name: str(s.target) for s in self._outputs(OutputKind.USER_INPUT_MUTATION)}


_KINDS = {
    bp.PARAMETER: InputKind.PARAMETER,
    bp.BUFFER: InputKind.BUFFER,
    bp.CONSTANT: InputKind.CONSTANT_TENSOR,
}
_MUTATIONS = {
    bp.PARAMETER: OutputKind.PARAMETER_MUTATION,
    bp.BUFFER: OutputKind.BUFFER_MUTATION,
    bp.ARGUMENT: OutputKind.USER_INPUT_MUTATION,
}


def signature_of(
    plan: bp.Blueprint, graph: Graph, names: Mapping[int, str]
) -> ExportGraphSignature:
    """`graph`: the plan's without mutation; `names`: those of its values, by number."""
    inputs = [
        InputSpec(_KINDS[i.kind], TensorArgument(i.name), i.target, i.persistent or None)
        for i in plan.inputs
        if i.kind != bp.ARGUMENT
    ]
    by_leaf = {i.leaf: i.name for i in plan.inputs if i.kind == bp.ARGUMENT}
    for k, x in enumerate(plan.in_leaves):
        arg: Any = TensorArgument(by_leaf.get(k, plan.in_names[k]))
        if x is not bp.TENSOR:
            arg = ConstantArgument(plan.in_names[k], x)
        inputs.append(InputSpec(InputKind.USER_INPUT, arg, None))
    at = {v.index: i for v, i in zip(graph.inputs, plan.inputs, strict=True)}
    outputs = []
    for target, value in graph.writes:
        i = at[target.index]
        told = i.name if i.kind == bp.ARGUMENT else i.target
        outputs.append(OutputSpec(_MUTATIONS[i.kind], TensorArgument(names[value.index]), told))
    values = iter(graph.outputs)
    for x in plan.out_leaves:
        given: Any = (
            TensorArgument(names[next(values).index]) if x is bp.TENSOR else ConstantArgument("", x)
        )
        outputs.append(OutputSpec(OutputKind.USER_OUTPUT, given, None))
    return ExportGraphSignature(inputs, outputs)
