"""What a trace writes to containers of the user's own classes is put back by Python's methods."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.capture.bytecode.hooks import Access
from lucerne._src.capture.effects.journal import Journal


def _closed(kind: Any, *names: str) -> Any:
    """A subclass that refuses methods, as `ModelOutput` of Hugging Face does."""

    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("not with this one")

    return type(f"Closed{kind.__name__}", (kind,), dict.fromkeys(names, refuse))


DICT = ("update", "clear", "items", "keys", "__iter__", "__setitem__", "pop")
LIST = ("clear", "extend", "__setitem__", "__getitem__", "__iter__")
SET = ("clear", "update", "__iter__")
ROWS: list[tuple[Any, Any]] = [
    (_closed(dict, *DICT)({"a": 1, "b": 2}), lambda x: dict.__setitem__(x, "a", 5)),
    (_closed(OrderedDict, *DICT[:4])(), lambda x: OrderedDict.__setitem__(x, "a", 5)),
    (OrderedDict(a=1, b=2), lambda x: x.move_to_end("a")),
    (defaultdict(list, a=[1]), lambda x: x["b"].append(3)),
    (Counter("abca"), lambda x: x.update("aab")),
    (_closed(list, *LIST)([1, 2, 3]), lambda x: list.__delitem__(x, 0)),
    (_closed(set, *SET)({1, 2}), lambda x: set.add(x, 7)),
    (_closed(deque, *LIST)([1, 2]), lambda x: deque.appendleft(x, 7)),
    (bytearray(b"abc"), lambda x: x.extend(b"d")),
]


def _content(x: Any) -> Any:
    kind: Any = next(k for k in type(x).__mro__ if k.__module__ in ("builtins", "collections"))
    held = list(kind.items(x)) if isinstance(x, dict) else list(kind.__iter__(x))
    return held, dict(getattr(x, "__dict__", {}))


@pytest.mark.parametrize(("x", "write"), ROWS, ids=lambda x: type(x).__name__)
def test_containers(x: Any, write: Any) -> None:
    if hasattr(x, "__dict__"):
        x.name = "before"
    before = _content(x)
    journal = Journal()
    journal.note(Access.METHOD, x, "any", ((), {}))
    write(x)
    if hasattr(x, "__dict__"):
        x.name = "after"
    assert _content(x) != before
    journal.undo()
    assert _content(x) == before


class Result(OrderedDict[str, Any]):
    """An output that is a dict with attributes, and can't be updated."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def update(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("You cannot use update")


def test_a_result_written_after_a_break() -> None:
    """The second part writes to an object that the first part made."""

    def f(x: Any) -> Any:
        result = Result()
        result["first"] = x * 2
        print(end="", flush=True)
        torch.compiler.disable(lambda: None)()
        result["second"] = x + 1
        return result

    compiled = torch.compile(f)
    for k in range(4):
        x = torch.full((3,), float(k))
        found, wanted = compiled(x), f(x)
        assert type(found) is Result
        assert list(found) == ["first", "second"]
        for name in wanted:
            torch.testing.assert_close(found[name], wanted[name])
            assert getattr(found, name) is found[name]
    assert not compiled.faults
