"""ShapeProp: runs a graph and notes the shape and dtype of every value."""

from __future__ import annotations

from typing import Any

from lucerne._src.base.refusals import only
from lucerne._src.tensor import api as lu
from lucerne.fx.interpreter import Interpreter
from lucerne.fx.node import Node, TensorMetadata, map_aggregate

_FORMATS = (lu.contiguous_format, lu.channels_last, lu.channels_last_3d)


def _extract_tensor_metadata(result: Any, include_contiguity: bool = True) -> TensorMetadata:
    form = None
    if include_contiguity:
        fits = (f for f in _FORMATS if result.is_contiguous(memory_format=f))
        form = next(fits, None)
    return TensorMetadata(
        result.shape, result.dtype, result.requires_grad, result.stride(), form, False, {}
    )


class ShapeProp(Interpreter):
    """Runs a module with example inputs and puts `tensor_meta` and `type` into each node's meta.

    >>> import lucerne as torch
    >>> from lucerne.fx.passes.shape_prop import ShapeProp
    >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x).sum(dim=1))
    >>> _ = ShapeProp(traced).propagate(torch.ones(2, 3))
    >>> [tuple(n.meta["tensor_meta"].shape) for n in traced.graph.nodes]
    [(2, 3), (2, 3), (2,), (2,)]
    """

    def __init__(self, gm: Any, fake_mode: Any = None) -> None:
        only("ShapeProp", "fake_mode", fake_mode, None, "nodes run on the tensors they are given")
        super().__init__(gm)

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        found = False

        def note(x: Any) -> Any:
            nonlocal found
            if isinstance(x, lu.Tensor):
                found = True
                return _extract_tensor_metadata(x)
            return x

        meta = map_aggregate(result, note)
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the graph; returns its result."""
        return super().run(*args)
