"""How a tensor lies on the devices of a mesh: whole, in slices, or as terms of a sum.

A placement says it for one dimension of the mesh, a `MeshLayout` for all of them. These are data:
what they mean for memory is a backend's (`Backend.lay_out`), what they are called is torch's.
"""

from __future__ import annotations

import math
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


@dataclass(frozen=True)
class MeshShape:
    """The devices of a mesh (by number, row by row), and how many there are along each of its
    dimensions, which have names."""

    sizes: tuple[int, ...]
    names: tuple[str, ...]
    devices: tuple[int, ...]

    def __post_init__(self) -> None:
        if math.prod(self.sizes) != len(self.devices):
            raise ValueError(f"a mesh of {self.sizes} with {len(self.devices)} devices")


@dataclass(frozen=True)
class MeshLayout:
    """Placements of a tensor, one for each dimension of a mesh; None: as it is there already."""

    mesh: MeshShape
    placements: tuple[Placement | None, ...]

    def __post_init__(self) -> None:
        if len(self.placements) != len(self.mesh.sizes):
            raise ValueError(f"{self.placements} for a mesh of {self.mesh.sizes}")

    @property
    def is_partial(self) -> bool:
        return any(isinstance(p, Partial) for p in self.placements)


def chunk(size: int, parts: int, k: int) -> tuple[int, int]:
    """Where the k-th of `parts` slices of a dimension begins and ends: as `torch.chunk` cuts, so
    the last ones may be shorter or empty.

    >>> [chunk(7, 4, k) for k in range(4)], chunk(2, 4, 3)
    ([(0, 2), (2, 4), (4, 6), (6, 7)], (2, 2))
    """
    step = -(-size // parts) if size else 0
    return min(k * step, size), min((k + 1) * step, size)
