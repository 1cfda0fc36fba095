"""Integers that are read again at each call of a captured function: a step counter, an exponent.

A `GivenInt` is no `int`: whatever needs a real one (a shape, an index, a dict) has to ask for it,
and so tells that the capture holds for this value only. Arithmetic gives numbers that know how to
be computed again, exactly, as Python's integers have no limit.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from lucerne._src.base.unspecialized import GivenFloat, NumberUse, bare, look, note, now_of

_OF_INTEGERS = frozenset(name for name in dir(int) if not name.startswith("__"))
_LIMIT = 2**53
"""Up to here every integer is a float."""


class GivenInt:
    """An integer with a source: (owner, key, ...), or a formula over other such numbers.

    >>> from lucerne._src.base.unspecialized_ints import GivenInt
    >>> call = {"step": 3}
    >>> later = GivenInt(3, (call, "step")) * 2 + 1
    >>> call["step"] = 10
    >>> later.value, later.now(), (later / 4).now()
    (7, 21, 5.25)
    """

    __slots__ = ("formula", "source", "used_by_value", "value")

    def __init__(self, value: int, source: Sequence[Any] = (), formula: Sequence[Any] = ()) -> None:
        self.value, self.source, self.formula = value, tuple(source), tuple(formula)
        self.used_by_value = False

    def now(self) -> int:
        """The number as it is at this moment."""
        if not self.formula:
            return int(look(self.source))
        compute, *operands = self.formula
        return int(compute(*map(now_of, operands)))

    def by_value(self) -> int:
        """The plain number: what is made of it holds for this value only."""
        self.used_by_value = True
        _use(self, operator.eq, self.value)
        for x in self.formula[1:]:
            if type(x) is GivenInt:
                x.by_value()
        return self.value

    def as_float(self) -> GivenFloat:
        """As ops of floats take it; it must not be so large that it would be rounded."""
        value = self.value
        if not -_LIMIT <= value <= _LIMIT:
            return GivenFloat(float(self.by_value()))
        note(NumberUse(f"{self.name} is no larger than 2**53", lambda: abs(self.now()) <= _LIMIT))
        return GivenFloat(float(value), formula=(float, self))

    @property
    def name(self) -> str:
        if not self.formula:
            return str(self.source[-1])
        compute, *operands = self.formula
        shown = [getattr(x, "name", None) or repr(x) for x in operands]
        return f"{compute.__name__}({', '.join(shown)})"

    # ---- what Python decides by the value ------------------------------------------------------

    def __index__(self) -> int:
        return self.by_value()

    def __int__(self) -> int:
        return self.by_value()

    def __float__(self) -> float:
        return float(self.by_value())

    def __hash__(self) -> int:
        return hash(self.by_value())

    def __bool__(self) -> bool:
        return bool(_use(self, operator.ne, 0))

    def __repr__(self) -> str:
        return repr(self.by_value())

    def __format__(self, spec: str) -> str:
        return format(self.by_value(), spec)

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_INTEGERS:
            raise AttributeError(f"'int' object has no attribute {name!r}")
        return getattr(self.by_value(), name)

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (self.by_value(),)


def plain(x: Any) -> Any:
    """A number of any kind as it is now, without telling anybody."""
    if type(x) is GivenInt:
        return x.value
    return bare(x) if type(x) is GivenFloat else x


def _use(x: GivenInt, relation: Any, other: Any) -> Any:
    """Decide by the value, and tell: the same decision must come out the next time."""
    result = bool(relation(x.value, plain(other)))
    text = f"{x.name} {relation.__name__} {getattr(other, 'name', None) or repr(other)}"

    def holds() -> bool:
        return bool(relation(x.now(), now_of(other))) == result

    note(NumberUse(text if result else f"not {text}", holds))
    return result


_KINDS = (bool, int, float, GivenFloat, GivenInt)
_EXACT = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod)


def _comparison(relation: Any) -> Any:
    def compare(self: GivenInt, other: Any) -> Any:
        return _use(self, relation, other) if type(other) in _KINDS else NotImplemented

    return compare


def _binary(compute: Any, swapped: bool) -> Any:
    def calculate(self: GivenInt, other: Any, *rest: Any) -> Any:
        if type(other) not in _KINDS or rest:
            return NotImplemented
        return _derived(compute, *((other, self) if swapped else (self, other)))

    return calculate


def _derived(compute: Any, a: Any, b: Any) -> Any:
    if compute is operator.pow:  # of integers, it is one or not by the sign of the exponent
        if type(b) is GivenInt:
            _use(b, operator.ge, 0)
        if type(a) is GivenInt and type(b) in (float, GivenFloat):
            _use(a, operator.ge, 0)
    value = compute(plain(a), plain(b))
    if type(value) is int:
        return GivenInt(value, formula=(compute, a, b))
    if type(value) is float:
        return GivenFloat(value, formula=(compute, a, b))
    return compute(*[x.by_value() if hasattr(type(x), "by_value") else x for x in (a, b)])


def _unary(compute: Any) -> Any:
    return lambda self: GivenInt(compute(self.value), formula=(compute, self))


for _relation in (
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
):  # fmt: skip
    setattr(GivenInt, f"__{_relation.__name__}__", _comparison(_relation))
for _compute in (*_EXACT, operator.truediv, operator.pow):
    setattr(GivenInt, f"__{_compute.__name__}__", _binary(_compute, swapped=False))
    setattr(GivenInt, f"__r{_compute.__name__}__", _binary(_compute, swapped=True))
for _sign in (operator.neg, operator.pos, operator.abs):
    setattr(GivenInt, f"__{_sign.__name__}__", _unary(_sign))
for _name in ("lshift", "rshift", "and", "or", "xor", "divmod"):
    for _side in ("", "r"):
        _method = f"__{_side}{_name}__"
        _plain = getattr(int, _method)
        setattr(GivenInt, _method, lambda self, other, f=_plain: f(self.by_value(), other))
