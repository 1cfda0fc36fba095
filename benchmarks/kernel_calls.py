"""Kernels alone, at sizes where the work is all there is. Each entry makes one call, warm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Call = Callable[[], Any]
Maker = Callable[[Any], Call]

_POINTWISE = ("exp", "log", "erfinv", "logit", "sigmoid", "tanh", "softmax", "log_softmax")
_TWO = ("add", "mul", "logaddexp", "logaddexp2", "atan2")
_REDUCED = ("sum", "mean", "std", "var", "norm", "logsumexp", "amax")
_SHAPES = (((4096, 64), 1), ((1000, 8), 1), ((256, 4096), 1), ((1000, 8), 0), ((8, 100_000), 0))


def _unit(torch: Any, *shape: int) -> Any:
    """Numbers between 0 and 1: every function here has a value there."""
    torch.manual_seed(0)
    return torch.rand(*shape) * 0.9 + 0.05


def _pointwise(name: str) -> Maker:
    def make(torch: Any) -> Call:
        x = _unit(torch, 64, 1024)
        function = getattr(torch, name)
        return (lambda: function(x, -1)) if name.endswith("softmax") else lambda: function(x)

    return make


def _two(name: str) -> Maker:
    def make(torch: Any) -> Call:
        x, y = _unit(torch, 65_536), _unit(torch, 65_536).flip(0)
        return lambda: getattr(torch, name)(x, y)

    return make


def _reduced(name: str, shape: tuple[int, int], dim: int) -> Maker:
    def make(torch: Any) -> Call:
        x = _unit(torch, *shape)
        return lambda: getattr(torch, name)(x, dim=dim)

    return make


CALLS: dict[str, Maker] = {
    **{f"kernel {name}": _pointwise(name) for name in _POINTWISE},
    **{f"kernel {name}": _two(name) for name in _TWO},
    **{
        f"kernel {name} {shape}, {dim}".replace(", ", ",").replace(",100000", ",1e5"): _reduced(
            name, shape, dim
        )
        for name in _REDUCED
        for shape, dim in _SHAPES
    },
}
