"""Products, convolutions, pools, norms, attention: what engines know as one operator."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.symbolic.expressions import Expr
from lucerne.export.onnx.errors import NotExpressibleError
from lucerne.export.onnx.table import rule

_FLOATS = (dt.float32, dt.float64)


@rule("batch_matmul")
def batch_matmul(c: Any, node: Any, input: Any, other: Any) -> str:
    out = node.outputs[0].meta.dtype
    if out.category == dt.COMPLEX:
        raise NotExpressibleError("ONNX has no complex numbers")
    if out.category == dt.FLOAT or out in (dt.int32, dt.int64):
        return c.node("MatMul", [c.of(input), c.of(other)])
    wide = [c.cast(c.of(x), dt.int64) for x in (input, other)]
    return c.cast(c.node("MatMul", wide), out)


@rule("nn.functional.linear")
def linear(c: Any, node: Any, input: Any, weight: Any, bias: Any) -> Any:
    if node.outputs[0].meta.dtype.category != dt.FLOAT:
        return NotImplemented
    w = c.turned(weight) if weight.meta.ndim == 2 else c.of(weight)
    made = c.node("MatMul", [c.of(input), w])
    return made if bias is None else c.node("Add", [made, c.of(bias)])


@rule("conv")
def conv(
    c: Any, node: Any, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    groups: int,
) -> str:  # fmt: skip
    _is_real(input)
    return c.node(
        "Conv", _given(c, input, weight, bias), strides=list(stride), pads=[*padding, *padding],
        dilations=list(dilation), group=groups,
    )  # fmt: skip


@rule("conv_input")
def conv_input(
    c: Any, node: Any, input: Any, weight: Any, bias: Any, size: Any, stride: Any, padding: Any,
    dilation: Any, groups: int,
) -> str:  # fmt: skip
    _is_real(input)
    sizes = zip(
        size, c.sizes_of(input)[2:], weight.meta.shape[2:], stride, padding, dilation, strict=True
    )
    more = []
    for m, n, k, s, p, d in sizes:
        room = m - ((n - 1) * s - 2 * p + d * (k - 1) + 1)
        room = room.constant if isinstance(room, Expr) else room
        if room is None:
            raise NotExpressibleError("a transposed convolution to a size of its own that changes")
        more.append(room)
    return c.node(
        "ConvTranspose", _given(c, input, weight, bias), strides=list(stride),
        pads=[*padding, *padding], dilations=list(dilation), group=groups, output_padding=more,
    )  # fmt: skip


def _is_real(input: Any) -> None:
    if input.meta.dtype.category != dt.FLOAT:
        raise NotExpressibleError(
            f"a convolution of {input.meta.dtype.name}, which engines have not"
        )


def _given(c: Any, *values: Any) -> list[str]:
    return [c.of(v) for v in values if v is not None]


# ---- pools ---------------------------------------------------------------------------------------


@rule("max_pool")
def max_pool(
    c: Any, node: Any, input: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, size: Any
) -> list[str]:
    have, kind = input.meta.shape[2:], input.meta.dtype
    small = kind.category == dt.INTEGER
    x = c.cast(c.of(input), dt.float64) if small else c.of(input)
    floors = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(have, kernel, stride, padding, dilation, strict=True)
    ]
    ceil = any(m > f for m, f in zip(node.outputs[0].meta.shape[2:], floors, strict=True))
    made, at = c.several(
        "MaxPool", [x], 2, kernel_shape=list(kernel), strides=list(stride),
        pads=[*padding, *padding], dilations=list(dilation), ceil_mode=int(ceil),
    )  # fmt: skip
    plane = math.prod(c.sizes_of(input)[2:], start=1)
    return [c.cast(made, kind) if small else made, c.node("Mod", [at, c.scalar(plane)])]


def _is_plain_pool(
    input: Any, kernel: Any, stride: Any, padding: Any, counts: Any, divisor: Any
) -> bool:
    return (
        divisor is None
        and input.dtype in _FLOATS
        and _include(input.shape[2:], kernel, stride, padding, counts) is not None
    )


@rule("avg_pool", when=_is_plain_pool)
def avg_pool(
    c: Any, node: Any, input: Any, kernel: Any, stride: Any, padding: Any, counts: Any, divisor: Any
) -> Any:
    have = input.meta.shape[2:]
    windows = list(zip(have, kernel, stride, padding, counts, strict=True))
    include = _include(have, kernel, stride, padding, counts)
    ceil = any((n + 2 * p - k) // s + 1 != len(row) for n, k, s, p, row in windows)
    return c.node(
        "AveragePool", [c.of(input)], kernel_shape=list(kernel), strides=list(stride),
        pads=[*padding, *padding], ceil_mode=int(ceil), count_include_pad=include,
    )  # fmt: skip


def _include(have: Any, kernel: Any, stride: Any, padding: Any, counts: Any) -> int | None:
    """Whether ONNX counts the padding as these counts do; None: neither way."""
    found = [_counted(*w) for w in zip(have, kernel, stride, padding, counts, strict=True)]
    if all(full for full, _ in found):
        return 1
    return 0 if all(bare for _, bare in found) else None


def _counted(n: int, k: int, s: int, p: int, row: Any) -> tuple[bool, bool]:
    """Whether means are over windows with padding, and over those without."""
    starts = [i * s - p for i in range(len(row))]
    full = [min(a + k, n + p) - a for a in starts]
    bare = [min(a + k, n) - max(a, 0) for a in starts]
    return list(row) == full, list(row) == bare


def _is_whole(input: Any, size: Any) -> bool:
    return input.dtype in _FLOATS and all(type(n) is int and n == 1 for n in size)


@rule("adaptive_avg_pool", when=_is_whole)
def adaptive_avg_pool(c: Any, node: Any, input: Any, size: Any) -> str:
    return c.node("GlobalAveragePool", [c.of(input)])


def _is_resize(input: Any, size: Any, mode: str, align: bool, scales: Any) -> bool:
    """Factors of the user's own are taken apart: ONNX rounds them in its own way."""
    flat = mode != "cubic" or input.ndim == 4
    plain = mode in ("nearest", "linear", "cubic") and input.dtype is dt.float32
    return plain and flat and all(s is None for s in scales)


