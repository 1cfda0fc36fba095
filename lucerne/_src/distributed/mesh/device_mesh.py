"""`DeviceMesh`: the devices of one engine as a grid whose dimensions have names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

from lucerne._src import backends, capture
from lucerne._src.backends.contract.placement import MeshLayout, MeshShape, Placement, Shard
from lucerne._src.base.refusals import only
from lucerne._src.distributed.mesh.processes import join
from lucerne._src.ops.copy.place import Meshes
from lucerne._src.tensor import api as lu

_ONE_PROGRAM = (
    "a mesh is driven by one program, in one process or in several, so there are no groups of "
    "processes along its dimensions: place tensors (`distribute_tensor`), and the engine puts "
    "collectives in"
)


class DeviceMesh:
    """Devices, by number, as an array. `mesh["name"]` is the mesh of some of its dimensions: what
    is placed on that stays as it is along the others.

    `DeviceMesh("xla", [[0, 1], [2, 3]], mesh_dim_names=("data", "model"))`: docs/guide/mesh.md.
    """

    device_type: str

    def __init__(
        self, device_type: str, mesh: Any, *, mesh_dim_names: Sequence[str] | None = None
    ) -> None:
        grid = lu.as_tensor(mesh, dtype=lu.int64, device=backends.HOST)
        sizes, numbers = tuple(grid.shape), tuple(int(k) for k in grid.flatten().tolist())
        names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        if names is not None and len(names) != len(sizes):
            raise RuntimeError(
                "mesh_shape and mesh_dim_names should have same length! Found "
                f"len(mesh_dim_names): {len(names)} and len(mesh_shape): {len(sizes)}."
            )
        if names is not None and len(set(names)) < len(names):
            raise RuntimeError(f"Each mesh_dim_name must be unique. Found: {names}")
        _check_devices(device_type, numbers)
        join(device_type)
        self.device_type, self.mesh_dim_names = device_type, names
        shown = names or tuple(f"dim_{d}" for d in range(len(sizes)))
        self._shape = MeshShape(sizes, shown, numbers)
        self._root, self._dims = self, tuple(range(len(sizes)))
        _begin(device_type)
        _MADE.setdefault((device_type, self._shape), self)

    # ---- what it is ----------------------------------------------------------------------------

    @property
    def mesh(self) -> Any:
        """The numbers of the devices. Of a part of a mesh: those along it with this
        process's first."""
        root = self._root._shape
        grid = lu.tensor(root.devices).reshape(root.sizes)
        mine = self._root.get_coordinate() or [0] * len(root.sizes)
        at = [slice(None) if d in self._dims else mine[d] for d in range(len(root.sizes))]
        return grid[tuple(at)].contiguous()

    @property
    def ndim(self) -> int:
        return len(self._dims)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape.sizes

    def size(self, mesh_dim: int | None = None) -> int:
        """How many devices there are, along one dimension or in all."""
        return math.prod(self.shape) if mesh_dim is None else self.shape[mesh_dim]

    def get_rank(self) -> int:
        """The number of this process's first device: 0 where one process drives all of them, its
        rank where each has one device."""
        here = backends.get(self.device_type).mesh_here()
        return next((k for k in self._root._shape.devices if k in here), here[0])

    def _here(self) -> list[int]:
        """The places in the mesh of this process's devices."""
        here = set(backends.get(self.device_type).mesh_here())
        return [at for at, k in enumerate(self._root._shape.devices) if k in here]

    def get_coordinate(self) -> list[int] | None:
        """Where this process's first device is in the mesh; None: it has none there."""
        numbers, found = self._root._shape.devices, []
        if self.get_rank() not in numbers:
            return None
        at = numbers.index(self.get_rank())
        for n in reversed(self._root.shape):
            at, k = divmod(at, n)
            found.append(k)
        return [found[::-1][d] for d in self._dims]

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """The same along one dimension."""
        if mesh_dim is None and self.ndim > 1:
            raise RuntimeError(
                f"Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` "
                "needs to be specified when device_mesh.ndim > 1."
            )
        at = self.get_coordinate() or [0] * self.ndim
        return at[self._number(0 if mesh_dim is None else mesh_dim)]

    def get_group(self, mesh_dim: int | str | None = None) -> NoReturn:
        raise NotImplementedError(f"DeviceMesh.get_group({mesh_dim!r}): {_ONE_PROGRAM}")

    def get_all_groups(self) -> NoReturn:
        raise NotImplementedError(f"DeviceMesh.get_all_groups: {_ONE_PROGRAM}")

    def __getitem__(self, mesh_dim_names: str | Sequence[str]) -> DeviceMesh:
        asked = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        if self.mesh_dim_names is None:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        picked = [self._number(name) for name in asked]
        if picked != sorted(set(picked)):
            raise KeyError(
                f"Invalid mesh_dim_names {asked} specified. Valid mesh_dim_names are "
                f"{list(self.mesh_dim_names)}, each once and in this order."
            )
        if len(picked) == self.ndim:
            return self
        made = object.__new__(DeviceMesh)
        made.device_type, made.mesh_dim_names = self.device_type, asked
        made._root, made._dims = self._root, tuple(self._dims[d] for d in picked)
        numbers = tuple(int(k) for k in made.mesh.flatten().tolist())
        sizes = tuple(self.shape[d] for d in picked)
        made._shape = MeshShape(sizes, asked, numbers)
        return made

    def _number(self, dim: int | str) -> int:
        if isinstance(dim, int):
            return dim % self.ndim
        if dim not in self._shape.names:
            raise KeyError(
                f"Invalid mesh_dim_name {dim!r} specified. Valid mesh_dim_names are "
                f"{list(self._shape.names)}."
            )
        return self._shape.names.index(dim)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DeviceMesh) and self._all == other._all)

    def __hash__(self) -> int:
        return hash(self._all)

    @property
    def _all(self) -> tuple[Any, ...]:
        return self.device_type, self._root._shape, self._dims

    def __repr__(self) -> str:
        pairs = zip(self._shape.names, self.shape, strict=True)
        return f"DeviceMesh(({', '.join(f'{a}={n}' for a, n in pairs)}), {self.device_type!r})"

    # ---- the mesh that functions take if they are given none -----------------------------------

    def __enter__(self) -> DeviceMesh:
        _CURRENT.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _CURRENT.pop()

    # ---- placements ----------------------------------------------------------------------------

    def layout(self, placements: Sequence[Placement] | None, ndim: int) -> MeshLayout:
        """Placements of a tensor with so many dimensions, in terms of the whole mesh."""
        given = tuple(_checked(p, ndim) for p in placements or ())
        if len(given) != self.ndim:
            raise ValueError(
                f"`placements` must have the same length as `device_mesh.ndim`! Found placements "
                f"length: {len(given)}, and device_mesh.ndim: {self.ndim}."
            )
        found: list[Placement | None] = [None] * self._root.ndim
        for d, p in zip(self._dims, given, strict=True):
            found[d] = p
        return MeshLayout(self._root._shape, tuple(found))


