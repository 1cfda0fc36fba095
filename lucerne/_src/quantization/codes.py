"""Weights as codes: rounding to the nearest, by groups of columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ops.linalg.quantized import (
    FLOAT8,
    INT4,
    INT8,
    MIDDLE,
    arranged,
    arranged_scales,
    dequantized,
    numbers_of,
)
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.tensor import Tensor

_TINY = 1e-30
_LARGEST_FLOAT8 = 448.0


@dataclass
class QuantizedWeight:
    """A matrix (rows, columns) in codes; the op `quantized_linear` multiplies with it.

    >>> import lucerne as torch
    >>> from lucerne.quantization import quantize_weight
    >>> w = quantize_weight(torch.tensor([[1.0, -0.5, 0.25, 0.0]]), "int8")
    >>> w.dequantize()
    tensor([[ 1.0000, -0.5039,  0.2520,  0.0000]])
    """

    codes: Tensor
    scale: Tensor
    base: Tensor | None
    rows: int
    columns: int
    group_size: int
    stored: str
    order: Tensor | None = None
    """Which column of the input each column of the codes meets; None: the same one."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.columns

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        parts = (self.codes, self.scale, self.base, self.order)
        return sum(int(t.nbytes) for t in parts if t is not None)

    def dequantize(self) -> Tensor:
        """The matrix as float32, columns in the order of the input."""
        made = dequantized(
            self.codes, self.scale, self.base, self.rows, self.columns, self.group_size,
            self.stored,
        )  # fmt: skip
        if self.order is None:
            return made
        whole = lu.empty_like(made)
        whole[:, self.order] = made
        return whole


def quantize_weight(weight: Tensor, stored: str, group_size: int | None = None) -> QuantizedWeight:
    """A weight (rows, columns) rounded to codes: "int8", "int4" or "float8_e4m3fn".

    8 bits are symmetric; 4 bits go from the smallest to the largest number of each group of
    `group_size` columns (None: of a row).
    """
    wide = _grouped(weight.detach(), group_size)
    if not bool(wide.isfinite().all()):
        raise ValueError("quantize_weight: the weight has numbers that are not finite")
    codes, scale, base = _ROUND[stored](wide)
    rows, columns = weight.shape
    return QuantizedWeight(
        codes=arranged(codes.reshape(rows, columns), stored),
        scale=arranged_scales(scale),
        base=None if base is None else arranged_scales(base),
        rows=rows,
        columns=columns,
        group_size=wide.shape[2],
        stored=stored,
    )


def rounded_weight(weight: Tensor, stored: str, group_size: int | None = None) -> Tensor:
    """A weight of the numbers that its codes stand for, bit for bit: without codes to keep."""
    wide = _grouped(weight.detach(), group_size)
    codes, scale, base = _ROUND[stored](wide)
    numbers = numbers_of(codes, stored) * scale.unsqueeze(2)
    if base is not None:
        numbers = numbers + base.unsqueeze(2)
    return numbers.reshape(weight.shape).to(weight.dtype)


def _grouped(weight: Tensor, group_size: int | None) -> Tensor:
    """A matrix as (rows, groups, columns of a group)."""
    if weight.ndim != 2:
        raise ValueError(f"quantize_weight: expected a matrix, got {list(weight.shape)}")
    rows, columns = weight.shape
    group = columns if group_size is None else group_size
    if group <= 0 or columns % group:
        raise ValueError(
            f"quantize_weight: groups of {group} do not divide the {columns} columns of the weight"
        )
    return weight.to(dt.float32).reshape(rows, columns // group, group)


Rounded = tuple[Tensor, Tensor, Tensor | None]


def _int8(wide: Tensor) -> Rounded:
    scale = (wide.abs().amax(2) / 127).clamp(min=_TINY)
    codes = (wide / scale.unsqueeze(2)).round().clamp(-127, 127) + MIDDLE[INT8]
    return codes.to(dt.uint8), scale, None


def _int4(wide: Tensor) -> Rounded:
    low = wide.amin(2)
    scale = ((wide.amax(2) - low) / 15).clamp(min=_TINY)
    codes = ((wide - low.unsqueeze(2)) / scale.unsqueeze(2)).round().clamp(0, 15)
    return codes.to(dt.uint8), scale, low + MIDDLE[INT4] * scale


def _float8(wide: Tensor) -> Rounded:
    scale = (wide.abs().amax(2) / _LARGEST_FLOAT8).clamp(min=_TINY)
    limited = (wide / scale.unsqueeze(2)).clamp(-_LARGEST_FLOAT8, _LARGEST_FLOAT8)
    return limited.to(dt.float8_e4m3fn).view(dt.uint8), scale, None


_ROUND: dict[str, Any] = {INT8: _int8, INT4: _int4, FLOAT8: _float8}
