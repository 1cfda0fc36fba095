"""What types that answer ops by a table share: names of functions, flat arguments, refusals."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from lucerne._src.base.process.source_location import describe, user_place
from lucerne._src.ir.define import fronts
from lucerne._src.tensor.tensor import Tensor


def name_of(func: Any, known: Any) -> str:
    """The name of a public function as the table `known` has it."""
    op = getattr(func, "op", None)
    name: str = op.name if op is not None else func.__name__
    if name in known:
        return name
    return _spelled().get(name, name)


@functools.cache
def _spelled() -> dict[str, str]:
    """Public names of functions whose own name is another (two ops may share a public one)."""
    found = fronts().values()
    return {f.function.__name__: f.name for f in found if f.function.__name__ != f.name}


def flat(args: Iterable[Any]) -> Iterator[Any]:
    """Arguments, with those of lists one by one."""
    for a in args:
        if isinstance(a, (tuple, list)):
            yield from a
        else:
            yield a


def here() -> str:
    """The user's line, for the end of a message."""
    place = user_place()
    return f"\n  at {describe(place)}" if place is not None else ""


def refuse_other_methods(cls: Any, known: Any, refuse: Callable[[str, Any], NoReturn]) -> None:
    """Let methods that would pick among ops say their own name when they are refused."""
    for front in fronts().values():
        for name in (front.name, *front.aliases):
            own = any(name in k.__dict__ for k in cls.__mro__[: cls.__mro__.index(Tensor)])
            if front.method and name not in known and not own:
                setattr(cls, name, _refusal(name, refuse))


def _refusal(name: str, refuse: Callable[[str, Any], NoReturn]) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        refuse(name, self)

    method.__name__ = name
    return method
