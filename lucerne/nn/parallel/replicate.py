"""Copies of a module that share its parameters' history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.nn.parameter import Parameter


def replicate(network: Any, devices: Sequence[Any], detach: bool = False) -> list[Any]:
    """One replica of `network` for each device; gradients flow back to the network itself."""
    return [_replica(network, lu.device(device), detach, {}) for device in devices]


def _replica(module: Any, device: Any, detach: bool, made: dict[int, Any]) -> Any:
    if id(module) in made:
        return made[id(module)]
    copy = made[id(module)] = module._replicate_for_data_parallel()
    for name, p in module._parameters.items():
        moved = None if p is None else (p.detach() if detach else p).to(device)
        if isinstance(moved, Parameter) or moved is None:
            copy._parameters[name] = moved
        else:
            copy.__dict__[name] = moved  # a tensor with a history is no parameter
    for name, b in module._buffers.items():
        copy._buffers[name] = None if b is None else b.to(device)
    for name, child in module._modules.items():
        copy._modules[name] = None if child is None else _replica(child, device, detach, made)
    return copy
