"""Elements by their positions: gather, scatter, index."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.graph import Value
from lucerne.export.onnx.errors import NotExpressibleError
from lucerne.export.onnx.table import rule

_FOLDS = {"set": "none", "add": "add", "mul": "mul", "max": "max", "min": "min"}


@rule("gather")
def gather(c: Any, node: Any, input: Any, dim: int, index: Any, *_: Any) -> str:
    if not input.meta.ndim:
        return c.of(input)
    at = c.of(index)
    if input.meta.shape != index.meta.shape:  # other dimensions may be shorter in the index
        at, x = _fitted(c, input, index, dim % input.meta.ndim)
        return c.node("GatherElements", [x, at], axis=dim % input.meta.ndim)
    return c.node("GatherElements", [c.of(input), at], axis=dim % input.meta.ndim)


def _fitted(c: Any, input: Any, index: Any, d: int) -> tuple[str, str]:
    """The input cut to the index in the dimensions that are not gathered along."""
    have, want = c.sizes_of(input), c.sizes_of(index)
    cut = [k for k in range(len(have)) if k != d and have[k] != want[k]]
    x = c.of(input)
    if cut:
        ends = c.ints([want[k] for k in cut])
        zero, one = c.ints([0] * len(cut)), c.ints([1] * len(cut))
        x = c.node("Slice", [x, zero, ends, c.ints(cut), one])
    return c.of(index), x


@rule("scatter")
def scatter(c: Any, node: Any, input: Any, dim: int, index: Any, src: Any, mode: str) -> str:
    kind = input.meta.dtype
    wide = _scattered_in(kind, mode)
    values = c.operand(src, wide)
    if not input.meta.ndim:
        raise NotExpressibleError("a scatter into a tensor without dimensions")
    if not isinstance(src, Value) or not src.meta.ndim:
        values = c.node("Expand", [values, c.ints(c.sizes_of(index))])
    elif c.sizes_of(src) != c.sizes_of(index):
        n = index.meta.ndim
        ends = c.ints(c.sizes_of(index))
        values = c.node("Slice", [values, c.ints([0] * n), ends, c.ints(range(n)), c.ints([1] * n)])
    made = c.node(
        "ScatterElements", [c.operand(input, wide), c.of(index), values],
        axis=dim % input.meta.ndim, reduction=_FOLDS[mode],
    )  # fmt: skip
    return made if wide is kind else c.cast(made, kind)


def _scattered_in(kind: dt.dtype, mode: str) -> dt.dtype:
    """Engines fold in few dtypes."""
    if mode == "set" or kind in (dt.float32, dt.float64, dt.int32, dt.int64):
        return kind
    return dt.float32 if kind.category == dt.FLOAT else dt.int64


def _places(c: Any, indices: list[Any]) -> str:
    """Indices broadcast and put side by side, as GatherND wants them."""
    made = [c.operand(i, dt.int64) for i in indices]
    if len(made) > 1:
        total = made[0]
        for m in made[1:]:
            total = c.node("Add", [total, m])
        shape = c.shape(total)
        made = [c.node("Expand", [m, shape]) for m in made]
    return c.node("Concat", [c.node("Unsqueeze", [m, c.ints([-1])]) for m in made], axis=-1)


def _order(input: Any, indices: Any) -> tuple[list[int], list[int], int]:
    """Which dimensions are indexed, which not, and where those of the indices stand in a result:
    in the place of the indexed ones if these stand together, else in front."""
    real = [k for k, i in enumerate(indices) if i is not None]
    rest = [d for d in range(input.meta.ndim) if d not in real]
    together = real == list(range(real[0], real[0] + len(real)))
    return real, rest, real[0] if together else 0


def _ndim_of(indices: Any) -> int:
    return max(i.meta.ndim for i in indices if i is not None)


@rule("index")
def index(c: Any, node: Any, input: Any, indices: Any, wrap: bool = True) -> str:
    real, rest, front = _order(input, indices)
    if len(real) == 1:
        return c.node("Gather", [c.of(input), c.operand(indices[real[0]], dt.int64)], axis=real[0])
    x = c.of(input)
    if real != list(range(len(real))):
        x = c.node("Transpose", [x], perm=[*real, *rest])
    made = c.node("GatherND", [x, _places(c, [indices[k] for k in real])])
    if not front:
        return made
    n = _ndim_of(indices)
    order = [*range(n, n + front), *range(n), *range(n + front, n + len(rest))]
    return c.node("Transpose", [made], perm=order)


@rule("index_put")
def index_put(
    c: Any, node: Any, input: Any, indices: Any, values: Any, accumulate: bool = False,
    wrap: bool = True,
) -> str:  # fmt: skip
    kind = input.meta.dtype
    wide = _scattered_in(kind, "add" if accumulate else "set")
    real, rest, front = _order(input, indices)
    at = _places(c, [indices[k] for k in real])
    x = c.operand(input, wide)
    moved = real != list(range(len(real)))
    if moved:
        x = c.node("Transpose", [x], perm=[*real, *rest])
    n, have = _ndim_of(indices), c.sizes_of(input)
    found = [c.shape(at, 0, n)]
    before, after = [have[d] for d in rest[:front]], [have[d] for d in rest[front:]]
    sizes = [*([c.ints(before)] if before else []), *found, *([c.ints(after)] if after else [])]
    whole = c.node("Concat", sizes, axis=0) if len(sizes) > 1 else sizes[0]
    v = c.operand(values, wide)
    v = c.node("Expand", [v, whole])
    if front:
        v = c.node("Transpose", [v], perm=[*range(front, front + n), *range(front),
                                           *range(front + n, n + len(rest))])  # fmt: skip
    made = c.node("ScatterND", [x, at, v], reduction="add" if accumulate else "none")
    if moved:
        order = [*real, *rest]
        made = c.node("Transpose", [made], perm=[order.index(d) for d in range(len(order))])
    return made if wide is kind else c.cast(made, kind)


@rule("embedding")
def embedding(c: Any, node: Any, weight: Any, indices: Any, *_: Any) -> str:
    return c.node("Gather", [c.of(weight), c.of(indices)], axis=0)


@rule("nonzero")
def nonzero(c: Any, node: Any, input: Any) -> str:
    if not input.meta.ndim:
        raise NotExpressibleError("nonzero of a tensor without dimensions")
    return c.node("Transpose", [c.node("NonZero", [c.of(input)])], perm=[1, 0])
