"""Every structural primitive by its meaning in jax.numpy and jax.lax."""

from lucerne._src.backends.xla.rules import (
    conv,
    counted,
    fourier,
    index,
    linalg,
    matmul,
    move,
    pool,
    scan,
    sorting,
)

__all__ = [
    "conv",
    "counted",
    "fourier",
    "index",
    "linalg",
    "matmul",
    "move",
    "pool",
    "scan",
    "sorting",
]
