"""Rarer poolings: unpooling, random windows, power means."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.define import front, fronts
from lucerne._src.ir.dispatch import every_value
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.symbolic.numbers import to_int
from lucerne._src.ops.copy.join import cat
from lucerne._src.ops.pointwise.activation import relu_op
from lucerne._src.ops.random.draws import rand
from lucerne._src.ops.spatial.adaptive import largest_of
from lucerne._src.ops.spatial.pool import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    suggested,
)


def _per(value: Any, n: int) -> sh.Shape:
    found = (value,) if isinstance(value, int) else tuple(int(v) for v in value)
    return found * n if len(found) == 1 else found


# ---- unpooling --------------------------------------------------------------------------------


def _unpooled_size(
    input: Tensor, kernel: sh.Shape, stride: sh.Shape, padding: sh.Shape, output_size: Any
) -> sh.Shape:
    n = len(kernel)
    default = [
        (m - 1) * s + k - 2 * p
        for m, s, k, p in zip(input.shape[-n:], stride, kernel, padding, strict=True)
    ]
    wanted = list(default)
    if output_size is not None:
        wanted = list(output_size)[2:] if len(output_size) == n + 2 else list(output_size)
        if len(wanted) != n:
            raise ValueError(
                f"output_size should be a sequence containing {n} or {n + 2} elements, but it has "
                "a "
                f"length of '{len(wanted)}'"
            )
        for d, (size, middle, s) in enumerate(zip(wanted, default, stride, strict=True)):
            if not middle - s < size < middle + s:
                raise ValueError(
                    f'invalid output_size "{wanted}" (dim {d} must be between {middle - s} and '
                    f"{middle + s})"
                )
    for d, size in enumerate(wanted):
        if size < 0:
            raise ValueError(
                "max_unpooling: output_size must contain non-negative spatial dimensions, but got "
                f"output_size[{d}]={size}"
            )
    return tuple(wanted)


def _placed(input: Tensor, indices: Tensor, size: sh.Shape) -> Tensor:
    """Each value where its index says, in zeros (..., *size)."""
    n = len(size)
    name = f"max_unpooling{max(n, 2)}d"
    if indices.dtype is not dt.int64:
        raise RuntimeError(f"elements in indices should be type int64 but got: {indices.dtype}")
    if tuple(input.shape) != tuple(indices.shape):
        raise RuntimeError(
            "Expected shape of indices to be same as that of the input tensor "
            f"({list(input.shape)}) "
            f"but got indices tensor with shape: {list(indices.shape)}"
        )
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"Input to {name} should be a {n + 1}d or {n + 2}d Tensor, but got a tensor with "
            f"{input.ndim} dimensions."
        )
    lead, volume = tuple(input.shape[:-n]), math.prod(size)
    each = math.prod(input.shape[-n:])
    flat = indices.reshape(*lead, each)
    every = every_value(flat)
    if every.numel() and bool(((every < 0) | (every >= volume)).any()):
        bad = every[(every < 0) | (every >= volume)].reshape(-1)[0].item()
        raise RuntimeError(
            f"Found an invalid max index: {bad} (output volumes are of size "
            f"{'x'.join(map(str, size))}"
        )
    zeros = input.new_zeros((*lead, volume))
    placed = zeros.scatter(-1, flat, input.reshape(*lead, each)).reshape(*lead, *size)
    return placed.contiguous(memory_format=suggested(input._meta)) if n == 2 else placed


def _unpool(
    n: int, input: Tensor, indices: Tensor, kernel: Any, stride: Any, padding: Any, size: Any
) -> Tensor:
    window = _per(kernel, n)
    step = window if stride is None else _per(stride, n)
    return _placed(input, indices, _unpooled_size(input, window, step, _per(padding, n), size))


@front(namespace="nn.functional", autocast="full", torch=None)
def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Maxima put back where `max_pool1d` found them; zeros elsewhere."""
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


@front(namespace="nn.functional", autocast="full")
def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Maxima put back where `max_pool2d` found them; zeros elsewhere."""
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


@front(namespace="nn.functional", autocast="full")
def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Maxima put back where `max_pool3d` found them; zeros elsewhere."""
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)


# ---- random windows ---------------------------------------------------------------------------


def _starts(sample: Tensor, size: int, out: int, kernel: int) -> Tensor:
    """Where the windows of each plane begin: a jittered even spacing, the last at the end."""
    last = sample.new_full((*sample.shape, 1), size - kernel).to(dt.int64)
    if out == 1:
        return last
    alpha = (size - kernel) / (out - 1)
    step = sample.new_tensor(list(range(out - 1)))
    u = sample.unsqueeze(-1)
    begin = ((step + u) * alpha).to(dt.int64) - (u * alpha).to(dt.int64)
    return cat([begin, last], -1)


