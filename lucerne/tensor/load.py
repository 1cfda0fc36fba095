"""Put the pieces together: ops into the table, methods onto Tensor."""

from __future__ import annotations

from typing import Any

from lucerne.ir import export
from lucerne.ops import families as families
from lucerne.tensor import eager as eager
from lucerne.tensor import fast, geometry, indexing, members, methods
from lucerne.tensor import transfer as transfer
from lucerne.tensor.storage import FAST
from lucerne.tensor.tensor import Tensor


def fill(module: dict[str, Any], namespace: str) -> None:
    """Put a namespace's functions into a module's globals (importing this completed the table)."""
    export.fill(module, namespace)


if FAST is not None:
    fast.wrap_public_functions()
members.install()
geometry.install()
indexing.install()
methods.install()
methods.install_operators()
if FAST is not None:
    fast.connect(Tensor, eager.run, methods.fast_operators())
