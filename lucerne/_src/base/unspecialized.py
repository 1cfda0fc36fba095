"""Numbers that are read again at each call of a captured function: learning rates, for example.

While a function is captured, an option such as a learning rate is a `GivenFloat`: a float that
knows where it came from. In the graph it stays itself, and the program reads it anew for each call
(`now`). Arithmetic gives numbers that know how to be computed again. Whatever makes Python decide
by its value (a comparison, a conversion) is told to whoever is `watching`, as a `NumberUse` that
must hold for the capture to be used again.
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lucerne._src.base.raw import same_things


class Symbolic:
    """A number that is an expression of sizes (see `ir.symbolic`): no `int`, no `float`."""

    __slots__ = ()
    key: Any
    """What stands for it in a key (see `exact`)."""


class Guarding:
    """How many traces with such numbers are under way, in all threads."""

    count = 0


class NumberUse:
    """Something a captured function took for granted; `holds` says whether it is still so."""

    __slots__ = ("check", "facts", "text")

    def __init__(
        self, text: str, check: Callable[[], bool], facts: tuple[Any, ...] | None = None
    ) -> None:
        """`facts`: a word and what makes the same use again (see `use_of`); None: nothing does."""
        self.text, self.check, self.facts = text, check, facts

    def __repr__(self) -> str:
        return f"Use({self.text})"

    def holds(self) -> bool:
        return self.check()


IN_KEY = ("in key",)
"""Facts of a use that says nothing more, when a program is stored, than that code is the same: the
program is found by its code."""


class _Watch(threading.local):
    def __init__(self) -> None:
        self.uses: list[NumberUse] | None = None


_watch = _Watch()


@contextmanager
def watching() -> Iterator[list[NumberUse]]:
    """Collect what is taken for granted inside.

    >>> from lucerne._src.base.unspecialized import GivenFloat, watching
    >>> group = {"lr": 0.5}
    >>> lr = GivenFloat(0.5, (group, "lr"))
    >>> with watching() as uses:
    ...     twice = lr * 2
    ...     small = lr < 1
    >>> uses
    [Use(lr < 1)]
    >>> group["lr"] = 0.25
    >>> twice.now(), uses[0].holds()
    (0.5, True)
    """
    before, _watch.uses = _watch.uses, []
    try:
        yield _watch.uses
    finally:
        _watch.uses = before


def note(use: NumberUse) -> None:
    """Tell whoever is watching, if anybody is."""
    if _watch.uses is not None:
        _watch.uses.append(use)


def uses_noted() -> int:
    """How many were collected so far."""
    return 0 if _watch.uses is None else len(_watch.uses)


def look(source: Sequence[Any]) -> Any:
    """What is found in `source[0]` by the keys that follow."""
    found = source[0]
    for key in source[1:]:
        found = found[key]
    return found


def note_same(source: Sequence[Any]) -> None:
    """An option was read as it is: it must be the same the next time."""
    value = look(source)
    plain = isinstance(value, (bool, int, float, str, tuple))
    told = f"{source[-1]} == {value!r}" if plain else f"the same {source[-1]}"
    note(_same_use(told, source, value))


def _same_use(text: str, source: Sequence[Any], value: Any) -> NumberUse:
    facts = SAME, tuple(source), value
    if isinstance(value, (bool, int, float, str, tuple)):
        return NumberUse(text, lambda: bool(_found(source) == value), facts)
    return NumberUse(text, lambda: _found(source) is value, facts)


_NOTHING = object()


def _found(source: Sequence[Any]) -> Any:
    """The same; `_NOTHING` where nothing is there any more (a group of parameters was removed)."""
    try:
        return look(source)
    except (LookupError, TypeError):
        return _NOTHING


def note_structure(optimizer: Any) -> None:
    """The same groups of the same size, and no other state was loaded."""
    note(_structure_use("the groups and the state of the optimizer", optimizer))


def _structure_use(text: str, optimizer: Any) -> NumberUse:
    groups, state = optimizer.param_groups, optimizer.state
    size, params = len(state), [list(g["params"]) for g in groups]

    def same() -> bool:
        now, held = optimizer.param_groups, optimizer.state
        return (
            held is state
            and len(held) == size
            and len(now) == len(params)
            and all(map(same_things, (g["params"] for g in now), params))
        )

    return NumberUse(text, same, (STRUCTURE, optimizer))


def use_of(text: str, facts: tuple[Any, ...]) -> NumberUse:
    """The use that was told with these facts, about the objects that they name now."""
    kind, *rest = facts
    if kind == SAME:
        return _same_use(text, *rest)
    if kind == STRUCTURE:
        return _structure_use(text, *rest)
    if kind == RELATION:
        return _relation_use(text, *rest)
    raise ValueError(f"no such use: {kind}")


SAME, STRUCTURE, RELATION = "same", "structure", "relation"


class GivenFloat(float):
    """A float with a source: (owner, key, ...), or a formula over other such numbers.

    >>> from lucerne._src.base.unspecialized import GivenFloat
    >>> group = {"lr": 0.5}
    >>> half = GivenFloat(0.5, (group, "lr")) / 2
    >>> group["lr"] = 8.0
    >>> half, half.now()
    (0.25, 4.0)
    """

    __slots__ = ("formula", "source", "used_by_value")
    source: tuple[Any, ...]
    formula: tuple[Any, ...]
    used_by_value: bool

    def __new__(
        cls, value: float, source: Sequence[Any] = (), formula: Sequence[Any] = ()
    ) -> GivenFloat:
        made = super().__new__(cls, value)
        made.source, made.formula, made.used_by_value = tuple(source), tuple(formula), False
        return made

    def now(self) -> float:
        """The number as it is at this moment."""
        if self.formula:
            compute, *operands = self.formula
            return float(compute(*map(now_of, operands)))
        return float(look(self.source))

    def by_value(self) -> float:
        """The plain number: what is made of it holds for this value only."""
        self.used_by_value = True
        _use(self, operator.eq, bare(self))
        return bare(self)

    @property
    def name(self) -> str:
        if not self.formula:
            keys = [str(k) for k in self.source[1:]]
            return keys[-1] if len(keys) == 1 else ".".join(keys)
        compute, *operands = self.formula
        shown = [x.name if hasattr(type(x), "now") else repr(x) for x in operands]
        return f"{getattr(compute, '__name__', 'f')}({', '.join(shown)})"

    # ---- what Python decides by the value ------------------------------------------------------

    def __float__(self) -> float:
        return self.by_value()

    def __int__(self) -> int:
        return int(self.by_value())

    def __hash__(self) -> int:
        return hash(self.by_value())

    def __bool__(self) -> bool:
        return bool(_use(self, operator.ne, 0.0))

    def __trunc__(self) -> int:
        return int(self.by_value())

    def __floor__(self) -> int:
        return math.floor(self.by_value())

    def __ceil__(self) -> int:
        return math.ceil(self.by_value())

    def __divmod__(self, other: Any) -> Any:
        return divmod(self.by_value(), other)

    def __rdivmod__(self, other: Any) -> Any:
        return divmod(other, self.by_value())

    def __format__(self, spec: str) -> str:
        return format(self.by_value(), spec)

    def __round__(self, digits: Any = None) -> Any:
        return round(self.by_value(), digits)

    def __reduce__(self) -> tuple[Any, ...]:
        return float, (bare(self),)


def bare(x: Any) -> float:
    """As a plain float, without telling anybody."""
    return float.__pos__(x) if isinstance(x, float) else float(x)


def now_of(x: Any) -> Any:
    """An operand of a formula as it is at this moment."""
    return x.now() if hasattr(type(x), "now") else x


def _use(x: GivenFloat, relation: Any, other: Any) -> Any:
    """Decide by the value, and tell: the same decision must come out the next time."""
    result = relation(bare(x), bare(other))
    text = f"{x.name} {_SIGNS[relation]} {other!r}"
    if not result:
        text = f"not {text}"
    note(_relation_use(text, x, relation.__name__, other, result))
    return result


def _relation_use(text: str, x: GivenFloat, name: str, other: Any, result: bool) -> NumberUse:
    relation = _RELATIONS[name]

    def holds() -> bool:
        right = other.now() if type(other) is GivenFloat else other
        return bool(relation(x.now(), right) == result)

    return NumberUse(text, holds, (RELATION, x, name, other, result))


_SIGNS: dict[Any, str] = {
    operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=",
    operator.gt: ">", operator.ge: ">=",
}  # fmt: skip
_RELATIONS = {relation.__name__: relation for relation in _SIGNS}
_ARITHMETIC = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.mod,
    operator.floordiv,
)  # fmt: skip
_KINDS = (bool, int, float, GivenFloat)


def _comparison(relation: Any) -> Any:
    def compare(self: GivenFloat, other: Any) -> Any:
        return _use(self, relation, other) if type(other) in _KINDS else NotImplemented

    return compare


def _derived(compute: Any, *operands: Any) -> Any:
    value = compute(*map(_value, operands))
    if type(value) is complex:  # a root of a negative number
        return compute(*[x.by_value() if type(x) is GivenFloat else x for x in operands])
    return GivenFloat(value, formula=(compute, *operands))


def _value(x: Any) -> Any:
    return bare(x) if type(x) is GivenFloat else x


def _binary(compute: Any, swapped: bool) -> Any:
    def calculate(self: GivenFloat, other: Any, *rest: Any) -> Any:
        if type(other) not in _KINDS:
            return NotImplemented
        return _derived(compute, *((other, self) if swapped else (self, other)))

    return calculate


def _unary(compute: Any) -> Any:
    return lambda self: _derived(compute, self)


for _relation in _SIGNS:
    setattr(GivenFloat, f"__{_relation.__name__}__", _comparison(_relation))
for _compute in _ARITHMETIC:
    setattr(GivenFloat, f"__{_compute.__name__}__", _binary(_compute, swapped=False))
    setattr(GivenFloat, f"__r{_compute.__name__}__", _binary(_compute, swapped=True))
_ONE_OPERAND = (operator.neg, operator.pos, operator.abs)
COMPUTATIONS: dict[str, Any] = {f.__name__: f for f in (*_ARITHMETIC, *_ONE_OPERAND)}
"""By name: everything that formulas are made of."""
for _sign in _ONE_OPERAND:
    setattr(GivenFloat, f"__{_sign.__name__}__", _unary(_sign))


def as_number(x: Any) -> float:
    """`float(x)`, but a number that is read anew at each call stays one."""
    return x if type(x) is GivenFloat else float(x)
