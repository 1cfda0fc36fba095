"""Put the pieces together: ops into the table, methods onto Tensor."""

from __future__ import annotations

from lucerne.ops import families as families
from lucerne.tensor import eager as eager
from lucerne.tensor import geometry, indexing
from lucerne.tensor import members, methods
from lucerne.tensor import transfer as transfer

members.install()
geometry.install()
indexing.install()
methods.install()
methods.install_operators()
