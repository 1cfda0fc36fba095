"""Pooling over windows that slide with a fixed step: maxima and means."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.ir.convert import IntList
from lucerne._src.ir.define import composite, front, structural
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.checks import need
from lucerne._src.ops.spatial.convolution import conv_input, crop
from lucerne._src.ops.spatial.padding import constant_pad_nd

_COUNT = {1: "one int", 2: "two ints", 3: "three ints"}


def per_dim(value: Any, n: int, what: str, omitted: str = "") -> sh.Shape:
    """A setting of a pooling: one int for all dimensions, or one for each."""
    found = (value,) if isinstance(value, int) else tuple(int(v) for v in value)
    if len(found) not in (1, n):
        if n == 1:
            raise RuntimeError(
                f"{what} must be an int, list of ints or tuple of ints of size 1 but got size "
                f"{len(found)}"
            )
        raise RuntimeError(
            f"{what} must either be {omitted}a single int, or a tuple of {_COUNT[n]}"
        )
    return found * n if len(found) == 1 else found


def pooled_size(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> int:
    """How many windows fit; with `ceil_mode` the last may hang over, but must begin inside."""
    extra = stride - 1 if ceil_mode else 0
    found = (size + 2 * padding - dilation * (kernel - 1) - 1 + extra) // stride + 1
    if ceil_mode and (found - 1) * stride >= size + padding:
        found -= 1
    return found


def suggested(meta: TensorMeta, *, flat_only: bool = True) -> lo.memory_format:
    """Channels last in four dimensions (in five too, unless `flat_only`), else contiguous."""
    if flat_only and meta.ndim == 5:
        return lo.contiguous_format
    return sh.suggested_format(meta.shape, meta.strides)


def check_windows(
    input: Tensor, kernel: sh.Shape, stride: sh.Shape, padding: sh.Shape, dilation: sh.Shape
) -> None:
    """What torch demands of a pooling's settings."""
    for k, s, p, d in zip(kernel, stride, padding, dilation, strict=True):
        if s <= 0:
            raise RuntimeError("stride should not be zero")
        if k <= 0:
            raise RuntimeError(f"kernel size should be greater than zero, but got {list(kernel)}")
        if d <= 0:
            raise RuntimeError(
                f"dilation should be greater than zero, but got dilation {list(dilation)}"
            )
        if p < 0:
            raise RuntimeError(f"pad must be non-negative, but got pad: {p}")
        if p > ((k - 1) * d + 1) // 2:
            raise RuntimeError(
                f"pad should be at most half of effective kernel size, but got pad={p}, "
                f"kernel_size={k} and dilation={d}"
            )


def check_input(input: Tensor, n: int, name: str) -> None:
    """`n` spatial dimensions, channels, maybe a batch; only the batch may be empty."""
    ok = input.ndim == n + 2 or input.ndim == n + 1
    first = 1 if input.ndim == n + 2 else 0
    if not ok or 0 in tuple(input.shape[first:]):
        if n == 3:
            raise RuntimeError(
                f"{name}: Expected input's non-batch dimensions to have positive length, but input "
                f"has a shape of {list(input.shape)}"
                if ok
                else "non-empty 4D or 5D (batch mode) tensor expected for input"
            )
        if not ok and name == "max_pool2d":
            raise RuntimeError("non-empty 3D or 4D (batch mode) tensor expected for input")
        prefix = f"{name}: " if n == 1 else ""
        raise RuntimeError(
            f"{prefix}Expected {n + 1}D or {n + 2}D (batch mode) tensor with optional 0 dim batch "
            f"size for input, but got:{list(input.shape)}"
        )


def check_size(input: Tensor, size: sh.Shape, name: str) -> None:
    if min(size) < 1:
        if len(size) == 1:
            raise RuntimeError(f"{name}() Invalid computed output size: {size[0]}")
        channels, *rest = input.shape[-len(size) - 1 :]
        raise RuntimeError(
            f"Given input size: ({'x'.join(map(str, (channels, *rest)))}). Calculated output size: "
            f"({'x'.join(map(str, (channels, *size)))}). Output size is too small"
        )


