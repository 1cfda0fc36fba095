"""Numbers of running Python that know how they follow from the sizes of the inputs.

    n = SymInt(20, symbol("n"))           # stands for 20, and for any other size
    n // 2 + 1                            # a SymInt: 11, and (n//2) + 1
    n ** 0.5                              # a SymFloat: 4.47..., and fpow(n, 0.5)
    if n > 32: ...                        # False, and a guard: not n > 32

Arithmetic carries the expression along. Whatever decides by the value leaves a guard with whoever
is `guarding`: the condition if it can be written, else that the value is what it is now. Neither
class is a subclass of `int` or `float`, so C code can't read the digits without asking (`range(n)`,
`math.sqrt(n)`, a dict, text): it is answered, and the guard is left. `isinstance(n, int)` holds.
"""

from __future__ import annotations

import itertools
import math
import numbers
import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from lucerne._src.base.process.source_location import Place, user_place
from lucerne._src.base.shape import Size
from lucerne._src.base.unspecialized import Guarding, Symbolic
from lucerne._src.ir.symbolic.expressions import (
    CHOICES,
    FLOATS,
    INTEGERS,
    SMALLEST,
    TOTAL,
    Expr,
    FloatExpr,
    Guard,
    Relation,
    chosen,
    decide,
    defined,
    expr,
    floordiv,
    integer,
    maximum,
    minimum,
    modulo,
    same,
    symbol,
)


class _Guards(threading.local):
    def __init__(self) -> None:
        self.found: SizeGuards | None = None
        self.at: Mapping[str, int] | None = None
        self.checks = 0
        self.checks_again: list[list[Guard]] = []
        self.generic = 0


_guards = _Guards()


@contextmanager
def guarding(found: SizeGuards | None = None, *, keys: bool = True) -> Iterator[SizeGuards]:
    """Collect the decisions that are taken inside by sizes, in order, each once; with `found`,
    among those. `keys` False: a number is no key inside (what is found by it would hold for its
    value only, and would be found again when the guard is long gone).

    >>> from lucerne._src.ir.symbolic.numbers import SymInt, guarding
    >>> from lucerne._src.ir.symbolic.expressions import symbol
    >>> n = SymInt(20, symbol("n"))
    >>> with guarding() as guards:
    ...     half = n // 2 + 1
    ...     small = half < 32
    >>> half.expr, list(guards)
    ((n//2) + 1, [(n//2) + 1 < 32])
    """
    before, _guards.found = _guards.found, SizeGuards(keys=keys) if found is None else found
    Guarding.count += 1
    try:
        yield _guards.found
    finally:
        Guarding.count -= 1
        _guards.found = before


UNBACKED = "_unbacked"
"""How the names of symbols begin that are no size of an input: only a run tells what they are."""


def is_unbacked(guard: Guard) -> bool:
    """Whether a decision was taken by a number that only a run tells."""
    return any(name.startswith(UNBACKED) for name in guard.symbols())


@contextmanager
def checked_again() -> Iterator[list[Guard]]:
    """What is decided inside by unbacked sizes leaves no guard: it is decided anew by each run, and
    the run compares what comes of it with what was told here. The decisions are given, for those
    that no run comes to."""
    dropped: list[Guard] = []
    _guards.checks_again.append(dropped)
    try:
        yield dropped
    finally:
        _guards.checks_again.pop()


@contextmanager
def generic() -> Iterator[None]:
    """What is decided inside by unbacked sizes is decided as for sizes of at least 2: whether it
    would be otherwise for 0 or 1 makes no difference to who asks (strides that nobody follows)."""
    _guards.generic += 1
    try:
        yield
    finally:
        _guards.generic -= 1


def is_filled(count: Any) -> bool:
    """Whether a count is not 0; of one that only a run tells, as if it were not."""
    if not isinstance(count, Symbolic):
        return bool(count)
    with generic():
        return bool(count)


def is_one(size: Any) -> bool:
    """Whether a size is 1; one that only a run tells is taken for another one."""
    if not isinstance(size, Symbolic):
        return bool(size == 1)
    with generic():
        return bool(_decided(operator.eq, size, 1))


