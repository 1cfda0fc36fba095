"""Modules on a mesh: placements of their parameters, and of values where they come in and go out.

What a border asks of a value is a hint to the engine where a function is captured (a constraint of
the program), and moves the value where it is not. Numbers never depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.backends.contract.placement import Placement, Replicate
from lucerne._src.distributed.mesh.device_mesh import DeviceMesh, current_mesh
from lucerne._src.distributed.mesh.dtensor import layout_of, place_in_memory
from lucerne._src.ir.dispatch import call_back
from lucerne._src.ops.copy.place import placed
from lucerne._src.tensor import api as lu

Tensor = lu.Tensor


def at_border(x: Any, mesh: DeviceMesh, placement: Placement | None) -> Any:
    """A value with a placement along a mesh of one dimension; what is none is left alone."""
    if placement is None or not isinstance(x, Tensor):
        return x
    return placed(x.to(mesh.device_type), mesh.layout([placement] * mesh.ndim, x.ndim))


def own_tensors(module: Any) -> list[tuple[str, Any]]:
    """A module's own parameters and buffers, without those of its children."""
    pairs = (*module._parameters.items(), *module._buffers.items())
    return [(name, t) for name, t in pairs if t is not None]


def replicate_the_rest(module: Any, mesh: DeviceMesh) -> None:
    """What nobody has placed is whole on each device."""
    for part in module.modules():
        for _, t in own_tensors(part):
            if t.device.type != mesh.device_type or layout_of(t) is None:
                place_in_memory(t, mesh, [Replicate()] * mesh.ndim)


def distribute_module(
    module: Any,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[[str, Any, DeviceMesh], None] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> Any:
    """A module with its parameters on a mesh: `partition_fn(name, part, mesh)` places those it
    wants (`register_parameter(name, Parameter(distribute_tensor(...)))`), the others are whole on
    each device. `input_fn(module, inputs, mesh)` and `output_fn(module, outputs, mesh)` say what
    comes in and goes out instead."""
    mesh = current_mesh(device_mesh)
    if partition_fn is not None:
        for name, part in module.named_modules():
            partition_fn(name, part, mesh)
    replicate_the_rest(module, mesh)
    if input_fn is not None:
        before = input_fn
        module.register_forward_pre_hook(lambda m, inputs: call_back(before, m, inputs, mesh))
    if output_fn is not None:
        after = output_fn
        module.register_forward_hook(lambda m, inputs, outputs: call_back(after, m, outputs, mesh))
    return module


def each(x: Any, mesh: DeviceMesh, placements: Sequence[Placement | None]) -> Any:
    """Values with a placement each; a single one alone."""
    if not isinstance(x, (tuple, list)):
        [placement] = placements
        return at_border(x, mesh, placement)
    if len(x) != len(placements):
        raise ValueError(f"{len(placements)} layouts for {len(x)} values")
    found = [at_border(v, mesh, p) for v, p in zip(x, placements, strict=True)]
    return type(x)(found) if type(x) in (tuple, list) else tuple(found)
