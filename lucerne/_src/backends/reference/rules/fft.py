"""Fourier transforms: SciPy's, which work on several rows at once, or else NumPy's."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from lucerne._src.backends.reference.optional import scipy
from lucerne._src.backends.reference.table import rule

Array = np.ndarray[Any, Any]
Norm = Literal["backward", "ortho", "forward"]

# NumPy names scales by the direction that carries them.
_FORWARD: tuple[Norm, ...] = ("backward", "ortho", "forward")
_INVERSE: tuple[Norm, ...] = ("forward", "ortho", "backward")


def _transforms() -> Any:
    return scipy("fft") or np.fft


@rule("fft_c2c")
def fft_c2c(input: Array, dim: Any, scale: int, forward: bool) -> Array:
    if forward:
        return _transforms().fftn(input, axes=dim, norm=_FORWARD[scale])
    return _transforms().ifftn(input, axes=dim, norm=_INVERSE[scale])


@rule("fft_r2c")
def fft_r2c(input: Array, dim: Any, scale: int) -> Array:
    return _transforms().rfftn(input, axes=dim, norm=_FORWARD[scale])


@rule("fft_c2r")
def fft_c2r(input: Array, dim: Any, scale: int, size: int) -> Array:
    sizes = [input.shape[d] for d in dim[:-1]]
    return _transforms().irfftn(input, s=[*sizes, size], axes=dim, norm=_INVERSE[scale])
