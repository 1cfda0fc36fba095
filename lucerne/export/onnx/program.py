"""ONNXProgram: a model, what it was made of, and how it compares."""

from __future__ import annotations

import copy
import hashlib
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

from lucerne._src.capture.trace.pytree import flatten
from lucerne._src.io.atomic import write_atomic
from lucerne._src.tensor import api as lu
from lucerne.export import blueprint as bp
from lucerne.export.onnx.check import Comparison, Session, array_of
from lucerne.export.program import ExportedProgram

_EXTERNAL = 1024
"""Weights of at least so many bytes go to the file beside."""
_ALIGNED = 4096


class ONNXProgram:
    """What `lucerne.onnx.export` returns.

    `model_proto` is the model, `exported_program` the program it was made of, `comparisons` how far
    an engine's results were from the program's. Calling it runs the model by onnxruntime.
    """

    def __init__(
        self, model: Any, program: ExportedProgram, comparisons: list[Comparison], opset: int
    ) -> None:
        self.model_proto = model
        self.exported_program = program
        self.comparisons = comparisons
        self.opset = opset
        self._session: Session | None = None

    @property
    def model(self) -> Any:
        return self.model_proto

    @property
    def report(self) -> str:
        """In words: which operators, how many weights, and the largest differences."""
        graph = self.model_proto.graph
        kinds = Counter(n.op_type for n in graph.node)
        told = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
        size = sum(len(t.raw_data) for t in graph.initializer)
        lines = [
            f"ONNX model, opset {self.opset}: {len(graph.node)} nodes, {size:,} bytes of weights",
            f"operators: {told}",
        ]
        if not self.comparisons:
            lines.append("not run again (check=False)")
        for c in self.comparisons:
            lines.append(f"{c.engine}, {c.sizes}: largest difference {c.largest:.3g}")
        dropped = len(self.exported_program.plan.checks)
        if dropped:
            lines.append(f"{dropped} checks of values are left out: ONNX can't raise")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<ONNXProgram\n{self.report}>"

    def __call__(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The results by the engine, as tensors in a list."""
        if self._session is None:
            self._session = Session(self.model_proto)
        leaves: list[Any] = []
        flatten((args, kwargs), leaves)
        plan = self.exported_program.plan
        plan.bind(leaves)
        arguments = [i for i in plan.inputs if i.kind == bp.ARGUMENT]
        names = [i.name for i in self.model_proto.graph.input]
        given = {n: array_of(leaves[i.leaf]) for n, i in zip(names, arguments, strict=True)}
        return [lu.tensor(x) for x in self._session(given)]

    def save(
        self, destination: str | os.PathLike[str], *, include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False, external_data: bool | None = None,
    ) -> None:  # fmt: skip
        """Write the model; with `external_data` large weights go to `<destination>.data`.

        Without a choice they do if the file would be larger than ONNX allows (2 GB).
        """
        path = os.fspath(destination)
        model = self.model_proto
        size = sum(len(t.raw_data) for t in model.graph.initializer)
        if external_data is None:
            external_data = size > 2**31 - 2**24
        if not include_initializers or keep_initializers_as_inputs or external_data:
            model = copy.deepcopy(model)
        if keep_initializers_as_inputs or not include_initializers:
            _as_inputs(model.graph)
        if not include_initializers:
            del model.graph.initializer[:]
        if external_data:
            _beside(model, path)
        data = model.SerializeToString()
        write_atomic(path, lambda write: write(data))


def _as_inputs(graph: Any) -> None:
    known = {i.name for i in graph.input}
    for t in graph.initializer:
        if t.name not in known:
            made = graph.input.add()
            made.name = t.name
            made.type.tensor_type.elem_type = t.data_type
            for n in t.dims:
                made.type.tensor_type.shape.dim.add().dim_value = n
            if not t.dims:
                made.type.tensor_type.shape.SetInParent()


def _beside(model: Any, path: str) -> None:
    """Large weights into a file of their own, which the model names with place and checksum."""
    target = f"{path}.data"
    parts: list[tuple[Any, bytes, int]] = []
    offset = 0
    digest = hashlib.sha1(usedforsecurity=False)
    pieces: list[bytes] = []
    for t in model.graph.initializer:
        if len(t.raw_data) < _EXTERNAL:
            continue
        gap = -offset % _ALIGNED
        data = t.raw_data
        pieces += [b"\0" * gap, data]
        offset += gap
        parts.append((t, data, offset))
        offset += len(data)
    if not parts:
        return
    for piece in pieces:
        digest.update(piece)

    def produce(write: Callable[[Any], None]) -> None:
        for piece in pieces:
            write(piece)

    write_atomic(target, produce)
    for t, data, start in parts:
        told = {"location": os.path.basename(target), "offset": start, "length": len(data),
                "checksum": digest.hexdigest()}  # fmt: skip
        t.ClearField("raw_data")
        t.data_location = 1
        for key, value in told.items():
            entry = t.external_data.add()
            entry.key, entry.value = key, str(value)
