"""The module that takes the place of `nn.Linear`."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ops.linalg.quantized import (
    COLUMNS,
    INT4,
    PANEL,
    panels_of,
    quantized_linear,
    steps_of,
)
from lucerne._src.quantization.codes import QuantizedWeight
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.tensor import Tensor
from lucerne.nn.modules.module import Module


class QuantizedLinear(Module):
    """`input @ weight.T + bias` with a weight in codes; `dynamic`: rows of the input in 8 bits too.

    Made empty it takes a state dict; `from_weight` makes it of a `QuantizedWeight`.

    >>> import lucerne as torch
    >>> from lucerne.quantization import QuantizedLinear, quantize_weight
    >>> w = quantize_weight(torch.eye(4), "int8")
    >>> QuantizedLinear.from_weight(w)(torch.ones(1, 4))
    tensor([[1., 1., 1., 1.]])
    """

    codes: Tensor
    scale: Tensor
    base: Tensor | None
    bias: Tensor | None
    order: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        stored: str = "int8",
        group_size: int | None = None,
        dynamic: bool = False,
        has_base: bool | None = None,
        has_order: bool = False,
    ) -> None:
        super().__init__()
        if stored not in COLUMNS:
            raise ValueError(f"QuantizedLinear: stored is one of {list(COLUMNS)}, got {stored!r}")
        self.in_features, self.out_features = in_features, out_features
        self.group_size = in_features if group_size is None else group_size
        if self.group_size <= 0 or in_features % self.group_size:
            raise ValueError(
                f"QuantizedLinear: groups of {self.group_size} do not divide {in_features} columns"
            )
        self.stored, self.dynamic = stored, dynamic
        panels = panels_of(out_features)
        shape = (panels, steps_of(in_features, stored), PANEL, 4)
        scales = (panels, in_features // self.group_size, PANEL)
        self.register_buffer("codes", lu.zeros(shape, dtype=dt.uint8))
        self.register_buffer("scale", lu.zeros(scales))
        with_base = stored == INT4 if has_base is None else has_base
        self.register_buffer("base", lu.zeros(scales) if with_base else None)
        self.register_buffer("bias", lu.zeros(out_features) if bias else None)
        self.register_buffer("order", lu.arange(in_features) if has_order else None)

    @classmethod
    def from_weight(
        cls, weight: QuantizedWeight, bias: Tensor | None = None, *, dynamic: bool = False
    ) -> QuantizedLinear:
        """A layer with this weight."""
        rows, columns = weight.shape
        made = cls(
            columns, rows, bias is not None, stored=weight.stored, group_size=weight.group_size,
            dynamic=dynamic, has_base=weight.base is not None, has_order=weight.order is not None,
        )  # fmt: skip
        made.codes, made.scale, made.base = weight.codes, weight.scale, weight.base
        made.order = weight.order
        if bias is not None:
            made.bias = bias.detach().to(dt.float32).clone()
        return made

    @property
    def weight(self) -> QuantizedWeight:
        """The parts of the weight together."""
        return QuantizedWeight(
            self.codes, self.scale, self.base, self.out_features, self.in_features,
            self.group_size, self.stored, self.order,
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        """The layer applied to rows of `in_features` numbers."""
        if self.order is not None:
            input = input.index_select(-1, self.order)
        made: Tensor = quantized_linear(
            input, self.codes, self.scale, self.base, self.bias, self.out_features,
            self.group_size, self.stored, self.dynamic,
        )  # fmt: skip
        return made

    def extra_repr(self) -> str:
        """What the layer is."""
        rows = ", rows in 8 bits" if self.dynamic else ""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, {self.stored}, groups of {self.group_size}{rows}"
        )

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Scales stay float32 whatever the model is cast to: codes are worth nothing without."""
        scales = {k: self._buffers[k] for k in ("scale", "base", "bias")}
        super()._apply(fn, recurse)
        for name, before in scales.items():
            now = self._buffers[name]
            if before is not None and now is not None and now.dtype is not dt.float32:
                self._buffers[name] = before.to(now.device)
        return self
