"""Builtin functions that call user code, written in Python.

`map(fn, xs)` of the host would call `fn` from native code, where the machine can't stop. So if a
function of the user's or a generator of ours is among its arguments, one of these runs in its
place, as a frame like any other. They do what the builtins do, in the same order.
"""

from __future__ import annotations

import copy
import copyreg
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import BuiltinMethodType, FunctionType
from typing import Any

from lucerne._src.base.raw import is_a, own_dict
from lucerne._src.capture.bytecode.generators import PythonGenerator
from lucerne._src.capture.bytecode.hooks import is_entered
from lucerne._src.capture.bytecode.targets import find_in_class, python_function

Kwargs = Mapping[str, Any]
Chosen = tuple[FunctionType, tuple[Any, ...]]


def map_(fn: Any, *iterators: Iterator[Any]) -> Iterator[Any]:
    if len(iterators) == 1:
        for x in iterators[0]:
            yield fn(x)
    else:
        for args in zip(*iterators, strict=False):
            yield fn(*args)


def filter_(fn: Any, iterator: Iterator[Any]) -> Iterator[Any]:
    for x in iterator:
        if fn(x):
            yield x


def enumerate_(iterator: Iterator[Any], start: int) -> Iterator[tuple[int, Any]]:
    for x in iterator:
        yield start, x
        start += 1


_END: Any = object()


def zip_(*iterators: Iterator[Any]) -> Iterator[tuple[Any, ...]]:
    while True:
        found = []
        for iterator in iterators:
            x = next(iterator, _END)
            if x is _END:
                return
            found.append(x)
        yield tuple(found)


def iterated_(fn: Any, args: tuple[Any, ...], kwargs: Kwargs, at: frozenset[int]) -> Any:
    """Call a builtin with iterators in the place of some arguments, whose `__iter__` is the
    user's."""
    given = []
    for k in range(len(args)):
        given.append(iter(args[k]) if k in at else args[k])
    return fn(*given, **kwargs)


def items_(sequence: Any) -> Iterator[Any]:
    """What `iter` gives for an object that has `__getitem__` only."""
    k = 0
    while True:
        try:
            x = sequence[k]
        except (IndexError, StopIteration):
            return
        yield x
        k += 1


def extend_(target: list[Any], iterable: Iterable[Any]) -> None:
    """One by one: the next may look at those before it (`y.extend(m(y[-1]) for m in layers)`)."""
    for x in iterable:
        target.append(x)


def any_(iterable: Iterable[Any]) -> bool:
    for x in iterable:  # noqa: SIM110 - this is what `any` means
        if x:
            return True
    return False


def all_(iterable: Iterable[Any]) -> bool:
    for x in iterable:  # noqa: SIM110
        if not x:
            return False
    return True


def sum_(iterable: Iterable[Any], start: Any) -> Any:
    for x in iterable:
        start = start + x
    return start


def sorted_(iterable: Iterable[Any], key: Any, reverse: Any) -> list[Any]:
    values = list(iterable)
    keys = []
    for x in values:
        keys.append(key(x))
    found = []
    for k in sorted(range(len(values)), key=keys.__getitem__, reverse=reverse):
        found.append(values[k])  # (a comprehension is a call of its own in 3.11)
    return found


def extreme_(pick: Any, iterable: Iterable[Any], key: Any) -> Any:
    values = list(iterable)
    keys = []
    for x in values:
        keys.append(key(x))
    return values[pick(range(len(values)), key=keys.__getitem__)]


def reduce_(fn: Any, iterator: Iterator[Any], value: Any) -> Any:
    for x in iterator:
        value = fn(value, x)
    return value


def deepcopied_(x: Any, made: Any) -> Any:
    """`copy.deepcopy` of an object whose class has a `__getattribute__` of the user's: that is
    asked for the same names in the same order."""
    copier = getattr(x, "__deepcopy__", None)
    if copier is not None:
        return copier({})
    reductor = getattr(x, "__reduce_ex__", None)
    if not _is_objects_own(reductor, x, "__reduce_ex__"):
        return reduced_(x, reductor)
    getattr(x, "__reduce__", None)  # the class has none of its own: `object` asks and goes on
    reads = getattr(x, "__getstate__")  # noqa: B009 - (an attribute that is asked for)
    if not _is_objects_own(reads, x, "__getstate__"):
        return copy._reconstruct(x, {}, copyreg.__newobj__, (type(x),), reads())  # type: ignore
    if not own_dict(x):
        return made
    state = copy.deepcopy(own_dict(x), {id(x): made})
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
        return made
    attributes = getattr(made, "__dict__")  # noqa: B009
    if _is_own_dict(attributes, made):
        _fill(made, state)
    else:
        attributes.update(state)
    return made