def _is_dropped(guard: Guard) -> bool:
    """Whether a decision need not be kept."""
    if not (_guards.checks_again or _guards.generic) or not is_unbacked(guard):
        return False
    if _guards.generic and is_generic(guard):
        return True
    if _guards.checks_again:
        _guards.checks_again[-1].append(guard)
    return bool(_guards.checks_again)


def is_generic(guard: Guard) -> bool:
    """Whether a decision comes out the same for all unbacked sizes of at least 2."""
    sides = guard.left, guard.right
    if not all(isinstance(x, Expr) for x in sides):
        return False
    larger = {name: expr(symbol(name)) + SMALLEST for name in guard.symbols()}
    larger = {name: e for name, e in larger.items() if name.startswith(UNBACKED)}
    left, right = (x.replace(larger) for x in sides)
    return decide(guard.relation, left, right) is guard.result


class ByValue(NamedTuple):
    """Said of a guard that is no decision of the function: a size was needed as a plain number."""

    place: Place | None
    """The user's line."""


_numbers_of_guards = itertools.count(1)


class SizeGuards(dict[Guard, ByValue | None]):
    """The decisions of one trace. What is kept for it alone is kept by its `number`."""

    def __init__(self, *, keys: bool = True) -> None:
        super().__init__()
        self.numbers_are_keys, self.number = keys, next(_numbers_of_guards)


def guards_now() -> SizeGuards | None:
    """Where decisions of this thread are collected."""
    return _guards.found


@contextmanager
def checking() -> Iterator[None]:
    """What is decided inside leaves no guard: for checks of what was made, which change nothing."""
    if _guards.found is None:
        yield
        return
    _guards.checks += 1
    try:
        with guarding():
            yield
    finally:
        _guards.checks -= 1


def leave_all(guards: Iterable[Guard]) -> None:
    """Decisions that were taken earlier hold here too."""
    for guard in guards:
        _leave(guard)


@contextmanager
def values_at(sizes: Mapping[str, int]) -> Iterator[None]:
    """Inside, a number that follows from sizes is the one of these: for who runs what was made for
    all of them."""
    before, _guards.at = _guards.at, sizes
    Guarding.count += 1
    try:
        yield
    finally:
        Guarding.count -= 1
        _guards.at = before


def _leave(guard: Guard) -> None:
    found = _collected()
    if not _is_dropped(guard):
        found.setdefault(guard, None)


class LeakedSizeError(RuntimeError):
    """A symbolic number was asked for its value when no trace was under way."""


def _is_no_key() -> bool:
    """Whether a number is no key here; its text is then that of its formula."""
    return _guards.found is not None and not _guards.found.numbers_are_keys


class NoKeyError(TypeError):
    """A symbolic number was to be a key where it can be none."""


def _collected() -> SizeGuards:
    found = _guards.found
    if found is None:
        raise LeakedSizeError("a size of a trace is used after it: a guard would be lost")
    return found


class _Number(Symbolic):
    """What both kinds share. `hint` is the value in the trace at hand."""

    __slots__ = ("expr", "hint")
    hint: Any
    expr: Any

    def __init__(self, hint: Any, expression: Any) -> None:
        self.hint, self.expr = hint, expression

    def by_value(self) -> Any:
        """The plain number: what is made of it holds for this value only."""
        if _guards.at is not None:
            return self.expr.at(_guards.at)
        relation = same if isinstance(self.expr, FloatExpr) else operator.eq
        right = self.hint if relation is same else expr(self.hint)
        found, guard = _collected(), Guard(self.expr, relation, right)
        if found.get(guard) is None and not _is_dropped(guard):
            found[guard] = ByValue(user_place())
        return self.hint

    def __index__(self) -> int:
        return operator.index(self.by_value())

    def __int__(self) -> int:
        return int(self.by_value())

    def __float__(self) -> float:
        return float(self.by_value())

    def __complex__(self) -> complex:
        return complex(self.by_value())

    def __hash__(self) -> int:
        if _is_no_key():
            raise NoKeyError(f"a size is no key: {self.expr}")
        return hash(self.by_value())

    @property
    def key(self) -> Any:
        """What stands for it in a key: the same in all that is made with these decisions."""
        return self.expr, _collected().number

    def __repr__(self) -> str:
        return repr(self.expr) if _is_no_key() else repr(self.by_value())

    def __format__(self, spec: str) -> str:
        return repr(self.expr) if _is_no_key() else format(self.by_value(), spec)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*map(by_values, inputs), **kwargs)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(self.by_value(), *args, **kwargs)

    def __bool__(self) -> bool:
        return _decided(operator.ne, self, 0)

    def __pos__(self) -> Any:
        return self

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def conjugate(self) -> Any:
        return self

    @property
    def real(self) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        kind = type(self.hint)
        if name.startswith("__") or not hasattr(kind, name):
            raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
        return getattr(self.by_value(), name)


