"""What is asked of the arguments of a call before it runs: the key of its plan, and metas.

The CPU's machine code makes keys of words by the same rules (`backends/cpu/native/keys.py`).
"""

from __future__ import annotations

from typing import Any

from lucerne._src.base.config import config
from lucerne._src.base.exact import ITSELF, exact
from lucerne._src.base.unspecialized import GivenFloat, Guarding
from lucerne._src.ir import argument_errors
from lucerne._src.ir.meta import NUMBER_METAS, TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.ir.symbolic.numbers import SymFloat, SymInt
from lucerne._src.ops.scalars import check_int
from lucerne._src.tensor.base import TensorBase, plain_types

_NUMBERS = frozenset((bool, int, float, complex, type(None), GivenFloat, SymInt, SymFloat))
Key = tuple[Any, ...]


def key_of(op: Op, args: tuple[Any, ...], types: Any = plain_types) -> tuple[Key | None, bool]:
    """What the plan of a call is found by, and whether a tensor of it needs a gradient.

    No key (`None`): an argument is neither a tensor of these types nor a number.
    """
    if op.kinds == "tt":  # the commonest call, without a loop
        x, y = args
        if type(x) in types and type(y) in types:
            return (op, x._meta, y._meta), x._needs_grad or y._needs_grad
    key: list[Any] = [op]
    grad = False
    for kind, a in zip(op.kinds, args):  # noqa: B905 - hot path, lengths agree by construction
        if kind == "t":
            cls = type(a)
            if cls in types:
                key.append(a._meta)
                grad = grad or a._needs_grad
            elif cls in _NUMBERS:
                key.append(cls)
            else:
                return None, grad
        elif kind == "s":
            key.append(a if type(a) in ITSELF else exact(a))
        elif kind == "n":
            key.append(type(a))
        elif kind == "l":
            if type(a) is not tuple:
                return None, grad
            for x in a:
                if x is not None:
                    if type(x) not in types:
                        return None, grad
                    grad = grad or x._needs_grad
            key.append(tuple([None if x is None else x._meta for x in a]))
    return tuple(key), grad


def is_plain_call(op: Op, args: tuple[Any, ...]) -> bool:
    """Whether all tensors of a call are of types that override nothing."""
    for kind, a in zip(op.kinds, args, strict=True):
        if kind == "t":
            if type(a) not in plain_types and type(a) not in _NUMBERS:
                return False
        elif kind == "l" and (
            type(a) is not tuple or any(type(x) not in plain_types and x is not None for x in a)
        ):
            return False
    return True


def metas_of(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with tensors replaced by their metas and numbers by their kind."""
    found: list[Any] = []
    for kind, a in zip(op.kinds, args, strict=True):
        if kind == "l":
            found.append(tuple([None if x is None else x._meta for x in a]))
        elif isinstance(a, TensorBase):
            found.append(a._meta)
        elif kind == "t" and a is not None:
            check_int(a)
            found.append(NUMBER_METAS[type(a)])
        else:
            found.append(a)
    return tuple(found)


_results: dict[Key, tuple[TensorMeta, ...]] = {}


def results_of(op: Op, metas: tuple[Any, ...], args: tuple[Any, ...]) -> tuple[TensorMeta, ...]:
    """The metas of a call's results, asked once; `metas`: what `metas_of` its arguments says."""
    if Guarding.count:  # expressions are no keys
        return argument_errors.asked_metas(op, metas, args)
    kinds = zip(metas, op.kinds, strict=True)
    key = (op, *[type(m) if k == "n" else exact(m) if k == "s" else m for m, k in kinds])
    try:
        found = _results.get(key)
    except TypeError:  # a static that can't be a key
        return argument_errors.asked_metas(op, metas, args)
    if found is None:
        if len(_results) >= config.plan_cache_size:
            _results.clear()
        found = _results[key] = argument_errors.asked_metas(op, metas, args)
    return found


def forget_results() -> None:
    """A default that they depend on has changed."""
    _results.clear()
