"""Cases from the table itself: each entry with an oracle, on its samples or on default ones.

An entry's `samples=` is a list of calls. A call is a tuple of arguments in signature order
(parameters with defaults may be left out at the end). Where a tensor is expected, a tuple is a
shape, to be filled with values of the dtype under test, and a list is the data itself: integers
stay int64 (indices), bools stay bool (masks), floats take the dtype under test. Anything else is
passed as it is.

    samples=[((2, 3), 1, [[0, 2], [1, 1]])]        # gather(input, dim, index)
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device as Device
from lucerne._src.conformance.cases import Case, leaves
from lucerne._src.ir import op as op_
from lucerne._src.ir.op import Op, Param
from lucerne._src.ir.signature import MISSING
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.interop.construct import tensor

DTYPES = (dt.float32, dt.float64, dt.int64, dt.bool_)
Array = np.ndarray[Any, Any]
Call = tuple[Any, ...]

# Shapes of the tensors of a call without samples: element-wise ones broadcast, others are square.
_ELEMENTWISE: dict[int, list[list[tuple[int, ...]]]] = {
    1: [[(2, 3)], [()], [(0,)], [(7,)]],
    2: [[(2, 3), (2, 3)], [(2, 3), (3,)], [(), (4,)], [(0, 2), (2,)]],
    3: [[(2, 3), (2, 3), (2, 3)], [(3, 1), (4,), ()]],
}
_SQUARE = (3, 3)
_DIM_VARIANTS = (0, -1)
_WITH_BODY = (op_.POINTWISE, op_.COMPOSITE)  # what the body refuses shows only when it runs


def oracle_cases() -> Iterator[Case]:
    """For each entry with an oracle: its samples in every dtype that NumPy and the op both take."""
    for op in op_.table().values():
        if op.oracle is not None:
            for n, call in enumerate(calls(op)):
                for dtype in DTYPES:
                    yield from _case(op, call, dtype, n)


def calls(op: Op) -> Sequence[Call]:
    """The entry's samples, or default ones for its kind."""
    if op.samples is not None:
        return [_completed(op, call) for call in op.samples]
    if op.kind == op_.POINTWISE:
        tensors = sum(p.kind == op_.TENSOR for p in op.params)
        return [_with_shapes(op, shapes) for shapes in _ELEMENTWISE[tensors]]
    plain = _with_shapes(op, [_SQUARE] * len(op.params))
    return [plain, *_dim_variants(op, plain)]


def unknown_parameter(op: Op) -> str:
    """The parameter that keeps an entry without samples from being called: nothing made up fits
    it (a mode in words, a dtype that means something). "" if there is none."""
    if op.samples is not None:
        return ""
    made = (op_.TENSOR, op_.SCALAR)
    unknown = [
        p.name
        for p in op.params
        if p.default is MISSING and p.kind not in made and p.annotation not in _WITHOUT_DEFAULT
    ]
    return unknown[0] if unknown else ""


def _completed(op: Op, call: Call) -> Call:
    return (*call, *(p.default for p in op.params[len(call) :]))


def _with_shapes(op: Op, shapes: Sequence[tuple[int, ...]]) -> Call:
    remaining, scalars = iter(shapes), iter((0.5, 1.5, 2.5))
    return tuple([_default(p, remaining, scalars) for p in op.params])


def _default(p: Param, shapes: Iterator[tuple[int, ...]], scalars: Iterator[float]) -> Any:
    """What a parameter gets when the entry names no samples."""
    if p.kind == op_.TENSOR and not (p.default is None and "None" in p.annotation):
        return next(shapes)
    if p.default is not MISSING:
        return p.default
    return next(scalars) if p.kind == op_.SCALAR else _WITHOUT_DEFAULT[p.annotation]


_WITHOUT_DEFAULT: dict[str, Any] = {
    "int": 1, "int | None": None, "IntList": (0, 1), "IntList | None": None, "bool": False,
    "float": 2.0, "Dtype | None": None,
}  # fmt: skip


def _dim_variants(op: Op, plain: Call) -> Iterator[Call]:
    """Other dimensions, and the reduced one kept."""
    at = {p.name: i for i, p in enumerate(op.params)}
    if "dim" not in at:
        return
    wrap = op.params[at["dim"]].annotation.startswith("IntList")
    for dim in _DIM_VARIANTS:
        changed = list(plain)
        changed[at["dim"]] = (dim,) if wrap else dim
        if "keepdim" in at:
            changed[at["keepdim"]] = dim < 0
        yield tuple(changed)