_CURRENT: list[DeviceMesh] = []
_MADE: dict[tuple[str, MeshShape], DeviceMesh] = {}


def current_mesh(given: DeviceMesh | None) -> DeviceMesh:
    """The mesh that was given, or the one whose `with` block this is."""
    if given is not None:
        return given
    if not _CURRENT:
        raise RuntimeError(
            "No device mesh is currently active! Give `device_mesh`, or call this inside of "
            "`with mesh:`"
        )
    return _CURRENT[-1]


def mesh_of(device_type: str, layout: MeshLayout) -> DeviceMesh:
    """The mesh that a layout names."""
    return _MADE[device_type, layout.mesh]


def _checked(p: Placement, ndim: int) -> Placement:
    if not isinstance(p, Placement):
        raise TypeError(f"expected Shard, Replicate or Partial, got {p!r}")
    if not isinstance(p, Shard):
        return p
    if not -ndim <= p.dim < ndim:
        raise IndexError(f"{p}: the tensor has {ndim} dimensions")
    return Shard(p.dim % ndim)


def _check_devices(device_type: str, numbers: tuple[int, ...]) -> None:
    engine = backends.get(device_type)
    count = engine.mesh_size()
    if not count:
        raise NotImplementedError(
            f"the device {device_type!r} has no meshes: a mesh needs an engine that partitions "
            "programs over its devices (docs/guide/mesh.md). Several processes on this device are "
            "`DistributedDataParallel` and process groups (docs/guide/processes.md)."
        )
    if len(set(numbers)) < len(numbers):
        raise RuntimeError(f"a device stands twice in the mesh: {list(numbers)}")
    wrong = [k for k in numbers if not 0 <= k < count]
    if wrong:
        raise RuntimeError(
            f"the mesh names device {wrong[0]}, but {device_type!r} has {count} here, from 0 on. "
            "docs/guide/mesh.md says how a CPU is made to look like several devices."
        )
    here = set(engine.mesh_here())
    if not here.issuperset(numbers) and len(numbers) < count:
        raise NotImplementedError(
            f"a mesh of {len(numbers)} of the {count} devices of all processes: one over several "
            "processes has every device of theirs, in any order (pipelines of stages in different "
            "processes are not there: docs/guide/mesh.md)"
        )


def _begin(device_type: str) -> None:
    """From now on gradients and the like ask where their tensors lie; what was captured before
    did not."""
    if device_type not in Meshes.devices:
        Meshes.devices |= {device_type}
        capture.reset()


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    backend_override: Any = None,
) -> DeviceMesh:
    """A mesh of the first devices of an engine, row by row.

    >>> from lucerne.distributed.device_mesh import init_device_mesh
    >>> init_device_mesh("cpu", (2,))
    Traceback (most recent call last):
    NotImplementedError: the device 'cpu' has no meshes: a mesh needs an engine that ...
    """
    only("init_device_mesh", "backend_override", backend_override, None, _ONE_PROGRAM)
    sizes = tuple(mesh_shape)
    grid = lu.arange(math.prod(sizes)).reshape(sizes)
    return DeviceMesh(device_type, grid, mesh_dim_names=mesh_dim_names)
