"""Faults put into torch on purpose: a harness that does not see them proves nothing."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.conformance import tree
from tests.conformance.bridge import Bridge
from tests.conformance.rebind import Function

Twist = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Fault:
    """One kind of mistake, the check that must notice it, and on how many entries at least."""

    metric: str
    check: str
    caught: int  # entries of T0, measured with SAMPLES samples each
    wrap: Callable[[Function], Function]
    inplace: bool = False  # wraps the in-place form instead


class _ScaledGradient(torch.autograd.Function):
    """The identity with a gradient that is 1 % off."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * 1.01


class _FrozenGradient(torch.autograd.Function):
    """The identity whose gradient is right but has no gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g.detach() + 0 * g


def _on_outputs(twist: Twist) -> Callable[[Function], Function]:
    """A fault that changes every output tensor."""

    def change(x: Any) -> Any:
        plain = isinstance(x, torch.Tensor) and x.layout == torch.strided
        return twist(x) if plain else x

    def wrap(function: Function) -> Function:
        def faulty(*args: Any, **kwargs: Any) -> Any:
            return tree.map_leaves(change, function(*args, **kwargs))

        return faulty

    return wrap


def _value(t: torch.Tensor) -> torch.Tensor:
    return t * 1.001 if t.is_floating_point() else t


def _dtype(t: torch.Tensor) -> torch.Tensor:
    return t.double() if t.dtype == torch.float32 else t


def _shape(t: torch.Tensor) -> torch.Tensor:
    return t.unsqueeze(0)


def _stride(t: torch.Tensor) -> torch.Tensor:
    if t.dim() < 2:
        return t
    order = list(range(t.dim()))[::-1]
    return t.permute(order).contiguous().permute(order)


def _hidden_nan(t: torch.Tensor) -> torch.Tensor:
    if not t.is_floating_point() or t.isfinite().all():
        return t
    return t.nan_to_num(0.0, 0.0, 0.0)


def _gradient(t: torch.Tensor) -> torch.Tensor:
    return _ScaledGradient.apply(t) if t.is_floating_point() else t


def _second_gradient(t: torch.Tensor) -> torch.Tensor:
    return _FrozenGradient.apply(t) if t.is_floating_point() else t


def _swallowed_errors(function: Function) -> Function:
    def faulty(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception:
            return torch.zeros(1)

    return faulty


def _wrong_error(function: Function) -> Function:
    def faulty(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception:
            raise NotImplementedError("no such op") from None

    return faulty


def _changed_input(function: Function) -> Function:
    def faulty(x: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(x, *args, **kwargs)
        if isinstance(x, torch.Tensor) and x.is_floating_point() and x.layout == torch.strided:
            with torch.no_grad():
                x.fill_(3.0)
        return result

    return faulty


def _lost_names(function: Function) -> Function:
    def faulty(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return list(result) if isinstance(result, tuple) else result

    return faulty


def _ignored_out(function: Function) -> Function:
    def faulty(*args: Any, out: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return faulty


def _copied_inplace(function: Function) -> Function:
    def faulty(x: Any, *args: Any, **kwargs: Any) -> Any:
        return function(x, *args, **kwargs).clone()

    return faulty


SAMPLES = 4  # per entry: what the measured numbers below are for
TIER = "T0"

FAULTS = {
    "value off by 0.1 %": Fault("M1", "value", 175, _on_outputs(_value)),
    "float64 result": Fault("M1", "dtype", 179, _on_outputs(_dtype)),
    "extra dimension": Fault("M1", "shape", 211, _on_outputs(_shape)),
    "copy instead of view": Fault("M1", "alias", 29, _on_outputs(torch.clone)),
    "hidden nan": Fault("M1", "value", 5, _on_outputs(_hidden_nan)),
    "changed input": Fault("M1", "inputs", 168, _changed_input),
    "list instead of tuple": Fault("M1", "structure", 12, _lost_names),
    "gradient off by 1 %": Fault("M2", "gradient", 147, _on_outputs(_gradient)),
    "second gradient missing": Fault("M8", "gradient", 146, _on_outputs(_second_gradient)),
    "memory order reversed": Fault("M7", "stride", 162, _on_outputs(_stride)),
    "swallowed error": Fault("M6", "raised", 54, _swallowed_errors),
    "wrong kind of error": Fault("M6", "error type", 54, _wrong_error),
    "out= ignored": Fault("M5o", "value", 105, _ignored_out),
    "in-place returns a copy": Fault("M5i", "returns self", 71, _copied_inplace, inplace=True),
}


class FaultyBridge(Bridge):
    """torch as the other side, with one fault in every op."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(torch)
        self.fault = fault

    def resolve(self, entry: Any) -> Function:
        function = super().resolve(entry)
        return function if self.fault.inplace else self.fault.wrap(function)

    def resolve_inplace(self, entry: Any) -> Function:
        function = super().resolve_inplace(entry)
        return self.fault.wrap(function) if self.fault.inplace else function


def faulty_bridge(name: str) -> Callable[[], Bridge]:
    """A maker of bridges, for the runner."""
    return functools.partial(FaultyBridge, FAULTS[name])
