"""`DTensor`: a tensor that lies on a mesh. It is a tensor like any other; placements are a property
of its memory, which its device's engine keeps, so results of ops and gradients have them too."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from lucerne._src import backends
from lucerne._src.backends.contract.placement import (
    MeshLayout,
    Partial,
    Placement,
    Replicate,
    Shard,
    chunk,
)
from lucerne._src.base.refusals import only
from lucerne._src.capture.trace.fake import DataNeededError, is_fake
from lucerne._src.distributed.mesh.device_mesh import DeviceMesh, current_mesh, mesh_of
from lucerne._src.distributed.mesh.processes import exchange, from_first, shares
from lucerne._src.ops.copy.place import Meshes, placed
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.base import make_tensor
from lucerne._src.tensor.storage import Storage

Tensor = lu.Tensor
_GRADIENTS = "a gradient lies as the tensor does that it is of"
_CALLS = "calls of the device return before they are done in any case"


def layout_of(t: Any) -> MeshLayout | None:
    """How a tensor lies; None: on no mesh."""
    if t.device.type not in Meshes.devices:
        return None
    if is_fake(t):
        raise DataNeededError(
            "how a tensor lies on a mesh is not known while a function is captured: ask outside "
            "of it. (`redistribute` with a `device_mesh`, and `full_tensor`, may be captured.)"
        )
    return backends.get(t.device.type).layout_of(t)


def _known(t: Any, name: str) -> MeshLayout:
    found = layout_of(t)
    if found is None:
        raise AttributeError(f"'Tensor' object has no attribute {name!r}: it lies on no mesh")
    return found


class _OnAMesh(type(Tensor)):  # type: ignore[misc]
    """`isinstance(x, DTensor)` holds for tensors on a mesh, parameters among them."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and layout_of(instance) is not None


