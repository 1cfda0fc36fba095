"""Put the pieces together: ops into the table, methods onto Tensor."""

from __future__ import annotations

from typing import Any

from lucerne.ir import export
from lucerne.ops import families as families
from lucerne.tensor import eager as eager
from lucerne.tensor import geometry, indexing, members, methods
from lucerne.tensor import transfer as transfer


def fill(module: dict[str, Any], namespace: str) -> None:
    """Put a namespace's functions into a module's globals (importing this completed the table)."""
    export.fill(module, namespace)


members.install()
geometry.install()
indexing.install()
methods.install()
methods.install_operators()
