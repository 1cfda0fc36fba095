"""Fourier transforms: three primitives (complex, real to half, half to real) and `lucerne.fft`."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import defaults
from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.convert import IntList
from lucerne._src.ir.define import composite, structural
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.checks import conj_of
from lucerne._src.ops.copy import join

# How a transform is scaled: not at all, by the root of the number of points, or by that number.
UNSCALED, BY_ROOT, BY_COUNT = 0, 1, 2


# ---- primitives -------------------------------------------------------------------------------


def transform_strides(input: TensorMeta, shape: sh.Shape, dims: sh.Shape) -> sh.Shape:
    """Memory order of a transform: batch dimensions outermost by their strides, then `dims`."""
    batch = [d for d in range(input.ndim) if d not in dims]
    batch.sort(key=lambda d: -input.strides[d])
    return sh.ordered_strides(shape, [*batch, *dims][::-1])


def by_stride(input: TensorMeta, dims: sh.Shape) -> sh.Shape:
    return tuple(sorted(dims, key=lambda d: -input.strides[d]))


def _c2c_meta(input: TensorMeta, dim: sh.Shape, scale: int, forward: bool) -> TensorMeta:
    dims = by_stride(input, dim)
    return input.like(strides=transform_strides(input, tuple(input.shape), dims))


@structural(
    internal=True,
    meta=_c2c_meta,
    vjp={"input": lambda g, dim, scale, forward: fft_c2c(g, dim, scale, not forward)},
    out=False,
    linear=True,
    torch="_fft_c2c",
)
def fft_c2c(input: Tensor, dim: IntList, scale: int, forward: bool) -> Tensor:
    """Complex transform over `dim`; `scale` is 0 (none), 1 (root of the count) or 2 (the count)."""


def _r2c_meta(input: TensorMeta, dim: sh.Shape, scale: int) -> TensorMeta:
    shape = list(input.shape)
    shape[dim[-1]] = shape[dim[-1]] // 2 + 1
    dims = (*by_stride(input, dim[:-1]), dim[-1])
    strides = transform_strides(input, tuple(shape), dims)
    return make_meta(input.dtype.to_complex(), tuple(shape), strides, input.device)


def _r2c_backward(g: Tensor, dim: sh.Shape, scale: int, input_meta: TensorMeta) -> Tensor:
    full = resized(g, (dim[-1],), (input_meta.shape[dim[-1]],))
    return fft_c2c(full, dim, scale, False).real


@structural(
    internal=True,
    meta=_r2c_meta,
    vjp={"input": _r2c_backward},
    out=False,
    linear=True,
    torch="_fft_r2c",
)
def fft_r2c(input: Tensor, dim: IntList, scale: int) -> Tensor:
    """Transform of real values; of the last of `dim` only the non-negative half is kept."""


def _c2r_meta(input: TensorMeta, dim: sh.Shape, scale: int, size: int) -> TensorMeta:
    shape = list(input.shape)
    shape[dim[-1]] = size
    strides = input.strides
    if len(dim) > 1:
        strides = transform_strides(input, tuple(input.shape), by_stride(input, dim[:-1]))
    between = input.like(strides=strides)
    strides = transform_strides(between, tuple(shape), dim[-1:])
    return make_meta(input.dtype.to_real(), tuple(shape), strides, input.device)


def _c2r_backward(g: Tensor, dim: sh.Shape, scale: int, input_meta: TensorMeta) -> Tensor:
    """Points that stand for two conjugate ones count twice."""
    last = dim[-1]
    found = fft_r2c(g, dim, scale)
    twice = g.shape[last] - found.shape[last]
    if twice > 0:
        middle = found.narrow(last, 1, twice) * 2
        rest = found.shape[last] - 1 - twice
        parts = [found.narrow(last, 0, 1), middle, found.narrow(last, 1 + twice, rest)]
        found = join.cat(parts, last)
    return resized(found, (last,), (input_meta.shape[last],))


@structural(
    internal=True,
    meta=_c2r_meta,
    vjp={"input": _c2r_backward},
    out=False,
    linear=True,
    torch="_fft_c2r",
)
def fft_c2r(input: Tensor, dim: IntList, scale: int, size: int) -> Tensor:
    """Inverse transform to real values; the last of `dim` holds the non-negative half of `size`."""


# ---- arguments --------------------------------------------------------------------------------


def scale_of(norm: Any, forward: bool) -> int:
    """Which scale a `norm` argument asks for in this direction."""
    if norm in (None, "backward"):
        return UNSCALED if forward else BY_COUNT
    if norm == "forward":
        return BY_COUNT if forward else UNSCALED
    if norm == "ortho":
        return BY_ROOT
    raise RuntimeError(f'Invalid normalization mode: "{norm}"')


def as_transformable(input: Tensor, to_complex: bool) -> Tensor:
    """Integers become the default float; complex where the transform asks for it."""
    t = input.dtype
    if t in (dt.float16, dt.bfloat16, dt.complex32):
        raise RuntimeError(f"Unsupported dtype {dt.cxx_name(t)}")
    if t.category < dt.FLOAT:
        t = defaults.get_default_dtype()
    if to_complex:
        t = t.to_complex()
    return input if t is input.dtype else input.to(t)


def refuse_complex(name: str, input: Tensor) -> None:
    if input.dtype.category == dt.COMPLEX:
        raise RuntimeError(
            f"{name} expects a real input tensor, but got {dt.cxx_name(input.dtype)}"
        )


def resized(input: Tensor, dims: sh.Shape, sizes: sh.Shape) -> Tensor:
    """Dimensions cut, or lengthened with zeros, to the given sizes."""
    for d, n in zip(dims, sizes, strict=True):
        have = input.shape[d]
        if n < have:
            input = input.narrow(d, 0, n)
        elif n > have:
            shape = list(input.shape)
            shape[d] = n - have
            input = join.cat([input, input.new_zeros(shape)], d)
    return input


def check_points(n: int) -> int:
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return n


def one_dim(input: Tensor, n: int | None, dim: int) -> tuple[Tensor, int]:
    """The input of the right length along one dimension."""
    d = sh.wrap_dim(dim, input.ndim, allow_scalar=False)
    size = check_points(input.shape[d] if n is None else n)
    return (input if n is None else resized(input, (d,), (size,))), d


def dims_and_sizes(input: Tensor, s: Any, dim: Any) -> tuple[sh.Shape, sh.Shape]:
    """Which dimensions are transformed and how long they shall be."""
    if dim is not None:
        dims = tuple(sh.wrap_dim(d, input.ndim, allow_scalar=False) for d in dim)
        if len(set(dims)) != len(dims):
            raise RuntimeError("FFT dims must be unique")
    if s is not None:
        if dim is not None and len(dim) != len(s):
            raise RuntimeError("When given, dim and shape arguments must have the same length")
        if len(s) > input.ndim:
            raise RuntimeError(
                f"Got shape with {len(s)} values but input tensor only has {input.ndim} dimensions."
            )
        if dim is None:
            dims = tuple(range(input.ndim - len(s), input.ndim))
    elif dim is None:
        dims = tuple(range(input.ndim))
    sizes = tuple(input.shape[d] for d in dims)
    if s is not None:
        sizes = tuple(have if n == -1 else n for n, have in zip(s, sizes, strict=True))
    for n in sizes:
        check_points(n)
    return dims, sizes


def complex_nd(input: Tensor, s: Any, dim: Any, norm: Any, forward: bool) -> Tensor:
    dims, sizes = dims_and_sizes(input, s, dim)
    x = resized(as_transformable(input, True), dims, sizes)
    scale = scale_of(norm, forward)
    return fft_c2c(x, dims, scale, forward) if dims else x.clone()


def real_nd(name: str, input: Tensor, s: Any, dim: Any, norm: Any) -> Tensor:
    refuse_complex(name, input)
    dims, sizes = dims_and_sizes(input, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    x = resized(as_transformable(input, False), dims, sizes)
    return fft_r2c(x, dims, scale_of(norm, True))


def half_sizes(name: str, input: Tensor, s: Any, dim: Any) -> tuple[Tensor, sh.Shape, int]:
    """Input for a transform back to real values, its dimensions and the last one's full length."""
    dims, sizes = dims_and_sizes(input, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    if s is None or s[-1] == -1:
        last = 2 * (input.shape[dims[-1]] - 1)
    else:
        last = sizes[-1]
    check_points(last)
    sizes = (*sizes[:-1], last // 2 + 1)
    return resized(as_transformable(input, True), dims, sizes), dims, last


# ---- one dimension ----------------------------------------------------------------------------


def _oracle(name: str) -> Any:
    function = getattr(np.fft, name)
    return lambda input, n, dim, norm: function(input, n, dim, norm)


@composite(namespace="fft", out="plain", oracle=_oracle("fft"), autocast="full")
def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: Any = None) -> Tensor:
    """Discrete Fourier transform along one dimension.

    >>> import lucerne
    >>> lucerne.fft.fft(lucerne.tensor([1.0, 0.0, 0.0, 0.0])).real
    tensor([1., 1., 1., 1.])
    """
    x, d = one_dim(as_transformable(input, True), n, dim)
    return fft_c2c(x, (d,), scale_of(norm, True), True)


@composite(namespace="fft", out="exact", oracle=_oracle("ifft"), autocast="full")
def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: Any = None) -> Tensor:
    """Inverse of `fft`."""
    x, d = one_dim(as_transformable(input, True), n, dim)
    return fft_c2c(x, (d,), scale_of(norm, False), False)


