"""Guards compare what was read: a change of anything else is no reason to compile again, a change
of what was read is one."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne as torch
from lucerne import nn
from tests.capture.rows_reads import ROWS, Batch, Config, Net

CASES = [
    (name, how, change)
    for name, make in ROWS.items()
    for how in ("unread", "read")
    for change in getattr(make(), how)
]


@torch.compiler.disable
def pause(x: Any) -> Any:
    """Ends a graph."""
    return x


def leaves_of(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def check_same(found: Any, wanted: Any) -> None:
    """Both runs gave the same, bit for bit."""
    for a, b in itertools.zip_longest(leaves_of(found), leaves_of(wanted)):
        if isinstance(b, torch.Tensor):
            assert a.dtype == b.dtype
            assert torch.equal(a, b)
        else:
            assert type(a) is type(b)
            assert repr(a) == repr(b)


def test_a_difference_is_seen() -> None:
    one = torch.ones(2)
    for a, b in [(one, one + 1), (1, True), ((one, 2), (one,)), (0.0, -0.0), (one, one.double())]:
        with pytest.raises(AssertionError):
            check_same(a, b)


@pytest.mark.parametrize("parts", [False, True], ids=["whole", "parts"])
@pytest.mark.parametrize(("name", "how", "change"), CASES, ids=lambda x: str(x).replace(" ", "_"))
def test_what_is_compared(name: str, how: str, change: str, parts: bool) -> None:
    row = ROWS[name]()

    def in_parts(x: Any) -> Any:
        return row.fn(pause(x * 1))

    compiled = torch.compile(in_parts if parts else row.fn, mode="bitwise")
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    for _ in range(2):
        check_same(compiled(x), row.fn(x))
    before = len(compiled.entries)
    getattr(row, how)[change]()
    for _ in range(2):
        check_same(compiled(x), row.fn(x))
    made = len(compiled.entries) - before
    if how == "read":
        assert made or compiled.segmented, "a version was used that does not fit"
    elif not (parts and change in row.not_in_parts):
        assert made == 0, compiled.entries[-1].guards.reach.whole_because


def test_the_table_is_long_enough() -> None:
    assert len(CASES) >= 100
    assert sum(how == "unread" for _, how, _ in CASES) >= 45


@pytest.mark.parametrize(
    ("fn", "args", "others", "versions"),
    [
        (lambda x, k: x * 2, (1,), [(2,), ("text",), (None,)], 1),
        (lambda x, k: x * k, (1,), [("2", 3)[1:]], 2),
        (lambda x, o: x * o["a"], ({"a": 2.0, "b": 1},), [({"a": 2.0, "b": 7},)], 1),
        (lambda x, o: x * o["a"], ({"a": 2.0, "b": 1},), [({"a": 3.0, "b": 1},)], 2),
        (lambda x, o: x * len(o), ({"a": 2.0},), [({"a": 3.0},)], 2),
        (lambda x, o: x * o[0], ([2.0, 1.0],), [([2.0, 5.0],)], 1),
        (lambda x, o: x * o[-1], ([2.0, 1.0],), [([2.0, 5.0],)], 2),
        (lambda x, o: x * sum(o), ([2.0, 1.0],), [([1.0, 2.0],)], 2),
        (lambda x, b: x * b.scale, (Batch(0, 2.0, "a"),), [(Batch(0, 2.0, "b"),)], 1),
        (lambda x, b: x * b.scale, (Batch(0, 2.0, "a"),), [(Batch(0, 3.0, "a"),)], 2),
        (lambda x, *rest: x * 2, (1,), [(2,)], 2),
        (lambda x, k=1, j=1: x * k, (1, 1), [(1, 2)], 2),
        (lambda x, k: x * k, (0.0,), [(-0.0,)], 2),
        (lambda x, k: x * k, (1,), [(True,)], 2),
    ],
)  # fmt: skip
def test_arguments_that_are_not_read(fn: Any, args: Any, others: Any, versions: int) -> None:
    compiled = torch.compile(fn, mode="bitwise", fullgraph=True)
    x = torch.linspace(-1, 1, 3)
    for more in (args, *others, args):
        check_same(compiled(x, *more), fn(x, *more))
    assert len(compiled.entries) == versions


def test_an_equal_object_of_the_user_is_another_one() -> None:
    """`==` of a class may leave out what the function looks at."""

    class Named:
        def __init__(self, name: str, k: float) -> None:
            self.name, self.k = name, k

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named) and self.name == other.name

        def __hash__(self) -> int:
            return hash(self.name)

    def fn(x: Any, option: Any) -> Any:
        return x * option.k

    compiled = torch.compile(fn)
    for k in (2.0, 3.0):
        assert torch.equal(compiled(torch.ones(2), Named("a", k)), torch.ones(2) * k)


def test_other_sizes_keep_the_conditions_of_all_traces() -> None:
    """What is read at one size only is a condition of the program for all sizes."""
    state = {"small": 2.0, "large": 3.0}

    def fn(x: Any) -> Any:
        return x * (state["large"] if x.shape[0] > 5 else state["small"])

    compiled = torch.compile(fn, mode="bitwise")
    for n in (4, 8, 12, 16):
        x = torch.arange(n).float()
        assert torch.equal(compiled(x), fn(x))
    state["large"] += 1
    for n in (8, 16, 20, 3, 12):
        x = torch.arange(n).float()
        assert torch.equal(compiled(x), fn(x))


def test_what_was_not_read_is_told() -> None:
    net = Net()
    compiled = torch.compile(lambda x: net(x))
    compiled(torch.ones(1, 3))
    reach = compiled.entries[0].guards.reach
    assert "Net.count" in reach.unread
    assert "Net.scale" not in reach.unread
    assert "net" not in reach.unread


class World:
    """Things that random programs read and random changes write to."""

    def __init__(self) -> None:
        self.net, self.config = Net(), Config()
        self.table: dict[str, Any] = {"a": 1.0, "b": [1.0, 2.0], "c": {"d": 3.0}}
        self.items: list[Any] = [1.0, 2.0, {"k": 3.0}]

    def reads(self) -> dict[str, Any]:
        return {
            "scale": lambda x: x * self.net.scale,
            "layer": lambda x: self.net.layer(x),
            "net": lambda x: self.net(x),
            "k": lambda x: x * self.config.k,
            "kind": lambda x: x * 2 if isinstance(self.config, Config) else x,
            "a": lambda x: x * self.table["a"],
            "b": lambda x: x * sum(self.table["b"]),
            "b0": lambda x: x * self.table["b"][0],
            "d": lambda x: x * self.table["c"]["d"],
            "size": lambda x: x * len(self.table),
            "first": lambda x: x * self.items[0],
            "inside": lambda x: x * self.items[2]["k"],
            "names": lambda x: x * len(self.config.names),
            "late": lambda x: x * getattr(self.config, "late", 1.0),
        }

    def changes(self, k: float) -> dict[str, Any]:
        return {
            "scale": lambda: setattr(self.net, "scale", k),
            "count": lambda: setattr(self.net, "count", k),
            "layer": lambda: setattr(self.net, "layer", nn.Linear(3, 3)),
            "shift": lambda: self.net.shift.add_(k),
            "k": lambda: setattr(self.config, "k", k),
            "late": lambda: setattr(self.config, "late", k),
            "seen": lambda: setattr(self.config, "seen", k),
            "names": lambda: self.config.names.append("x"),
            "config": lambda: setattr(self, "config", Config()),
            "a": lambda: self.table.update(a=k),
            "b": lambda: self.table["b"].append(k),
            "b0": lambda: self.table["b"].__setitem__(0, k),
            "d": lambda: self.table["c"].update(d=k),
            "c": lambda: self.table.update(c={"d": k}),
            "more": lambda: self.table.update({str(k): k}),
            "first": lambda: self.items.__setitem__(0, k),
            "inside": lambda: self.items[2].update(k=k),
            "insert": lambda: self.items.insert(0, k),
            "table": lambda: setattr(self, "table", dict(self.table)),
        }


@settings(max_examples=12)
@given(st.data())
def test_random_changes_between_calls(data: Any) -> None:
    world = World()
    names = data.draw(st.lists(st.sampled_from(sorted(world.reads())), min_size=1, max_size=4))

    def fn(x: Any) -> Any:
        reads = world.reads()
        for name in names:
            x = reads[name](x)
        return x

    compiled = torch.compile(fn, mode="bitwise")
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    for _ in range(6):
        found, wanted = run(compiled, x), run(fn, x)
        check_same(found, wanted)
        k = data.draw(st.sampled_from((1.0, 2, 0.5, -0.0, 3.0)))
        world.changes(k)[data.draw(st.sampled_from(sorted(world.changes(k))))]()
        if compiled.given_up:
            break


def run(fn: Any, x: Any) -> Any:
    """A result, or the kind of error: an insert puts other things where numbers were."""
    try:
        return fn(x)
    except (TypeError, KeyError, IndexError) as error:
        return type(error).__name__