def reduced_(x: Any, reductor: Any) -> Any:
    """How `copy.deepcopy` goes on with an object that says itself how it is made."""
    if reductor is not None:
        found = reductor(4)
    else:
        reductor = getattr(x, "__reduce__", None)
        if not reductor:
            raise copy.Error(f"un(deep)copyable object of type {type(x)}")
        found = reductor()
    return x if isinstance(found, str) else copy._reconstruct(x, {}, *found)  # type: ignore


def _is_objects_own(method: Any, x: Any, name: str) -> bool:
    """Whether it is what `object` has under that name, of this object."""
    return (
        type(method) is BuiltinMethodType
        and method.__self__ is x
        and method.__name__ == name
        and method.__qualname__ == f"{type(x).__qualname__}.{name}"
    )


def _is_own_dict(attributes: Any, x: Any) -> bool:
    return attributes is own_dict(x)


def _fill(made: Any, attributes: dict[str, Any]) -> None:
    own_dict(made).update(attributes)


def dicts_of_copy(memo: dict[int, Any]) -> list[dict[Any, Any]]:
    """The dicts that a `copy.deepcopy` with this memo has made. (It keeps what it has copied.)"""
    return [memo[id(x)] for x in memo.get(id(memo), ()) if type(x) is dict]


# -- which helper takes a call, and with which arguments ------------------------------------------


def _is_users(fn: Any) -> bool:
    found = python_function(fn)
    return found is not None and is_entered(found.__code__)


_REDUCES = ("__reduce_ex__", "__reduce__", "__getstate__")
_NAMES_MORE = ("__getnewargs__", "__getnewargs_ex__", "__slots__")
_HEAP_TYPE = 1 << 9
"""Of `type.__flags__`: a class made by a `class` statement."""


def choose_deepcopy(fn: Any, args: tuple[Any, ...], kwargs: Kwargs) -> Chosen | None:
    """How `copy.deepcopy` is called for an object with a `__getattribute__` of the user's, if it
    has attributes and nothing else, and its class leaves to `object` how it is copied."""
    if fn is not copy.deepcopy or len(args) != 1 or kwargs:
        return None
    kind: Any = type(args[0])
    asks = find_in_class(kind, "__getattribute__")
    if type(asks) is not FunctionType or not is_entered(asks.__code__):
        return None
    own = all(base is object or base.__flags__ & _HEAP_TYPE for base in kind.__mro__)
    if not own or kind.__new__ is not object.__new__:
        return None
    told = copy._deepcopy_dispatch, copyreg.dispatch_table  # type: ignore[attr-defined]
    if any(kind in table for table in told):
        return None
    usual = all(find_in_class(kind, n) is object.__dict__[n] for n in _REDUCES)
    if not usual or any(find_in_class(kind, n) is not None for n in _NAMES_MORE):
        return None
    return deepcopied_, (args[0], object.__new__(kind))  # type: ignore[return-value]


_ITERATES = {zip: 0, map: 1, filter: 1, enumerate: 0, any: 0, all: 0, sum: 0}
"""Builtins that ask some arguments for no more than an iterator, before anything else, and the
first of those. (`list` asks for the length as well.)"""
_ONE = (enumerate, sum)
"""Of those the ones that go through their first argument alone."""


def choose_iterated(fn: Any, args: tuple[Any, ...], kwargs: Kwargs) -> Chosen | None:
    """How a builtin is called that would ask objects of the user's for iterators."""
    first = _ITERATES.get(fn)
    if first is None:
        return None
    last = first + 1 if fn in _ONE else len(args)
    at = frozenset(k for k in range(first, min(last, len(args))) if _has_iterator(args[k]))
    return (iterated_, (fn, args, kwargs, at)) if at else None  # type: ignore[return-value]


