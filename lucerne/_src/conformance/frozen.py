"""Frozen cases: calls from torch's op database with torch's answers, in two files under `data/`.

`cases.json` is a list: a head (format, torch version, size and hash of the arrays) and one object
per call. Its arguments are plain JSON, with one-key objects for what JSON lacks
({"dtype": "int64"}) and places in the array file for tensors. `arrays.npz` holds one array of
bytes. Nothing here is pickled, and a call may only name a public function of the package: reading a
foreign file runs no foreign code.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device as Device
from lucerne._src.base.layout import memory_format_by_name
from lucerne._src.base.tree import tree_map
from lucerne._src.conformance.cases import TIERS, Case, leaves
from lucerne._src.tensor.autograd.api import grad
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.interop.construct import tensor

FORMAT = 1
"""Of the two files; raised when their meaning changes."""
NAMESPACES = frozenset(
    ("", "Tensor", "nn.functional", "linalg", "fft", "special", "masked", "signal.windows")
)
"""Where a frozen call may point."""
Array = np.ndarray[Any, Any]


class DataError(ValueError):
    """The frozen files are missing, damaged or not ours."""


def frozen_cases(
    module: Any, folder: Path | None = None, given: Callable[[Any], Any] | None = None
) -> Iterator[Case]:
    """Calls that torch answered once, replayed on `module` (the top package). `given` is what a
    call takes in place of each of its arguments, and of the elements of those that are lists."""
    if folder is None:
        with resources.as_file(resources.files("lucerne._src.conformance") / "data") as found:
            calls, blob = _read_calls(found / "cases.json"), _read_blob(found / "arrays.npz")
    else:
        calls, blob = _read_calls(folder / "cases.json"), _read_blob(folder / "arrays.npz")
    _check_head(calls[0], blob)
    for n, call in enumerate(calls[1:], 1):
        try:
            yield from _cases(module, call, blob, given or _as_it_is)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"conformance data: case {n} in cases.json is malformed: {error}"
            ) from error


# ---- reading, without trust --------------------------------------------------------------------


def _read_calls(path: Path) -> list[dict[str, Any]]:
    try:
        calls = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"conformance data: can't read {path}: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"conformance data: {path} is not JSON: {error}") from error
    if not isinstance(calls, list) or not calls or not all(isinstance(c, dict) for c in calls):
        raise DataError(f"conformance data: {path} must be a list of objects")
    return calls


def _read_blob(path: Path) -> Array:
    try:
        packed = io.BytesIO(path.read_bytes())
    except OSError as error:
        raise DataError(f"conformance data: can't read {path}: {error.strerror}") from error
    try:
        with np.load(packed, allow_pickle=False) as found:
            blob: Array = found["bytes"]
    except Exception as error:  # what a damaged archive makes NumPy raise depends on the place
        raise DataError(f"conformance data: {path} is damaged: {error}") from error
    if blob.dtype != np.uint8 or blob.ndim != 1:
        raise DataError(f"conformance data: {path} must hold one array of bytes")
    return blob


def _check_head(head: dict[str, Any], blob: Array) -> None:
    if head.get("format") != FORMAT:
        raise DataError(
            f"conformance data: format {head.get('format')!r}, this version reads {FORMAT}"
        )
    if head.get("sha256") != hashlib.sha256(blob.tobytes()).hexdigest():
        raise DataError(
            "conformance data: arrays.npz does not belong to cases.json (its hash differs)"
        )


def _function(module: Any, path: str) -> Callable[..., Any]:
    """A public function by its dotted name."""
    namespace, _, name = path.rpartition(".")
    private = name.startswith("_") and not (name.startswith("__") and namespace == "Tensor")
    if namespace not in NAMESPACES or not name.isidentifier() or private:
        raise DataError(f"conformance data: {path!r} is not a public function")
    found = module
    for part in filter(None, [*namespace.split("."), name]):
        found = getattr(found, part, None)
    if not callable(found):
        return _absent(path)
    return found


def _absent(path: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{path} does not exist yet")

    return call


# ---- one call ----------------------------------------------------------------------------------


def _as_it_is(x: Any) -> Any:
    return x


def _cases(
    module: Any, call: dict[str, Any], blob: Array, given: Callable[[Any], Any]
) -> Iterator[Case]:
    function = _function(module, call["call"])
    if call["tier"] not in TIERS:
        raise ValueError(f"tier {call['tier']!r}")
    args, kwargs = list(call["args"]), dict(call["kwargs"])

    def argument(x: Any, device: str) -> Any:
        return tree_map(given, _decode(x, blob, device))

    def arguments(device: str) -> tuple[list[Any], dict[str, Any]]:
        return (
            [argument(a, device) for a in args],
            {k: argument(v, device) for k, v in kwargs.items()},
        )

    def result(device: str) -> Any:
        with Device(device):
            given, named = arguments(device)
            return function(*given, **named)

    def gradient(device: str) -> Any:
        with Device(device):
            return _gradient(function, *arguments(device))

    head = (str(call["op"]), str(call["tier"]), str(call["dtype"]))
    yield Case(*head, result, _decode(call["expected"], blob, "cpu"))
    if "grads" in call:
        expected = [_decode(g, blob, "cpu") for g in call["grads"]]
        yield Case(*head, gradient, expected, part="gradient")


def _gradient(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Gradients of all floating arguments; the incoming one is neither flat nor symmetric."""
    inputs = [t for t in leaves([args, list(kwargs.values())]) if _is_real_float(t)]
    for t in inputs:
        t.requires_grad_()
    found = function(*args, **kwargs)
    results = [t for t in leaves(found) if _is_real_float(t) and t.requires_grad]
    return list(grad(results, inputs, [_weights(t) for t in results], allow_unused=True))


