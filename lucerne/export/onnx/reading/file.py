"""Bytes of an ONNX file to arrays: nothing is believed before it is measured.

A file names sizes, offsets and other files. Sizes must be those of the bytes that are there,
offsets must lie inside their file, and the files must lie in the folder of the model.
"""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.tensor import api as lu
from lucerne.export.onnx.errors import OnnxImportError
from lucerne.export.onnx.packages import onnx_package
from lucerne.export.onnx.types import DTYPES

_LARGEST = 2**48
_MOST_DIMS = 64
_MOST_DEPTH = 32
_TYPED = {1: "float_data", 10: "int32_data", 16: "int32_data", 11: "double_data", 7: "int64_data",
          12: "uint64_data", 13: "uint64_data"}  # fmt: skip
"""Where a constant has its elements if not as bytes; the others: `int32_data`."""


class Source:
    """Where a model came from: the folder that its other files lie in, if any."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._checked: dict[tuple[str, str], None] = {}

    def external(self, t: Any, nbytes: int) -> bytes:
        """The bytes of a constant that is in a file of its own."""
        told = {e.key: e.value for e in t.external_data}
        where = f"the constant {t.name!r}"
        name = told.get("location", "")
        if self.folder is None:
            raise OnnxImportError(f"{where} is in the file {name!r}: load the model by its path")
        path = self._inside(name, where)
        offset, length = _number(told, "offset", 0, where), _number(told, "length", nbytes, where)
        size = path.stat().st_size
        if length != nbytes or offset + length > size:
            raise OnnxImportError(
                f"{where} needs {nbytes} bytes at {offset} of {name!r}, which has {size} bytes "
                f"({length} are told)"
            )
        if "checksum" in told:
            self._verify(path, told["checksum"], where)
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read(length)
        if len(data) != length:
            raise OnnxImportError(f"{where}: {name!r} ends too early")
        return data

    def _inside(self, name: str, where: str) -> Path:
        assert self.folder is not None
        plain = name and "\0" not in name and not os.path.isabs(name) and ":" not in name
        path = self.folder / name
        root = self.folder.resolve()
        if not plain or ".." in Path(name).parts or not path.resolve().is_relative_to(root):
            raise OnnxImportError(f"{where} is in {name!r}, outside of the model's folder")
        if not path.is_file():
            raise OnnxImportError(f"{where} is in {name!r}, and there is no such file")
        return path

    def _verify(self, path: Path, told: str, where: str) -> None:
        key = (str(path), told)
        if key in self._checked:
            return
        digest = hashlib.sha1(usedforsecurity=False)
        with open(path, "rb") as file:
            while piece := file.read(1 << 24):
                digest.update(piece)
        if digest.hexdigest() != told.lower():
            raise OnnxImportError(f"{where}: {path.name!r} is damaged: its checksum is another")
        self._checked[key] = None


def _number(told: dict[str, str], key: str, usual: int, where: str) -> int:
    text = told.get(key)
    if text is None:
        return usual
    if not text.isdigit() or len(text) > 18:
        raise OnnxImportError(f"{where}: {key} is {text[:40]!r}")
    return int(text)


def parsed(data: bytes) -> Any:
    """The model that bytes hold."""
    onnx = onnx_package()
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:
        raise OnnxImportError(f"this is no ONNX file, or a damaged one: {error}") from error
    if not model.HasField("graph"):
        raise OnnxImportError("this is no ONNX file: it has no graph")
    return model


def read(source: Any) -> tuple[Any, Source]:
    """The model of a path, of bytes, of an open file, or one that was parsed already."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return parsed(bytes(source)), Source(None)
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        return parsed(path.read_bytes()), Source(path.parent)
    if hasattr(source, "read"):
        return parsed(source.read()), Source(None)
    if hasattr(source, "graph"):
        return source, Source(None)
    raise TypeError(f"onnx.load: a path, bytes, a file or a model, not {type(source).__name__}")


