"""Modules without initial values."""

from __future__ import annotations

import inspect
from typing import Any

from lucerne.nn.modules.module import Module


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Make a module whose parameters have no initial values: for weights that are loaded anyway.

    >>> import lucerne as torch
    >>> torch.nn.utils.skip_init(torch.nn.Linear, 3, 4)
    Linear(in_features=3, out_features=4, bias=True)
    """
    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    final_device = kwargs.pop("device", "cpu")
    kwargs["device"] = "meta"
    return module_cls(*args, **kwargs).to_empty(device=final_device)
