"""Calls in front of caches: every value of every kind of argument before and after every other.

A call is run with nothing known, then after all calls of the list and after all calls of the list
backwards, each of them twice (the first is watched, the second is repeated by machine code). What
it gives then must be what it gave first: the same types, bits, or the same error.
"""

from __future__ import annotations

import enum
import itertools
import math
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

import lucerne as torch
from lucerne._src.tensor.eager import plans

F = torch.nn.functional
_MIN, _MAX = -(2**63), 2**63 - 1


class Whole(enum.IntEnum):
    """An enum that equals a number."""

    NOUGHT = 0
    ONE = 1


def _float_of(bits: int) -> float:
    return float(struct.unpack("d", struct.pack("q", bits))[0])


INTS = (
    0, 1, -1, 2, -2, 300, -300, 2**31, 2**32, 2**53 + 1, 2**62 - 1, 2**62, -(2**62), -(2**62) - 1,
    2**62 + 1, _MAX, _MAX - 1, _MIN, _MIN + 1, 2**63, 2**64, -(2**64), 2**64 + 1, 2**70,
)  # fmt: skip
FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, math.nan, -math.nan, math.inf, -math.inf, 1e30, 5e-324, 2.0**62,
    -(2.0**62), 2.0**63, _float_of(1), _float_of(3), _float_of(2**62),
)  # fmt: skip
OTHERS: tuple[Any, ...] = (
    True, False, None, 1j, 0j, complex(0, -0.0), complex(-0.0, 0.0), 1 + 0j, "mean", "sum", "",
    torch.float32, torch.int64, torch.bool, torch.float16, torch.strided, torch.preserve_format,
    torch.contiguous_format, torch.device("cpu"), Whole.NOUGHT, Whole.ONE, np.int64(0),
    np.int64(_MIN), np.float64(-0.0), np.float32(0.0), np.bool_(True), ..., slice(None),
    slice(0, 2**62), slice(0, -(2**62)), slice(None, None, 2), (), (0,), (1,), (-1,), (True,),
    (False,), (1.0,), (0.0,), (-0.0,), (2**62,), (-(2**62),), (_MIN,), (0, 0), ((0,),), [0], [1],
    [], [-1], torch.Size((0,)), torch.Size((1,)), (0, 1), (1, 0), (2, 2), [2, 2], (1, 1, 1, 1),
)  # fmt: skip
VALUES: tuple[Any, ...] = (*INTS, *FLOATS, *OTHERS)

Call = Callable[[Any, Any, Any], Any]

