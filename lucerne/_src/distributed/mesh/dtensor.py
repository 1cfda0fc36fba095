"""`DTensor`: a tensor that lies on a mesh. It is a tensor like any other; placements are a property
of its memory, which its device's engine keeps, so results of ops and gradients have them too."""

from __future__ import annotations

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
        """The tensor whose parts are given: a list with one for each device of the mesh, row by
        row. (In torch each process gives its own; here one process has them all.)"""
        why = "all parts are given, so nothing has to be told"
        only("from_local", "shape", shape, None, why)
        only("from_local", "stride", stride, None, why)
        only("from_local", "grad_placements", grad_placements, None, _GRADIENTS)
        return _joined(local_tensor, current_mesh(device_mesh), placements, run_check)


def _joined(parts: Any, mesh: DeviceMesh, placements: Any, check: bool) -> Any:
    if mesh._root is not mesh:
        raise NotImplementedError("from_local: give the whole mesh, not a part of it")
    parts = list(parts) if isinstance(parts, (list, tuple)) else [parts]
    if len(parts) != mesh.size():
        raise NotImplementedError(
            f"from_local: one process drives all {mesh.size()} devices of the mesh, so it must "
            f"give as many parts (a list, row by row); it gave {len(parts)}"
        )
    ndim = parts[0].ndim
    placements = [Replicate()] * mesh.ndim if placements is None else placements
    layout = mesh.layout(placements, ndim)
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
    """What the device of this process's rank (0) has of it, on no mesh."""
    only("to_local", "grad_placements", grad_placements, None, _GRADIENTS)
    layout = _known(self, "to_local")
    at = mesh_of(self.device.type, layout).get_coordinate()
    if at is None:
        raise RuntimeError("to_local: the device of rank 0 is not in the mesh")
    return _local(self, layout, at)


def _local(t: Any, layout: MeshLayout, at: Sequence[int]) -> Any:
    if layout.is_partial:
        return _term(t, layout, at)
    for p, n, k in zip(layout.placements, layout.mesh.sizes, at, strict=True):
        if isinstance(p, Shard):
            first, last = chunk(t.shape[p.dim], n, k)
            t = t.narrow(p.dim, first, last - first)
    return placed(t, None)


def _term(t: Any, layout: MeshLayout, at: Sequence[int]) -> Any:
    """What a device has of a tensor of terms: read as it is, so no gradient flows."""
    if t.requires_grad:
        raise NotImplementedError(
            "to_local of a Partial tensor that requires grad: redistribute it first"
        )
    number = 0
    for n, k in zip(layout.mesh.sizes, at, strict=True):
        number = number * n + k
    buffer, meta = backends.get(t.device.type).part(t, number)
    return make_tensor(Storage(buffer, meta.numel * meta.dtype.itemsize, t.device), 0, meta)


def local_parts(t: Any) -> list[Any]:
    """What each device of the mesh has of a tensor, in the mesh's order.

    One process drives all devices, so it can look at every part (`to_local` gives the first).
    """
    layout = _known(t, "local_parts")
    found: list[tuple[int, ...]] = [()]
    for n in layout.mesh.sizes:
        found = [(*at, k) for at in found for k in range(n)]
    return [_local(t.detach(), layout, at) for at in found]


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
    made = placed(tensor.detach().to(mesh.device_type), layout)
    return made.requires_grad_(tensor.requires_grad)


def place_in_memory(t: Any, mesh: DeviceMesh, placements: Sequence[Placement]) -> None:
    """Lay a parameter or buffer out where it is: who holds it (an optimizer) goes on holding it."""
    layout = mesh.layout(placements, t.ndim)
    with lu.no_grad():
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
