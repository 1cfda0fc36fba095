"""Views: in ONNX they are copies, by Reshape, Transpose, Slice, or by positions."""

from __future__ import annotations

from typing import Any

from lucerne._src.ir.symbolic.expressions import Expr
from lucerne.export.onnx.errors import NotExpressibleError
from lucerne.export.onnx.table import rule

_LAST = 2**63 - 1


@rule("view")
def view(c: Any, node: Any, input: Any, size: Any) -> str:
    empty = any(isinstance(n, int) and n == 0 for n in size)
    return c.node("Reshape", [c.of(input), c.ints(size)], allowzero=int(empty))


@rule("transpose")
def transpose(c: Any, node: Any, input: Any, dim0: int, dim1: int) -> str:
    order = list(range(input.meta.ndim))
    if not order:
        return c.of(input)
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return c.node("Transpose", [c.of(input)], perm=order)


@rule("t")
def t(c: Any, node: Any, input: Any) -> str:
    return c.node("Transpose", [c.of(input)], perm=[1, 0]) if input.meta.ndim == 2 else c.of(input)


@rule("permute")
def permute(c: Any, node: Any, input: Any, dims: Any) -> str:
    order = [d % input.meta.ndim for d in dims]
    return c.node("Transpose", [c.of(input)], perm=order) if order else c.of(input)


@rule("expand")
def expand(c: Any, node: Any, input: Any, size: Any) -> str:
    missing = len(size) - input.meta.ndim
    have = c.sizes_of(input)
    size = [have[k - missing] if isinstance(n, int) and n == -1 else n for k, n in enumerate(size)]
    return c.node("Expand", [c.of(input), c.ints(size)])


@rule("unsqueeze")
def unsqueeze(c: Any, node: Any, input: Any, dim: int) -> str:
    return c.node("Unsqueeze", [c.of(input), c.ints([dim % (input.meta.ndim + 1)])])


@rule("squeeze")
def squeeze(c: Any, node: Any, input: Any, dim: Any = None) -> str:
    ndim = input.meta.ndim
    listed = range(ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    have = c.sizes_of(input)
    dims = sorted(d % ndim for d in listed if ndim and _is_one(have[d % ndim]))
    return c.node("Squeeze", [c.of(input), c.ints(dims)]) if dims else c.of(input)


def _is_one(n: Any) -> bool:
    return not isinstance(n, Expr) and n == 1


@rule("select")
def select(c: Any, node: Any, input: Any, dim: int, index: Any) -> str:
    return c.node("Gather", [c.of(input), c.scalar(index)], axis=dim % input.meta.ndim)


@rule("ops.aten.slice")
def slice_(c: Any, node: Any, input: Any, dim: int, start: Any, end: Any, step: int) -> str:
    begin = c.ints([0 if start is None else start])
    last = c.ints([_LAST if end is None else end])
    axis = c.ints([dim % input.meta.ndim])
    return c.node("Slice", [c.of(input), begin, last, axis, c.ints([step])])


@rule("split_with_sizes")
def split(c: Any, node: Any, input: Any, split_sizes: Any, dim: int) -> list[str]:
    given = [c.of(input), c.ints(split_sizes)]
    return c.several("Split", given, len(split_sizes), axis=dim % input.meta.ndim)


@rule("unbind")
def unbind(c: Any, node: Any, input: Any, dim: int) -> list[str]:
    d = dim % input.meta.ndim
    if isinstance(c.sizes_of(input)[d], Expr):
        raise NotExpressibleError("as many results as a size that changes says")
    return [
        c.node("Gather", [c.of(input), c.scalar(k)], axis=d) for k in range(input.meta.shape[d])
    ]


@rule("alias", "clone_as")
def same(c: Any, node: Any, input: Any, *_: Any) -> str:
    return c.of(input)


@rule("Tensor.unfold")
def unfold(c: Any, node: Any, input: Any, dimension: int, size: int, step: int) -> str:
    ndim = input.meta.ndim
    if not ndim:
        return c.node("Unsqueeze", [c.of(input), c.ints([0])])
    d = dimension % ndim
    count = (c.sizes_of(input)[d] - size) // step + 1
    windows = c.node("Gather", [c.of(input), c.positions((count, size), (step, 1), 0)], axis=d)
    order = [*range(d + 1), *range(d + 2, ndim + 1), d + 1]
    return c.node("Transpose", [windows], perm=order)


@rule("diagonal")
def diagonal(c: Any, node: Any, input: Any, offset: int, dim1: int, dim2: int) -> str:
    """The two dimensions as one, of which every so many-th element is on the diagonal."""
    ndim, have = input.meta.ndim, c.sizes_of(input)
    a, b = dim1 % ndim, dim2 % ndim
    rest = [d for d in range(ndim) if d not in (a, b)]
    x = c.node("Transpose", [c.of(input)], perm=[*rest, a, b])
    flat = c.node("Reshape", [x, c.ints([*(have[d] for d in rest), have[a] * have[b]])])
    index = node.outputs[0]
    count = c.sizes_of(index)[-1]
    first = offset if offset >= 0 else -offset * have[b]
    return c.node("Gather", [flat, c.positions((count,), (have[b] + 1,), first)], axis=len(rest))


@rule("as_strided")
def as_strided(c: Any, node: Any, input: Any, size: Any, stride: Any, offset: Any) -> str:
    if not input.meta.contiguous:
        raise NotExpressibleError("as_strided of a tensor that is not contiguous")
    flat = c.node("Reshape", [c.of(input), c.ints([-1])])
    return c.node("Gather", [flat, c.positions(size, stride, offset)], axis=0)


@rule("view_dtype")
def view_dtype(c: Any, node: Any, input: Any, dtype: Any) -> str:
    if input.meta.dtype is node.outputs[0].meta.dtype:
        return c.of(input)
    raise NotExpressibleError("bits of one dtype read as another, which ONNX can't")


@rule("flip_view", "real_part", "imag_part", "view_as_real", "view_as_complex")
def of_complex(c: Any, node: Any, input: Any) -> str:
    raise NotExpressibleError("ONNX has no complex numbers")
