"""A decision by one size, at many of its values at once.

Where a range ends is found by trying its sizes, tens of thousands of them. What int64 can do
exactly is done in arrays; all else is asked size by size.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from lucerne._src.ir.symbolic.expressions import Atom, Expr, Guard

_LIMIT = 2**62
"""No number on the way is larger: int64 is exact."""
_ORDER = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_AT_ONCE = 4096
_Values = tuple[Any, int]
"""An array (or an int), and what none of its elements is beyond."""


class _InexactError(Exception):
    """The formula has something that arrays can't do exactly."""


def first_wrong(guard: Guard, symbol: str, sizes: range) -> int | None:
    """The first of the sizes at which a decision comes out another way; None: it holds at all."""
    for start in range(0, len(sizes), _AT_ONCE):
        part = sizes[start : start + _AT_ONCE]
        try:
            held = _holds(guard, np.arange(part.start, part.stop, part.step, dtype=np.int64))
        except _InexactError:
            wrong = next((n for n in part if not guard.holds({symbol: n})), None)
        else:
            at = np.flatnonzero(~held)
            wrong = part[int(at[0])] if at.size else None
        if wrong is not None:
            return wrong
    return None


def _holds(guard: Guard, sizes: Any) -> Any:
    if guard.relation not in _ORDER:
        raise _InexactError
    left, right = _over(guard.left, sizes)[0], _over(guard.right, sizes)[0]
    found = np.broadcast_to(guard.relation(left, right), sizes.shape)
    return found == guard.result


def _over(x: Any, sizes: Any) -> _Values:
    if type(x) is int:
        return x, _checked(abs(x))
    if not isinstance(x, Expr):
        raise _InexactError
    total: Any = 0
    most = 0
    for monomial, factor in x.terms.items():
        product: Any = factor
        size = abs(factor)
        for atom in monomial:
            values, largest = _atom_over(atom, sizes)
            size = _checked(size * largest)
            product = product * values
        most = _checked(most + size)
        total = total + product
    return total, most


def _atom_over(atom: Atom, sizes: Any) -> _Values:
    if atom.op == "symbol":
        return sizes, _checked(int(np.abs(sizes).max()))
    if atom.op not in ("floordiv", "modulo"):
        raise _InexactError
    (values, largest), divisor = _over(atom.args[0], sizes), atom.args[1].constant
    if not divisor:  # (another formula, or zero)
        raise _InexactError
    if atom.op == "floordiv":
        return np.floor_divide(values, divisor), largest + 1
    return np.mod(values, divisor), _checked(abs(divisor))


def _checked(most: int) -> int:
    if most > _LIMIT:
        raise _InexactError
    return most
