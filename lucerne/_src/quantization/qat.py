"""Training with rounding: layers that compute as they will after `convert`.

A weight is rounded and taken back at each call by the very functions that `convert` uses. What is
rounded lies between the least and the largest number of its group, so nothing is cut off and the
gradient passes straight through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ops.linalg.quantized import LEAST, MOST_CODE
from lucerne._src.quantization.codes import quantize_weight, rounded_weight
from lucerne._src.quantization.configs import QuantizationConfig
from lucerne._src.quantization.linear import QuantizedLinear
from lucerne._src.tensor.tensor import Tensor
from lucerne.nn import functional as F
from lucerne.nn.modules.linear import Linear
from lucerne.nn.modules.module import Module


class FakeQuantizedLinear(Linear):
    """A linear layer that rounds as `config` says and trains the numbers behind it."""

    def __init__(self, layer: Linear, config: QuantizationConfig) -> None:
        super().__init__(layer.in_features, layer.out_features, bias=False, device="meta")
        self.weight, self.bias, self.config = layer.weight, layer.bias, config
        self.train(layer.training)

    def forward(self, input: Tensor) -> Tensor:
        """The layer on rounded numbers."""
        if self.config.dynamic:
            input = _straight(input, _rounded_rows(input.detach()))
        made = rounded_weight(self.weight, self.config.stored, self.config.groups_of)
        weight = _straight(self.weight, made)
        return F.linear(input, weight, self.bias)


def _straight(x: Any, rounded: Any) -> Any:
    """`rounded`, with the gradient of x."""
    return x + (rounded - x).detach()


def _rounded_rows(x: Any) -> Any:
    most = x.to(dt.float32).abs().amax(-1, keepdim=True).clamp(min=LEAST)
    return ((x * (MOST_CODE / most)).round() * (most / MOST_CODE)).to(x.dtype)


@dataclass(frozen=True)
class QATConfig:
    """`quantize_(model, QATConfig(config, step="prepare"))`, train, then `step="convert"`.

    >>> import lucerne as torch
    >>> from lucerne.quantization import Int8WeightOnlyConfig, QATConfig, quantize_
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4))
    >>> quantize_(model, QATConfig(Int8WeightOnlyConfig(), step="prepare"))
    >>> model(torch.ones(2, 8)).sum().backward()
    >>> quantize_(model, QATConfig(Int8WeightOnlyConfig(), step="convert"))
    >>> type(model[0]).__name__
    'QuantizedLinear'
    """

    base_config: QuantizationConfig
    step: str = "prepare"

    def __post_init__(self) -> None:
        if self.step not in ("prepare", "convert"):
            raise ValueError(f"QATConfig: step is 'prepare' or 'convert', got {self.step!r}")

    def made(self, layer: Linear) -> Module:
        """What takes the place of a layer."""
        if self.step == "prepare":
            return FakeQuantizedLinear(layer, self.base_config)
        config = self.base_config
        weight = quantize_weight(layer.weight, config.stored, config.groups_of)
        made = QuantizedLinear.from_weight(weight, layer.bias, dynamic=config.dynamic)
        return made.train(layer.training)
