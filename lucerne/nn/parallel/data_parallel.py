"""DataParallel: a batch split over the GPUs of one process. Without GPUs it is the module."""

from __future__ import annotations

from typing import Any

from lucerne.nn.modules.module import Module
from lucerne.nn.parallel.parallel_apply import parallel_apply
from lucerne.nn.parallel.replicate import replicate
from lucerne.nn.parallel.scatter_gather import gather, scatter_kwargs


class DataParallel(Module):
    """Calls `module`, as it does in PyTorch on a machine without GPUs.

    >>> import lucerne as torch
    >>> net = torch.nn.DataParallel(torch.nn.Linear(2, 1))
    >>> net(torch.ones(4, 2)).shape, list(net.state_dict())
    (torch.Size([4, 1]), ['module.weight', 'module.bias'])
    """

    def __init__(
        self, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.module = module
        self.device_ids: list[Any] = []
        self.output_device = output_device
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Any,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Run a module on a batch split over devices, and put the results together."""
    given = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    if not device_ids or len(device_ids) == 1:
        return module(*given, **(module_kwargs or {}))
    args, named = scatter_kwargs(given, module_kwargs, device_ids, dim)
    if not args:
        args, named = ((),), ({},)
    used = device_ids[: len(args)]
    outputs = parallel_apply(replicate(module, used), args, named, used)
    return gather(outputs, device_ids[0] if output_device is None else output_device, dim)
