"""Elements at positions that are data, and elements in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.formulas.frame import FormulaTensor, Frame
from lucerne._src.backends.formulas.table import formula
from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar.protocol import ScalarValue, s
from lucerne._src.ops.index.advanced import IndexLayout


class PositionError(IndexError, RuntimeError):
    """Torch raises either for a position out of bounds, depending on the op: this is both."""


def _checked(
    f: Frame, i: ScalarValue, size: int, dim: int, *, wrap: bool, text: str = ""
) -> ScalarValue:
    """A position counted from the front; one out of bounds is refused (and made 0)."""
    n = f.size(size)
    i = s.cast(i, dt.int64)
    if wrap:
        i = s.where(i < 0, i + n, i)
    inside = (f.value(0, dt.int64) <= i) & (i < n)
    told = text or f"index is out of bounds for dimension {dim} with size {size}"
    f.require(inside, PositionError, told)
    return s.where(inside, i, 0)


def _places(
    f: Frame,
    input: FormulaTensor,
    indices: Sequence[Any],
    at: IndexLayout,
    coordinates: Any,
    wrap: bool,
) -> list[ScalarValue]:
    """Where in `input` the element of `input[indices]` at these coordinates lies."""
    spread = len(at.broadcast)
    found: list[Any] = [None] * input.ndim
    inner = coordinates[at.at : at.at + spread]
    outer = iter([*coordinates[: at.at], *coordinates[at.at + spread :]])
    for d in range(input.ndim):
        index = indices[d] if d < len(indices) else None
        if index is None:
            found[d] = next(outer)
        else:
            i = index.spread(at.broadcast)(*inner)
            text = "" if wrap else "index out of range in self"
            found[d] = _checked(f, i, input.shape[d], d, wrap=wrap, text=text)
    return found


@formula("index")
def index(f: Frame, input: FormulaTensor, indices: Any, wrap: bool) -> None:
    at = IndexLayout(input.shape, indices)
    with f.kernel(f.out.shape) as coordinates:
        f.out.put(coordinates, input(*_places(f, input, indices, at, coordinates, wrap)))


def _copied(f: Frame, input: FormulaTensor) -> None:
    with f.kernel(f.out.shape) as at:
        f.out.put(at, input(*at))


def _plus(a: ScalarValue, b: ScalarValue) -> ScalarValue:
    return a + b


_FOLDS: dict[str, Any] = {
    "add": _plus,
    "mul": lambda a, b: a * b,
    "max": s.maximum,
    "min": s.minimum,
    "set": lambda a, b: b,
}


@formula("index_put")
def index_put(
    f: Frame,
    input: FormulaTensor,
    indices: Any,
    values: FormulaTensor,
    accumulate: bool,
    wrap: bool,
) -> None:
    """Places that are named more than once get their values in order: one run for all of them."""
    at = IndexLayout(input.shape, indices)
    spread = len(at.broadcast)
    _copied(f, input)
    given, fold = values.spread(at.shape), _FOLDS["add" if accumulate else "set"]
    outer = [*at.shape[: at.at], *at.shape[at.at + spread :]]
    with f.kernel(outer) as rest, f.loops(at.broadcast) as inner:
        coordinates = [*rest[: at.at], *inner, *rest[at.at :]]
        place = _places(f, input, indices, at, coordinates, wrap)
        compute = f.out.dtype.compute
        f.out.put(place, fold(f.out(*place), f.value(given(*coordinates), compute)))


@formula("gather")
def gather(
    f: Frame, input: FormulaTensor, dim: int, index: FormulaTensor, sparse_grad: bool
) -> None:
    with f.kernel(f.out.shape) as at:
        size = input.shape[dim] if input.ndim else 1
        i = _checked(f, index(*at), size, dim % max(input.ndim, 1), wrap=False)
        place = list(at) if input.ndim else []
        if input.ndim:
            place[dim] = i
        f.out.put(at, input(*place))


@formula("scatter")
def scatter(
    f: Frame, input: FormulaTensor, dim: int, index: FormulaTensor, src: FormulaTensor, mode: str
) -> None:
    """Lines along `dim` are independent; along one, values arrive in order."""
    _copied(f, input)
    dim = dim % max(input.ndim, 1)
    shape, length = list(index.shape), index.shape[dim] if index.ndim else 1
    others = [n for d, n in enumerate(shape) if d != dim]
    with f.kernel(others) as at, f.loop(length) as turn:
        here = [*at[:dim], turn, *at[dim:]] if index.ndim else []
        i = _checked(f, index(*here), input.shape[dim] if input.ndim else 1, dim, wrap=False)
        place = [*at[:dim], i, *at[dim:]] if input.ndim else []
        x = f.value(src(*here[: src.ndim]), f.out.dtype.compute)
        f.out.put(place, _FOLDS[mode](f.out(*place), x))


# ---- order ---------------------------------------------------------------------------------------


def _before(a: ScalarValue, b: ScalarValue, descending: bool) -> ScalarValue:
    """Whether `a` stands before `b`; nan counts as the largest."""
    category = a.dtype.category
    if category == dt.BOOL:
        a, b = s.cast(a, dt.int8), s.cast(b, dt.int8)
    less = b < a if descending else a < b
    if category != dt.FLOAT:
        return less
    first, second = (b, a) if descending else (a, b)
    return less | (s.is_nan(second) & ~s.is_nan(first))


@formula("sort_along")
def sort_along(f: Frame, input: FormulaTensor, dim: int, descending: bool, stable: bool) -> None:
    """Each element counts those that stand before it: that is its place."""
    values, positions = f.outs
    if not input.ndim:
        with f.kernel(()) as at:
            values.put(at, input(*at))
            positions.put(at, 0)
        return
    dim %= input.ndim
    with f.kernel(input.shape) as at:
        mine, i = input(*at), at[dim]
        place = f.variable(0, dt.int64)
        with f.loop(input.shape[dim]) as j:
            other = input(*at[:dim], j, *at[dim + 1 :])
            tie = ~_before(mine, other, descending) & (j < i)
            ahead = _before(other, mine, descending) | tie
            place.set(place.now + s.where(ahead, 1, 0))
        to = [*at[:dim], place.now, *at[dim + 1 :]]
        values.put(to, mine)
        positions.put(to, i)


@formula("binary_search")
def binary_search(
    f: Frame, sorted_sequence: FormulaTensor, input: FormulaTensor, right: bool
) -> None:
    length = sorted_sequence.shape[-1]
    with f.kernel(input.shape) as at:
        row = [] if sorted_sequence.ndim == 1 else at[:-1]
        wanted, place = input(*at), f.variable(0, dt.int64)
        with f.loop(length) as j:
            x = sorted_sequence(*row, j)
            ahead = ~_before(wanted, x, False) if right else _before(x, wanted, False)
            place.set(place.now + s.where(ahead, 1, 0))
        f.out.put(at, place.now)


# ---- other arrangements --------------------------------------------------------------------------


@formula("cat")
def cat(f: Frame, tensors: Sequence[FormulaTensor], dim: int) -> None:
    before = 0
    for t in tensors:
        with f.kernel(t.shape) as at:
            to = list(at)
            to[dim] = to[dim] + f.size(before)
            f.out.put(to, t(*at))
        before += t.shape[dim]


@formula("flip")
def flip(f: Frame, input: FormulaTensor, dims: Sequence[int]) -> None:
    turned = {d % max(input.ndim, 1) for d in dims}
    with f.kernel(input.shape) as at:
        to = [f.size(input.shape[d] - 1) - i if d in turned else i for d, i in enumerate(at)]
        f.out.put(to, input(*at))


@formula("padded")
def padded(f: Frame, input: FormulaTensor, value: Any, low: Any, high: Any, interior: Any) -> None:
    with f.kernel(f.out.shape) as at:
        f.out.put(at, f.value(value, f.out.dtype.compute))
    with f.kernel(input.shape) as at:
        to = [
            i * f.size(gap + 1) + f.size(before)
            for i, before, gap in zip(at, low, interior, strict=True)
        ]
        f.out.put(to, input(*at))


@formula("put_region")
def put_region(
    f: Frame, input: FormulaTensor, src: Any, size: Any, stride: Any, offset: int
) -> None:
    """The result lies in memory as the input does, so the region is found by the same steps."""
    _copied(f, input)
    if input.strides != f.out.strides:
        raise NotImplementedError("a region of a tensor that lies in memory in another way")
    region = FormulaTensor(f, f.out.buffer, f.out.meta, (*stride, 1))
    with f.kernel(size) as at:
        from_ = src.spread(size)(*at) if isinstance(src, FormulaTensor) else src
        region.put((*at, f.size(offset)), f.value(from_, f.out.dtype.compute))


@formula("pivots_to_permutation")
def pivots_to_permutation(f: Frame, pivots: FormulaTensor, n: int) -> None:
    *batch, count = pivots.shape
    with f.kernel(batch) as at:
        with f.loop(n) as i:
            f.out.put((*at, i), i)
        with f.loop(count) as i:
            j = s.cast(pivots(*at, i), dt.int64) - 1
            here = f.variable(s.cast(f.out(*at, i), dt.int64), dt.int64)
            f.out.put((*at, i), f.out(*at, j))
            f.out.put((*at, j), here.now)