@rule("resample", when=_is_resize)
def resample(c: Any, node: Any, input: Any, size: Any, mode: str, align: bool, scales: Any) -> str:
    whole = c.ints([*c.sizes_of(input)[:2], *size])
    placed = "asymmetric" if mode == "nearest" else "align_corners" if align else "half_pixel"
    more: dict[str, Any] = {"nearest_mode": "floor"} if mode == "nearest" else {}
    more |= {"cubic_coeff_a": -0.75} if mode == "cubic" else {}
    return c.node(
        "Resize", [c.of(input), "", "", whole], mode=mode, coordinate_transformation_mode=placed,
        **more,
    )  # fmt: skip


# ---- norms and rows ------------------------------------------------------------------------------


@rule("layer_norm_rows")
def layer_norm(c: Any, node: Any, input: Any, weight: Any, bias: Any, dims: Any, eps: float) -> Any:
    ndim = input.meta.ndim
    first = min(d % ndim for d in dims)
    last = sorted(d % ndim for d in dims) == list(range(first, ndim))
    if not last or tuple(weight.meta.shape) != tuple(input.meta.shape[first:]):
        return NotImplemented
    if len({v.meta.dtype for v in (input, weight, bias) if v is not None}) > 1:
        return NotImplemented
    return c.node("LayerNormalization", _given(c, input, weight, bias), axis=first, epsilon=eps)


@rule("known_norm")
def known_norm(
    c: Any, node: Any, input: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float
) -> Any:
    given = (input, weight, bias, mean, var)
    if len({v.meta.dtype for v in given}) > 1 or input.meta.ndim < 2:
        return NotImplemented
    return c.node("BatchNormalization", _given(c, *given), epsilon=eps)


