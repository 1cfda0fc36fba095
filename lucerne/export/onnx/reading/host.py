"""What follows from sizes and constants alone, computed beside the tensors.

Values are arrays of NumPy; where they hold symbolic sizes they are arrays of objects, on which
NumPy's functions call Python's operators: a captured program keeps the formula.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne.export.onnx.packages import onnx_package
from lucerne.export.onnx.reading.step import Step

Array = Any


def _int_div(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return a / b
    if a.dtype == object or b.dtype == object:
        return a // b
    return np.trunc(a / b).astype(a.dtype)


def _cast(n: Step, x: Array) -> Array:
    if x.dtype == object:
        return x
    with np.errstate(all="ignore"):
        return x.astype(onnx_package().helper.tensor_dtype_to_np_dtype(n.attributes["to"]))


def _gather(n: Step, x: Array, i: Array) -> Array:
    return np.take(x, i.astype(np.int64), axis=n.attributes.get("axis", 0))


def _axes(n: Step, axes: Array | None) -> Any:
    return n.attributes.get("axes") if axes is None else tuple(n.ints(axes))


def _unsqueeze(n: Step, x: Array, axes: Array | None = None) -> Array:
    dims = _axes(n, axes)
    whole = x.ndim + len(dims)
    for d in sorted(d % whole for d in dims):
        x = np.expand_dims(x, d)
    return x


def _squeeze(n: Step, x: Array, axes: Array | None = None) -> Array:
    dims = _axes(n, axes)
    return np.squeeze(x, tuple(dims) if dims is not None else None)


def _slice(n: Step, x: Array, *given: Array) -> Array:
    names = ("starts", "ends", "axes", "steps")
    told = [n.ints(a) for a in given] or [n.attributes[k] for k in names if k in n.attributes]
    starts, ends = told[:2]
    axes = told[2] if len(told) > 2 else range(len(starts))
    steps = told[3] if len(told) > 3 else [1] * len(starts)
    for a, b, d, s in zip(starts, ends, axes, steps, strict=True):
        x = x[(slice(None),) * (d % x.ndim) + (slice(a, b if b > -(2**62) else None, s),)]
    return x


def _reduced(fn: Any) -> Any:
    def run(n: Step, x: Array, axes: Array | None = None) -> Array:
        dims = _axes(n, axes)
        keep = bool(n.attributes.get("keepdims", 1))
        made = fn(x, axis=tuple(dims) if dims else None, keepdims=keep)
        return np.asarray(made, x.dtype)

    return run


def _range(n: Step, a: Array, b: Array, s: Array) -> Array | None:
    if any(x.dtype == object for x in (a, b, s)):
        return None
    return np.arange(a.item(), b.item(), s.item(), dtype=a.dtype)


def _of_shape(n: Step, sizes: Array) -> Array | None:
    value = n.attributes.get("value")
    if sizes.dtype == object or int(np.prod(sizes)) > MOST:
        return None
    one = np.zeros(1, np.float32) if value is None else value
    return np.full(tuple(sizes.tolist()), one.reshape(()), one.dtype)


def _plain(fn: Any) -> Any:
    return lambda n, *xs: np.asarray(fn(*xs))


HOST: dict[str, Any] = {
    "Add": _plain(np.add), "Sub": _plain(np.subtract), "Mul": _plain(np.multiply),
    "Div": _plain(_int_div), "Mod": _plain(np.mod), "Neg": _plain(np.negative),
    "Equal": _plain(np.equal), "Greater": _plain(np.greater), "Less": _plain(np.less),
    "GreaterOrEqual": _plain(np.greater_equal), "LessOrEqual": _plain(np.less_equal),
    "And": _plain(np.logical_and), "Or": _plain(np.logical_or), "Not": _plain(np.logical_not),
    "Where": _plain(np.where), "Sqrt": _plain(np.sqrt), "Floor": _plain(np.floor),
    "Ceil": _plain(np.ceil), "Identity": lambda n, x: x, "Cast": _cast, "Gather": _gather,
    "Concat": lambda n, *xs: np.concatenate(xs, n.attributes["axis"]),
    "Unsqueeze": _unsqueeze, "Squeeze": _squeeze, "Slice": _slice,
    "Shape": lambda n, x: np.array(
        x.shape[n.attributes.get("start", 0) : n.attributes.get("end")], np.int64
    ),
    "Size": lambda n, x: np.array(x.size, np.int64),
    "ReduceProd": _reduced(np.prod), "ReduceSum": _reduced(np.sum), "ReduceMax": _reduced(np.max),
    "ReduceMin": _reduced(np.min), "Range": _range, "ConstantOfShape": _of_shape,
    "Reshape": lambda n, x, s: x.reshape([
        x.shape[k] if v == 0 and not n.attributes.get("allowzero", 0) else v
        for k, v in enumerate(n.ints(s))
    ]),
    "Expand": lambda n, x, s: np.array(np.broadcast_to(
        x, np.broadcast_shapes(x.shape, tuple(n.ints(s))))),
    "Transpose": lambda n, x: np.transpose(x, n.attributes.get("perm")),
    "Max": lambda n, *xs: np.maximum.reduce(np.broadcast_arrays(*xs)),
    "Min": lambda n, *xs: np.minimum.reduce(np.broadcast_arrays(*xs)),
}  # fmt: skip
"""By ONNX's operator: on arrays. None as the result: not here, as tensors then."""
MOST = 4096
"""Arrays of more elements are data."""


def on_host(n: Step, inputs: list[Any]) -> Any:
    """The result beside the tensors; None: it is none of sizes and constants."""
    rule = HOST.get(n.kind)
    if (
        rule is None
        or not inputs
        or not all(x is None or isinstance(x, np.ndarray) for x in inputs)
    ):
        return None
    if any(x is not None and (x.size > MOST or x.dtype.kind not in "biufO") for x in inputs):
        return None
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    if any(x is None for x in inputs):
        return None
    found = rule(n, *inputs)
    if found is None or np.asarray(found).size > MOST:
        return None
    return np.asarray(found)
