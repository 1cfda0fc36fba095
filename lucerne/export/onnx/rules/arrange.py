"""Order: sorting, running folds, searching."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne.export.onnx.errors import NotExpressibleError
from lucerne.export.onnx.packages import onnx_package
from lucerne.export.onnx.table import rule
from lucerne.export.onnx.types import code_of

_ENGINES_SORT = (dt.float32, dt.float64, dt.int32, dt.int64)


@rule("sort_along")
def sort_along(c: Any, node: Any, input: Any, dim: int, descending: bool, stable: bool) -> Any:
    if not input.meta.ndim:
        return [c.of(input), c.constant(0, dt.int64)]
    d = dim % input.meta.ndim
    x, kind = c.of(input), input.meta.dtype
    if kind not in _ENGINES_SORT:
        x = c.cast(x, dt.float32 if kind.category == dt.FLOAT else dt.int64)
    k = c.shape(x, d, d + 1)
    made, at = c.several("TopK", [x, k], 2, axis=d, largest=int(descending), sorted=1)
    return [made if kind in _ENGINES_SORT else c.cast(made, kind), at]


@rule("top_positions")
def top_positions(c: Any, node: Any, input: Any, k: Any, dim: int, largest: bool) -> str:
    if not input.meta.ndim:
        return c.constant(0, dt.int64)
    x, kind = c.of(input), input.meta.dtype
    if kind not in _ENGINES_SORT:
        x = c.cast(x, dt.float32 if kind.category == dt.FLOAT else dt.int64)
    d = dim % input.meta.ndim
    found = c.several("TopK", [x, c.size(k)], 2, axis=d, largest=int(largest), sorted=1)
    return found[1]


@rule("scan")
def scan(c: Any, node: Any, input: Any, dim: int, mode: str, reverse: bool, dtype: Any) -> str:
    out = node.outputs[0].meta.dtype
    if not input.meta.ndim:
        return c.constant(0, dt.int64) if mode.startswith("arg") else c.operand(input, out)
    d = dim % input.meta.ndim
    if mode.startswith("arg"):
        raise NotExpressibleError(f"a running {mode}, which ONNX has not")
    wide = out if out in _ENGINES_SORT else dt.float32 if out.category == dt.FLOAT else dt.int64
    x = c.operand(input, wide)
    if mode == "add":
        axis = c.initializer(np.array(d, np.int64))
        made = c.node("CumSum", [x, axis], reverse=int(reverse))
    elif mode == "mul":
        first = _like_a_row(c, x, d, 1, wide)
        body = [_inner("Mul", ["state", "row"], "next")]
        made = _scanned(c, first, [x], d, reverse, body, wide)
    else:
        raise NotExpressibleError(f"a running {mode}, which ONNX has not")
    return made if wide is out else c.cast(made, out)


@rule("linear_scan")
def linear_scan(c: Any, node: Any, decay: Any, input: Any, dim: int, reverse: bool) -> str:
    out = node.outputs[0].meta.dtype
    if not input.meta.ndim:
        return c.of(input)
    d = dim % input.meta.ndim
    x, by = c.of(input), c.operand(decay, out)
    if reverse:  # the factor between two steps belongs to the later one
        by = _shifted(c, by, d, input.meta.ndim)
    first = _like_a_row(c, x, d, 0, out)
    body = [_inner("Mul", ["state", "row1"], "kept"), _inner("Add", ["row", "kept"], "next")]
    return _scanned(c, first, [x, by], d, reverse, body, out)


def _shifted(c: Any, x: str, d: int, ndim: int) -> str:
    """One place earlier along a dimension, zero at the end (which the first step multiplies)."""
    pads = [0] * (2 * ndim)
    pads[ndim + d] = 1
    later = c.node("Slice", [x, c.ints([1]), c.ints([2**63 - 1]), c.ints([d]), c.ints([1])])
    return c.node("Pad", [later, c.ints(pads)])


def _like_a_row(c: Any, x: str, d: int, value: int, dtype: dt.dtype) -> str:
    sizes = c.node("Concat", [c.shape(x, 0, d), c.shape(x, d + 1)], axis=0)
    return c.node("Expand", [c.constant(value, dtype), sizes])


def _inner(kind: str, inputs: list[str], output: str) -> Any:
    return onnx_package().helper.make_node(kind, inputs, [output])


def _scanned(
    c: Any, first: str, xs: list[str], d: int, reverse: bool, body: list[Any], dtype: dt.dtype
) -> str:
    """A recurrence: `next` of `state` and a row of each of `xs`."""
    helper = onnx_package().helper

    def info(name: str) -> Any:
        return helper.make_tensor_value_info(name, code_of(dtype), None)

    rows = ["row", *(f"row{k}" for k in range(1, len(xs)))]
    body = [*body, _inner("Identity", ["next"], "shown")]
    graph = helper.make_graph(
        body, "step", [info("state"), *map(info, rows)], [info("next"), info("shown")]
    )
    return c.several(
        "Scan", [first, *xs], 2, body=graph, num_scan_inputs=len(xs),
        scan_input_axes=[d] * len(xs), scan_input_directions=[int(reverse)] * len(xs),
        scan_output_axes=[d], scan_output_directions=[int(reverse)],
    )[1]  # fmt: skip


@rule("binary_search")
def binary_search(c: Any, node: Any, sorted_sequence: Any, input: Any, right: bool) -> str:
    """As many as are smaller (or not larger): a comparison of each with each."""
    have, kind = sorted_sequence.meta, input.meta.dtype
    wide = kind if kind in _ENGINES_SORT else dt.float32 if kind.category == dt.FLOAT else dt.int64
    value = c.node("Unsqueeze", [c.operand(input, wide), c.ints([-1])])
    row = c.operand(sorted_sequence, wide)
    if have.ndim > 1:
        row = c.node("Unsqueeze", [row, c.ints([-2])])
    before = c.node("LessOrEqual" if right else "Less", [row, value])
    return c.node("ReduceSum", [c.cast(before, dt.int64), c.ints([-1])], keepdims=0)
