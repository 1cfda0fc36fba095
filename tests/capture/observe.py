"""What can be seen after a call, and whether two sides see the same.

An observation is a nest of plain facts: of a tensor its dtype, shape, strides, values, flags and
gradient, and with which other observed tensors it shares memory (or is the same object). A module
is its state, gradients and mode, an optimizer its state dict, an error its type and text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

import lucerne as torch

RTOL, ATOL = 1.3e-6, 1e-5


@dataclasses.dataclass
class Observer:
    """Gives every object and every memory a number the first time it is met."""

    objects: dict[int, int] = dataclasses.field(default_factory=dict)
    memories: dict[int, int] = dataclasses.field(default_factory=dict)
    kept: list[Any] = dataclasses.field(default_factory=list)

    def see(self, x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return self._tensor(x)
        if isinstance(x, torch.nn.Module):
            return self._module(x)
        if isinstance(x, torch.optim.Optimizer):
            return "optimizer", self.see(x.state_dict())
        if isinstance(x, dict):
            return type(x).__name__, {str(k): self.see(v) for k, v in x.items()}
        if isinstance(x, (list, tuple)):
            return type(x).__name__, [self.see(v) for v in x]
        if dataclasses.is_dataclass(x) and not isinstance(x, type):
            return type(x).__name__, {k: self.see(v) for k, v in vars(x).items()}
        if isinstance(x, BaseException):
            return "raised", type(x).__name__, str(x)
        if isinstance(x, (bool, int, float, complex, str, bytes, type(None))):
            return x
        return type(x).__name__

    def _tensor(self, t: Any) -> Any:
        self.kept.append(t)
        memory = t.untyped_storage().data_ptr() if t.numel() else 0
        facts = {
            "dtype": str(t.dtype),
            "shape": tuple(t.shape),
            "stride": tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1),
            "requires_grad": t.requires_grad,
            "is_leaf": t.is_leaf,
            "object": self.objects.setdefault(id(t), len(self.objects)),
            "memory": self.memories.setdefault(memory, len(self.memories)) if t.numel() else None,
            "offset": t.storage_offset() if t.numel() else None,
            "kind": type(t).__name__,
            "value": t.detach().to(torch.float64).numpy().copy()
            if t.is_floating_point()
            else t.detach().numpy().copy(),
        }
        if t.is_leaf:
            facts["grad"] = self.see(t.grad)
        return facts

    def _module(self, m: Any) -> Any:
        plain = {
            k: v
            for k, v in vars(m).items()
            if not k.startswith("_") and isinstance(v, (bool, int, float, str, tuple, list))
        }
        tensors = {k: v for k, v in vars(m).items() if isinstance(v, torch.Tensor)}
        return {
            "attributes": self.see(plain),
            "tensors": self.see(tensors),
            "parameters": self.see(dict(m._parameters)),
            "buffers": self.see(dict(m._buffers)),
            "parts": {k: self.see(v) for k, v in m._modules.items()},
        }


def differences(want: Any, have: Any, at: str = "") -> Iterator[str]:
    """Where two observations differ, in words."""
    if isinstance(want, np.ndarray) and isinstance(have, np.ndarray):
        if want.shape != have.shape or not _close(want, have):
            yield f"{at}: {want.tolist()} got {have.tolist()}"
    elif isinstance(want, dict) and isinstance(have, dict):
        if list(want) != list(have):
            yield f"{at}: {list(want)} got {list(have)}"
        for key in want.keys() & have.keys():
            yield from differences(want[key], have[key], f"{at}.{key}")
    elif isinstance(want, (list, tuple)) and type(want) is type(have):
        if len(want) != len(have):
            yield f"{at}: {len(want)} items got {len(have)}"
        for k, (a, b) in enumerate(zip(want, have, strict=False)):
            yield from differences(a, b, f"{at}[{k}]")
    elif isinstance(want, float) and isinstance(have, float):
        if not np.isclose(want, have, RTOL, ATOL, equal_nan=True):
            yield f"{at}: {want} got {have}"
    elif type(want) is not type(have) or want != have:
        yield f"{at}: {want!r} got {have!r}"


def _close(a: Any, b: Any) -> bool:
    if a.dtype.kind in "fc":
        return bool(np.allclose(a, b, RTOL, ATOL, equal_nan=True))
    return bool(np.array_equal(a, b))
