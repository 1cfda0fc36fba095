"""`lucerne.onnx.load`: an ONNX model as a module."""

from __future__ import annotations

from collections.abc import Sequence as Several
from typing import Any

from lucerne.export.onnx.errors import OnnxImportError
from lucerne.export.onnx.packages import onnx_package
from lucerne.export.onnx.reading import (
    casting,
    elementwise,
    flow,
    layers,
    losses,
    more,
    reduce,
    shapes,
)
from lucerne.export.onnx.reading.file import Source, array_of, as_tensor, check_depth, read
from lucerne.export.onnx.reading.host import MOST, on_host
from lucerne.export.onnx.reading.step import GraphAttribute, Step, tensor
from lucerne.export.onnx.reading.table import OPERATORS
from lucerne.nn.modules.module import Module
from lucerne.nn.parameter import Parameter

FAMILIES = (casting, elementwise, losses, flow, layers, more, reduce, shapes)
_SMALL = 64
_DEFAULT = ("", "ai.onnx")


class _Program:
    """A graph of a file, its nodes ready to run."""

    def __init__(self, inputs: Several[str], outputs: Several[str], steps: list[Step]) -> None:
        self.inputs, self.outputs, self.steps = list(inputs), list(outputs), steps
        self.constants: dict[str, Any] = {}


class OnnxModule(Module):
    """What `lucerne.onnx.load` returns: it takes the model's inputs and gives its outputs.

    Weights are parameters (names with "/" for "."), so it is trained, compiled and exported like
    any other module. What follows from sizes alone is computed beside the tensors.
    """

    def __init__(self, model: Any, source: Source) -> None:
        super().__init__()
        check_depth(model.graph)
        self.__dict__["_reading"] = reading = _Reading(model, source)
        self.__dict__["types"] = _element_types(model.graph)
        self.__dict__["_program"] = reading.graph(model.graph, self)
        missing = sorted(reading.missing)
        if missing:
            raise OnnxImportError(
                f"onnx.load: operators that are not known here: {', '.join(missing)}"
            )
        self.__dict__["_names"] = {}
        for name, array in reading.weights.items():
            self._enter(name, array)
        known = {*self._names, *self._program.constants}
        self.__dict__["input_names"] = [i for i in self._program.inputs if i not in known]
        self.__dict__["output_names"] = self._program.outputs

    def _enter(self, name: str, array: Any) -> None:
        made = as_tensor(array)
        plain = name.replace(".", "/") or "weight"
        while plain in self._parameters or plain in self._buffers or hasattr(type(self), plain):
            plain += "_"
        self._names[name] = plain
        if made.is_floating_point():
            self.register_parameter(plain, Parameter(made))
        else:
            self.register_buffer(plain, made)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The outputs for the inputs in their order, or by their names."""
        names = self.input_names
        if len(inputs) > len(names):
            raise TypeError(f"{len(names)} inputs are expected ({', '.join(names)})")
        scope: dict[str, Any] = {"": None}
        scope.update(dict(zip(names, inputs, strict=False)))
        for key, value in named.items():
            if key not in names:
                raise TypeError(f"{key} is no input: {', '.join(names)}")
            scope[key] = value
        for name, plain in self._names.items():
            found = self._parameters.get(plain)
            scope[name] = self._buffers[plain] if found is None else found
        for name in names:
            if name not in scope:
                raise TypeError(f"the input {name} is missing")
        found = self.run_program(self._program, scope)
        made = [tensor(x) for x in found]
        return made[0] if len(made) == 1 else tuple(made)

    def run_program(self, program: _Program, scope: dict[str, Any]) -> list[Any]:
        scope.update({k: v for k, v in program.constants.items() if k not in scope})
        for step in program.steps:
            self._run(step, scope)
        return [scope[name] for name in program.outputs]

    def run_inside(
        self, graph: GraphAttribute, given: Several[Any], scope: dict[str, Any]
    ) -> list[Any]:
        """The outputs of a graph inside a node, which reads the names around it."""
        program = graph.ready
        inner = {**scope, **dict(zip(program.inputs, given, strict=True))}
        return self.run_program(program, inner)

    def _run(self, step: Step, scope: dict[str, Any]) -> None:
        inputs = [scope[name] for name in step.inputs]
        found = on_host(step, inputs)
        if found is None:
            function = self._reading.functions.get(id(step))
            if function is not None:
                found = self._call(function, inputs)
            else:
                found = self._operator(step, inputs, scope)
        several = isinstance(found, (list, tuple)) and not isinstance(found, flow.Sequence)
        for name, x in zip(step.outputs, found if several else (found,), strict=False):
            scope[name] = x

    def _operator(self, step: Step, inputs: list[Any], scope: dict[str, Any]) -> Any:
        entry = OPERATORS[step.kind]
        given = [x if k in entry.numbers else tensor(x) for k, x in enumerate(inputs)]
        step.scope = scope
        try:
            return entry.run(step, *given, **step.attributes)
        finally:
            step.scope = {}

    def _call(self, program: _Program, inputs: list[Any]) -> list[Any]:
        scope: dict[str, Any] = {"": None, **dict.fromkeys(program.inputs)}
        scope.update(zip(program.inputs, inputs, strict=False))
        for name in program.outputs:  # those that nobody asked for are not made
            scope.setdefault(name, None)
        return self.run_program(program, scope)

    def extra_repr(self) -> str:
        return f"{len(self._program.steps)} nodes"


class _Reading:
    """A model on its way to a module."""

    def __init__(self, model: Any, source: Source) -> None:
        self.source = source
        self.opset = max((o.version for o in model.opset_import if o.domain in _DEFAULT), default=1)
        self.local = {(f.domain, f.name): f for f in model.functions}
        self.weights: dict[str, Any] = {}
        self.functions: dict[int, _Program] = {}
        """By step: the body that ONNX (or the file) gives for its operator."""
        self.missing: set[str] = set()
        self._depth = 0

    def graph(self, graph: Any, owner: Any, inside: bool = False) -> _Program:
        made = _Program([i.name for i in graph.input], [o.name for o in graph.output], [])
        if graph.sparse_initializer:
            raise OnnxImportError("sparse constants are not read here")
        for t in graph.initializer:
            array = array_of(t, self.source)
            small = array.size <= _SMALL and (array.dtype.kind not in "f" or array.ndim == 0)
            if small or inside:
                made.constants[t.name] = array
            else:
                self.weights[t.name] = array
        types = _types(graph)
        made.steps = [self._step(node, owner, types) for node in graph.node]
        for step in made.steps:
            if step.kind == "Constant" and step.attributes.get("value") is not None:
                value = step.attributes["value"]
                if value.size > MOST and not inside:
                    self.weights[step.outputs[0]] = value
        made.steps = [s for s in made.steps
                      if not (s.kind == "Constant" and s.outputs[0] in self.weights)]  # fmt: skip
        return made

    def _step(self, node: Any, owner: Any, types: dict[str, Any]) -> Step:
        step = Step(node, self.opset, self.source, owner)
        for value in step.attributes.values():
            if isinstance(value, GraphAttribute):
                value.ready = self.graph(value.proto, owner, inside=True)
        if (node.domain, node.op_type) in self.local:
            self._function(step, self.local[node.domain, node.op_type], node, owner)
        elif node.domain not in _DEFAULT:
            self.missing.add(f"{node.domain}.{node.op_type}")
        elif node.op_type not in OPERATORS:
            body = self._body(node, types)
            if body is None:
                self.missing.add(node.op_type)
            else:
                self._function(step, body, node, owner)
        return step

    def _function(self, step: Step, body: Any, node: Any, owner: Any) -> None:
        """A function's nodes, with the attributes of this call."""
        if self._depth > 16:
            raise OnnxImportError("functions call each other without end")
        given = {a.name: a for a in node.attribute}
        usual = {a.name: a for a in body.attribute_proto}
        self._depth += 1
        try:
            steps = []
            for inner in body.node:
                made = onnx_package().NodeProto()
                made.CopyFrom(inner)
                _fill_in(made, given, usual)
                steps.append(self._step(made, owner, {}))
        finally:
            self._depth -= 1
        self.functions[id(step)] = _Program(body.input, body.output, steps)

    def _body(self, node: Any, types: dict[str, Any]) -> Any:
        """What ONNX itself says an operator is made of."""
        onnx = onnx_package()
        try:
            schema = onnx.defs.get_schema(node.op_type, self.opset, "")
        except Exception:
            return None
        if schema.has_context_dependent_function:
            given = [types[i].SerializeToString() if i in types else b"" for i in node.input]
            if not all(given[k] for k, i in enumerate(node.input) if i):
                return None
            text = schema.get_context_dependent_function(node.SerializeToString(), given)
            return onnx.FunctionProto.FromString(text) if text else None
        return schema.function_body if schema.has_function else None


