"""Shape arithmetic: sizes, strides, broadcasting, the memory order of results. No tensors here."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex, overload

from lucerne._src.base import layout as lo
from lucerne._src.base.unspecialized import Guarding, Symbolic

Shape = tuple[int, ...]


class Size(tuple[int, ...]):
    """The shape of a tensor: a tuple of ints that prints as torch's.

    >>> import lucerne
    >>> lucerne.zeros(2, 3).shape.numel()
    6
    """

    __slots__ = ()

    def __new__(cls, values: Iterable[Any] = ()) -> Size:
        return tuple.__new__(
            cls, [v if type(v) is int else _size(i, v) for i, v in enumerate(values)]
        )

    def numel(self) -> int:
        return math.prod(self)

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(str, self))}])"

    __str__ = __repr__

    @overload
    def __getitem__(self, key: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, key: slice) -> Size: ...
    def __getitem__(self, key: SupportsIndex | slice) -> int | Size:
        found = tuple.__getitem__(self, key)
        return tuple.__new__(Size, found) if isinstance(key, slice) else found  # type: ignore[arg-type, return-value]

    def __add__(self, other: tuple[int, ...]) -> Size:  # type: ignore[override]
        if not isinstance(other, tuple):
            return NotImplemented
        return Size(tuple.__add__(self, other))

    def __radd__(self, other: tuple[int, ...]) -> Size:
        if not isinstance(other, tuple):
            return NotImplemented
        return Size(tuple.__add__(other, self))

    def __mul__(self, times: SupportsIndex) -> Size:
        return Size(tuple.__mul__(self, times))

    __rmul__ = __mul__

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (tuple(self),)


class SymbolicSize(Size):
    """A shape with symbolic sizes: another number of dimensions is seen before they are compared,
    so that nothing is decided by sizes then."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return Size

    def __eq__(self, other: object) -> bool:
        if isinstance(other, tuple) and len(other) != len(self):
            return False
        return tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


def _size(at: int, value: Any) -> Any:
    if isinstance(value, Symbolic) and isinstance(value, int):
        return value
    try:
        return int(value.__index__())
    except (AttributeError, TypeError):
        raise TypeError(
            f"torch.Size() takes an iterable of 'int' (item {at} is '{type(value).__name__}')"
        ) from None


def numel(shape: Sequence[int]) -> int:
    return math.prod(shape)


def contiguous_strides(shape: Sequence[int]) -> Shape:
    """Row-major strides, in elements."""
    strides = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= n if n > 1 else 1
    return tuple(reversed(strides))


def ordered_strides(shape: Sequence[int], order: Sequence[int]) -> Shape:
    """Dense strides where `order` lists the dimensions from the innermost outwards."""
    strides = [0] * len(shape)
    step = 1
    for d in order:
        strides[d] = step
        step *= max(shape[d], 1)
    return tuple(strides)


CHANNELS_LAST_ORDER = (1, 3, 2, 0)
CHANNELS_LAST_3D_ORDER = (1, 4, 3, 2, 0)


def format_strides(shape: Sequence[int], memory_format: lo.memory_format) -> Shape:
    """Strides of a dense tensor in a memory format."""
    if memory_format is lo.channels_last:
        if len(shape) != 4:
            raise RuntimeError("required rank 4 tensor to use channels_last format")
        return ordered_strides(shape, CHANNELS_LAST_ORDER)
    if memory_format is lo.channels_last_3d:
        if len(shape) != 5:
            raise RuntimeError("required rank 5 tensor to use channels_last_3d format")
        return ordered_strides(shape, CHANNELS_LAST_3D_ORDER)
    return contiguous_strides(shape)


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    step = 1
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if s != step and n != 1:  # (in this order: a size that only a run tells is not asked)
            return 0 in shape
        step *= n
    return True


def is_format(
    shape: Sequence[int], strides: Sequence[int], memory_format: lo.memory_format
) -> bool:
    """Whether strides follow a memory format (dimensions of size one are free)."""
    if memory_format is lo.channels_last:
        return len(shape) == 4 and _in_order(shape, strides, CHANNELS_LAST_ORDER)
    if memory_format is lo.channels_last_3d:
        return len(shape) == 5 and _in_order(shape, strides, CHANNELS_LAST_3D_ORDER)
    return is_contiguous(shape, strides)


def _in_order(shape: Sequence[int], strides: Sequence[int], order: Sequence[int]) -> bool:
    step = 1
    for d in order:
        if shape[d] != 1:
            if strides[d] != step:
                return False
            step *= shape[d]
    return True