_LARGEST = 1 << 31


def _check_places(
    input: TensorMeta,
    kernel: sh.Shape,
    stride: sh.Shape,
    padding: sh.Shape,
    dilation: sh.Shape,
    size: sh.Shape,
) -> None:
    """That every window begins before the end of the input, whoever asks for it."""
    settings = (kernel, stride, padding, dilation, size)
    text = lambda: (  # noqa: E731
        f"windows of {list(kernel)} with stride {list(stride)}, padding {list(padding)} and "
        f"dilation {list(dilation)} at {list(size)} places of {list(input.shape)}"
    )
    need(all(len(s) == input.ndim - 2 for s in settings), text)
    for row in zip(input.shape[2:], *settings, strict=True):
        if not all(type(v) is int for v in row):  # a capture for all sizes: no decision here
            continue
        n, k, s, p, d, m = row
        need(min(k, s, d) >= 1 and min(p, m) >= 0 and max(k, s, p, d) <= _LARGEST, text)
        need(m == 0 or ((m - 1) * s - p < n and 2 * p <= (k - 1) * d + 1), text)
        need(m == 0 or k == bounded_window(n, k, p, d), text)


def bounded_window(n: int, kernel: int, padding: int, dilation: int) -> int:
    """A window as long as it matters: what would begin behind the end of any input is cut off, so
    that nobody walks over a billion elements that are not there."""
    if kernel <= _USUAL:
        return kernel
    reaching = (n + padding - 1) // dilation + 1
    half = (2 * padding - 1 + dilation - 1) // dilation + 1  # (padding is half of it at most)
    return max(1, min(kernel, max(reaching, half)))


def bounded_steps(size: sh.Shape, stride: sh.Shape) -> sh.Shape:
    """Steps as they matter: where there is one window only, the way to the next one does not."""
    return tuple(s if s <= _USUAL or m != 1 else 1 for m, s in zip(size, stride, strict=True))


_USUAL = 16
"""Smaller ones are left alone, so that no capture depends on the sizes for their sake."""


# ---- maxima -----------------------------------------------------------------------------------


def _max_pool_meta(
    input: TensorMeta,
    kernel: sh.Shape,
    stride: sh.Shape,
    padding: sh.Shape,
    dilation: sh.Shape,
    size: sh.Shape,
) -> tuple[TensorMeta, TensorMeta]:
    _check_places(input, kernel, stride, padding, dilation, size)
    values = pooled_meta(input, size)
    return values, values.like(dtype=dt.int64)


def is_volume(args: tuple[Any, ...]) -> bool:
    """Whether a call pools volumes: under autocast, those in float32."""
    return bool(args[0].ndim == 5)


@structural(
    autocast=("full", is_volume),
    internal=True,
    meta=_max_pool_meta,
    name="max_pool",
    out=False,
    vjp={"input": lambda g, y1, input_meta: spread_back(g[0], y1, input_meta.shape)},
    images=(0,),
    torch="max_pool2d_with_indices",
    grad_fn=lambda input, *_: f"MaxPool{input.ndim - 2}DWithIndicesBackward0",
)
def max_pool(
    input: Tensor,
    kernel: IntList,
    stride: IntList,
    padding: IntList,
    dilation: IntList,
    size: IntList,
) -> Any:
    """The greatest value of each window of (N, C, n...), and where in the n... it was."""


def spread_back(g: Tensor, indices: Tensor, shape: sh.Shape) -> Tensor:
    """Add each entry of `g` where its index says, in zeros of `shape`."""
    n, c = shape[:2]
    flat = g.new_zeros((n, c, math.prod(shape[2:])))
    found = (
        flat.scatter_add(2, indices.reshape(n, c, -1), g.reshape(n, c, -1)) if g.numel() else flat
    )
    return found.reshape(shape)


