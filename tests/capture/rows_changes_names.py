"""Changes between two calls: of containers, and of what names stand for."""

from __future__ import annotations

import collections
import contextlib
import functools
import operator
import types
import weakref
from collections.abc import Iterator
from typing import Any

import lucerne as torch
from lucerne.nn import functional as F
from tests.capture.rows_changes import Row, row

# ---- containers and names ----------------------------------------------------------------------


@row
def partials() -> Row:
    def scaled(x: Any, y: Any = None, *, k: float = 2.0) -> Any:
        return x * k if y is None else x * k + y

    def other(x: Any, y: Any = None, *, k: float = 2.0) -> Any:
        return x - k

    options = {"k": 3.0}
    inner = functools.partial(scaled, **options)
    state = {"f": functools.partial(inner)}
    items = [1.0]
    listed = functools.partial(lambda x, items: x * sum(items), items=items)
    return Row(
        lambda x: listed(state["f"](x)),
        {
            "another one": lambda: state.update(f=functools.partial(scaled, k=9.0)),
            "a keyword": lambda: state["f"].keywords.update(k=7.0),
            "all of it": lambda: state["f"].__setstate__((other, (), {"k": 1.0}, {})),
            "the code": lambda: setattr(scaled, "__code__", other.__code__),
            "what an argument holds": lambda: items.append(4.0),
        },
    )


@row
def methods_as_values() -> Row:
    table: dict[str, Any] = {"names": [lambda x: x + 1, torch.relu], "op": operator.mul}

    def fn(x: Any) -> Any:
        for f in table["names"]:
            x = f(x)
        return table["op"](x, 2.0)

    return Row(
        fn,
        {
            "a function": lambda: table["names"].__setitem__(0, lambda x: x - 1),
            "the order": lambda: table["names"].reverse(),
            "an operator": lambda: table.update(op=operator.add),
        },
    )


@row
def chained_maps() -> Row:
    low, high = {"k": 2.0}, {"j": 3.0}
    chain = collections.ChainMap(high, low)
    return Row(
        lambda x: x * chain["k"] + chain["j"],
        {
            "below": lambda: low.update(k=5.0),
            "above": lambda: high.update(k=5.0),
            "one more map": lambda: chain.maps.insert(0, {"k": 7.0}),
        },
    )


@row
def read_only_maps() -> Row:
    inner = {"k": 2.0}
    view = types.MappingProxyType(inner)
    return Row(lambda x: x * view["k"], {"below": lambda: inner.update(k=5.0)})


@row
def namespaces() -> Row:
    space = types.SimpleNamespace(k=2.0, inner=types.SimpleNamespace(j=3.0))
    return Row(
        lambda x: x * space.k + space.inner.j,
        {
            "an attribute": lambda: setattr(space, "k", 5.0),
            "one inside": lambda: setattr(space.inner, "j", 5.0),
            "the inner one": lambda: setattr(space, "inner", types.SimpleNamespace(j=9.0)),
        },
    )


@row
def weak_references() -> Row:
    class Owner:
        k = 2.0

    owner, other = Owner(), Owner()
    other.k = 5.0
    state = {"ref": weakref.ref(owner)}
    return Row(
        lambda x: x * state["ref"]().k,  # type: ignore[union-attr]
        {
            "an attribute": lambda: setattr(owner, "k", 4.0),
            "another one": lambda: state.update(ref=weakref.ref(other)),
        },
    )


@row
def sets_and_counts() -> Row:
    names, counts = {"a"}, collections.Counter("aab")
    frozen = {"names": frozenset("ab")}

    def fn(x: Any) -> Any:
        x = x * counts["a"] + len(names) + len(frozen["names"])
        return x + 1 if "c" in frozen["names"] else x

    return Row(
        fn,
        {
            "one more": lambda: names.add("b"),
            "a count": lambda: counts.update("a"),
            "another set": lambda: frozen.update(names=frozenset("ac")),
        },
    )


