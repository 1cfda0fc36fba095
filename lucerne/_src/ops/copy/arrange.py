"""Elements repeated, turned and arranged: repeat, flip, roll, triangles, diagonals, grids."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.base.device import HOST, device
from lucerne._src.base.process import notices
from lucerne._src.ir.convert import IntList, as_int, as_int_list
from lucerne._src.ir.define import composite, front, structural
from lucerne._src.ir.dispatch import capturing, every_value, raise_if
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy.cast import counted, filled, preserved_strides
from lucerne._src.ops.copy.join import cat, stack
from lucerne._src.ops.creation import ranges
from lucerne._src.ops.creation.ranges import triangle
from lucerne._src.ops.spatial.padding import embed_diagonal, padded
from lucerne._src.ops.view.reshape import expand_shape, sizes

# ---- repetition -------------------------------------------------------------------------------


def _repeated(input: Tensor, repeats: sh.Shape) -> Tensor:
    lead = len(repeats) - input.ndim
    shape = (1,) * lead + tuple(input.shape)
    pairs = list(zip(repeats, shape, strict=True))
    if all(r == 1 for r in repeats):
        return input.reshape(shape).clone(memory_format=lo.contiguous_format)
    # (s0, s1) -> (1, s0, 1, s1) -> (r0, s0, r1, s1) -> (r0 * s0, r1 * s1)
    apart = input.reshape([n for _, s in pairs for n in (1, s)])
    spread = expand_shape(apart, [n for r, s in pairs for n in (r, s)])
    made = spread.clone(memory_format=lo.contiguous_format)
    return made.view([r * s for r, s in pairs])


@front(namespace="Tensor", method=True)
def repeat(input: Tensor, *args: Any, repeats: Any = None) -> Tensor:
    """The tensor copied side by side, so many times along each dimension.

    >>> import lucerne
    >>> lucerne.tensor([1, 2]).repeat(2, 2)
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    times = as_int_list(sizes(args, repeats))
    if len(times) < input.ndim:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            "tensor"
        )
    if any(r < 0 for r in times):
        shape = [
            r * s
            for r, s in zip(
                times, (1,) * (len(times) - input.ndim) + tuple(input.shape), strict=True
            )
        ]
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(shape)}: {shape}")
    return _repeated(input, times)


@front(method=True)
def tile(input: Tensor, *args: Any, dims: Any = None) -> Tensor:
    """`repeat` where missing leading counts are one."""
    times = as_int_list(sizes(args, dims))
    return repeat(input, *((1,) * (input.ndim - len(times)) + times))