def _max_pools(
    n: int,
    input: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
) -> tuple[Tensor, Tensor]:
    name = f"max_pool{n}d"
    label = "max_pool1d() " if n == 1 else f"{name}: "
    kernel = per_dim(kernel_size, n, f"{label}kernel_size")
    step = kernel if _absent(stride) else per_dim(stride, n, f"{label}stride", "omitted, ")
    pad, gaps = per_dim(padding, n, f"{label}padding"), per_dim(dilation, n, f"{label}dilation")
    if n == 1:
        _check_one(kernel[0], step[0], gaps[0])
    check_windows(input, kernel, step, pad, gaps)
    check_input(input, n, name)
    if input.dtype is dt.bool_ or input.is_complex():
        raise NotImplementedError(f"\"{name}\" not implemented for '{dt.cxx_name(input.dtype)}'")
    size = tuple(
        pooled_size(*row, ceil_mode)
        for row in zip(input.shape[-n:], kernel, step, pad, gaps, strict=True)
    )
    check_size(input, size, name)
    batched = input.ndim == n + 2
    kernel = tuple(map(bounded_window, input.shape[-n:], kernel, pad, gaps))
    values, indices = max_pool(
        input if batched else input.unsqueeze(0), kernel, bounded_steps(size, step), pad, gaps, size
    )
    return (values, indices) if batched else (values.squeeze(0), indices.squeeze(0))


def _absent(stride: Any) -> bool:
    return stride is None or (not isinstance(stride, int) and len(stride) == 0)


def _check_one(kernel: int, stride: int, dilation: int) -> None:
    for value, name in ((kernel, "kernel_size"), (stride, "stride"), (dilation, "dilation")):
        if value <= 0:
            raise RuntimeError(f"max_pool1d() {name} must be greater than zero, but got {value}")


@front(namespace="nn.functional")
def max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest value of each window along the last dimension."""
    found = _max_pools(1, input, kernel_size, stride, padding, dilation, ceil_mode)
    return found if return_indices else found[0]


@front(namespace="nn.functional")
def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest value of each window over the last two dimensions.

    >>> import lucerne as torch
    >>> torch.nn.functional.max_pool2d(torch.arange(16.0).reshape(1, 4, 4), 2)
    tensor([[[ 5.,  7.],
             [13., 15.]]])
    """
    found = _max_pools(2, input, kernel_size, stride, padding, dilation, ceil_mode)
    return found if return_indices else found[0]


