"""The dtype methods: `x.float()`, `x.long()` and so on, each a `to` with one argument."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.ir.define import front
from lucerne._src.ir.op import Tensor

_METHODS = {
    "float": dt.float32, "double": dt.float64, "half": dt.float16, "bfloat16": dt.bfloat16,
    "long": dt.int64, "int": dt.int32, "short": dt.int16, "char": dt.int8, "byte": dt.uint8,
    "bool": dt.bool_, "cfloat": dt.complex64, "cdouble": dt.complex128, "chalf": dt.complex32,
}  # fmt: skip


def _converter(name: str, dtype: dt.dtype) -> None:
    def method(input: Tensor, memory_format: Any = lo.preserve_format) -> Tensor:
        return input.to(dtype, memory_format=memory_format)

    method.__name__ = name
    method.__doc__ = f"The values as {dtype.name}; the tensor itself when they are already."
    front(name=name, namespace="Tensor", method=True, torch="to")(method)


for _name, _dtype in _METHODS.items():
    _converter(_name, _dtype)


@front(namespace="Tensor", method=True, torch="to")
def type_as(input: Tensor, other: Tensor) -> Tensor:
    """The values in the dtype and on the device of `other`."""
    return input.to(other.device, other.dtype)
