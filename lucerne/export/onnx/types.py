"""Dtypes and tensors in ONNX's terms."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.tensor import api as lu
from lucerne.export.onnx.errors import NotExpressibleError
from lucerne.export.onnx.packages import onnx_package

CODES = {
    dt.float32: 1, dt.uint8: 2, dt.int8: 3, dt.uint16: 4, dt.int16: 5, dt.int32: 6, dt.int64: 7,
    dt.bool_: 9, dt.float16: 10, dt.float64: 11, dt.uint32: 12, dt.uint64: 13, dt.bfloat16: 16,
}  # fmt: skip
"""`TensorProto.DataType` of each dtype that both sides have."""
DTYPES = {code: dtype for dtype, code in CODES.items()}


def code_of(dtype: dt.dtype) -> int:
    """The number of a dtype in ONNX's files."""
    if dtype not in CODES:
        raise NotExpressibleError(f"ONNX has no {dtype.name} that engines compute with")
    return CODES[dtype]


def proto(array: Any, name: str) -> Any:
    """An array of NumPy as a constant of a file."""
    return onnx_package().numpy_helper.from_array(np.asarray(array, order="C"), name)


def tensor_proto(t: Any, name: str) -> Any:
    """A tensor as a constant of a file, by its bytes."""
    t = t.detach().contiguous()
    made = onnx_package().TensorProto()
    made.name, made.data_type = name, code_of(t.dtype)
    made.dims.extend(int(n) for n in t.shape)
    plain = t.view(lu.int16) if t.dtype is dt.bfloat16 else t
    made.raw_data = plain.numpy().tobytes()
    return made