@composite(namespace="fft", out="plain", oracle=_oracle("rfft"), autocast="full")
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: Any = None) -> Tensor:
    """Transform of real values: only the non-negative frequencies, the rest mirrors them."""
    refuse_complex("rfft", input)
    x, d = one_dim(as_transformable(input, False), n, dim)
    return fft_r2c(x, (d,), scale_of(norm, True))


@composite(namespace="fft", out="plain", oracle=_oracle("irfft"), autocast="full")
def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: Any = None) -> Tensor:
    """Inverse of `rfft`; `n` tells the length, which may be odd."""
    return _to_real(input, n, dim, scale_of(norm, False))


def _to_real(input: Tensor, n: int | None, dim: int, scale: int) -> Tensor:
    x = as_transformable(input, True)
    d = sh.wrap_dim(dim, x.ndim, allow_scalar=False)
    size = check_points(2 * (x.shape[d] - 1) if n is None else n)
    if n is not None:
        x = resized(x, (d,), (size // 2 + 1,))
    return fft_c2r(x, (d,), scale, size)


@composite(namespace="fft", out="plain", oracle=_oracle("hfft"), autocast="full")
def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: Any = None) -> Tensor:
    """Real transform of a signal whose other half is its mirrored conjugate."""
    return _to_real(conj_of(input), n, dim, scale_of(norm, True))


@composite(namespace="fft", out="exact", oracle=_oracle("ihfft"), autocast="full")
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: Any = None) -> Tensor:
    """Inverse of `hfft`."""
    refuse_complex("ihfft", input)
    x, d = one_dim(as_transformable(input, False), n, dim)
    return conj_of(fft_r2c(x, (d,), scale_of(norm, False)))