def _fractional(
    n: int, input: Tensor, kernel: sh.Shape, size: sh.Shape, samples: Tensor
) -> tuple[Tensor, Tensor]:
    name = f"fractional_max_pool{n}d"
    if input.ndim not in (n + 1, n + 2) or 0 in tuple(input.shape[input.ndim - n - 1 :]):
        raise RuntimeError(
            f"{name}(): Expected {n + 1}D or {n + 2}D tensor with non-zero size for non-batch "
            f"dimensions, but got {list(input.shape)}"
        )
    for d, (k, m, h) in enumerate(zip(kernel, size, input.shape[-n:], strict=True)):
        if m + k - 1 > h:
            raise RuntimeError(
                f"{name}(): pool size {k} too large relative to input size {h} in dimension {d}"
            )
    x = input if input.ndim == n + 2 else input.unsqueeze(0)
    _check_samples(name, x, samples, n)
    samples = samples[: x.shape[0]]
    spatial = x.shape[2:]
    flat: Any = None
    for d in range(n):
        column = (1 - d) if n == 2 else d  # two dimensions draw the width first
        begin = _starts(samples[..., column], spatial[d], size[d], kernel[d])
        places = begin.unsqueeze(-1) + begin.new_tensor(list(range(kernel[d])))
        shape = [1] * (2 * n)
        shape[d], shape[n + d] = size[d], kernel[d]
        places = places.reshape(*x.shape[:2], *shape)
        flat = places if flat is None else flat * spatial[d] + places
    taps = flat.reshape(*x.shape[:2], *size, math.prod(kernel))
    source = x.reshape(*x.shape[:2], math.prod(spatial))
    rows = taps.reshape(*x.shape[:2], math.prod(taps.shape[2:]))
    values = source.gather(2, rows).reshape(taps.shape)
    found = largest_of(x, values, taps)
    return found if input.ndim == n + 2 else (found[0].squeeze(0), found[1].squeeze(0))


def _check_samples(name: str, x: Tensor, samples: Tensor, n: int) -> None:
    if samples.dtype is not x.dtype:
        raise RuntimeError("Expect _random_samples to have the same dtype as input")
    if samples.ndim != 3:
        raise RuntimeError(f"Expect _random_samples to have 3 dimensions, got {samples.ndim}")
    if samples.shape[0] < x.shape[0]:
        raise RuntimeError("Expect _random_samples.size(0) no less then input batch size.")
    if samples.shape[1] != x.shape[1]:
        raise RuntimeError("Expect _random_samples.size(1) equals to input channel size.")
    if samples.shape[2] != n:
        raise RuntimeError(f"Expect _random_samples.size(2) equals to {n}; got {samples.shape[2]}.")


def _fractional_pool(
    n: int, input: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Any
) -> tuple[Tensor, Tensor]:
    if output_size is None and output_ratio is None:
        raise ValueError(
            f"fractional_max_pool{n}d requires specifying either an output_size or an output_ratio"
        )
    if output_size is None:
        ratio = (output_ratio,) * n if isinstance(output_ratio, (int, float)) else output_ratio
        if len(ratio) > n:
            raise ValueError(
                f"fractional_max_pool{n}d requires output_ratio to either be a single Int or tuple "
                "of "
                "Ints."
            )
        output_size = [to_int(h * r) for h, r in zip(input.shape[-n:], ratio, strict=True)]
    if samples is None:
        batch = 1 if input.ndim == n + 1 else input.shape[0]
        samples = rand(batch, input.shape[-n - 1], n, dtype=input.dtype, device=input.device)
    return _fractional(n, input, _per(kernel_size, n), _per(output_size, n), samples)


@front(namespace="nn.functional", autocast="full")
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor:
    """Maxima over windows at jittered places, so that any output size is possible."""
    found = _fractional_pool(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


@front(namespace="nn.functional", autocast="full")
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor:
    """Maxima over windows at jittered places, in three dimensions."""
    found = _fractional_pool(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


# ---- power means ------------------------------------------------------------------------------


def _power_pool(
    n: int, input: Tensor, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool
) -> Tensor:
    largest = (max_pool1d, max_pool2d, max_pool3d)[n - 1]
    mean = (avg_pool1d, avg_pool2d, avg_pool3d)[n - 1]
    if norm_type == math.inf:
        return largest(input.abs(), kernel_size, stride, 0, 1, ceil_mode)
    if norm_type == -math.inf:
        return -largest(-input.abs(), kernel_size, stride, 0, 1, ceil_mode)
    out = mean(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    count = math.prod(_per(kernel_size, n))
    return (out.sign() * relu_op(out.abs())).mul(count).pow(1.0 / norm_type)


@front(namespace="nn.functional", torch=None)
def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window along the last dimension."""
    return _power_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


@front(namespace="nn.functional", torch=None)
def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window over the last two dimensions."""
    return _power_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


@front(namespace="nn.functional", torch=None)
def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window over the last three dimensions."""
    return _power_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


def _pair_form(name: str, run: Any) -> None:
    def with_indices(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """The result and where each value was."""
        return run(*args, **{**kwargs, "return_indices": True})

    with_indices.__name__ = with_indices.__qualname__ = f"{name}_with_indices"
    autocast = fronts()[f"nn.functional.{name}"].autocast
    front(namespace="nn.functional", autocast=autocast)(with_indices)


for _fn in (fractional_max_pool2d, fractional_max_pool3d):
    _pair_form(_fn.__name__, _fn)