class SymInt(_Number):
    """An integer that follows from sizes."""

    __slots__ = ()
    hint: int
    expr: Expr

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (self.by_value(),)

    def __neg__(self) -> Any:
        return made(-self.hint, -self.expr)

    def __invert__(self) -> Any:
        return -self - 1

    def __abs__(self) -> Any:
        if decide(operator.ge, self.expr, 0):
            return self
        return made(abs(self.hint), integer("iabs", self.expr))

    def __trunc__(self) -> Any:
        return self

    __floor__ = __ceil__ = __trunc__

    def __round__(self, digits: Any = None) -> Any:
        return self if digits is None or digits >= 0 else round(self.by_value(), digits)

    def bit_length(self) -> Any:
        return made(self.hint.bit_length(), integer("bit_length", self.expr))

    def bit_count(self) -> Any:
        return made(self.hint.bit_count(), integer("bit_count", self.expr))

    @property
    def numerator(self) -> Any:
        return self


class SymFloat(_Number):
    """A float that follows from sizes."""

    __slots__ = ()
    hint: float
    expr: FloatExpr

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return float

    def __reduce__(self) -> tuple[Any, ...]:
        return float, (self.by_value(),)

    def __index__(self) -> int:
        raise TypeError("'float' object cannot be interpreted as an integer")

    def __neg__(self) -> Any:
        return floating("neg", self)

    def __abs__(self) -> Any:
        return floating("abs", self)

    def __trunc__(self) -> Any:
        return _rounded("trunc", self)

    def __floor__(self) -> Any:
        return _rounded("floor", self)

    def __ceil__(self) -> Any:
        return _rounded("ceil", self)

    def __round__(self, digits: Any = None) -> Any:
        if digits is None:
            return _rounded("iround", self)
        return floating("fround", self, operator.index(digits))


def made(value: int, expression: Expr) -> Any:
    """A number that depends on sizes, or a plain one if it does not."""
    return value if expression.constant is not None else SymInt(value, expression)


def plain(x: Any) -> Any:
    """The value alone, without a guard: for who keeps the expression himself."""
    return x.hint if isinstance(x, _Number) else x


def formula(x: Any) -> Any:
    """A number as it stands in formulas."""
    if isinstance(x, _Number):
        return x.expr
    return x if type(x) is float else expr(x)


def number_at(x: Any, sizes: Mapping[str, Any]) -> Any:
    """A number or a formula at sizes that may be symbolic themselves: then a formula of them."""
    if not isinstance(x, Expr | FloatExpr):
        return x
    if not any(isinstance(n, Symbolic) for n in sizes.values()):
        return x.at(sizes)
    value: Any = x.at({name: plain(n) for name, n in sizes.items()})
    found: Any = x.replace({name: expr(n) for name, n in sizes.items()})
    return made(value, found) if isinstance(found, Expr) else SymFloat(value, found)


def is_symbolic(x: Any) -> bool:
    """Whether a number, or something in a tuple or list of them, depends on sizes."""
    if isinstance(x, tuple | list):
        return any(map(is_symbolic, x))
    return isinstance(x, Symbolic)


def by_values(x: Any) -> Any:
    """A number, or a list or tuple (of such) with its numbers, as plain ones."""
    if isinstance(x, list | tuple) and is_symbolic(x):
        return [by_values(y) for y in x]
    return x.by_value() if isinstance(x, _Number) else x


# ---- arithmetic ---------------------------------------------------------------------------------