def _fill_in(node: Any, given: dict[str, Any], usual: dict[str, Any]) -> None:
    """Attributes that a function takes from its call."""
    kept = []
    for a in node.attribute:
        if a.ref_attr_name:
            found = given.get(a.ref_attr_name, usual.get(a.ref_attr_name))
            if found is not None:
                made = type(a)()
                made.CopyFrom(found)
                made.name = a.name
                kept.append(made)
        else:
            for inner in a.g.node:
                _fill_in(inner, given, usual)
            made = type(a)()
            made.CopyFrom(a)
            kept.append(made)
    del node.attribute[:]
    node.attribute.extend(kept)


def _element_types(graph: Any) -> dict[str, int]:
    """The numbers of the element types that the inputs of a model are told to have."""
    return {i.name: i.type.tensor_type.elem_type for i in graph.input}


def _types(graph: Any) -> dict[str, Any]:
    """The types that a graph tells of its values."""
    found = {v.name: v.type for v in (*graph.input, *graph.value_info, *graph.output)}
    for t in graph.initializer:
        made = onnx_package().helper.make_tensor_type_proto(t.data_type, list(t.dims))
        found[t.name] = made
    return found


def load(f: Any) -> OnnxModule:
    """An ONNX model as a module: from a path, bytes, an open file, or a ModelProto.

    Nothing in the file is run or believed: sizes and offsets are checked, and weights in other
    files must lie in the model's folder. Operators that are not known are named, all at once.

    >>> import lucerne as torch
    >>> net = torch.onnx.load("model.onnx")   # doctest: +SKIP
    >>> net(torch.ones(2, 4)).shape           # doctest: +SKIP
    torch.Size([2, 3])
    """
    model, source = read(f)
    return OnnxModule(model, source)