CALLS: dict[str, Call] = {
    "full": lambda x, m, v: torch.full((2,), v),
    "full typed": lambda x, m, v: torch.full((2,), v, dtype=x.dtype),
    "full_like": lambda x, m, v: torch.full_like(x, v),
    "new_full": lambda x, m, v: x.new_full((2,), v),
    "fill_": lambda x, m, v: x.fill_(v),
    "masked_fill": lambda x, m, v: x.masked_fill(m, v),
    "masked_fill_": lambda x, m, v: x.masked_fill_(m, v),
    "where": lambda x, m, v: torch.where(m, x, v),
    "where first": lambda x, m, v: torch.where(m, v, x),
    "clamp min": lambda x, m, v: x.clamp(min=v),
    "clamp max": lambda x, m, v: x.clamp(max=v),
    "clamp_min": lambda x, m, v: torch.clamp_min(x, v),
    "add": lambda x, m, v: x + v,
    "radd": lambda x, m, v: v + x,
    "add_": lambda x, m, v: x.add_(v),
    "add alpha": lambda x, m, v: torch.add(x, x, alpha=v),
    "sub": lambda x, m, v: x - v,
    "rsub": lambda x, m, v: v - x,
    "mul": lambda x, m, v: x * v,
    "mul_": lambda x, m, v: x.mul_(v),
    "div": lambda x, m, v: x / v,
    "rdiv": lambda x, m, v: v / x,
    "floor_divide": lambda x, m, v: v // x,
    "pow": lambda x, m, v: x**v,
    "rpow": lambda x, m, v: v**x,
    "remainder": lambda x, m, v: torch.remainder(x, v),
    "fmod": lambda x, m, v: torch.fmod(x, v),
    "and": lambda x, m, v: x & v,
    "or": lambda x, m, v: x | v,
    "xor": lambda x, m, v: x ^ v,
    "shift": lambda x, m, v: x << v,
    "eq": lambda x, m, v: x == v,
    "lt": lambda x, m, v: x < v,
    "ge": lambda x, m, v: x >= v,
    "copysign": lambda x, m, v: torch.copysign(x, v),
    "arange": lambda x, m, v: torch.arange(v) if _is_short(v) else None,
    "arange from": lambda x, m, v: torch.arange(v, v, dtype=x.dtype),
    "scalar_tensor": lambda x, m, v: torch.scalar_tensor(v),
    "tensor": lambda x, m, v: torch.tensor(v),
    "pad": lambda x, m, v: F.pad(x, (1, 1), value=v),
    "index": lambda x, m, v: x[v],
    "setitem": lambda x, m, v: _set(x, v),
    "select": lambda x, m, v: x.select(0, v),
    "sum": lambda x, m, v: x.sum(v),
    "sum keep": lambda x, m, v: x.sum(0, keepdim=v),
    "mean typed": lambda x, m, v: x.mean(dtype=v),
    "narrow": lambda x, m, v: x.narrow(0, v, 1),
    "tril": lambda x, m, v: x.tril(v),
    "diagonal": lambda x, m, v: x.diagonal(v),
    "roll": lambda x, m, v: x.roll(v, 0),
    "flip": lambda x, m, v: x.flip(v),
    "softmax": lambda x, m, v: torch.softmax(x, v),
    "cumsum": lambda x, m, v: x.cumsum(v),
    "argmax": lambda x, m, v: x.argmax(v),
    "topk": lambda x, m, v: x.topk(v),
    "unsqueeze": lambda x, m, v: x.unsqueeze(v),
    "transpose": lambda x, m, v: x.transpose(0, v),
    "reshape": lambda x, m, v: x.reshape(v),
    "expand": lambda x, m, v: x.expand(v),
    "to": lambda x, m, v: x.to(v),
    "std": lambda x, m, v: x.std(0, correction=v),
    "norm": lambda x, m, v: torch.linalg.vector_norm(x, v),
    "leaky_relu": lambda x, m, v: F.leaky_relu(x, v),
    "hardtanh": lambda x, m, v: F.hardtanh(x, -1, v),
    "threshold": lambda x, m, v: F.threshold(x, 0, v),
    "nan_to_num": lambda x, m, v: torch.nan_to_num(x, v),
    "lerp": lambda x, m, v: torch.lerp(x, x, v),
    "mse_loss": lambda x, m, v: F.mse_loss(x, x, reduction=v),
    "layer_norm": lambda x, m, v: F.layer_norm(x, (2,), eps=v),
    "scatter": lambda x, m, v: x.scatter(0, torch.zeros(1, 2, dtype=torch.int64), v),
}
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool")


def _is_short(v: Any) -> bool:
    """Whether a range to it takes no memory to speak of."""
    return not isinstance(v, (int, float)) or isinstance(v, bool) or v != v or abs(v) < 1e4


def _set(x: Any, v: Any) -> Any:
    x[0] = v
    return x


def outcome(call: Call, dtype: str, value: Any) -> Any:
    """All that can be told of a call's result; of an error its type and text."""
    x = torch.tensor([[5, 2], [3, 1]]).to(getattr(torch, dtype))
    m = torch.tensor([[True, False], [False, True]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _told(call(x, m, value))
        except Exception as error:
            return type(error).__name__, str(error)


def _told(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        # nan is nan: its bits are the processor's
        shown = [repr(v) for v in result.flatten().tolist()]
        return str(result.dtype), tuple(result.shape), result.stride(), shown
    if isinstance(result, tuple):
        return tuple(map(_told, result))
    return repr(result)


def confused(name: str, dtype: str, values: Iterable[Any] = VALUES) -> Iterator[str]:
    """One line for each call that gives something else after others than alone."""
    listed, call = list(values), CALLS[name]
    alone = []
    for v in listed:
        plans.clear_plans()
        alone.append(outcome(call, dtype, v))
    pairs = list(zip(listed, alone, strict=True))
    for order in (pairs, pairs[::-1]):
        plans.clear_plans()
        for (v, expected), _ in itertools.product(order, range(2)):
            found = outcome(call, dtype, v)
            if found != expected:
                yield f"{name}({dtype}, {v!r}): {found}, alone {expected}"
