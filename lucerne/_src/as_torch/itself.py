"""What torch says of itself."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from lucerne._src.tensor import api as lu
from lucerne._src.tensor.tensor import Tensor
from lucerne.overrides import TorchFunctionMode

torch = sys.modules["lucerne"]
"""`torch.torch`: some libraries say it twice."""
_TensorMeta = type(Tensor)


def get_cpu_capability() -> str:
    """The vector instructions that kernels may use, by torch's names."""
    core: Any = np._core  # type: ignore[attr-defined]
    features = core._multiarray_umath.__cpu_features__
    if features.get("AVX512F"):
        return "AVX512"
    return "AVX2" if features.get("AVX2") else "DEFAULT"


def _default_schedule_fn(_: int) -> Any:
    """The profiler's schedule when none is given: it records always."""
    return torch.profiler.ProfilerAction.RECORD


class DeviceContext(TorchFunctionMode):
    """`with torch.device(...)`, as a mode."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self.device = lu.device(device)

    def __enter__(self) -> Any:
        self.device.__enter__()
        return super().__enter__()

    def __exit__(self, *exc: Any) -> Any:
        super().__exit__(*exc)
        return self.device.__exit__(*exc)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))
