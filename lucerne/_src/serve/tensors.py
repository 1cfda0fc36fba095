"""Tensors of the protocol: in JSON, or as bytes behind it (`binary_tensor_data`)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucerne._src.serve.http import HTTPError, parsed

Array = np.ndarray[Any, Any]
KINDS: dict[str, Any] = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32,
    "UINT64": np.uint64, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32,
    "INT64": np.int64, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64,
}  # fmt: skip
KIND_OF = {np.dtype(kind): name for name, kind in KINDS.items()}
_MOST_DIMS = 16
LENGTH_HEADER = "inference-header-content-length"


@dataclass
class InferRequest:
    """What a client asks."""

    inputs: dict[str, Array]
    id: str | None
    outputs: list[str] | None
    """Which results; None: all."""
    binary: bool
    """Whether results go back as bytes."""


def read_request(body: bytes, head_length: str | None) -> InferRequest:
    """A body as arrays; an `HTTPError` says what is wrong with it."""
    at = len(body)
    if head_length is not None:
        if not head_length.isdigit() or int(head_length) > len(body):
            raise HTTPError(400, f"{LENGTH_HEADER}: {head_length[:20]!r} is no length in this body")
        at = int(head_length)
    head = parsed(body[:at])
    if not isinstance(head, dict) or not isinstance(head.get("inputs"), list):
        raise HTTPError(400, 'expected an object with "inputs", a list of tensors')
    inputs: dict[str, Array] = {}
    for given in head["inputs"]:
        name = _named(given)
        if name in inputs:
            raise HTTPError(400, f"input {name!r} is given twice")
        inputs[name], at = _tensor(name, given, body, at)
    if at != len(body):
        raise HTTPError(400, f"{len(body) - at} bytes of the body belong to no input")
    id = head.get("id")
    outputs = head.get("outputs")
    if outputs is not None and not isinstance(outputs, list):
        raise HTTPError(400, '"outputs" is a list')
    return InferRequest(
        inputs,
        id if isinstance(id, str) else None,
        None if outputs is None else [_named(o) for o in outputs],
        _wants_bytes(head, outputs),
    )


def _named(given: Any) -> str:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise HTTPError(400, 'a tensor is an object with a "name"')
    name: str = given["name"]
    return name


def _wants_bytes(head: Mapping[str, Any], outputs: Any) -> bool:
    found = _parameters(head).get("binary_data_output", False)
    return bool(found) or any(_parameters(o).get("binary_data") for o in outputs or ())


def _parameters(given: Mapping[str, Any]) -> Mapping[str, Any]:
    found = given.get("parameters", {})
    if not isinstance(found, dict):
        raise HTTPError(400, '"parameters" is an object')
    return found


def _tensor(name: str, given: Mapping[str, Any], body: bytes, at: int) -> tuple[Array, int]:
    """One input, and where the bytes of the next begin."""
    kind, shape = given.get("datatype"), given.get("shape")
    if not isinstance(kind, str) or kind not in KINDS:
        raise HTTPError(400, f"input {name!r}: datatype {kind!r}; served are {', '.join(KINDS)}")
    if (
        not isinstance(shape, list)
        or len(shape) > _MOST_DIMS
        or not all(type(n) is int and 0 <= n < 1 << 40 for n in shape)
    ):
        raise HTTPError(400, f"input {name!r}: its shape is a list of at most {_MOST_DIMS} sizes")
    dtype, count = np.dtype(KINDS[kind]), math.prod(shape)
    size = _parameters(given).get("binary_data_size")
    if size is not None:
        if size != count * dtype.itemsize or at + size > len(body) or "data" in given:
            raise HTTPError(400, f"input {name!r}: {shape} of {kind} is not {size!r} bytes")
        made = np.frombuffer(body, dtype.newbyteorder("<"), count, at).astype(dtype)
        return made.reshape(shape), at + size
    return _from_list(name, given.get("data"), kind, shape, count), at


def _from_list(name: str, data: Any, kind: str, shape: list[int], count: int) -> Array:
    dtype = np.dtype(KINDS[kind])
    try:
        plain = np.asarray(data)
        # Numbers that would be cut or wrapped are refused, not changed.
        fits = plain.dtype.kind in {"b": "b", "i": "iu", "u": "iu", "f": "fiu"}[dtype.kind]
        if plain.size != count or not (fits or count == 0):
            raise ValueError
        whole = dtype.kind in "iu" and count
        if whole and not (
            np.iinfo(dtype).min <= int(plain.min()) and int(plain.max()) <= np.iinfo(dtype).max
        ):
            raise ValueError
        with np.errstate(over="ignore"):
            return plain.astype(dtype).reshape(shape)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise HTTPError(400, f"input {name!r}: its data are not {shape} of {kind}") from None


def written(
    model: str, version: str, request: InferRequest, outputs: Sequence[tuple[str, Array]]
) -> tuple[bytes, dict[str, str]]:
    """The body of an answer, and its headers."""
    wanted = request.outputs
    if wanted is not None:
        known = dict(outputs)
        missing = [name for name in wanted if name not in known]
        if missing:
            raise HTTPError(400, f"no output {missing[0]!r}; there are {', '.join(known)}")
        outputs = [(name, known[name]) for name in wanted]
    told, behind = [], []
    for name, a in outputs:
        each: dict[str, Any] = {"name": name, "datatype": KIND_OF[a.dtype], "shape": list(a.shape)}
        if request.binary:
            raw = np.ascontiguousarray(a).astype(a.dtype.newbyteorder("<")).tobytes()
            each["parameters"] = {"binary_data_size": len(raw)}
            behind.append(raw)
        else:
            each["data"] = a.reshape(-1).tolist()
        told.append(each)
    answer: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": told}
    if request.id is not None:
        answer["id"] = request.id
    head = json.dumps(answer).encode()
    if not request.binary:
        return head, {"content-type": "application/json"}
    kind = {"content-type": "application/octet-stream", LENGTH_HEADER: str(len(head))}
    return head + b"".join(behind), kind
