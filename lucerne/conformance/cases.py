"""Cases: a call with arguments and the expected result, from frozen files or from entries' oracles."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

import numpy as np

from lucerne.base import dtype as dt
from lucerne.base.layout import memory_format_by_name
from lucerne.ir import op as op_
from lucerne.ir.op import Op
from lucerne.tensor.convert import tensor
from lucerne.tensor.tensor import Tensor

# relative and absolute tolerance of each result dtype; every other type must agree exactly
TOLERANCE = {
    "float64": (1e-7, 1e-7), "complex128": (1e-7, 1e-7), "float32": (2e-5, 2e-5),
    "complex64": (2e-5, 2e-5), "float16": (2e-3, 1e-3), "bfloat16": (1.6e-2, 1e-3),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Case:
    """One call. `run(device)` gives what the device says, `expected` what is right."""

    op: str
    tier: str
    dtype: str
    run: Callable[[str], Any]
    expected: Any


def frozen_cases(module: Any) -> Iterator[Case]:
    """Calls that torch answered once, replayed on `module` (the top package)."""
    folder = resources.files("lucerne.conformance") / "data"
    calls = json.loads((folder / "cases.json").read_text())
    with resources.as_file(folder / "arrays.npz") as path, np.load(path, allow_pickle=False) as found:
        blob = found["bytes"]
    for call in calls:
        yield Case(
            call["op"], call["tier"], call["dtype"],
            lambda device, call=call: _replay(module, call, blob, device),
            _decode(call["expected"], blob, "cpu"),
        )  # fmt: skip


def _replay(module: Any, call: dict[str, Any], blob: Any, device: str) -> Any:
    function = module
    for part in call["call"].split("."):
        function = getattr(function, part)
    args = [_decode(a, blob, device) for a in call["args"]]
    named = {k: _decode(v, blob, device) for k, v in call["kwargs"].items()}
    return function(*args, **named)


def _decode(x: Any, blob: Any, device: str) -> Any:
    if not isinstance(x, dict):
        return x
    if "at" in x:
        return _tensor(x, blob, device)
    kind, value = next(iter(x.items()))
    if kind == "float":
        return float(value)
    if kind == "complex":
        return complex(*value)
    if kind == "dtype":
        return dt.by_name(value)
    if kind == "memory_format":
        return memory_format_by_name(value)
    parts = [_decode(v, blob, device) for v in value]
    return tuple(parts) if kind == "tuple" else parts


def _tensor(x: dict[str, Any], blob: Any, device: str) -> Tensor:
    dtype = dt.by_name(x["dtype"])
    shape = tuple(x["shape"])
    count = int(np.prod(shape, dtype=int))
    bits = blob[x["at"] : x["at"] + count * dtype.itemsize].view(dtype.storage).reshape(shape)
    made: Tensor = tensor(bits) if dtype.native else _bits16(bits, dtype)
    return made.to(device) if device != "cpu" else made  # type: ignore[attr-defined, no-any-return]


def _bits16(bits: Any, dtype: dt.dtype) -> Tensor:
    """Types NumPy lacks travel as integers of the same width."""
    return tensor(bits.view(np.int16)).view(dtype)  # type: ignore[no-any-return]


# ---- entries with an oracle -----------------------------------------------------------------------

_SHAPES: dict[int, list[list[tuple[int, ...]]]] = {
    1: [[(2, 3)], [()], [(0,)], [(7,)]],
    2: [[(2, 3), (2, 3)], [(2, 3), (3,)], [(), (4,)], [(0, 2), (2,)]],
    3: [[(2, 3), (2, 3), (2, 3)], [(3, 1), (4,), ()]],
}
FORMAT = 1
"""Of the frozen files."""
_DTYPES = (dt.float32, dt.float64, dt.int64, dt.bool_)


def oracle_cases() -> Iterator[Case]:
    """For each pointwise entry with a NumPy oracle: broadcast, empty and 0-dim operands."""
    for op in op_.table().values():
        operands = op.kinds.count(op_.TENSOR)
        if op.oracle is None or op.kind != op_.POINTWISE or operands not in _SHAPES:
            continue
        if op.kinds != op_.TENSOR * operands:
            continue
        for dtype in _DTYPES:
            for n, shapes in enumerate(_SHAPES[operands]):
                yield from _oracle_case(op, dtype, shapes, n)


def _oracle_case(op: Op, dtype: dt.dtype, shapes: list[tuple[int, ...]], seed: int) -> Iterator[Case]:
    arrays = [_values(dtype, shape, seed + i) for i, shape in enumerate(shapes)]
    assert op.oracle is not None
    with np.errstate(all="ignore"):
        try:
            expected = op.oracle(*arrays)
        except TypeError:
            return  # NumPy has no such loop: the op refuses this dtype too
    yield Case(
        op.qualified, "entry", dtype.name,
        lambda device: op.public(*[tensor(a).to(device) for a in arrays]), np.asarray(expected),
    )  # fmt: skip


def _values(dtype: dt.dtype, shape: tuple[int, ...], seed: int) -> Any:
    rng = np.random.default_rng(seed)
    if dtype is dt.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.category == dt.INTEGER:
        return rng.integers(1, 7, shape).astype(dtype.storage)
    return rng.uniform(0.05, 0.95, shape).astype(dtype.storage)
