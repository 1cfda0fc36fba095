"""Products of flattened values on a mesh: as they were before they were flattened.

A linear layer makes one row of batch and sequence, (b, t, c) -> (b * t, c). Where `t` is cut over a
mesh the row is not cut in slices, so XLA would bring all of it to each device. Nothing is flattened
here: the product has the dimensions that its operand had, and the view back finds them again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import lax

from lucerne._src.backends.xla.rules.matmul import precision_of
from lucerne._src.backends.xla.rules.table import out_type, wide_type
from lucerne._src.backends.xla.types import cast
from lucerne._src.ir.graph import Node


class Unflattened(NamedTuple):
    """What a matrix was made of: its rows (its columns, if it was transposed) stand for several
    dimensions. `narrow`: the same before it was widened, if it was."""

    value: Any
    narrow: Any
    turned: bool = False


class FlattenedValues:
    """Matrices of one graph that are flattened values, by number."""

    def __init__(self) -> None:
        self._known: dict[int, Unflattened] = {}

    def viewed(self, node: Node, x: Any, narrow: Any) -> Any:
        """See a view; what it gives, if that is known to be a value which was flattened."""
        source, out = node.args[0].index, node.outputs[0]
        had, shape = self._known.get(source), tuple(out.meta.shape)
        if node.op.qualified == "view":
            if had is not None and not had.turned and len(shape) > 2:
                lead = had.value.shape[:-1]
                if shape[: len(lead)] == lead:
                    return had.value.reshape(shape)
            if len(shape) == 2 and x.ndim > 2 and x.size:
                self._flatten(out.index, shape, x, narrow)
        elif had is not None and _turns(node):
            self._known[out.index] = had._replace(turned=not had.turned)
        return None

    def _flatten(self, index: int, shape: tuple[int, int], x: Any, narrow: Any) -> None:
        for lead in range(2, x.ndim):
            if math.prod(x.shape[:lead]) == shape[0]:
                kept = (*x.shape[:lead], shape[1])
                narrow = None if narrow is None else narrow.reshape(kept)
                self._known[index] = Unflattened(x.reshape(kept), narrow)
                return

    def product(self, node: Node, args: Sequence[Any]) -> Any:
        """A product of matrices of which one, or both along what is summed, were flattened; None:
        as it stands."""
        a, b = (self._known.get(v.index) for v in node.args)
        if a is None or np.dtype(wide_type(node)).kind not in "fc":
            return None
        if not a.turned:
            x, y = _alike(a, args[1])
            made = _dot(node, x, y, (x.ndim - 1,), (0,))
            self._known[node.outputs[0].index] = Unflattened(made, None)
            return made.reshape(tuple(node.outputs[0].meta.shape))
        if b is None or b.turned or a.value.shape[:-1] != b.value.shape[:-1]:
            return None
        both = a.narrow is not None and b.narrow is not None
        x, y = (a.narrow, b.narrow) if both else (a.value, b.value)
        summed = tuple(range(x.ndim - 1))
        return _dot(node, x, y, summed, summed)


def _turns(node: Node) -> bool:
    """Whether a view of a matrix is the transposed one."""
    if node.op.qualified == "transpose":
        return {d % 2 for d in node.args[1:3]} == {0, 1}
    return node.op.qualified == "t"


def _alike(a: Unflattened, b: Any) -> tuple[Any, Any]:
    """Both operands narrow, or both wide."""
    narrow = a.narrow is not None and b.dtype == a.narrow.dtype
    return (a.narrow if narrow else a.value), b


def _dot(node: Node, x: Any, y: Any, of_x: Sequence[int], of_y: Sequence[int]) -> Any:
    dims = ((tuple(of_x), tuple(of_y)), ((), ()))
    wide, exact = wide_type(node), precision_of(x)
    made = lax.dot_general(x, y, dims, precision=exact, preferred_element_type=wide)
    return cast(made, out_type(node))