def is_channels_last_like(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Torch's heuristic for "these strides were meant as channels last"."""
    order = {4: CHANNELS_LAST_ORDER, 5: CHANNELS_LAST_3D_ORDER}.get(len(shape))
    if order is None or strides[1] == 0:
        return False
    least = 0
    for d in order:
        if shape[d] == 0 or strides[d] < least:
            return False
        if d == 0 and least == strides[1]:
            return False
        least = strides[d] * max(shape[d], 1)
    return True


def suggested_format(shape: Sequence[int], strides: Sequence[int]) -> lo.memory_format:
    if is_channels_last_like(shape, strides):
        return lo.channels_last if len(shape) == 4 else lo.channels_last_3d
    return lo.contiguous_format


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Non-overlapping and dense: some permutation of the dimensions is contiguous."""
    if is_contiguous(shape, strides) or numel(shape) < 2:
        return True
    step = 1
    for s, n in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n != 1):
        if s != step:
            return False
        step *= n
    return True


def wrap_dim(dim: int, ndim: int, *, allow_scalar: bool = True) -> int:
    """A dimension counted from the front; negative ones count from the back."""
    span = max(ndim, 1) if allow_scalar else ndim
    if span <= 0:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    if not -span <= dim < span:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-span}, {span - 1}], but got "
            f"{dim})"
        )
    return dim + span if dim < 0 else dim


def wrap_dims(dims: Sequence[int], ndim: int) -> Shape:
    """Several dimensions, each at most once."""
    out = tuple(wrap_dim(d, ndim) for d in dims)
    if len(set(out)) != len(out):
        twice = next(d for d in out if out.count(d) > 1)
        raise RuntimeError(f"dim {twice} appears multiple times in the list of dims")
    return out


def broadcast_shapes(*shapes: Sequence[int]) -> Shape:
    """The common shape that all of `shapes` expand to."""
    ndim = max((len(s) for s in shapes), default=0)
    out = [1] * ndim
    for shape in shapes:
        lead = ndim - len(shape)
        for i, n in enumerate(shape):
            here = out[lead + i]
            if n == here or n == 1:
                continue
            if here != 1:
                raise RuntimeError(
                    f"The size of tensor a ({here}) must match the size of tensor b ({n}) at "
                    f"non-singleton dimension {lead + i}"
                )
            out[lead + i] = n
    return tuple(out)


def broadcast_strides(shape: Sequence[int], strides: Sequence[int], target: Sequence[int]) -> Shape:
    """Strides that read `shape` as if it had been expanded to `target`."""
    lead = len(target) - len(shape)
    tail = (
        0 if n == 1 and target[lead + i] != 1 else s
        for i, (n, s) in enumerate(zip(shape, strides, strict=True))
    )
    return (0,) * lead + tuple(tail)


def elementwise_strides(target: Shape, operands: tuple[tuple[Shape, Shape], ...]) -> Shape:
    """Strides of an element-wise result: the operands' common memory order, as torch chooses it."""
    if Guarding.count:  # symbolic sizes are no keys
        return _elementwise_strides.__wrapped__(target, operands)
    return _elementwise_strides(target, operands)


@functools.lru_cache(maxsize=4096)
def _elementwise_strides(target: Shape, operands: tuple[tuple[Shape, Shape], ...]) -> Shape:
    same_shape = all(len(shape) == len(target) and shape == target for shape, _ in operands)
    if same_shape and operands:
        fast = _uniform_strides(target, operands)
        if fast is not None:
            return fast
    views = [broadcast_strides(shape, strides, target) for shape, strides in operands]
    order = memory_order(target, views)
    return ordered_strides(target, order)


def _uniform_strides(target: Shape, operands: tuple[tuple[Shape, Shape], ...]) -> Shape | None:
    if all(is_contiguous(shape, strides) for shape, strides in operands):
        return contiguous_strides(target)
    for fmt in (lo.channels_last, lo.channels_last_3d):
        if all(is_format(shape, strides, fmt) for shape, strides in operands):
            return format_strides(target, fmt)
    first = operands[0][1]
    if all(strides == first and is_dense(shape, strides) for shape, strides in operands):
        return first
    return None


def memory_order(shape: Shape, operand_strides: Sequence[Shape]) -> list[int]:
    """Dimensions from the innermost outwards, by the first operand that tells them apart."""
    order = list(range(len(shape)))[::-1]

    def further_out(a: int, b: int) -> int:
        for strides in operand_strides:
            if strides[a] == 0 or strides[b] == 0:
                continue
            if strides[a] != strides[b]:
                return 1 if strides[a] > strides[b] else -1
            if shape[a] > shape[b]:
                return 1
        return 0

    for i in range(1, len(order)):
        here = i
        for j in range(i - 1, -1, -1):
            verdict = further_out(order[j], order[here])
            if verdict > 0:
                order[j], order[here] = order[here], order[j]
                here = j
            elif verdict < 0:
                break
    return order


def view_strides(shape: Shape, strides: Shape, target: Shape) -> Shape | None:
    """Strides under which the same memory reads as `target`, or None if a copy is needed."""
    if numel(shape) == 0:
        return contiguous_strides(target) if shape != target else strides
    result = [0] * len(target)
    view_d = len(target) - 1
    chunk_stride = strides[-1] if strides else 1
    tensor_numel = view_numel = 1
    for d in range(len(shape) - 1, -1, -1):
        tensor_numel *= shape[d]
        ends_chunk = d == 0 or (shape[d - 1] != 1 and strides[d - 1] != tensor_numel * chunk_stride)
        if not ends_chunk:
            continue
        while view_d >= 0 and (view_numel < tensor_numel or target[view_d] == 1):
            result[view_d] = view_numel * chunk_stride
            view_numel *= target[view_d]
            view_d -= 1
        if view_numel != tensor_numel:
            return None
        if d > 0:
            chunk_stride = strides[d - 1]
            tensor_numel = view_numel = 1
    if not shape:
        return (1,) * len(target)
    return tuple(result) if view_d == -1 else None


def infer_size(shape: Sequence[int], total: int) -> Shape:
    """Replace a -1 in `shape` so that it holds `total` elements."""
    holes = [i for i, n in enumerate(shape) if n == -1]
    if len(holes) > 1:
        raise RuntimeError("only one dimension can be inferred")
    bad = next((n for n in shape if n < -1), None)
    if bad is not None:
        raise RuntimeError(
            f"invalid shape dimension {bad} at index {list(shape).index(bad)} of shape "
            f"{list(shape)}"
        )
    known = math.prod(n for n in shape if n != -1)
    if holes:
        if known == 0 and total == 0:
            raise RuntimeError(
                f"cannot reshape tensor of 0 elements into shape {list(shape)} because the "
                "unspecified dimension size -1 can be any value and is ambiguous"
            )
        if known != 0 and total % known == 0:
            out = list(shape)
            out[holes[0]] = total // known
            return tuple(out)
    elif known == total:
        return tuple(shape)
    raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {total}")
