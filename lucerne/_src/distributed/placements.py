"""How a tensor lies on the devices of a mesh: whole, in slices, or as terms of a sum.

Descriptions alone: libraries write their plans with them. Tensors placed so are not part of
this version.
"""

from __future__ import annotations

from dataclasses import dataclass


class Placement:
    """One dimension of a mesh."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether it is cut, along `dim` if one is given.

        >>> Shard(1).is_shard(), Shard(1).is_shard(0), Replicate().is_shard()
        (True, False, False)
        """
        return isinstance(self, Shard) and (dim is None or dim == self.dim)

    def is_replicate(self) -> bool:
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether it is terms to be reduced, by `reduce_op` if one is given."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Cut along a dimension: each device has a slice."""

    dim: int


@dataclass(frozen=True)
class Replicate(Placement):
    """Each device has all of it."""


@dataclass(frozen=True)
class Partial(Placement):
    """Each device has a term; `reduce_op` makes the tensor of them."""

    reduce_op: str = "sum"

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"