class DTensor(Tensor, metaclass=_OnAMesh, watched=False):
    """A tensor on a mesh (`isinstance` says which are). Made by `distribute_tensor`, by
    `from_local`, and by every op that reads one."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError("DTensor: use distribute_tensor(tensor, mesh, placements) to make one")

    @staticmethod
    def from_local(
        local_tensor: Any,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        shape: Any = None,
        stride: Any = None,
        grad_placements: Any = None,
    ) -> Any:
        """The tensor whose parts are given: a list with one for each device of the mesh that this
        process drives, row by row (one part alone where that is one device, as in torch)."""
        why = "all parts are given, so nothing has to be told"
        only("from_local", "shape", shape, None, why)
        only("from_local", "stride", stride, None, why)
        only("from_local", "grad_placements", grad_placements, None, _GRADIENTS)
        return _joined(local_tensor, current_mesh(device_mesh), placements, run_check)


def _joined(parts: Any, mesh: DeviceMesh, placements: Any, check: bool) -> Any:
    parts = list(parts) if isinstance(parts, (list, tuple)) else [parts]
    here = mesh._here()
    if len(parts) != len(here):
        raise NotImplementedError(
            f"from_local: this process drives {len(here)} devices of the mesh, so it must "
            f"give as many parts (a list, row by row); it gave {len(parts)}"
        )
    ndim = parts[0].ndim
    placements = [Replicate()] * mesh.ndim if placements is None else placements
    layout = mesh.layout(placements, ndim)
    if shares(mesh.device_type):
        return _of_processes(parts, mesh._root, layout, check)
    if mesh._root is not mesh:
        raise NotImplementedError("from_local: give the whole mesh, not a part of it")
    stacked = _stacked([p.to(mesh.device_type) for p in parts], mesh.shape, layout, check)
    terms = [p.reduce_op for p in layout.placements if isinstance(p, Partial)]
    if not terms:
        return placed(stacked, layout)
    reduced = stacked
    for op in terms:
        reduced = _REDUCED[op](reduced)
    made = placed(reduced, layout)
    backends.get(mesh.device_type).lay_out(made, layout, stacked.detach())
    return made


def _of_processes(parts: list[Any], mesh: DeviceMesh, layout: MeshLayout, check: bool) -> Any:
    """The same of parts that each process has some of: those stay where they are."""
    if any(is_fake(p) for p in parts):
        raise DataNeededError("from_local: what processes do together is kept out of graphs")
    if lu.is_grad_enabled() and any(p.requires_grad for p in parts):
        raise NotImplementedError(
            "from_local: over several processes no gradient flows back to a part: detach() it"
        )
    layout = MeshLayout(layout.mesh, tuple(p or Replicate() for p in layout.placements))
    said = exchange([[at, list(p.shape), p.numel() and str(p.dtype)]
                     for at, p in zip(mesh._here(), parts, strict=True)])  # fmt: skip
    shapes = {at: tuple(shape) for row in said for at, shape, _ in row}
    dtypes = {kind for row in said for *_, kind in row if kind}
    if len(dtypes) > 1:
        raise TypeError(f"from_local: parts have the dtypes {', '.join(sorted(dtypes))}")
    shape = _whole_shape([shapes[at] for at in sorted(shapes)], layout)
    if check:
        _check_copies(parts, layout, mesh)
    made = lu.empty(shape, dtype=parts[0].dtype, device=mesh.device_type)
    given = [p.detach().to(mesh.device_type).contiguous() for p in parts]
    backends.get(mesh.device_type).lay_parts(made, layout, given)
    return made


def _whole_shape(parts: list[tuple[int, ...]], layout: MeshLayout) -> tuple[int, ...]:
    """The shape that parts of these make up, which must be as `chunk` cuts it."""
    sizes = layout.mesh.sizes
    places = list(itertools.product(*map(range, sizes)))
    by_place = dict(zip(places, parts, strict=True))
    shape = list(parts[0])
    for d in range(len(shape)):
        cuts = [k for k, p in enumerate(layout.placements) if p == Shard(d)]
        if len(cuts) > 1:
            shape[d] *= math.prod(sizes[k] for k in cuts)
        elif cuts:
            row = [at for at in places if not any(at[: cuts[0]]) and not any(at[cuts[0] + 1 :])]
            shape[d] = sum(by_place[at][d] for at in row)
    for at, found in by_place.items():
        wanted = list(shape)
        for k, p in enumerate(layout.placements):
            if isinstance(p, Shard):
                first, last = chunk(wanted[p.dim], sizes[k], at[k])
                wanted[p.dim] = last - first
        if tuple(wanted) != found:
            raise RuntimeError(
                f"from_local: a tensor of shape {tuple(shape)} has {tuple(wanted)} at {at} of the "
                f"mesh, and the part there is {found}: parts are cut as torch.chunk cuts"
            )
    return tuple(shape)


def _check_copies(parts: list[Any], layout: MeshLayout, mesh: DeviceMesh) -> None:
    """Whether devices that are to have the same part have it."""
    mine = [[list(at), _digest(p)] for at, p in zip(_places(mesh), parts, strict=True)]
    found: dict[tuple[int, ...], set[str]] = {}
    for at, digest in (pair for row in exchange(mine) for pair in row):
        pairs = zip(at, layout.placements, strict=True)
        place = tuple(0 if isinstance(p, Replicate) else k for k, p in pairs)
        found.setdefault(place, set()).add(digest)
    if any(len(digests) > 1 for digests in found.values()):
        raise ValueError(f"from_local: parts differ that {layout.placements} makes copies of one")


def _digest(t: Any) -> str:
    raw = t.detach().cpu().contiguous().reshape(-1).view(lu.uint8).numpy().tobytes()
    return hashlib.blake2b(raw, digest_size=12).hexdigest()


def _places(mesh: DeviceMesh) -> list[tuple[int, ...]]:
    """Where this process's devices are in a mesh."""
    places = list(itertools.product(*map(range, mesh.shape)))
    return [places[at] for at in mesh._here()]


_REDUCED: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(0, dtype=x.dtype),
    "avg": lambda x: x.mean(0),
    "product": lambda x: x.prod(0, dtype=x.dtype),
    "max": lambda x: x.amax(0),
    "min": lambda x: x.amin(0),
}


def _stacked(parts: list[Any], sizes: tuple[int, ...], layout: MeshLayout, check: bool) -> Any:
    """Parts put together; terms are stacked along leading dimensions."""
    if not sizes:
        return parts[0]
    step, depth = len(parts) // sizes[0], len(layout.placements) - len(sizes)
    inner = [
        _stacked(parts[k * step : (k + 1) * step], sizes[1:], layout, check)
        for k in range(sizes[0])
    ]
    p = layout.placements[depth]
    if isinstance(p, Partial):
        return lu.stack(inner)
    if isinstance(p, Shard):
        lead = sum(isinstance(q, Partial) for q in layout.placements[depth + 1 :])
        return lu.cat(inner, p.dim + lead)
    if check and not all(bool(lu.equal(inner[0], other)) for other in inner[1:]):
        raise ValueError(f"from_local: parts differ along mesh dimension {depth}: {p}")
    return inner[0]