# ---- several dimensions -----------------------------------------------------------------------


@composite(namespace="fft", out="plain", oracle=np.fft.fftn, autocast="full")
def fftn(
    input: Tensor, s: IntList | None = None, dim: IntList | None = None, norm: Any = None
) -> Tensor:
    """Transform over several dimensions (all of them unless told)."""
    return complex_nd(input, s, dim, norm, True)


@composite(namespace="fft", out="plain", oracle=np.fft.ifftn, autocast="full")
def ifftn(
    input: Tensor, s: IntList | None = None, dim: IntList | None = None, norm: Any = None
) -> Tensor:
    """Inverse of `fftn`."""
    return complex_nd(input, s, dim, norm, False)


@composite(namespace="fft", out="plain", oracle=np.fft.rfftn, autocast="full")
def rfftn(
    input: Tensor, s: IntList | None = None, dim: IntList | None = None, norm: Any = None
) -> Tensor:
    """`fftn` of real values, half of the last dimension."""
    return real_nd("rfftn", input, s, dim, norm)


@composite(namespace="fft", out="plain", oracle=np.fft.irfftn, autocast="full")
def irfftn(
    input: Tensor, s: IntList | None = None, dim: IntList | None = None, norm: Any = None
) -> Tensor:
    """Inverse of `rfftn`."""
    x, dims, last = half_sizes("irfftn", input, s, dim)
    return fft_c2r(x, dims, scale_of(norm, False), last)