def array_of(t: Any, source: Source) -> Any:
    """The elements of a constant as an array."""
    where = f"the constant {t.name!r}"
    dims = tuple(t.dims)
    if len(dims) > _MOST_DIMS or any(n < 0 for n in dims) or math.prod(dims) > _LARGEST:
        raise OnnxImportError(f"{where} has the shape {dims}")
    if t.HasField("segment"):
        raise OnnxImportError(f"{where} is in segments, which ONNX has given up")
    if t.data_type == 8:
        return np.array([s.decode("utf-8", "replace") for s in t.string_data], object).reshape(
            _fitting(dims, len(t.string_data), where)
        )
    dtype = DTYPES.get(t.data_type)
    if dtype is None:
        return _narrow(t, dims, where, source)
    storage = np.dtype(np.uint16 if dtype is dt.bfloat16 else dtype.storage).newbyteorder("<")
    count = math.prod(dims)
    if t.data_location == 1:
        data = source.external(t, count * storage.itemsize)
    elif t.HasField("raw_data"):
        data = t.raw_data
    else:
        return _from_lists(t, dims, dtype, where)
    if len(data) != count * storage.itemsize:
        raise OnnxImportError(
            f"{where} of {dtype.name} {dims} needs {count * storage.itemsize} bytes, "
            f"{len(data)} are there"
        )
    made = np.frombuffer(data, storage).reshape(dims).astype(storage.newbyteorder("="))
    return made.view(_bfloat16()) if dtype is dt.bfloat16 else made


def _bfloat16() -> Any:
    """NumPy's type for it, which comes with the package onnx."""
    return onnx_package().helper.tensor_dtype_to_np_dtype(16)


def _fitting(dims: tuple[int, ...], count: int, where: str) -> tuple[int, ...]:
    if math.prod(dims) != count:
        raise OnnxImportError(f"{where} of shape {dims} has {count} elements")
    return dims


def _from_lists(t: Any, dims: tuple[int, ...], dtype: dt.dtype, where: str) -> Any:
    given = list(getattr(t, _TYPED.get(t.data_type, "int32_data")))
    dims = _fitting(dims, len(given), where)
    if dtype in (dt.float16, dt.bfloat16):
        bits = np.array(given, np.int64).astype(np.uint16)
        return bits.view(_bfloat16() if dtype is dt.bfloat16 else np.float16).reshape(dims)
    storage = np.bool_ if dtype is dt.bool_ else dtype.storage
    return (
        np.array(given, storage if dtype.category != dt.BOOL else np.int64)
        .astype(storage)
        .reshape(dims)
    )


def _narrow(t: Any, dims: tuple[int, ...], where: str, source: Source) -> Any:
    """Types of few bits, by ONNX's own reader (external ones and complex ones are refused)."""
    if t.data_location == 1 or t.data_type in (0, 14, 15):
        raise OnnxImportError(f"{where} has a type that is not read here ({t.data_type})")
    bits = {17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2}.get(t.data_type)
    need = None if bits is None else -(-math.prod(dims) * bits // 8)
    if need is None or (t.HasField("raw_data") and len(t.raw_data) != need):
        raise OnnxImportError(f"{where} has a type or a length that is not read here")
    try:
        return onnx_package().numpy_helper.to_array(t)
    except Exception as error:
        raise OnnxImportError(f"{where} is damaged: {error}") from error


def as_tensor(array: Any) -> Any:
    """An array as a tensor; types of few bits in the narrowest one that holds them."""
    array = np.asarray(array)
    if array.dtype.name == "bfloat16":
        bits = np.ascontiguousarray(array).view(np.int16).reshape(array.shape)
        return lu.tensor(bits).view(lu.bfloat16)
    if array.dtype == object:
        if array.size and isinstance(array.reshape(-1)[0], str):
            raise OnnxImportError("text is no tensor here")
        kind = lu.float64 if any(isinstance(x, float) for x in array.reshape(-1)) else lu.int64
        flat = [*array.reshape(-1)]
        return lu.stack([lu.scalar_tensor(x, dtype=kind) for x in flat]).reshape(array.shape)
    name = array.dtype.name
    if name.startswith("float8"):
        kind8 = getattr(lu, name, None)
        if kind8 is None:
            raise OnnxImportError(f"{name} is not read here")
        return lu.tensor(np.ascontiguousarray(array).view(np.uint8)).view(kind8)
    if array.dtype.kind == "V" or name.startswith(("int4", "uint4", "int2", "uint2", "float4")):
        array = array.astype(np.float32 if name.startswith("float") else np.int8)
    return lu.tensor(np.ascontiguousarray(array).reshape(array.shape))


def check_depth(graph: Any, depth: int = 0) -> None:
    """Graphs inside graphs inside graphs: so many, no more."""
    if depth > _MOST_DEPTH:
        raise OnnxImportError("graphs are inside each other without end")
    for node in graph.node:
        for a in node.attribute:
            if a.HasField("g"):
                check_depth(a.g, depth + 1)