def _has_iterator(x: Any) -> bool:
    if hasattr(type(x), "__next__"):  # an iterator: it would be asked for itself
        return False
    method = find_in_class(type(x), "__iter__")
    return type(method) is FunctionType and is_entered(method.__code__)


def _choose_map(args: tuple[Any, ...], kwargs: Kwargs) -> Chosen | None:
    if len(args) < 2 or kwargs or not _is_users(args[0]):
        return None
    return map_, (args[0], *map(iter, args[1:]))  # type: ignore[return-value]


def _choose_filter(args: tuple[Any, ...], kwargs: Kwargs) -> Chosen | None:
    if len(args) != 2 or kwargs or not _is_users(args[0]):
        return None
    return filter_, (args[0], iter(args[1]))  # type: ignore[return-value]


def _choose_zip(args: tuple[Any, ...], kwargs: Kwargs) -> Chosen | None:
    if kwargs or not any(type(a) is PythonGenerator for a in args):
        return None
    return zip_, tuple(map(iter, args))  # type: ignore[return-value]


def _choose_enumerate(args: tuple[Any, ...], kwargs: Kwargs) -> Chosen | None:
    start = args[1] if len(args) == 2 else kwargs.get("start", 0)
    if not args or type(args[0]) is not PythonGenerator or type(start) is not int:
        return None
    return (enumerate_, (args[0], start)) if not set(kwargs) - {"start"} else None  # type: ignore


def _choose_over_generator(
    helper: Callable[..., Any], more: tuple[Any, ...] = ()
) -> Callable[[tuple[Any, ...], Kwargs], Chosen | None]:
    def choose(args: tuple[Any, ...], kwargs: Kwargs) -> Chosen | None:
        if len(args) != 1 or kwargs or type(args[0]) is not PythonGenerator:
            return None
        return helper, (args[0], *more)  # type: ignore[return-value]

    return choose


def _choose_sorted(args: tuple[Any, ...], kwargs: Kwargs) -> Chosen | None:
    key = kwargs.get("key")
    if len(args) != 1 or set(kwargs) - {"key", "reverse"} or not _is_users(key):
        return None
    return sorted_, (args[0], key, kwargs.get("reverse", False))  # type: ignore[return-value]


def _choose_extreme(pick: Any) -> Callable[[tuple[Any, ...], Kwargs], Chosen | None]:
    def choose(args: tuple[Any, ...], kwargs: Kwargs) -> Chosen | None:
        key = kwargs.get("key")
        if not args or set(kwargs) != {"key"} or not _is_users(key):
            return None
        values = args[0] if len(args) == 1 else args
        if is_a(values, list | tuple) and not values:
            return None  # it has its own words for that
        return extreme_, (pick, values, key)  # type: ignore[return-value]

    return choose


def _choose_reduce(args: tuple[Any, ...], kwargs: Kwargs) -> Chosen | None:
    if kwargs or len(args) not in (2, 3) or not _is_users(args[0]):
        return None
    iterator = args[1] if type(args[1]) is PythonGenerator else iter(args[1])
    if len(args) == 3:
        return reduce_, (args[0], iterator, args[2])  # type: ignore[return-value]
    if type(iterator) is PythonGenerator or not is_a(args[1], list | tuple | range):
        return None
    first = next(iterator, _END)
    return None if first is _END else (reduce_, (args[0], iterator, first))  # type: ignore


CHOICES: dict[Any, Callable[[tuple[Any, ...], Kwargs], Chosen | None]] = {
    map: _choose_map,
    filter: _choose_filter,
    zip: _choose_zip,
    enumerate: _choose_enumerate,
    any: _choose_over_generator(any_),
    all: _choose_over_generator(all_),
    sum: _choose_over_generator(sum_, (0,)),
    sorted: _choose_sorted,
    min: _choose_extreme(min),
    max: _choose_extreme(max),
    functools.reduce: _choose_reduce,
}

COLLECTED: frozenset[Any] = frozenset((list, tuple, set, frozenset, dict, sorted, min, max))
"""Builtins that take all values of their first argument before they do anything: a generator of
ours is run to its end by the machine first."""
COLLECTED_METHODS = frozenset(("join", "fromkeys"))
