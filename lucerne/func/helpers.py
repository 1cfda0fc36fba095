"""Small helpers of `lucerne.func`: batch norm without state, and a look behind a transform."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor.layers.layer import level_of
from lucerne.nn.modules.batchnorm import _BatchNorm
from lucerne.nn.modules.module import Module


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Make every batch norm of a module use the statistics of its batch only, and keep none.

    Running statistics are written in place, which `vmap` can't do to a tensor it does not map.

    >>> import lucerne as torch
    >>> net = torch.nn.Sequential(torch.nn.BatchNorm1d(3))
    >>> torch.func.replace_all_batch_norm_modules_(net)[0].running_mean is None
    True
    """
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def debug_unwrap(tensor: Any, *, recurse: bool = True) -> Any:
    """What a tensor inside `vmap` stands for, to look at it in a debugger; others are returned.

    >>> import lucerne as torch
    >>> shapes = []
    >>> def look(x):
    ...     shapes.append((x.shape, torch.func.debug_unwrap(x).shape))
    ...     return x
    >>> _ = torch.vmap(look)(torch.zeros(2, 3))
    >>> shapes
    [(torch.Size([3]), torch.Size([2, 3]))]
    """
    level = level_of(tensor)
    while level is not None:
        payload = level.payload_of(tensor)
        tensor = getattr(payload, "value", payload)
        level = level_of(tensor) if recurse else None
    return tensor
