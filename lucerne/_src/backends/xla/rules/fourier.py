"""Fourier transforms."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lucerne._src.backends.xla.rules.table import out_type, rule
from lucerne._src.backends.xla.types import cast
from lucerne._src.ir.graph import Node

_FORWARD = ("backward", "ortho", "forward")
_INVERSE = ("forward", "ortho", "backward")
"""Scales are named by the direction that carries them."""


@rule("fft_c2c")
def fft_c2c(node: Node, x: Any, dim: Any, scale: int, forward: bool) -> Any:
    for d in dim:
        if forward:
            x = jnp.fft.fft(x, axis=d, norm=_FORWARD[scale])
        else:
            x = jnp.fft.ifft(x, axis=d, norm=_INVERSE[scale])
    return cast(x, out_type(node))


@rule("fft_r2c")
def fft_r2c(node: Node, x: Any, dim: Any, scale: int) -> Any:
    x = jnp.fft.rfft(x, axis=dim[-1], norm=_FORWARD[scale])
    for d in dim[:-1]:
        x = jnp.fft.fft(x, axis=d, norm=_FORWARD[scale])
    return cast(x, out_type(node))


@rule("fft_c2r")
def fft_c2r(node: Node, x: Any, dim: Any, scale: int, size: int) -> Any:
    for d in dim[:-1]:
        x = jnp.fft.ifft(x, axis=d, norm=_INVERSE[scale])
    return cast(jnp.fft.irfft(x, size, axis=dim[-1], norm=_INVERSE[scale]), out_type(node))