@front(namespace="nn.functional")
def max_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest value of each window over the last three dimensions."""
    found = _max_pools(3, input, kernel_size, stride, padding, dilation, ceil_mode)
    return found if return_indices else found[0]


def _with_indices(n: int) -> Any:
    def pool(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        """Maxima of windows and where they were."""
        return _max_pools(n, input, kernel_size, stride, padding, dilation, ceil_mode)

    pool.__name__ = pool.__qualname__ = f"max_pool{n}d_with_indices"
    return pool


for _n in (1, 2, 3):
    _fn = _with_indices(_n)
    front(namespace="nn.functional")(_fn)
    front()(_fn)


def _picked(g: Tensor, indices: Tensor) -> Tensor:
    """The entries of `g` (..., H, W) that the flat indices name."""
    lead = tuple(g.shape[:-2])
    flat = indices.reshape(*lead, math.prod(indices.shape[-2:]))
    return g.reshape(*lead, math.prod(g.shape[-2:])).gather(-1, flat).reshape(indices.shape)


@composite(
    namespace="ops.aten",
    out=False,
    vjp={
        "grad_output": lambda g, indices: _picked(g, indices),
        "self": lambda g: g.new_zeros(g.shape),
    },
)
def max_pool2d_with_indices_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """Each gradient where its maximum was."""
    if self.ndim == 3:
        wide = spread_back(grad_output.unsqueeze(0), indices.unsqueeze(0), (1, *self.shape))
        return wide.squeeze(0)
    found = spread_back(grad_output, indices, self.shape)
    return found.contiguous(memory_format=suggested(self._meta))


# ---- means ------------------------------------------------------------------------------------


def _row_counts(size: int, n: int, k: int, s: int, p: int, count_include_pad: bool) -> list[int]:
    """How many elements each window of a row counts."""
    ends = [(i * s - p, min(i * s - p + k, n + p)) for i in range(size)]
    if count_include_pad:
        return [end - start for start, end in ends]
    return [min(end, n) - max(start, 0) for start, end in ends]


def _averaged(total: Tensor, counts: list[list[int]], divisor: int | None) -> Tensor:
    """Window sums divided by how many elements they count (integers round towards zero)."""
    by: Any = divisor
    if divisor is None and all(len(set(row)) <= 1 for row in counts):
        by = math.prod(row[0] for row in counts)
    elif divisor is None:
        by = total.new_ones(())
        for row in counts:
            by = by.unsqueeze(-1) * total.new_tensor(row)
    if total.dtype.category < dt.FLOAT:
        return total.div(by, rounding_mode="trunc")
    return total / by


def _fills(g: Tensor, kernel: sh.Shape, shape: sh.Shape) -> bool:
    """Whether windows laid side by side cover the input exactly."""
    return all(m * k == n for m, k, n in zip(g.shape[2:], kernel, shape[2:], strict=True))


def _repeated(g: Tensor, kernel: sh.Shape) -> Tensor:
    """Every element as a block of the kernel's size."""
    for d, k in enumerate(kernel):
        at, shape = 3 + d, list(g.shape)
        wide = g.unsqueeze(at).expand(*shape[:at], k, *shape[at:])
        shape[at - 1] *= k
        g = wide.reshape(shape)
    return g


def _avg_back(
    g: Tensor,
    input_meta: TensorMeta,
    kernel: sh.Shape,
    stride: sh.Shape,
    padding: sh.Shape,
    counts: Any,
    divisor: int | None,
) -> Tensor:
    """Every element gets its share of each window: a transposed convolution with ones."""
    share = _averaged(g, counts, divisor)
    if kernel == stride and not any(padding) and _fills(share, kernel, input_meta.shape):
        return _repeated(share, kernel)
    rows = share.reshape(share.shape[0] * share.shape[1], 1, *share.shape[2:])
    ones = g.new_ones((1, 1, *kernel))
    # With ceil_mode the last windows hang over the edge: make room for them, then cut.
    room = tuple(
        max(n, (m - 1) * s + k - 2 * p)
        for n, m, s, k, p in zip(
            input_meta.shape[2:], g.shape[2:], stride, kernel, padding, strict=True
        )
    )
    back = conv_input(rows, ones, None, room, stride, padding, (1,) * len(kernel), 1)
    return crop(back, (*back.shape[:2], *input_meta.shape[2:])).reshape(input_meta.shape)


def _avg_meta(
    input: TensorMeta,
    kernel: sh.Shape,
    stride: sh.Shape,
    padding: sh.Shape,
    counts: Any,
    divisor: int | None,
) -> TensorMeta:
    size = tuple(len(row) for row in counts)
    _check_places(input, kernel, stride, padding, (1,) * len(size), size)
    need(
        all(isinstance(n, int) and (type(n) is not int or n > 0) for row in counts for n in row),
        lambda: f"windows of {counts} elements",
    )
    return pooled_meta(input, size)


def pooled_meta(input: TensorMeta, size: sh.Shape) -> TensorMeta:
    """(N, C, size...) in the memory format of the input."""
    shape = (*input.shape[:2], *size)
    strides = sh.format_strides(shape, suggested(input, flat_only=False))
    return make_meta(input.dtype, shape, strides, input.device)