@row
def bytes_and_ranges() -> Row:
    data = bytearray(b"\x02\x03")
    state = {"range": range(3), "slice": slice(0, 2), "text": "ab"}

    def fn(x: Any) -> Any:
        x = x * data[0] + len(state["range"]) + len(state["text"])  # type: ignore[arg-type]
        return x[state["slice"]]

    return Row(
        fn,
        {
            "a byte": lambda: data.__setitem__(0, 7),
            "a range": lambda: state.update(range=range(1, 9)),
            "a slice": lambda: state.update(slice=slice(0, 1)),
            "a text": lambda: state.update(text="abc"),
        },
    )


FLAGS = types.ModuleType("changes_flags")
FLAGS.__dict__.update(FAST=True, LEVEL=2, TABLE={"k": 2.0}, torch=torch)
exec(
    "def helper(x): return x * LEVEL if FAST else x - LEVEL\n"
    "def by_name(x): return helper(x) * TABLE['k']\n"
    "def of_torch(x): return torch.relu(x)\n"
    "class Kind:\n"
    "    k = 2.0\n"
    "def of_class(x): return x * Kind.k\n",
    FLAGS.__dict__,
)
_FLAGS = dict(FLAGS.__dict__)


def flags_again() -> None:
    FLAGS.__dict__.update(_FLAGS)
    FLAGS.TABLE["k"], FLAGS.Kind.k = 2.0, 2.0
    FLAGS.__dict__.pop("len", None)


@row
def another_module() -> Row:
    return Row(
        lambda x: FLAGS.by_name(x) + FLAGS.LEVEL * FLAGS.of_class(x),
        {
            "a flag": lambda: setattr(FLAGS, "FAST", False),
            "a number": lambda: setattr(FLAGS, "LEVEL", 5),
            "a function": lambda: setattr(FLAGS, "helper", lambda x: x - 7),
            "a function that calls it": lambda: setattr(FLAGS, "by_name", lambda x: x - 8),
            "a table": lambda: FLAGS.TABLE.update(k=5.0),
            "another table": lambda: setattr(FLAGS, "TABLE", {"k": 6.0}),
            "a class": lambda: setattr(FLAGS, "Kind", types.SimpleNamespace(k=9.0)),
            "of a class": lambda: setattr(FLAGS.Kind, "k", 8.0),
        },
        flags_again,
    )


@row
def hidden_builtin() -> Row:
    scope: dict[str, Any] = {}
    exec("def fn(x): return x * len([1, 2]) * abs(-3)", scope)
    return Row(
        scope["fn"],
        {"a global of the same name": lambda: scope.update(len=lambda items: 7)},
    )


@row
def patched_library() -> Row:
    before = F.relu, torch.relu
    scope: dict[str, Any] = {"F": F, "torch": torch}
    exec("def fn(x): return F.relu(x) + torch.relu(x)", scope)

    def undo() -> None:
        F.relu, torch.relu = before

    return Row(
        scope["fn"],
        {
            "a function of ours": lambda: setattr(F, "relu", lambda x: x * 7),
            "one of the package": lambda: setattr(torch, "relu", lambda x: x * 8),
            "the module is another": lambda: scope.update(F=types.SimpleNamespace(relu=abs)),
        },
        undo,
    )


@row
def environment() -> Row:
    environ = {"MODE": "fast", "LEVEL": "3"}

    def fn(x: Any) -> Any:
        level = int(environ.get("LEVEL", "1"))
        debug = environ.setdefault("DEBUG", "0") == "1" if "DEBUG" in environ else False
        return x * level + (1 if environ["MODE"] == "fast" else 2) + (5 if debug else 0)

    return Row(
        fn,
        {
            "a text": lambda: environ.update(LEVEL="5"),
            "another": lambda: environ.update(MODE="slow"),
            "one more": lambda: environ.update(DEBUG="1"),
            "one less": lambda: environ.pop("LEVEL"),
        },
    )


@row
def context_variable() -> Row:
    @contextlib.contextmanager
    def scaled(k: float) -> Iterator[None]:
        before, state["k"] = state["k"], k
        try:
            yield
        finally:
            state["k"] = before

    state = {"k": 2.0, "inside": 3.0}

    def fn(x: Any) -> Any:
        y = x * state["k"]
        with scaled(state["inside"]):
            y = y + x * state["k"]
        return y

    return Row(
        fn,
        {
            "outside": lambda: state.update(k=5.0),
            "inside": lambda: state.update(inside=7.0),
        },
    )
