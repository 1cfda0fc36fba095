"""Values as parts of keys: what Python calls equal, but an op does not, is kept apart.

`1 == 1.0 == True` and `0.0 == -0.0` hold in Python, and hash alike; `nan` equals nothing, itself
included. Two calls share what was made for one of them only if their arguments are the same.
"""

from __future__ import annotations

import struct
from typing import Any

from lucerne._src.base.device import device
from lucerne._src.base.dtype import dtype
from lucerne._src.base.unspecialized import GivenFloat, Symbolic

ITSELF = frozenset((int, str, bytes, type(None), dtype, device))
"""Types whose values stand for themselves: equal ones are the same, and no other type's are equal
to them (what equals an int is not of these types, and does not stand for itself)."""
_BOOLS = ((bool, False), (bool, True))
_pack = struct.Struct("d").pack


def exact(a: Any) -> Any:
    """What stands for a value in a key. (A value without a hash gives a key without one.)

    >>> from lucerne._src.base.exact import exact
    >>> exact(1) == exact(1), exact(1) == exact(1.0), exact(0.0) == exact(-0.0)
    (True, False, False)
    >>> exact((float("nan"), True)) == exact((float("nan"), True))
    True
    """
    kind = type(a)
    if kind in ITSELF:
        return a
    if kind is bool:
        return _BOOLS[a]
    if kind is tuple:
        return tuple([x if type(x) in ITSELF else exact(x) for x in a])
    if isinstance(a, Symbolic):
        return kind, a.key
    if isinstance(a, GivenFloat):  # what is made for a key holds for this value only
        return kind, _pack(a.by_value())
    if isinstance(a, float):
        return kind, _pack(a)
    if isinstance(a, complex):
        return kind, _pack(a.real), _pack(a.imag)
    if isinstance(a, tuple):
        return kind, tuple(map(exact, a))
    if kind is slice:
        return kind, exact(a.start), exact(a.stop), exact(a.step)
    return kind, a