# ---- what a tensor on a mesh can do --------------------------------------------------------------


def _redistribute(
    self: Any,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    async_op: bool = False,
    forward_dtype: Any = None,
    backward_dtype: Any = None,
) -> Any:
    """The same values with other placements."""
    only("redistribute", "async_op", async_op, False, _CALLS)
    why = "cast the tensor before or after it"
    only("redistribute", "forward_dtype", forward_dtype, None, why)
    only("redistribute", "backward_dtype", backward_dtype, None, why)
    if placements is None:
        raise RuntimeError("placements is needed for redistribute!")
    traced = is_fake(self)
    if device_mesh is None:
        device_mesh = mesh_of(self.device.type, _known(self, "redistribute"))
    layout = device_mesh.layout(placements, self.ndim)
    old = None if traced else layout_of(self)
    if old is not None and old.mesh != layout.mesh:
        raise NotImplementedError("redistribute: from one mesh to another; use full_tensor()")
    had = [None] * len(layout.placements) if old is None else old.placements
    for a, b in zip(had, layout.placements, strict=True):
        if isinstance(b, Partial) and a != b:
            raise RuntimeError(
                f"Can not redistribute from {a} to {b}, redistributing to Partial is for internal "
                "use only!"
            )
    return placed(self, layout)


def _full_tensor(self: Any, *, grad_placements: Any = None) -> Any:
    """All of it, on no mesh."""
    only("full_tensor", "grad_placements", grad_placements, None, _GRADIENTS)
    return placed(self, None)


def _to_local(self: Any, *, grad_placements: Any = None) -> Any:
    """What this process's first device has of it, on no mesh."""
    only("to_local", "grad_placements", grad_placements, None, _GRADIENTS)
    layout = _known(self, "to_local")
    at = mesh_of(self.device.type, layout).get_coordinate()
    if at is None:
        raise RuntimeError("to_local: no device of this process is in the mesh")
    return _local(self, layout, at)


def _local(t: Any, layout: MeshLayout, at: Sequence[int]) -> Any:
    if layout.is_partial or shares(t.device.type):
        return _term(t, layout, at)
    for p, n, k in zip(layout.placements, layout.mesh.sizes, at, strict=True):
        if isinstance(p, Shard):
            first, last = chunk(t.shape[p.dim], n, k)
            t = t.narrow(p.dim, first, last - first)
    return placed(t, None)


def _term(t: Any, layout: MeshLayout, at: Sequence[int]) -> Any:
    """What a device has of a tensor of terms, or of one of several processes: read as it is, so
    no gradient flows."""
    if t.requires_grad and lu.is_grad_enabled():
        raise NotImplementedError(
            "to_local of a tensor that requires grad, which is Partial or lies on a mesh of several"
            " processes: redistribute it first, or detach() it"
        )
    cut = [p.dim for p in layout.placements if isinstance(p, Shard)]
    if not layout.is_partial and len(set(cut)) < len(cut):
        raise NotImplementedError(
            f"to_local of {layout.placements} over several processes: where two dimensions of a "
            "mesh cut one of a tensor, parts lie in the engine's order; use full_tensor()"
        )
    return part_at(t, layout, at)


def part_at(t: Any, layout: MeshLayout, at: Sequence[int]) -> Any:
    """What the device at a place of the mesh has, on no mesh."""
    number = 0
    for n, k in zip(layout.mesh.sizes, at, strict=True):
        number = number * n + k
    buffer, meta = backends.get(t.device.type).part(t, number)
    return make_tensor(Storage(buffer, meta.numel * meta.dtype.itemsize, t.device), 0, meta)


def local_parts(t: Any) -> list[Any]:
    """What each device of the mesh that this process drives has of a tensor, in the mesh's order
    (`to_local` gives the first)."""
    layout = _known(t, "local_parts")
    places = _places(mesh_of(t.device.type, layout))
    return [_local(t.detach(), layout, at) for at in places]


def blocks(t: Any, *, own: bool) -> list[tuple[list[int], list[int], tuple[int, ...]]]:
    """Of a tensor on a mesh of several processes what this one's devices have: where each block
    begins, its size, and the device's place. `own`: without those that an earlier device has too,
    as the engine lays them out; else all, as parts are given."""
    layout = _known(t, "blocks")
    sizes, found = layout.mesh.sizes, []
    for at in _places(mesh_of(t.device.type, layout)):
        pairs = zip(at, layout.placements, strict=True)
        if own and any(k and not isinstance(p, Shard) for k, p in pairs):
            continue
        first, count = [0] * t.ndim, list(t.shape)
        for d in range(t.ndim):
            cuts = [k for k, p in enumerate(layout.placements) if p == Shard(d)]
            number = 0
            for k in reversed(cuts) if own else cuts:
                number = number * sizes[k] + at[k]
            begin, end = chunk(t.shape[d], math.prod(sizes[k] for k in cuts), number)
            first[d], count[d] = begin, end - begin
        found.append((first, count, at))
    return found


