"""Run a model again, on another engine, and see how far it is from the module."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.capture.trace.pytree import flatten, rebuild
from lucerne._src.tensor import api as lu
from lucerne.export import blueprint as bp
from lucerne.export.door import resized
from lucerne.export.onnx.errors import OnnxExporterError
from lucerne.export.onnx.packages import onnx_package, runtime
from lucerne.export.program import ExportedProgram, dynamic_of

_TOLERANCES = {dt.float64: (1e-7, 1e-7), dt.float16: (1e-2, 1e-3), dt.bfloat16: (5e-2, 1e-2)}
_USUAL = (1e-4, 1e-5)


class Comparison(NamedTuple):
    """One run beside the program."""

    engine: str
    sizes: str
    largest: float
    """The largest difference of any element of any result."""


class Session:
    """A model in an engine: onnxruntime if it is there, else ONNX's own reference."""

    def __init__(self, model: Any) -> None:
        engine = runtime()
        model = _with_plain_ends(model)
        self.engine = "onnxruntime" if engine is not None else "onnx's reference"
        if engine is None:
            from onnx.reference import ReferenceEvaluator

            self._run: Any = ReferenceEvaluator(model).run
        else:
            options = engine.SessionOptions()
            options.log_severity_level = 4
            options.intra_op_num_threads = 1
            self._run = engine.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            ).run

    def __call__(self, given: dict[str, Any]) -> list[Any]:
        found: list[Any] = self._run(None, given)
        return found


def _with_plain_ends(model: Any) -> Any:
    """The model with float32 where it takes or gives bfloat16, which arrays can't hold."""
    ends = [v for v in (*model.graph.input, *model.graph.output)
            if v.type.tensor_type.elem_type == _BFLOAT16]  # fmt: skip
    if not ends:
        return model
    made = copy.deepcopy(model)
    graph, node = made.graph, onnx_package().helper.make_node
    inner = {v.name: f"{v.name}.narrow" for v in ends}
    for each in graph.node:
        each.input[:] = [inner.get(name, name) for name in each.input]
        each.output[:] = [inner.get(name, name) for name in each.output]
    for v in graph.input:
        if v.name in inner:
            graph.node.insert(0, node("Cast", [v.name], [inner[v.name]], to=_BFLOAT16))
            v.type.tensor_type.elem_type = 1
    for v in graph.output:
        if v.name in inner:
            graph.node.append(node("Cast", [inner[v.name]], [v.name], to=1))
            v.type.tensor_type.elem_type = 1
    return made


_BFLOAT16 = 16


def array_of(t: Any) -> Any:
    """A tensor as an engine takes it (see `_with_plain_ends`)."""
    t = t.detach()
    return (t.to(lu.float32) if t.dtype is dt.bfloat16 else t).numpy()


def compare(model: Any, program: ExportedProgram, leaves: Sequence[Any]) -> list[Comparison]:
    """The program and the model, on the example and at another size if some may change."""
    try:
        session = Session(model)
    except Exception as error:
        raise OnnxExporterError(
            f"onnx.export: the file is written, but the engine does not take it: {error}"
        ) from error
    found = [_compared(session, model, program, leaves, "as in the example")]
    dynamic = dynamic_of(program.plan)
    at = {}
    for name, root in dynamic.roots.items():
        n = dynamic.example[name]
        at[name] = n + 1 if n + 1 <= root.max else max(n - 1, root.min)
    if at and at != dynamic.example:
        other = resized(list(leaves), dynamic.sizes(at))
        told = ", ".join(f"{name} = {n}" for name, n in at.items())
        found.append(_compared(session, model, program, other, told))
    return found


def _compared(
    session: Session, model: Any, program: ExportedProgram, leaves: Sequence[Any], told: str
) -> Comparison:
    plan = program.plan
    args, kwargs = rebuild(plan.in_shape, iter(leaves))
    with lu.no_grad():
        result = program.module()(*args, **kwargs)
    wants: list[Any] = []
    flatten(result, wants)
    wants = [x for x in wants if isinstance(x, lu.Tensor)]
    arguments = [i for i in plan.inputs if i.kind == bp.ARGUMENT]
    names = [i.name for i in model.graph.input]
    given = {n: array_of(leaves[i.leaf]) for n, i in zip(names, arguments, strict=True)}
    gots = session(given)
    largest = 0.0
    for k, (want, got) in enumerate(zip(wants, gots, strict=True)):
        largest = max(largest, _difference(want, got, k, f"{session.engine}, {told}"))
    return Comparison(session.engine, told, largest)


def _difference(want: Any, got: Any, k: int, where: str) -> float:
    have = np.asarray(array_of(want), np.float64)
    got = np.asarray(got).astype(np.float64)
    if have.shape != got.shape:
        raise OnnxExporterError(
            f"onnx.export: result {k} has the shape {got.shape} by {where}, the module gives "
            f"{have.shape}"
        )
    if not have.size:
        return 0.0
    rtol, atol = _TOLERANCES.get(want.dtype, _USUAL)
    if want.dtype.category < dt.FLOAT:
        rtol = atol = 0.0
    with np.errstate(all="ignore"):
        apart = np.where((have == got) | (np.isnan(have) & np.isnan(got)), 0.0, np.abs(have - got))
    close = np.allclose(got, have, rtol, atol, equal_nan=True)
    largest = float(np.max(np.where(np.isnan(apart), np.inf, apart)))
    if not close:
        raise OnnxExporterError(
            f"onnx.export: result {k} differs by {largest:.3g} by {where}. This is a mistake of "
            "the exporter or of the engine: please report it with the module. check=False writes "
            "the file all the same"
        )
    return largest