def floating(op: str, *args: Any) -> Any:
    """One of `FLOATS` of numbers that may depend on sizes."""
    found = FLOATS[op](*map(plain, args))
    if type(found) is not float:  # a root of a negative number
        return FLOATS[op](*[x.by_value() if isinstance(x, _Number) else x for x in args])
    made = SymFloat(found, FloatExpr(op, tuple(map(formula, args))))
    if op not in TOTAL:
        _leave(Guard(made.expr, defined, made.expr))
    return made


def _rounded(op: str, x: SymFloat) -> Any:
    value = INTEGERS[op](x.hint)
    found = integer(op, x.expr)
    _leave(Guard(found, defined, found))
    return made(value, found)


def _integers(op: str, *args: Any) -> Any:
    """One of `INTEGERS` of integers that may depend on sizes."""
    value = INTEGERS[op](*map(plain, args))
    found = integer(op, *map(expr, args))
    if op in ("isqrt", "factorial", "comb", "perm"):
        _leave(Guard(found, defined, found))
    return made(value, found)


def _divide(divide: Callable[[Expr, Expr], Expr], compute: Any) -> Any:
    def run(a: Any, b: Any) -> Any:
        _decided(operator.ne, b, 0)
        return made(compute(plain(a), plain(b)), divide(expr(a), expr(b)))

    return run


def _ring(compute: Any) -> Any:
    return lambda a, b: made(compute(plain(a), plain(b)), compute(expr(a), expr(b)))


def _over(a: Any, b: Any) -> Any:
    _decided(operator.ne, b, 0)
    return floating("truediv", a, b)


def _power(a: Any, b: Any) -> Any:
    if not _decided(operator.ge, b, 0):
        _decided(operator.ne, a, 0)
        return floating("fpow", a, b)
    times = b if isinstance(b, int) and not isinstance(b, Symbolic) else None
    if times is not None and times <= _MOST_FACTORS:
        return made(plain(a) ** times, expr(a) ** times)
    return _integers("ipow", a, b)


_MOST_FACTORS = 4
"""Higher powers are not multiplied out."""


def _shift(op: str) -> Any:
    def run(a: Any, b: Any) -> Any:
        _decided(operator.ge, b, 0)
        if isinstance(b, Symbolic) or b < 0:
            return _integers(op, a, b)
        return a * (1 << b) if op == "lshift" else a // (1 << b)

    return run


def _and(a: Any, b: Any) -> Any:
    for mask, x in ((a, b), (b, a)):
        if not isinstance(mask, Symbolic) and mask >= 0 and not mask & (mask + 1):
            return x % (mask + 1)
    return _integers("bit_and", a, b)


_OF_INTEGERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": _ring(operator.add), "sub": _ring(operator.sub), "mul": _ring(operator.mul),
    "floordiv": _divide(floordiv, operator.floordiv), "mod": _divide(modulo, operator.mod),
    "truediv": _over, "pow": _power, "lshift": _shift("lshift"), "rshift": _shift("rshift"),
    "and": _and, "or": lambda a, b: _integers("bit_or", a, b),
    "xor": lambda a, b: _integers("bit_xor", a, b),
}  # fmt: skip
_OF_FLOATS = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "truediv", "floordiv": "fdiv",
    "mod": "mod", "pow": "fpow",
}  # fmt: skip


def _is_integer(x: Any) -> bool:
    return isinstance(x, int)


def _plain_operand(x: Any) -> Any:
    """An enum or the like as the integer it is."""
    return x if type(x) in (int, float, SymInt, SymFloat) else int(x)


def calculate(name: str, a: Any, b: Any) -> Any:
    """`a name b`, where one of them depends on sizes."""
    if _guards.checks:
        plainly: Any = getattr(operator, f"__{name}__")
        return plainly(plain(a), plain(b))
    both = (a, b)
    if all(map(_is_integer, both)):
        return _OF_INTEGERS[name](_plain_operand(a), _plain_operand(b))
    if all(type(x) in (float, SymFloat) or _is_integer(x) for x in both):
        if name not in _OF_FLOATS:
            raise TypeError(f"unsupported operand type(s) for {name}: 'int' and 'float'")
        return floating(_OF_FLOATS[name], *map(_plain_operand, both))
    other = b if isinstance(a, _Number) else a
    if not isinstance(other, numbers.Number) and not hasattr(type(other), "by_value"):
        return NotImplemented
    compute: Any = getattr(operator, f"__{name}__")
    return compute(*[x.by_value() if isinstance(x, _Number) else x for x in both])


