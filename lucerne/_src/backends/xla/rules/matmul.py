"""Products of matrices."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lucerne._src.backends.xla.rules.table import out_type, rule, wide_type
from lucerne._src.backends.xla.types import cast
from lucerne._src.ir.graph import Node


def precision_of(x: Any) -> Any:
    """How exact products are. What accelerators do with float32 by default is less than float32;
    16-bit operands have exact products there anyway, and asking for more would widen them first."""
    return lax.Precision.HIGHEST if x.dtype.itemsize >= 4 else None


@rule("batch_matmul")
def batch_matmul(node: Node, a: Any, b: Any) -> Any:
    wide = wide_type(node)
    if np.dtype(wide).kind in "iub":
        return cast(jnp.matmul(a.astype(wide), b.astype(wide)), out_type(node))
    made = jnp.matmul(a, b, precision=precision_of(a), preferred_element_type=wide)
    return cast(made, out_type(node))
