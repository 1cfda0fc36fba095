"""The programs of the table through `lucerne.compile`: the same results and effects, three times.

`python -m tests.capture_bytecode --compiled` runs all of them, with and without instructions.
"""

from __future__ import annotations

from collections import deque

import pytest

from lucerne._src.capture.bytecode import using, with_instructions_removed
from lucerne._src.capture.effects.unchanged import MutationCheck
from tests.capture_bytecode.cases import Case
from tests.capture_bytecode.compiled import assert_compiled_same, without_lines
from tests.capture_bytecode.random_programs import case_of
from tests.capture_bytecode.table import CASES

SLOW = {"recursion_error"}
ALL = [c for c in CASES if c.name not in SLOW]


@pytest.mark.parametrize("one", ALL[::9], ids=str)
def test_compiled_programs_do_the_same(one: Case) -> None:
    assert_compiled_same(one)


@pytest.mark.nightly
@pytest.mark.parametrize("one", ALL, ids=str)
def test_every_compiled_program_does_the_same(one: Case) -> None:
    assert_compiled_same(one)


@pytest.mark.parametrize("seed", range(4))
def test_compiled_random_programs_do_the_same(seed: int) -> None:
    assert_compiled_same(case_of(seed, tensors=True))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4, 304))
def test_many_compiled_random_programs_do_the_same(seed: int) -> None:
    assert_compiled_same(case_of(seed, tensors=True))


@pytest.mark.parametrize("seed", range(2))
def test_programs_are_right_with_a_third_of_the_instructions_unknown(seed: int) -> None:
    with with_instructions_removed(1 / 3, seed):
        for one in ALL[seed::12]:
            assert_compiled_same(one, calls=2)


def test_programs_are_right_in_a_python_without_a_table() -> None:
    with using(None):
        for one in ALL[2::12]:
            assert_compiled_same(one, calls=2)


def test_what_a_call_must_not_change_is_put_back() -> None:
    class Thing:
        pass

    thing = Thing()
    thing.xs, thing.d = [1], {"a": {2}}  # type: ignore[attr-defined]
    queue = deque([1])
    kept = MutationCheck([thing, queue])
    assert not kept.put_back()
    thing.xs.append(2)  # type: ignore[attr-defined]
    thing.d["a"].add(3)  # type: ignore[attr-defined]
    thing.new = 1  # type: ignore[attr-defined]
    queue.clear()
    assert kept.put_back()
    assert vars(thing) == {"xs": [1], "d": {"a": {2}}}
    assert list(queue) == [1]
    assert MutationCheck([iter([1])]).iterator is not None


def test_a_difference_of_results_is_found() -> None:
    calls = []

    def changing() -> int:
        calls.append(1)
        return len(calls)

    with pytest.raises(AssertionError, match="compiled, call 1"):
        assert_compiled_same(Case("changing", changing, tuple))
    seen = {"result": ("float", "-0.0"), "warned": [1], "error": ("E", "text", [3], None)}
    assert without_lines(seen) == {"result": ["float", "0.0"], "error": ["E", "text"]}