# ---- decisions ----------------------------------------------------------------------------------


def _decided(relation: Relation, a: Any, b: Any) -> bool:
    """Whether a relation holds; what does not follow from the ranges of sizes becomes a guard."""
    if _guards.at is not None:
        return bool(relation(*[x.by_value() if isinstance(x, _Number) else x for x in (a, b)]))
    result = bool(relation(plain(a), plain(b)))
    if _guards.checks or not (isinstance(a, Symbolic) or isinstance(b, Symbolic)):
        return result  # (what is checked is made already)
    left, right = formula(a), formula(b)
    exact = isinstance(left, Expr) and isinstance(right, Expr)
    if exact and decide(relation, left, right) is not None:
        return result
    if not isinstance(a, Symbolic):
        left, right, relation = right, left, _MIRRORED[relation]
    _leave(Guard(left, relation, right, result))
    return result


_MIRRORED: dict[Relation, Relation] = {
    operator.eq: operator.eq, operator.ne: operator.ne, operator.lt: operator.gt,
    operator.gt: operator.lt, operator.le: operator.ge, operator.ge: operator.le,
}  # fmt: skip
_WHOLE: dict[Relation, Callable[[float], int]] = {
    operator.lt: math.ceil, operator.ge: math.ceil, operator.le: math.floor,
    operator.gt: math.floor,
}  # fmt: skip


def _compared(relation: Relation, a: Any, b: Any) -> Any:
    if type(a) is SymInt and type(b) is float and math.isfinite(b):
        if relation in _WHOLE:
            b = _WHOLE[relation](b)
        elif b.is_integer():
            b = int(b)
        else:
            return relation is operator.ne
    if type(b) in (int, float, bool, SymInt, SymFloat) or isinstance(b, int):
        return _decided(relation, a, _plain_operand(b))
    if isinstance(b, numbers.Number) or hasattr(type(b), "by_value"):
        return relation(a.by_value(), b)
    return NotImplemented


