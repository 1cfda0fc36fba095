"""Fourier transforms."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from lucerne.backends.reference.table import rule

Array = np.ndarray[Any, Any]
Norm = Literal["backward", "ortho", "forward"]

# NumPy names scales by the direction that carries them.
_FORWARD: tuple[Norm, ...] = ("backward", "ortho", "forward")
_INVERSE: tuple[Norm, ...] = ("forward", "ortho", "backward")


@rule("fft_c2c")
def fft_c2c(input: Array, dim: Any, scale: int, forward: bool) -> Array:
    if forward:
        return np.fft.fftn(input, axes=dim, norm=_FORWARD[scale])
    return np.fft.ifftn(input, axes=dim, norm=_INVERSE[scale])


@rule("fft_r2c")
def fft_r2c(input: Array, dim: Any, scale: int) -> Array:
    return np.fft.rfftn(input, axes=dim, norm=_FORWARD[scale])


@rule("fft_c2r")
def fft_c2r(input: Array, dim: Any, scale: int, size: int) -> Array:
    sizes = [input.shape[d] for d in dim[:-1]]
    return np.fft.irfftn(input, s=[*sizes, size], axes=dim, norm=_INVERSE[scale])
