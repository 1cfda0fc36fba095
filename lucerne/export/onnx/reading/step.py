"""One node of a file, ready to run."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.tensor import api as lu
from lucerne.export.onnx.errors import OnnxImportError
from lucerne.export.onnx.reading.file import Source, array_of, as_tensor


class Step:
    """A node: its operator, its names, its attributes as Python values."""

    def __init__(self, node: Any, opset: int, source: Source, owner: Any = None) -> None:
        self.kind, self.opset, self.owner = node.op_type, opset, owner
        self.inputs, self.outputs = list(node.input), list(node.output)
        self.name = node.name
        self.node = node
        self.attributes = {a.name: _value(a, source) for a in node.attribute}
        self.scope: dict[str, Any] = {}
        """The names around it, while it runs."""

    @property
    def count(self) -> int:
        """How many results somebody named."""
        return len(self.outputs)

    def ints(self, x: Any) -> list[Any]:
        """Numbers (sizes among them) as a flat list."""
        if isinstance(x, np.ndarray):
            return [n if not isinstance(n, np.generic) else n.item() for n in x.reshape(-1)]
        if isinstance(x, (list, tuple)):
            return list(x)
        found: list[Any] = x.reshape(-1).tolist()
        return found

    def number(self, x: Any) -> Any:
        [found] = self.ints(x)
        return found

    def where(self) -> str:
        return f"the node {self.name!r} ({self.kind})" if self.name else f"a node {self.kind}"


class GraphAttribute:
    """A graph inside a node, as the file has it."""

    def __init__(self, proto: Any) -> None:
        self.proto = proto
        self.ready: Any = None


def _value(a: Any, source: Source) -> Any:
    kind = a.type
    if kind == 1:
        return a.f
    if kind == 2:
        return a.i
    if kind == 3:
        return a.s.decode("utf-8", "replace")
    if kind == 4:
        return array_of(a.t, source)
    if kind == 5:
        return GraphAttribute(a.g)
    if kind == 6:
        return list(a.floats)
    if kind == 7:
        return list(a.ints)
    if kind == 8:
        return [s.decode("utf-8", "replace") for s in a.strings]
    if kind == 13:
        return a.tp
    raise OnnxImportError(f"an attribute {a.name!r} of a kind that is not read here ({kind})")


def tensor(x: Any) -> Any:
    """What an operator on data gets: a tensor."""
    if isinstance(x, np.ndarray):
        return as_tensor(x)
    return x


def is_tensor(x: Any) -> bool:
    return isinstance(x, lu.Tensor)