def refill_blocks(t: Any, given: Sequence[Any]) -> None:
    """New values for a tensor on a mesh of several processes: the blocks of this one's devices."""
    made = lu.empty(t.shape, dtype=t.dtype, device=t.device)
    parts = [p.to(dtype=t.dtype, device=t.device) for p in given]
    backends.get(t.device.type).lay_parts(made, _known(t, "refill_blocks"), parts)
    t.copy_(made)


def _placements(self: Any) -> tuple[Placement | None, ...]:
    """One for each dimension of the mesh."""
    return _known(self, "placements").placements


def _device_mesh(self: Any) -> DeviceMesh:
    return mesh_of(self.device.type, _known(self, "device_mesh"))


def _method(function: Callable[..., Any]) -> property:
    """A method that only tensors on a mesh have (`hasattr` says so of the others)."""
    name = function.__name__.lstrip("_")

    def get(self: Any) -> Any:
        if not is_fake(self):
            _known(self, name)
        return function.__get__(self)

    return property(get, doc=function.__doc__)


def bind() -> None:
    """Tensors learn what those on a mesh can do: called by the window."""
    for function in (_redistribute, _full_tensor, _to_local):
        setattr(Tensor, function.__name__[1:], _method(function))
    for getter in (_placements, _device_mesh):
        setattr(Tensor, getter.__name__[1:], property(getter, doc=getter.__doc__))


# ---- making them ---------------------------------------------------------------------------------


def distribute_tensor(
    tensor: Any,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Any:
    """A leaf tensor on a mesh: by default whole on each device."""
    if src_data_rank not in (0, None):
        only("distribute_tensor", "src_data_rank", src_data_rank, 0, "one process has the data")
    mesh = current_mesh(device_mesh)
    if not tensor.is_leaf:
        raise RuntimeError(
            "`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf "
            "tensor! (`redistribute` places a result.)"
        )
    placements = [Replicate()] * mesh.ndim if placements is None else placements
    layout = mesh.layout(placements, tensor.ndim)
    if layout.is_partial:
        raise RuntimeError(
            f"Trying to distribute tensor with unsupported placements {tuple(placements)}: terms "
            "of a sum are given with DTensor.from_local"
        )
    given = tensor.detach()
    if src_data_rank is not None and shares(mesh.device_type) and layout_of(given) is None:
        given = from_first(given)
    made = placed(given.to(mesh.device_type), layout)
    return made.requires_grad_(tensor.requires_grad)


def place_in_memory(t: Any, mesh: DeviceMesh, placements: Sequence[Placement]) -> None:
    """Lay a parameter or buffer out where it is: who holds it (an optimizer) goes on holding it."""
    layout = mesh.layout(placements, t.ndim)
    with lu.no_grad():
        if shares(mesh.device_type) and layout_of(t) is None:
            t.copy_(from_first(t))
        if t.device.type != mesh.device_type:
            t.data = t.data.to(mesh.device_type)
        backends.get(mesh.device_type).lay_out(t, layout)


def _factory(make: Callable[..., Any], name: str) -> Callable[..., Any]:
    def made(
        *size: Any,
        dtype: Any = None,
        layout: Any = lu.strided,
        requires_grad: bool = False,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
    ) -> Any:
        found = make(*size, dtype=dtype, layout=layout)
        found = distribute_tensor(found, device_mesh, placements)
        return found.requires_grad_(requires_grad)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"`lucerne.{name}` on a mesh: the numbers are those without one."
    return made


ones = _factory(lu.ones, "ones")
zeros = _factory(lu.zeros, "zeros")
empty = _factory(lu.empty, "empty")
rand = _factory(lu.rand, "rand")
randn = _factory(lu.randn, "randn")


def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    layout: Any = lu.strided,
    requires_grad: bool = False,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> Any:
    """`lucerne.full` on a mesh."""
    found = lu.full(size, fill_value, dtype=dtype, layout=layout)
    return distribute_tensor(found, device_mesh, placements).requires_grad_(requires_grad)