@front(method=True)
def repeat_interleave(
    input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element repeated in place, `repeats` times or as often as its own count says.

    >>> import lucerne
    >>> lucerne.tensor([1, 2]).repeat_interleave(lucerne.tensor([2, 1]))
    tensor([1, 1, 2])
    """
    if repeats is None:
        return _interleaved_index(input, output_size)
    if dim is None:
        input, dim = input.reshape(-1), 0
    d = sh.wrap_dim(as_int(dim), input.ndim)
    if not input.ndim:
        input = input.reshape(1)
    n = input.shape[d]
    if not hasattr(repeats, "_meta"):
        return _interleaved(input, d, n, as_int(repeats), output_size)
    if repeats.ndim == 0 or (repeats.ndim == 1 and repeats.shape[0] == 1):
        repeats = repeats.reshape(1).expand(n)
    elif repeats.ndim > 1:
        raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
    elif repeats.shape[0] != n:
        raise RuntimeError(
            f"repeats must have the same size as input along dim, but got repeats.size(0) = "
            f"{repeats.shape[0]} and input.size({d}) = {n}"
        )
    return input.index_select(d, _interleaved_index(repeats, output_size))


def _interleaved(input: Tensor, d: int, n: int, times: int, output_size: Any) -> Tensor:
    if times < 0:
        raise RuntimeError("Repeats must be non-negative")
    if output_size is not None and output_size != n * times:
        raise RuntimeError(
            f"repeat_interleave: Invalid output_size, expected {n * times} but got {output_size}"
        )
    shape = tuple(input.shape)
    spread = input.unsqueeze(d + 1).expand(*shape[: d + 1], times, *shape[d + 1 :])
    made = spread.clone(memory_format=lo.contiguous_format)
    return made.reshape(*shape[:d], n * times, *shape[d + 1 :])


def _total(ends: Tensor, output_size: Any) -> int:
    """The sum of counts. Of a captured function it is told, or a size that the data tell."""
    if capturing():
        if output_size is None:
            found: int = ends[-1].item()  # (an `int` of it would be a plain number)
            return found
        raise_if(ends[-1] != output_size, lambda: RuntimeError(_OTHER_SIZE))
        return as_int(output_size)
    total = int(every_value(ends[-1]).max())
    if int(every_value(ends[-1]).min()) != total:
        raise RuntimeError("repeat_interleave: the counts of a batch must have one sum")
    return total


_OTHER_SIZE = "allocated size does not match required size"


def _interleaved_index(repeats: Tensor, output_size: Any) -> Tensor:
    """0 so often as the first count says, 1 so often as the second, ..."""
    if repeats.ndim != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if repeats.dtype not in (dt.int64, dt.int32):
        raise RuntimeError("repeats has to be Long or Int tensor")
    if repeats.numel():
        wrong = every_value(repeats < 0).any()
        raise_if(wrong, lambda: RuntimeError("repeats can not be negative"))
    ends = repeats.cumsum(0)
    total = _total(ends, output_size) if repeats.numel() else 0
    if output_size is not None and output_size != total:
        raise RuntimeError(_OTHER_SIZE)
    places = counted(0, 1, total, dt.int64, repeats.device)
    found = (ends.unsqueeze(0) <= places.unsqueeze(1)).sum(1) if repeats.numel() else places
    return found.to(repeats.dtype)


# ---- turned around ----------------------------------------------------------------------------


def _flip_meta(input: TensorMeta, dims: Any) -> TensorMeta:
    sh.wrap_dims(dims, input.ndim)
    return input.like(strides=preserved_strides(input, lo.preserve_format))


@structural(
    meta=_flip_meta,
    vjp={"input": lambda g, dims: flip_dims(g, dims)},
    name="flip",
    out=False,
    oracle=lambda input, dims: np.flip(input, dims),
    linear=True,
    exact="choice",
    folds=True,
)
def flip_dims(input: Tensor, dims: IntList) -> Tensor:
    """The order of elements reversed along dimensions."""


@front(method=True)
def flip(input: Tensor, *args: Any, dims: Any = None) -> Tensor:
    """The order of elements reversed along dimensions.

    >>> import lucerne
    >>> lucerne.arange(3).flip(0)
    tensor([2, 1, 0])
    """
    return flip_dims(input, sh.wrap_dims(as_int_list(sizes(args, dims)), input.ndim))


@front(method=True)
def fliplr(input: Tensor) -> Tensor:
    """Left and right exchanged: dimension 1 reversed."""
    if input.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(input, (1,))


@front(method=True)
def flipud(input: Tensor) -> Tensor:
    """Up and down exchanged: dimension 0 reversed."""
    if input.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(input, (0,))


@front(method=True)
def roll(input: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    """Elements moved along dimensions; what leaves at the end comes back at the start.

    >>> import lucerne
    >>> lucerne.arange(4).roll(1, 0)
    tensor([3, 0, 1, 2])
    """
    by, along = as_int_list(shifts), as_int_list(dims)
    if not by:
        raise RuntimeError("`shifts` required")
    if not along and len(by) == 1:
        return rolled(input.reshape(-1), by[0], 0).view(input.shape)
    if len(by) != len(along):
        raise RuntimeError(
            f"shifts and dimensions must align. shifts: {len(by)}, dims:{len(along)}"
        )
    for n, d in zip(by, along, strict=True):
        if not input.ndim:
            raise IndexError(f"Dimension specified as {d} but tensor has no dimensions")
        input = rolled(input, n, sh.wrap_dim(d, input.ndim))
    return input


@composite(internal=True, out=False, vjp={"input": lambda g, shift, dim: rolled(g, -shift, dim)})
def rolled(input: Tensor, shift: int, dim: int) -> Tensor:
    """`roll` along one dimension."""
    n = input.shape[dim]
    if not n or not input.numel():
        return input.clone(memory_format=lo.preserve_format)
    at = -shift % n
    if not at:
        return input.clone(memory_format=lo.contiguous_format)
    return cat([input.narrow(dim, at, n - at), input.narrow(dim, 0, at)], dim).contiguous()


@front(method=True)
def rot90(input: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """The plane of two dimensions turned by `k` quarters."""
    along = as_int_list(dims)
    if len(along) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(along)}")
    if input.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.ndim}")
    a, b = along
    if a == b or abs(a - b) == input.ndim:
        raise RuntimeError(
            f"expected rotation dims to be different, but got dim0 = {a} and dim1 = {b}"
        )
    for name, d in (("0", a), ("1", b)):
        if not -input.ndim <= d < input.ndim:
            raise RuntimeError(f"Rotation dim{name} out of range, dim{name} = {d}")
    turns = k % 4
    if turns == 1:
        return flip(input, (b,)).transpose(a, b)
    if turns == 2:
        return flip(input, (a, b))
    if turns == 3:
        return flip(input, (a,)).transpose(a, b)
    return input.clone(memory_format=lo.contiguous_format)


# ---- triangles and diagonals ------------------------------------------------------------------


def _triangle_meta(input: TensorMeta) -> TensorMeta | None:
    """None: the body has something to say about the argument."""
    return input.like(strides=sh.contiguous_strides(input.shape)) if input.ndim > 1 else None


def _in_triangle(name: str, input: Tensor, diagonal: int, lower: bool) -> Tensor:
    if input.ndim < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
    mask = triangle(input.shape[-2], input.shape[-1], diagonal, input.device, lower)
    zero = filled((), 0, input.dtype, input.device, None)
    return input.contiguous().where(mask, zero)


@composite(
    method=True,
    inplace=True,
    meta=lambda input, diagonal: _triangle_meta(input),
    vjp={"input": lambda g, diagonal: g.tril(diagonal)},
    out="exact",
    oracle=lambda input, diagonal: np.tril(input, diagonal),
    linear=True,
    expanded="fill",
)
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of matrices, zeros elsewhere.

    >>> import lucerne
    >>> lucerne.ones(2, 2).tril()
    tensor([[1., 0.],
            [1., 1.]])
    """
    return _in_triangle("tril", input, diagonal, True)


@composite(
    method=True,
    inplace=True,
    meta=lambda input, diagonal: _triangle_meta(input),
    vjp={"input": lambda g, diagonal: g.triu(diagonal)},
    out="exact",
    oracle=lambda input, diagonal: np.triu(input, diagonal),
    linear=True,
    expanded="fill",
)
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of matrices, zeros elsewhere."""
    return _in_triangle("triu", input, diagonal, False)


@composite(
    method=True, oracle=lambda input: np.trace(input), autocast="full", grad_fn="TraceBackward0"
)
def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix."""
    if input.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    return input.diagonal().sum()


def _embedded_meta(input: TensorMeta, offset: int, dim1: int, dim2: int) -> TensorMeta | None:
    """None: the body is asked, also where dimensions are wrong."""
    ndim = input.ndim + 1
    dims = {d % ndim for d in (dim1, dim2) if -ndim <= d < ndim}
    if len(dims) != 2 or not input.ndim:
        return None
    shape = list(input.shape[:-1])
    for d in sorted(dims):
        shape.insert(d, input.shape[-1] + abs(offset))
    return make_meta(input.dtype, tuple(shape), None, input.device)


@composite(method=True, out=False, meta=_embedded_meta)
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The last dimension laid out as the diagonal of matrices."""
    ndim = input.ndim + 1
    a, b = sh.wrap_dim(dim1, ndim), sh.wrap_dim(dim2, ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    size = input.shape[-1] + abs(offset)
    shape = list(input.shape[:-1])
    for d in sorted((a, b)):
        shape.insert(d, size)
    made = embed_diagonal(input, shape, offset, a, b)
    return made.clone() if size == 1 else made.contiguous()


@composite(method=True, out="exact", oracle=lambda input, diagonal: np.diag(input, diagonal))
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A vector as a diagonal matrix, or the diagonal of a matrix.

    >>> import lucerne
    >>> lucerne.diag(lucerne.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    if input.ndim == 1:
        return input.diag_embed(diagonal)
    if input.ndim == 2:
        return input.diagonal(diagonal).clone(memory_format=lo.contiguous_format)
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")


@front(method=True)
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """All elements as the diagonal of a matrix."""
    return input.contiguous().view(-1).diag(offset)


@front()
def block_diag(*tensors: Any) -> Tensor:
    """Matrices along the diagonal of a larger one, zeros elsewhere."""
    blocks = []
    for i, x in enumerate(tensors):
        if x.ndim > 2:
            raise RuntimeError(
                f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has "
                f"{x.ndim} dimensions"
            )
        blocks.append(x.reshape(1, -1) if x.ndim < 2 else x)
    if not blocks:
        return filled((1, 0), 0, dt.float32, device(HOST), None)
    width = sum(b.shape[1] for b in blocks)
    rows, at = [], 0
    for b in blocks:
        rows.append(padded(b, 0, (0, at), (0, width - at - b.shape[1]), (0, 0)))
        at += b.shape[1]
    return cat(rows, 0)


# ---- grids ------------------------------------------------------------------------------------


@front()
def meshgrid(*tensors: Any, indexing: str | None = None) -> Any:
    """Vectors as the coordinates of a grid: one tensor of the grid's shape for each."""
    given = sizes(tensors) if tensors and not hasattr(tensors[0], "_meta") else tensors
    given = tuple(given)
    if indexing is None:
        notices.warn(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing "
            "argument.",
            stacklevel=2,
        )
    _check_grid(given, indexing)
    swap = indexing == "xy" and len(given) > 1
    vectors = list(given)
    if swap:
        vectors[0], vectors[1] = vectors[1], vectors[0]
    shape = tuple(x.numel() for x in vectors)
    grids = []
    for d, x in enumerate(vectors):
        placed = x.reshape((1,) * d + (x.numel(),) + (1,) * (len(vectors) - d - 1))
        grids.append(expand_shape(placed, shape))
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


def _check_grid(given: tuple[Any, ...], indexing: str | None) -> None:
    if not given:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(
            'torch.meshgrid: indexing must be one of "xy" or "ij", but received: ' + str(indexing)
        )
    for x in given:
        if x.ndim > 1:
            raise RuntimeError(
                "torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: "
                f"{list(x.shape)}"
            )
        if x.dtype is not given[0].dtype:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
        if x.device != given[0].device:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same device")


@front()
def cartesian_prod(*tensors: Any) -> Tensor:
    """All combinations of one element of each vector, as rows."""
    for x in tensors:
        if x.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(x.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([g.flatten() for g in meshgrid(*tensors, indexing="ij")], 1)


@front()
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of `r` elements of a vector, as rows."""
    if input.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return input.new_empty((0,))
    n = input.numel()
    if r == 2:
        pairs = ranges.triu_indices(n, n, 0 if with_replacement else 1, device=input.device)
        return input.index_select(0, pairs.t().reshape(-1)).view(-1, 2)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    picked = np.fromiter(itertools.chain.from_iterable(choose(range(n), r)), np.int64)
    return input.index_select(0, input.new_tensor(picked, dtype=dt.int64)).view(-1, r)


@front()
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of a vector as columns, from the highest down unless `increasing`."""
    if x.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    n = x.shape[0] if N is None else N
    if n < 0:
        raise RuntimeError("N must be non-negative.")
    kind = dt.int64 if x.dtype.category < dt.FLOAT else x.dtype
    powers = counted(0, 1, n, dt.int64, x.device)
    made = x.to(kind).unsqueeze(-1) ** powers
    return made if increasing else made.flip(1)


@front(torch=None)
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Positions in a flattened tensor as one index tensor per dimension of `shape`."""
    if indices.dtype.category > dt.INTEGER or indices.dtype is dt.bool_:
        raise ValueError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    target = as_int_list(shape)
    if any(n < 0 for n in target):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(target)}")
    steps = [sh.numel(target[d + 1 :]) for d in range(len(target))]
    if not target or not all(target) or not indices.dtype.is_signed:
        steps_row = indices.new_tensor(steps, dtype=dt.int64)
        sizes_row = indices.new_tensor(list(target), dtype=dt.int64)
        whole = indices.unsqueeze(-1).div(steps_row, rounding_mode="floor").remainder(sizes_row)
        return whole.unbind(-1)
    wide = indices.to(dt.int64)
    pairs = zip(steps, target, strict=True)
    return stack([wide.floor_divide(step).remainder(n) for step, n in pairs], -1).unbind(-1)