def _is_real_float(t: Any) -> bool:
    return isinstance(t, TensorBase) and t._meta.dtype.category == dt.FLOAT


def _weights(t: Any) -> Any:
    meta = t._meta
    w = ((np.arange(meta.numel) * 7) % 11 - 5) / 4
    return tensor(w.reshape(meta.shape), dtype=meta.dtype, device="cpu").to(meta.device)


def _decode(x: Any, blob: Array, device: str) -> Any:
    """A JSON value as the argument it stands for."""
    if not isinstance(x, dict):
        return x
    if "at" in x:
        return _tensor(x, blob, device)
    ((kind, value),) = x.items()
    if kind == "tuple":
        return tuple([_decode(v, blob, device) for v in value])
    if kind == "list":
        return [_decode(v, blob, device) for v in value]
    if kind == "slice":
        return slice(*[_decode(v, blob, device) for v in value])
    if kind == "device":
        return Device(device)
    return _CONSTANTS[kind](value)


_CONSTANTS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "complex": lambda value: complex(*value),
    "dtype": dt.by_name,
    "memory_format": memory_format_by_name,
    "ellipsis": lambda value: Ellipsis,
}


def _tensor(x: dict[str, Any], blob: Array, device: str) -> Any:
    dtype, shape, at = dt.by_name(x["dtype"]), tuple(x["shape"]), x["at"]
    count = int(np.prod(shape, dtype=int))
    if at < 0 or count < 0 or at + count * dtype.itemsize > blob.size:
        raise ValueError("a tensor lies outside arrays.npz")
    bits = blob[at : at + count * dtype.itemsize].view(dtype.storage).reshape(shape)
    made = tensor(bits, device="cpu") if dtype.native else _unnamed(bits, dtype)
    return made if device == "cpu" or "host" in x else made.to(device)


def _unnamed(bits: Array, dtype: dt.dtype) -> Any:
    """Types that NumPy lacks travel as integers of the same width."""
    return tensor(bits.view(f"i{dtype.itemsize}"), device="cpu").view(dtype)