@composite(namespace="fft", out="plain")
def hfftn(
    input: Tensor, s: IntList | None = None, dim: IntList | None = None, norm: Any = None
) -> Tensor:
    """`hfft` over the last of the dimensions, `fft` over the others."""
    x, dims, last = half_sizes("hfftn", input, s, dim)
    scale = scale_of(norm, True)
    if len(dims) > 1:
        x = fft_c2c(x, dims[:-1], scale, True)
    return fft_c2r(conj_of(x), dims[-1:], scale, last)


@composite(namespace="fft", out="plain")
def ihfftn(
    input: Tensor, s: IntList | None = None, dim: IntList | None = None, norm: Any = None
) -> Tensor:
    """Inverse of `hfftn`."""
    refuse_complex("ihfftn", input)
    dims, sizes = dims_and_sizes(input, s, dim)
    if not dims:
        raise RuntimeError("ihfftn must transform at least one axis")
    x = resized(as_transformable(input, False), dims, sizes)
    scale = scale_of(norm, False)
    half = conj_of(fft_r2c(x, dims[-1:], scale))
    return fft_c2c(half, dims[:-1], scale, False) if len(dims) > 1 else half


# ---- two dimensions: the same with another default --------------------------------------------


@composite(namespace="fft", out="plain", oracle=np.fft.fft2, autocast="full")
def fft2(
    input: Tensor, s: IntList | None = None, dim: IntList = (-2, -1), norm: Any = None
) -> Tensor:
    """Transform over two dimensions."""
    return fftn(input, s, dim, norm)


@composite(namespace="fft", out="plain", oracle=np.fft.ifft2, autocast="full")
def ifft2(
    input: Tensor, s: IntList | None = None, dim: IntList = (-2, -1), norm: Any = None
) -> Tensor:
    """Inverse of `fft2`."""
    return ifftn(input, s, dim, norm)


@composite(namespace="fft", out="plain", oracle=np.fft.rfft2, autocast="full")
def rfft2(
    input: Tensor, s: IntList | None = None, dim: IntList = (-2, -1), norm: Any = None
) -> Tensor:
    """`fft2` of real values, half of the last dimension."""
    return rfftn(input, s, dim, norm)


@composite(namespace="fft", out="plain", oracle=np.fft.irfft2, autocast="full")
def irfft2(
    input: Tensor, s: IntList | None = None, dim: IntList = (-2, -1), norm: Any = None
) -> Tensor:
    """Inverse of `rfft2`."""
    return irfftn(input, s, dim, norm)


@composite(namespace="fft", out="plain")
def hfft2(
    input: Tensor, s: IntList | None = None, dim: IntList = (-2, -1), norm: Any = None
) -> Tensor:
    """`hfftn` over two dimensions."""
    return hfftn(input, s, dim, norm)


@composite(namespace="fft", out="plain")
def ihfft2(
    input: Tensor, s: IntList | None = None, dim: IntList = (-2, -1), norm: Any = None
) -> Tensor:
    """Inverse of `hfft2`."""
    return ihfftn(input, s, dim, norm)


# ---- frequencies in order ---------------------------------------------------------------------


def _rolled(input: Tensor, dim: Any, ahead: bool) -> Tensor:
    dims = tuple(range(input.ndim)) if dim is None else sh.wrap_dims(dim, input.ndim)
    halves = [input.shape[d] // 2 if ahead else (input.shape[d] + 1) // 2 for d in dims]
    return input.roll(halves, dims) if dims else input.clone()


@composite(namespace="fft", out=False, oracle=np.fft.fftshift)
def fftshift(input: Tensor, dim: IntList | None = None) -> Tensor:
    """Frequency zero moved to the middle."""
    return _rolled(input, dim, True)


@composite(namespace="fft", out=False, oracle=np.fft.ifftshift)
def ifftshift(input: Tensor, dim: IntList | None = None) -> Tensor:
    """Inverse of `fftshift`."""
    return _rolled(input, dim, False)
