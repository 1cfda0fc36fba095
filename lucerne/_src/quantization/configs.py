"""What to do to a layer, in torchao's spelling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from lucerne._src.base import dtype as dt
from lucerne._src.ops.linalg.quantized import FLOAT8, INT4, INT8


@dataclass(frozen=True)
class QuantizationConfig:
    """How a weight is stored. Use one of its kinds."""

    stored: ClassVar[str]
    """The kind of codes."""
    dynamic: ClassVar[bool] = False
    """Whether rows of the input are rounded to 8 bits."""

    @property
    def groups_of(self) -> int | None:
        """Columns that share a scale; None: all of a row."""
        return None


@dataclass(frozen=True)
class Int8WeightOnlyConfig(QuantizationConfig):
    """Weights in 8 bits, a scale for each row (or each `group_size` columns of it).

    >>> from lucerne.quantization import Int8WeightOnlyConfig
    >>> Int8WeightOnlyConfig().stored
    'int8'
    """

    group_size: int | None = None
    stored: ClassVar[str] = INT8

    @property
    def groups_of(self) -> int | None:
        return self.group_size


@dataclass(frozen=True)
class Int4WeightOnlyConfig(QuantizationConfig):
    """Weights in 4 bits, a scale and a least number for each `group_size` columns."""

    group_size: int = 128
    stored: ClassVar[str] = INT4

    @property
    def groups_of(self) -> int | None:
        return self.group_size


@dataclass(frozen=True)
class Int8DynamicActivationInt8WeightConfig(QuantizationConfig):
    """Weights in 8 bits and rows of the input too, each with a scale found at the call."""

    stored: ClassVar[str] = INT8
    dynamic: ClassVar[bool] = True


@dataclass(frozen=True)
class Int8DynamicActivationInt4WeightConfig(QuantizationConfig):
    """Weights in 4 bits by groups, rows of the input in 8."""

    group_size: int = 32
    stored: ClassVar[str] = INT4
    dynamic: ClassVar[bool] = True

    @property
    def groups_of(self) -> int | None:
        return self.group_size


@dataclass(frozen=True)
class Float8WeightOnlyConfig(QuantizationConfig):
    """Weights as float8 with a scale for each row."""

    weight_dtype: Any = dt.float8_e4m3fn
    stored: ClassVar[str] = FLOAT8

    def __post_init__(self) -> None:
        if self.weight_dtype is not dt.float8_e4m3fn:
            raise ValueError(
                f"Float8WeightOnlyConfig: weights are float8_e4m3fn here, not {self.weight_dtype}"
            )
