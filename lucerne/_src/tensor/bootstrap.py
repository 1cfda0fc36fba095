"""Put the pieces together: ops into the table, methods onto Tensor."""

from __future__ import annotations

from typing import Any

from lucerne._src.ir import namespaces
from lucerne._src.ops import families as families
from lucerne._src.tensor import geometry, indexing, methods
from lucerne._src.tensor.eager import native_bridge
from lucerne._src.tensor.eager import run as eager
from lucerne._src.tensor.interop import exchange, legacy_attributes
from lucerne._src.tensor.interop import transfer as transfer
from lucerne._src.tensor.storage import FAST
from lucerne._src.tensor.tensor import Tensor


def fill(module: dict[str, Any], namespace: str) -> None:
    """Put a namespace's functions into a module's globals (importing this completed the table)."""
    namespaces.fill(module, namespace)


if FAST is not None:
    native_bridge.wrap_public_functions()
legacy_attributes.install()
geometry.install()
indexing.install()
methods.install()
methods.install_operators()
if FAST is not None:
    native_bridge.connect(Tensor, eager.run, methods.fast_operators())
    exchange.install(Tensor)
