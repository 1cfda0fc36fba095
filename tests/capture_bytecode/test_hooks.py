"""What the hooks of a machine are asked, in which order, and what a stop leaves behind."""

from __future__ import annotations

import dis
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucerne._src.base.process.source_location import user_place
from lucerne._src.capture.bytecode import (
    INLINE,
    NATIVE,
    NOTHING,
    UNSET,
    Access,
    Decision,
    Finished,
    Machine,
    Plain,
    PythonGenerator,
    Stop,
    Stopped,
    current_table,
    decision_for,
    rebuilt,
)
from lucerne._src.capture.bytecode.binding import bind
from lucerne._src.capture.bytecode.decode import Decoded, decode
from tests.capture_bytecode.table import CASES

LIMIT = 5


class Diary(Plain):
    """Hooks that write down what they are asked, and stop before calls of `stops`."""

    def __init__(self, *stops: Any) -> None:
        self.stops, self.lines = stops, []
        self.lines: list[tuple[Any, ...]]

    def decide_call(
        self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Decision | Stop:
        self.lines.append(("call", getattr(fn, "__name__", "?"), tuple(args)))
        return Stop("not this") if fn in self.stops else decision_for(fn)

    def before_branch(self, value: Any) -> Stop | None:
        self.lines.append(("branch", value))
        return Stop("a branch") if value in self.stops else None

    def read(self, container: Any, key: Any, value: Any, how: Access) -> Any:
        if how is not Access.GLOBAL or key == "LIMIT":
            self.lines.append(("read", how.value, key, value))
        return value

    def write(self, container: Any, key: Any, old: Any, new: Any, how: Access) -> None:
        self.lines.append(("write", how.value, key, old, new))

    def told(self, *kinds: str) -> list[tuple[Any, ...]]:
        """The lines of these kinds."""
        return [line for line in self.lines if line[0] in kinds]


def run(hooks: Plain, fn: Callable[..., Any], *args: Any) -> Any:
    machine = Machine(hooks)
    return machine.run([machine.frame_of(fn, args)])


def value_of(outcome: Any) -> Any:
    assert isinstance(outcome, Finished)
    return outcome.value


def test_reads_are_told() -> None:
    def fn(box: Any, xs: list[int]) -> int:
        return box.a + xs[1] + LIMIT + len(cell)

    cell = [1, 2]
    diary = Diary()
    assert value_of(run(diary, fn, SimpleNamespace(a=7), [1, 2])) == 16
    assert diary.told("read") == [
        ("read", "attribute", "a", 7),
        ("read", "item", 1, 2),
        ("read", "global", "LIMIT", 5),
        ("read", "cell", "cell", [1, 2]),
    ]


def test_what_a_read_gives_can_be_changed() -> None:
    class Double(Plain):
        def read(self, container: Any, key: Any, value: Any, how: Access) -> Any:
            return value * 2 if type(value) is int else value

    assert value_of(run(Double(), lambda box: box.a + LIMIT, SimpleNamespace(a=3))) == 16


def test_writes_are_told_before_they_happen() -> None:
    def fn(box: Any, xs: list[int], d: dict[str, int]) -> None:
        global LIMIT
        nonlocal cell
        box.a = 1
        box.a = 2
        del box.a
        xs[0] = 9
        xs.append(4)
        xs += [5]
        d["k"] = 1
        del d["k"]
        d.update(z=3)
        LIMIT = 5
        cell = 2
        setattr(box, "b", 3)  # noqa: B010

    cell = 1
    diary = Diary()
    run(diary, fn, SimpleNamespace(), [0], {})
    nothing = NOTHING
    assert diary.told("write") == [
        ("write", "attribute", "a", nothing, 1),
        ("write", "attribute", "a", 1, 2),
        ("write", "attribute", "a", 2, nothing),
        ("write", "item", 0, 0, 9),
        ("write", "method", "append", nothing, ((4,), {})),
        ("write", "method", "__iadd__", nothing, (([5],), {})),
        ("write", "item", "k", nothing, 1),
        ("write", "item", "k", 1, nothing),
        ("write", "method", "update", nothing, ((), {"z": 3})),
        ("write", "global", "LIMIT", 5, 5),
        ("write", "cell", "cell", 1, 2),
        ("write", "attribute", "b", nothing, 3),
    ]


def test_a_refused_write_has_not_happened() -> None:
    class Frozen(Plain):
        def write(self, container: Any, key: Any, old: Any, new: Any, how: Access) -> None:
            raise Stop(f"{key} is written")

    xs = [1]
    stopped = run(Frozen(), lambda xs: xs.append(2), xs)
    assert isinstance(stopped, Stopped)
    assert stopped.reason == "append is written"
    assert xs == [1]


def test_a_stop_deep_inside_leaves_the_whole_chain() -> None:
    def inner(x: int) -> int:
        return x + hash("a") - hash("a")

    def generator(x: int) -> Any:
        yield inner(x)
        yield inner(x + 1)

    def outer(x: int) -> list[int]:
        return [y * 2 for y in generator(x)]

    machine = Machine(Diary(hash))
    outcome: Any = machine.run([machine.frame_of(outer, (3,))])
    names = [f.code.co_name for f in outcome.frames]
    assert names[0] == "outer"
    assert names[-2:] == ["generator", "inner"]
    stops = 0
    while isinstance(outcome, Stopped):
        stops += 1
        frames = outcome.frames
        assert isinstance(machine.execute(frames), Stopped)
        outcome = machine.run(frames)
    assert stops == 4
    assert outcome.value == [6, 8]


def test_a_stop_inside_native_code_stops_the_native_call() -> None:
    def generator() -> Any:
        yield hash("x")

    def fn() -> Any:
        return dict.fromkeys(generator(), 1)

    outcome = run(Diary(hash), fn)
    assert isinstance(outcome, Stopped)
    assert [f.code.co_name for f in outcome.frames] == ["fn"]
    assert [f.code.co_name for f in outcome.stop.inside] == ["generator"]


def test_native_calls_are_not_entered() -> None:
    class Never(Plain):
        def decide_call(
            self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
        ) -> Decision | Stop:
            return NATIVE

    def callee() -> str:
        return sys._getframe(1).f_code.co_name

    assert value_of(run(Never(), lambda: callee())) != "<lambda>"
    assert decision_for(callee) is INLINE
    assert decision_for(len) is NATIVE
    assert decision_for(inspect.signature) is NATIVE


def test_code_that_cannot_be_run_is_told_of() -> None:
    class Strict(Plain):
        def unknown(self, fn: Any, why: str) -> Stop | None:
            return Stop(why, fn)

    async def later() -> int:
        return 1

    def fn() -> Any:
        return later()

    outcome = run(Strict(), fn)
    assert isinstance(outcome, Stopped)
    assert outcome.stop.detail is later
    assert outcome.reason.endswith("later is asynchronous")
    value_of(run(Plain(), fn)).close()


def test_branches_on_plain_truth_are_not_asked() -> None:
    def fn(a: Any, b: Any) -> int:
        if a:
            return 1
        return 2 if b else 3

    diary = Diary()
    assert value_of(run(diary, fn, False, [0])) == 2
    assert diary.told("branch") == [("branch", [0])]
    outcome = run(Diary([0]), fn, None, [0])
    assert isinstance(outcome, Stopped)
    assert outcome.frames[-1].stack == [[0]]


def test_an_error_can_be_hidden_from_handlers() -> None:
    class Hide(Plain):
        def raised(self, error: BaseException) -> Stop | None:
            return Stop("hidden", error) if isinstance(error, KeyError) else None

    def fn(d: dict[str, int]) -> Any:
        try:
            return d["a"]
        except Exception:
            return "caught"

    outcome = run(Hide(), fn, {})
    assert isinstance(outcome, Stopped)
    assert isinstance(outcome.stop.detail, KeyError)
    assert outcome.frames[-1].stack == [{}, "a"]


def test_before_is_asked_at_every_instruction() -> None:
    names: list[str] = []

    def before(frame: Any) -> Stop | None:
        names.append(frame.decoded.ops[frame.ip].name)
        return Stop("here") if names[-1] == "BINARY_OP" else None

    machine = Machine(Plain())
    outcome = machine.run([machine.frame_of(lambda a: a + 1, (1,))], before=before)
    assert isinstance(outcome, Stopped)
    assert names[-1] == "BINARY_OP"
    assert outcome.frames[-1].stack == [1, 1]
    assert value_of(machine.run(outcome.frames)) == 2


def test_lines_of_the_user_are_known_to_ops_and_tracebacks() -> None:
    seen = []

    def inner(x: int) -> float:
        seen.append(user_place())
        return 1 / x

    def outer(x: int) -> float:
        return inner(x)

    with pytest.raises(ZeroDivisionError) as caught:
        run(Plain(), outer, 0)
    assert seen == [(inner.__code__, inner.__code__.co_firstlineno + 1)]
    found = [(f.name, f.line) for f in traceback.extract_tb(caught.value.__traceback__)]
    assert found[-2:] == [("outer", "return inner(x)"), ("inner", "return 1 / x")]


def test_frames_are_listed_and_rebuilt_with_other_values() -> None:
    def fn(a: int, b: int) -> int:
        c = a * 10
        return hash(c) + b

    machine = Machine(Diary(hash))
    stopped = machine.run([machine.frame_of(fn, (1, 2))])
    assert isinstance(stopped, Stopped)
    [frame] = stopped.frames
    assert frame.locals == {"a": 1, "b": 2, "c": 10}
    listing = frame.listing()
    other = rebuilt(
        listing, [{10: 70, 2: 5}.get(v, v) if v is not UNSET else v for v in listing.values]
    )
    machine.execute([other])
    assert value_of(machine.run([other])) == 75
    assert frame.locals == {"a": 1, "b": 2, "c": 10}
    with pytest.raises(ValueError, match="values here, 1 were given"):
        rebuilt(listing, [1])


def test_generators_of_the_machine_are_iterators_for_native_code() -> None:
    def count(n: int) -> Any:
        got = []
        for k in range(n):
            got.append((yield k))
        return got

    generator = value_of(run(Plain(), lambda: count(3)))
    assert type(generator) is PythonGenerator
    assert inspect.isgenerator(generator)
    assert next(generator) == 0
    assert generator.send("a") == 1
    assert list(generator) == [2]
    fresh = value_of(run(Plain(), lambda: count(3)))
    with pytest.raises(KeyError, match="thrown"):
        fresh.throw(KeyError("thrown"))
    fresh.close()
    assert list(fresh) == []


@pytest.mark.parametrize("one", CASES[::7], ids=str)
def test_handlers_are_where_dis_says(one: Any) -> None:
    """Our reading of the exception table, and jumps, against the standard library's."""
    code = one.fn.__code__
    decoded = decode(code, current_table())
    assert isinstance(decoded, Decoded)
    entries = dis.Bytecode(code).exception_entries
    for at, op in enumerate(decoded.ops):
        inside = [e for e in entries if e.start <= op.offset < e.end]
        region = decoded.region(at)
        assert (region is not None) == bool(inside)
        if region is not None:
            assert decoded.ops[region.target].offset == inside[0].target
            assert (region.depth, region.lasti) == (inside[0].depth, inside[0].lasti)


NAMES = ["a", "b", "c", "d", "z"]
FUNCTIONS: list[Any] = [
    lambda: locals(),
    lambda a, b=2: locals(),
    lambda a, /, b, *, c: locals(),
    lambda *args, c=3, **more: locals(),
    lambda a, b=1, /, c=2, *rest, d, **more: locals(),
]
"""Each says which values its variables got."""


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(FUNCTIONS),
    st.lists(st.integers(0, 9), max_size=5),
    st.dictionaries(st.sampled_from(NAMES), st.integers(10, 19), max_size=4),
)
def test_arguments_are_bound_as_python_binds_them(
    fn: Any, args: list[int], kwargs: dict[str, int]
) -> None:
    try:
        expected = fn(*args, **kwargs)
    except TypeError:
        expected = None
    found = bind(fn, tuple(args), kwargs, len(fn.__code__.co_varnames))
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert dict(zip(fn.__code__.co_varnames, found, strict=True)) == expected