def _install() -> None:
    def binary(name: str, swapped: bool) -> Any:
        def run(self: Any, other: Any, *rest: Any) -> Any:
            if rest and rest[0] is not None:
                return pow(self.by_value(), other, *rest)
            return calculate(name, other, self) if swapped else calculate(name, self, other)

        return run

    def comparison(relation: Relation) -> Any:
        return lambda self, other: _compared(relation, self, other)

    kinds: tuple[tuple[Any, Any], ...] = (SymInt, _OF_INTEGERS), (SymFloat, _OF_FLOATS)
    for cls, names in kinds:
        for name in names:
            setattr(cls, f"__{name}__", binary(name, swapped=False))
            setattr(cls, f"__r{name}__", binary(name, swapped=True))
        for relation in _MIRRORED:
            setattr(cls, f"__{relation.__name__}__", comparison(relation))
        cls.__divmod__ = lambda a, b: (a // b, a % b)
        cls.__rdivmod__ = lambda a, b: (b // a, b % a)


_install()


# ---- functions of numbers -----------------------------------------------------------------------


def _as_int(x: Any) -> Any:
    return x if type(x) is SymInt else _rounded("int", x)


def _as_float(x: Any) -> Any:
    return x if type(x) is SymFloat else floating("float", x)


def _extreme(of: Callable[..., Expr], native: Any) -> Any:
    def run(*args: Any) -> Any:
        given = args[0] if len(args) == 1 else args
        integers = type(given) in (tuple, list) and given and all(map(_is_integer, given))
        if integers and bool not in map(type, given):  # (the least may be False, which is no 0)
            given = [_plain_operand(x) for x in given]
            return made(native(map(plain, given)), of(*map(expr, given)))
        return native(*args)

    return run


_LEAST, _MOST = _extreme(minimum, min), _extreme(maximum, max)


def _function(name: str) -> Any:
    return lambda *args: floating(name, *args)


def _integer_function(name: str) -> Any:
    return lambda *args: _integers(name, *args)


CALLS: dict[Any, Callable[..., Any]] = {
    int: _as_int, float: _as_float, abs: abs, round: round, divmod: divmod, pow: pow,
    min: _LEAST, max: _MOST, math.floor: math.floor,
    math.ceil: math.ceil, math.trunc: math.trunc, math.prod: math.prod, sum: sum,
    math.isfinite: lambda x: isfinite(x), math.isinf: lambda x: bool(abs(x) == math.inf),
    math.isnan: lambda x: bool(x != x),
    **{
        getattr(math, n): _function(n)
        for n in FLOATS
        if hasattr(math, n)
    },
    **{
        getattr(math, n): _integer_function(n)
        for n in ("isqrt", "gcd", "lcm", "comb", "perm", "factorial")
    },
}  # fmt: skip
"""Functions that keep expressions."""


def call(fn: Any, args: Sequence[Any]) -> Any:
    """What one of `CALLS` gives of arguments among which there are such numbers."""
    if fn is type and len(args) == 1:
        return Size if isinstance(args[0], Size) else args[0].__class__
    found = CALLS.get(fn)
    flat = all(type(x) in (int, float, bool, SymInt, SymFloat) for x in args)
    if found is None or not (flat or fn in (min, max, sum, math.prod)):
        return fn(*args)
    if fn in _TAKE_INTEGERS and not all(map(_is_integer, args)):
        return fn(*args)
    return found(*args)


_TAKE_INTEGERS = frozenset(
    (math.isqrt, math.gcd, math.lcm, math.comb, math.perm, math.factorial)
)  # fmt: skip


# ---- for code of ours that computes with sizes --------------------------------------------------


def to_int(x: Any) -> Any:
    """`int(x)`, which may stay an expression."""
    return _as_int(x) if isinstance(x, Symbolic) else int(x)


def least(*numbers: Any) -> Any:
    """`min` of integers, which may stay an expression."""
    return _LEAST(list(numbers)) if is_symbolic(numbers) else min(numbers)


def most(*numbers: Any) -> Any:
    """`max` of integers, which may stay an expression."""
    return _MOST(list(numbers)) if is_symbolic(numbers) else max(numbers)


def if_at_least(x: Any, y: Any, a: Any, b: Any) -> Any:
    """`a if x >= y else b` of integers, which may stay an expression: for what is right either
    way."""
    if not (isinstance(x, Symbolic) or isinstance(y, Symbolic)):
        return a if x >= y else b
    known = decide(operator.ge, expr(x), expr(y))
    if known is not None:
        return a if known else b
    return _integers("if_at_least", x, y, a, b)


def larger(a: Any, b: Any) -> Any:
    """`max` of two floats, which may stay an expression."""
    return floating("fmax", a, b) if is_symbolic((a, b)) else max(a, b)


def double_bits(x: Any) -> Any:
    """The bits of a number as a float of 64 bits, read as an integer; may stay an expression."""
    if not isinstance(x, _Number):
        return INTEGERS["double_bits"](x)
    return made(INTEGERS["double_bits"](x.hint), integer("double_bits", x.expr))


def choice(number: int, numbers: Sequence[Any]) -> tuple[Any, ...]:
    """What a function of `CHOICES` gives: integers that are formulas if one of the numbers is."""
    values = CHOICES[number](*map(plain, numbers))
    if not is_symbolic(numbers):
        return values
    found = chosen(number, len(values), tuple(map(expr, numbers)))
    return tuple(made(n, e) for n, e in zip(values, found, strict=True))


def to_float(x: Any) -> Any:
    """`float(x)`, which may stay an expression."""
    return _as_float(x) if isinstance(x, Symbolic) else float(x)


def sqrt(x: Any) -> Any:
    """`math.sqrt(x)`, which may stay an expression."""
    return floating("sqrt", x) if isinstance(x, Symbolic) else math.sqrt(x)


def isfinite(x: Any) -> bool:
    """`math.isfinite(x)`; integers always are."""
    if isinstance(x, Symbolic):
        return type(x) is SymInt or bool(abs(x) < math.inf)  # type: ignore[arg-type]
    return math.isfinite(x)