@rule("softmax", "log_softmax")
def softmax(c: Any, node: Any, input: Any, dim: int, dtype: Any = None) -> str:
    out = node.outputs[0].meta.dtype
    kind = "Softmax" if node.op.name == "softmax" else "LogSoftmax"
    if not input.meta.ndim:
        return c.constant(float(kind == "Softmax"), out)
    return c.node(kind, [c.operand(input, out)], axis=dim % input.meta.ndim)


@rule("mean")
def mean(c: Any, node: Any, input: Any, dim: Any, keepdim: bool, dtype: Any = None) -> Any:
    out, ndim = node.outputs[0].meta.dtype, input.meta.ndim
    if out not in _FLOATS or not ndim:
        return NotImplemented
    listed = range(ndim) if dim is None or dim == () else [dim] if isinstance(dim, int) else dim
    dims = sorted({d % ndim for d in listed})
    return c.node("ReduceMean", [c.operand(input, out), c.ints(dims)], keepdims=int(keepdim))


@rule("nn.functional.gelu")
def gelu(c: Any, node: Any, input: Any, approximate: str = "none") -> str:
    out = input.meta.dtype
    made = c.node("Gelu", [c.operand(input, out.compute)], approximate=approximate)
    return made if out.compute is out else c.cast(made, out)


# ---- attention -----------------------------------------------------------------------------------


@rule("flash_attention")
def attention(
    c: Any, node: Any, query: Any, key: Any, value: Any, mask: Any, causal: bool, scale: Any
) -> list[str]:
    if isinstance(scale, Expr):
        raise NotExpressibleError("a scale that follows from sizes")
    if c.opset >= 23 and query.meta.ndim == 4 and query.meta.dtype in _FLOATS:
        return [_one_operator(c, query, key, value, mask, causal, scale)]
    dtype = query.meta.dtype
    k, v = (_for_all_heads(c, x, query) for x in (key, value))
    order = [*range(key.meta.ndim - 2), key.meta.ndim - 1, key.meta.ndim - 2]
    scaled = c.node("Mul", [c.of(query), c.operand(scale, dtype)])
    scores = c.node("MatMul", [scaled, c.node("Transpose", [k], perm=order)])
    least = c.constant(-math.inf, dtype)
    if causal:
        rows, columns = (c.counted(c.sizes_of(x)[-2]) for x in (query, key))
        later = c.node("Greater", [columns, c.node("Unsqueeze", [rows, c.ints([1])])])
        scores = c.node("Where", [later, least, scores])
    if mask is not None and mask.meta.dtype is dt.bool_:
        scores = c.node("Where", [c.of(mask), scores, least])
    elif mask is not None:
        scores = c.node("Add", [scores, c.operand(mask, dtype)])
    weights = c.node("Softmax", [scores], axis=-1)
    if mask is not None:  # a row that may look at nothing gives zeros
        weights = c.node("Where", [c.node("IsNaN", [weights]), c.constant(0, dtype), weights])
    return [c.node("MatMul", [weights, v])]


def _one_operator(
    c: Any, query: Any, key: Any, value: Any, mask: Any, causal: bool, scale: float
) -> str:
    given = [*_given(c, query, key, value), *([] if mask is None else [c.of(mask)])]
    return c.node("Attention", given, is_causal=int(causal), scale=float(scale))


def _for_all_heads(c: Any, x: Any, query: Any) -> str:
    """Keys or values of heads that serve several of the query's, once for each."""
    h, g = query.meta.shape[1], x.meta.shape[1]
    if h == g or x.meta.ndim != 4:
        return c.of(x)
    n, _, t, e = c.sizes_of(x)
    several = c.node("Unsqueeze", [c.of(x), c.ints([2])])
    several = c.node("Expand", [several, c.ints([n, g, h // g, t, e])])
    return c.node("Reshape", [several, c.ints([n, h, t, e])])