# ---- one case ----------------------------------------------------------------------------------


def _case(op: Op, call: Call, dtype: dt.dtype, seed: int) -> Iterator[Case]:
    args = [
        _argument(p, a, dtype, seed + i)
        for i, (p, a) in enumerate(zip(op.params, call, strict=True))
    ]
    assert op.oracle is not None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = _arrays(op.oracle(*args))
        except TypeError:
            return  # NumPy has no loop for this dtype
        except np.linalg.LinAlgError:
            if dtype.category >= dt.FLOAT:
                raise  # the sample is wrong; as bools many matrices are singular
            return
    if not _applies(op, args, expected, dtype):
        return
    yield Case(
        op.qualified, "entry", dtype.name,
        lambda device: _apply(op, args, device), expected, up_to_sign=op.up_to_sign,
    )  # fmt: skip


def _argument(p: Param, given: Any, dtype: dt.dtype, seed: int) -> Any:
    """A sample's argument as the oracle takes it."""
    if p.kind == op_.TENSOR_LIST:
        return [_array(x, dtype, seed + i) for i, x in enumerate(given)]
    if p.kind == op_.SCALAR and p.default is MISSING:
        return _number(given, dtype)
    return _array(given, dtype, seed) if p.kind == op_.TENSOR else given


def _number(given: float, dtype: dt.dtype) -> bool | int | float:
    """A made-up runtime number in the kind of the dtype: integers take no fractions."""
    if dtype.category >= dt.FLOAT:
        return given
    return bool(given) if dtype is dt.bool_ else math.ceil(given)


def _array(given: Any, dtype: dt.dtype, seed: int) -> Any:
    if isinstance(given, tuple):
        return _values(dtype, given, seed)
    if isinstance(given, list):
        data = np.array(given)
        return data.astype(dtype.storage) if data.dtype.kind == "f" else data
    return given


def _values(dtype: dt.dtype, shape: tuple[int, ...], seed: int) -> Array:
    """Reproducible numbers; every other sample has negative ones too."""
    rng = np.random.default_rng(seed)
    if dtype is dt.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.category == dt.INTEGER:
        return rng.integers(1, 7, shape).astype(dtype.storage)
    return rng.uniform(-2.0 if seed % 2 else 0.05, 0.95, shape).astype(dtype.storage)


def _apply(op: Op, args: Sequence[Any], device: str) -> Any:
    """The op on tensors of `device`."""
    with Device(device):
        given = {p.name: _placed(p, a, device) for p, a in zip(op.params, args, strict=True)}
        return op.public(**given)


def _placed(p: Param, given: Any, device: str) -> Any:
    if p.kind == op_.TENSOR_LIST:
        return tuple([_on(x, device) for x in given])
    return _on(given, device)


def _on(x: Any, device: str) -> Any:
    return tensor(x, device="cpu").to(device) if isinstance(x, np.ndarray) else x


def _applies(op: Op, args: Sequence[Any], expected: Any, dtype: dt.dtype) -> bool:
    """Whether integers and bools are this op's business: its shape rule, or its body, tells.

    torch refuses some types that NumPy takes, and the inner op of a public function may rely on its
    caller to convert. Floats are every op's business: a refusal there is a failure.
    """
    if dtype.category >= dt.FLOAT or op.data_dependent:
        return True
    try:
        found = list(leaves(_apply(op, args, "meta")))
        if op.kind in _WITH_BODY:
            _apply(op, args, "reference")
    except (RuntimeError, TypeError):  # NotImplementedError, torch's usual refusal, is one of them
        return False
    kinds = [t._meta.dtype.compute.storage.kind for t in found if isinstance(t, TensorBase)]
    return all(
        k in "fc" if e.dtype.kind in "fc" else k not in "fc" and (k != "b" or e.dtype.kind == "b")
        for k, e in zip(kinds, leaves(expected), strict=False)
    )


def _arrays(expected: Any) -> Any:
    if isinstance(expected, (tuple, list)):
        return [np.asarray(e) for e in expected]
    return np.asarray(expected)
