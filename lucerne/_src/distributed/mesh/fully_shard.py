"""Data parallelism in torch's spelling: `fully_shard` cuts parameters over the mesh, `replicate`
leaves them whole; both cut the batch. The engine gathers parameters where they are read, and
reduces gradients to where they are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.contract.placement import Placement, Replicate, Shard
from lucerne._src.base.refusals import only
from lucerne._src.distributed.mesh.device_mesh import DeviceMesh, current_mesh
from lucerne._src.distributed.mesh.dtensor import place_in_memory
from lucerne._src.distributed.mesh.modules import replicate_the_rest
from lucerne._src.ops.copy.place import placed
from lucerne._src.tensor import api as lu

Tensor = lu.Tensor


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Dtypes of parameters, gradients and results; None: as they are."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Parameters stay on the device."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Parameters wait on the host."""

    pin_memory: bool = True


class _State:
    """What `fully_shard` keeps of a module."""

    def __init__(self, mesh: DeviceMesh, params: list[tuple[Any, list[Placement]]]) -> None:
        self.mesh, self.params = mesh, params
        self.hook: Any = None
        """On what comes in: the outermost module's alone."""


_STATES = "_fsdp_state"


class FSDPModule:
    """What a module is besides its own class once it was given to `fully_shard`."""

    def unshard(self, async_op: bool = False) -> None:
        """Its parameters whole on each device, until `reshard`."""
        only("unshard", "async_op", async_op, False, "calls return before they are done anyway")
        state = getattr(self, _STATES)
        for p, placements in state.params:
            place_in_memory(p, state.mesh, [Replicate()] * len(placements))

    def reshard(self) -> None:
        """Its parameters in parts again."""
        state = getattr(self, _STATES)
        for p, placements in state.params:
            place_in_memory(p, state.mesh, placements)


_CLASSES: dict[type, type] = {}


def _fsdp_class(kind: type) -> type:
    if kind not in _CLASSES:
        # (Of the user's module: capture goes into calls of the user's classes, and not into ours.)
        home = {"__module__": kind.__module__}
        _CLASSES[kind] = type(f"FSDP{kind.__name__}", (FSDPModule, kind), home)
    return _CLASSES[kind]


def fully_shard(
    module: Any,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[Any], Placement | None] | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None,
    ignored_params: set[Any] | None = None,
    dp_mesh_dims: Any = None,
) -> Any:
    """A module whose parameters are cut over a mesh (of two dimensions: over the last, and whole
    along the first, which torch calls HSDP). What comes into the outermost such module is cut
    along its first dimension: one process gives the whole batch.

    Apply it to the parts of a model first, as in torch, or to the whole alone: the program is the
    same. Parameters stay the objects they are.
    """
    only("fully_shard", "dp_mesh_dims", dp_mesh_dims, None, "give the part of the mesh as `mesh`")
    _check(reshard_after_forward, mp_policy, offload_policy)
    mesh = current_mesh(mesh)
    if mesh.ndim > 2:
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    if isinstance(module, (list, tuple)):
        for part in module:
            fully_shard(
                part,
                mesh=mesh,
                shard_placement_fn=shard_placement_fn,
                ignored_params=ignored_params,
            )
        return module
    skipped = {id(p) for p in ignored_params or ()}
    for part in module.modules():
        state = part.__dict__.get(_STATES)
        if state is not None:
            skipped |= {id(p) for p, _ in state.params}
            _unhook(state)
    params = []
    for name, p in module.named_parameters():
        if id(p) in skipped:
            continue
        chosen = None if shard_placement_fn is None else shard_placement_fn(p)
        placements = _placements(name, p, chosen or Shard(0), mesh)
        place_in_memory(p, mesh, placements)
        params.append((p, placements))
    replicate_the_rest(module, mesh)
    made = _State(mesh, params)
    made.hook = _cut_batch(module, mesh)
    module.__dict__[_STATES] = made
    module.__class__ = _fsdp_class(type(module))
    return module


def _check(reshard: Any, precision: MixedPrecisionPolicy | None, offload: Any) -> None:
    why = "the engine gathers a parameter where it is read, and keeps no gathered copy"
    if reshard is not None:
        only("fully_shard", "reshard_after_forward", reshard, True, why)
    if precision is not None and precision != MixedPrecisionPolicy():
        raise NotImplementedError(
            f"fully_shard: {precision}: dtypes of a step are `torch.autocast`'s; use that around "
            "the forward pass"
        )
    if type(offload) not in (type(None), OffloadPolicy):
        raise NotImplementedError(f"fully_shard: {offload}: parameters stay on the device")


def _placements(name: str, p: Any, chosen: Placement, mesh: DeviceMesh) -> list[Placement]:
    if not isinstance(chosen, Shard):
        raise ValueError(f"shard_placement_fn: expected a Shard for {name}, got {chosen}")
    if not p.ndim:
        raise ValueError(
            f"fully_shard doesn't support scalar parameters. Change {name} to a 1D tensor with "
            "numel equal to 1."
        )
    return [chosen] if mesh.ndim == 1 else [Replicate(), chosen]


def replicate(
    module: Any, ignored_modules: Any = None, *, device_mesh: DeviceMesh | None = None
) -> Any:
    """A module with whole parameters on each device, and the batch cut over the mesh."""
    why = "every parameter of a module lies on its mesh"
    only("replicate", "ignored_modules", ignored_modules, None, why)
    mesh = current_mesh(device_mesh)
    replicate_the_rest(module, mesh)
    _cut_batch(module, mesh)
    return module


def _cut_batch(module: Any, mesh: DeviceMesh) -> Any:
    def cut(x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.ndim:
            return x
        return placed(x.to(mesh.device_type), mesh.layout([Shard(0)] * mesh.ndim, x.ndim))

    def before(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return tuple(cut(x) for x in args), {k: cut(x) for k, x in kwargs.items()}

    return module.register_forward_pre_hook(before, with_kwargs=True)


def _unhook(state: _State) -> None:
    if state.hook is not None:
        state.hook.remove()
        state.hook = None