@composite(
    autocast=("full", is_volume),
    internal=True,
    name="avg_pool",
    opmath=True,
    out=False,
    meta=_avg_meta,
    vjp={
        "input": lambda g, input_meta, kernel, stride, padding, counts, divisor: _avg_back(
            g, input_meta, kernel, stride, padding, counts, divisor
        )
    },
    linear=True,
    images=(0,),
    torch="avg_pool2d",
    grad_fn=lambda input, *_: f"AvgPool{input.ndim - 2}DBackward0",
)
def avg_pool(
    input: Tensor,
    kernel: IntList,
    stride: IntList,
    padding: IntList,
    counts: Any,
    divisor: int | None,
) -> Tensor:
    """The mean of each window of (N, C, n...): its sum over what `counts` or `divisor` says."""
    ends: list[int] = []
    for n, k, s, p, row in zip(input.shape[2:], kernel, stride, padding, counts, strict=True):
        ends = [p, (len(row) - 1) * s + k - n - p, *ends]
    x = constant_pad_nd(input, ends, 0) if any(ends) else input
    for d, (k, s) in enumerate(zip(kernel, stride, strict=True)):
        x = x.unfold(2 + d, k, s)
    return _averaged(x.sum(tuple(range(-len(kernel), 0))), counts, divisor)


def _avg_pools(
    n: int,
    input: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    name = f"avg_pool{n}d"
    kernel = per_dim(kernel_size, n, f"{name}: kernel_size")
    step = kernel if _absent(stride) else per_dim(stride, n, f"{name}: stride", "omitted, ")
    pad = per_dim(padding, n, f"{name}: padding")
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    check_windows(input, kernel, step, pad, (1,) * n)
    check_input(input, n, name)
    if input.dtype.category < dt.FLOAT and input.dtype is not dt.int64:
        raise NotImplementedError(f"\"{name}\" not implemented for '{dt.cxx_name(input.dtype)}'")
    size = tuple(
        pooled_size(*row, 1, ceil_mode)
        for row in zip(input.shape[-n:], kernel, step, pad, strict=True)
    )
    check_size(input, size, name)
    step = bounded_steps(size, step)
    counts = tuple(
        tuple(_row_counts(*row, count_include_pad))
        for row in zip(size, input.shape[-n:], kernel, step, pad, strict=True)
    )
    batched = input.ndim == n + 2
    x = input if batched else input.unsqueeze(0)
    x = x.contiguous(memory_format=suggested(x._meta))
    kernel = tuple(
        bounded_window(*row, 1) for row in zip(input.shape[-n:], kernel, pad, strict=True)
    )
    result = avg_pool(x, kernel, step, pad, counts, divisor_override)
    return result if batched else result.squeeze(0)


@front(namespace="nn.functional")
def avg_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window along the last dimension."""
    return _avg_pools(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@front(namespace="nn.functional")
def avg_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Any = None,
) -> Tensor:
    """The mean of each window over the last two dimensions.

    >>> import lucerne as torch
    >>> torch.nn.functional.avg_pool2d(torch.arange(16.0).reshape(1, 4, 4), 2)
    tensor([[[ 2.5000,  4.5000],
             [10.5000, 12.5000]]])
    """
    found = _avg_pools(
        2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )
    return into(found, out)


@front(namespace="nn.functional")
def avg_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Any = None,
) -> Tensor:
    """The mean of each window over the last three dimensions."""
    found = _avg_pools(
        3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )
    return into(found, out)


def into(found: Tensor, out: Any) -> Tensor:
    """A result copied into `out=`, when there is one."""
    return found if out is None else _into(found, out=out)


@composite(internal=True, name="_into", out="exact")
def _into(input: Tensor) -> Tensor:
    """The tensor itself: gives a front its `out=`."""
    return input


for _fn in (max_pool1d, max_pool2d, max_pool3d, avg_pool1d):
    front()(_fn)  # torch has them at top level too
