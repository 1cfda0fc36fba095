"""What a name of torch may be that only exists behind the door: five kinds, each says what it is.

A table of names (`names`, `distributed_names`) is made of rows of these kinds. Nothing is built
before somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from lucerne._src.base.process import forks


@dataclass(frozen=True)
class Entry:
    """One name: its kind, what it is in words, and how it is made."""

    kind: str
    says: str
    make: Callable[[str, str, str], Any]
    """The object, from the module's name (`torch.cuda`), its own, and why the module refuses."""


Rows = dict[str, Entry]


@dataclass(frozen=True)
class NameTable:
    """The names of one module of torch.

    `why` ends the messages of all that refuses in it. `rows` come on top of those that the module
    has in Lucerne, if it is one of Lucerne's.
    """

    why: str
    rows: Rows


def space(why: str, *groups: Rows) -> NameTable:
    """A module's table from groups of rows; a name may stand in one of them only."""
    found: Rows = {}
    for rows in groups:
        twice = found.keys() & rows.keys()
        if twice:
            raise ValueError(f"two rows for {', '.join(sorted(twice))}")
        found.update(rows)
    return NameTable(why, found)


def same(home: str, names: str) -> Rows:
    """Objects that Lucerne has elsewhere: `same("compiler", "disable reset")`.

    `new=old` gives an object another name.
    """
    return {new: _same(home, old) for new, old in _pairs(names)}


def _same(home: str, name: str) -> Entry:
    full = f"lucerne.{home}" if home else "lucerne"
    says = f"the same as `{full}.{name}`" if "_src" not in full else "works as in torch"
    return Entry("same", says, lambda module, own, why: getattr(forks.import_module(full), name))


def classes(names: str, says: str = "for annotations and `isinstance`; cannot be made") -> Rows:
    """Classes of which no object exists here."""
    return {name: Entry("class", says, _empty_class) for name in names.split()}


def _empty_class(module: str, name: str, why: str) -> type:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        _refuse(module, name, why)

    members = {
        "__module__": module,
        "__doc__": f"`{module}.{name}`, for annotations and `isinstance`: Lucerne makes none.",
        "__init__": refuse,
        "__class_getitem__": classmethod(lambda cls, item: cls),
    }
    return type(name, (), members)


def refusals(names: str, says: str = "refuses") -> Rows:
    """Functions that cannot do here what their name says, and say so when they are called."""
    return {name: Entry("refuses", says, _refusing) for name in names.split()}


def _refusing(module: str, name: str, why: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        _refuse(module, name, why)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__module__ = module
    return refuse


def _refuse(module: str, name: str, why: str) -> NoReturn:
    raise NotImplementedError(f"{module}.{name}: {why}")


def answers(value: Any, names: str, says: str) -> Rows:
    """Functions with one answer, whatever they are asked: `answers(False, "is_available", ...)`."""
    entry = Entry("answers", says, lambda module, name, why: _answering(module, name, value))
    return dict.fromkeys(names.split(), entry)


def _answering(module: str, name: str, value: Any) -> Callable[..., Any]:
    def answer(*args: Any, **kwargs: Any) -> Any:
        return value

    answer.__name__ = answer.__qualname__ = name
    answer.__module__ = module
    return answer


def passes(names: str, says: str = "a decorator that leaves the function as it is") -> Rows:
    """Decorators without effect here, with arguments or without."""
    return {name: Entry("passes", says, _passing) for name in names.split()}


def _passing(module: str, name: str, why: str) -> Callable[..., Any]:
    def leave(function: Any = None, *args: Any, **kwargs: Any) -> Any:
        if callable(function):
            return function
        return lambda decorated: decorated

    leave.__name__ = leave.__qualname__ = name
    leave.__module__ = module
    return leave


def values(says: str, **named: Any) -> Rows:
    """Plain values."""
    return {name: _value(value, says) for name, value in named.items()}


def _value(value: Any, says: str) -> Entry:
    return Entry("value", says, lambda module, name, why: value)


def _pairs(names: str) -> Iterator[tuple[str, str]]:
    for word in names.split():
        new, _, old = word.partition("=")
        yield new, old or new
