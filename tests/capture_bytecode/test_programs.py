"""The machine does what Python does: on every program of the table, and on programs by chance.

`python -m tests.capture_bytecode` runs all of it, on whichever Python runs it; a part is run here.
"""

from __future__ import annotations

import dis
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucerne._src.capture.bytecode import Machine, current_table, using, with_instructions_removed
from tests.capture_bytecode.cases import Case, assert_same, natively, observe_run
from tests.capture_bytecode.random_programs import case_of
from tests.capture_bytecode.runs import (
    as_far_as_known,
    in_machine,
    instructions_of,
    stopping_at,
    stopping_before_calls,
    stopping_every,
)
from tests.capture_bytecode.table import CASES, MODULES

SLOW = {"recursion_error"}
"""Thousands of frames: rebuilding them all at each instruction takes minutes."""
SAMPLE = [c for c in CASES if c.name not in SLOW]
SEEDS = st.integers(0, 10**6)


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__.rpartition("programs_")[2])
def test_programs_run_as_in_python(module: object) -> None:
    group = [c for c in CASES if c.fn.__module__ == module.__name__]  # type: ignore[attr-defined]
    assert group
    for one in group:
        expected = observe_run(one, natively)
        assert_same(one, expected, observe_run(one, in_machine))
        assert_same(one, expected, observe_run(one, stopping_before_calls), "stopped at calls")


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__.rpartition("programs_")[2])
def test_programs_survive_a_stop_at_every_instruction(module: object) -> None:
    for one in SAMPLE:
        if one.fn.__module__ == module.__name__:  # type: ignore[attr-defined]
            expected = observe_run(one, natively)
            assert_same(one, expected, observe_run(one, stopping_every(1)), "stopped everywhere")


@pytest.mark.nightly
@pytest.mark.parametrize("one", SAMPLE, ids=str)
def test_one_stop_at_each_instruction_in_turn(one: Case) -> None:
    assert_stops_anywhere(one)


@pytest.mark.parametrize("seed", range(3))
def test_programs_run_with_a_third_of_the_instructions_unknown(seed: int) -> None:
    with with_instructions_removed(1 / 3, seed) as gone:
        assert len(gone) > 20
        some = Counter(Machine.supported(c.fn.__code__) is None for c in CASES)
        assert some[False] > 100
        for one in CASES:
            assert_same(one, observe_run(one, natively), observe_run(one, as_far_as_known))


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_random_programs_run_as_in_python(seed: int) -> None:
    one = case_of(seed)
    expected = observe_run(one, natively)
    assert_same(one, expected, observe_run(one, in_machine))
    assert_same(one, expected, observe_run(one, stopping_every(2)), "stopped")
    assert_same(one, expected, observe_run(one, stopping_before_calls), "stopped at calls")


def test_the_table_is_large_and_uses_every_instruction() -> None:
    """At least 250 programs; each instruction of this Python that has a handler is met."""
    assert len({c.fn for c in CASES}) >= 250
    table = current_table()
    assert table is not None
    met: set[str] = set()
    todo = [c.fn.__code__ for c in CASES]
    todo += [
        f.__code__
        for m in MODULES
        for k in vars(m).values()
        for f in (vars(k).values() if isinstance(k, type) else [k])
        if hasattr(f, "__code__")
    ]
    while todo:
        code = todo.pop()
        met |= {i.opname for i in dis.get_instructions(code)}
        todo += [k for k in code.co_consts if isinstance(k, type(code))]
    never = {"NOP", "GET_LEN", "LOAD_FAST_CHECK", "LOAD_NAME", "UNARY_POSITIVE"}
    assert set(table.rules) - met <= never


def test_no_table_means_no_machine() -> None:
    """A Python that came after us: nothing can be interpreted, and the reason says so."""
    with using(None):
        reason = Machine.supported(in_machine.__code__)
    assert reason is not None
    assert reason.startswith("there is no instruction table for Python 3.")


def test_asynchronous_functions_are_refused() -> None:
    async def later() -> int:
        return 1

    assert Machine.supported(later.__code__) == f"{later.__qualname__} is asynchronous"


def test_a_difference_is_found() -> None:
    one = Case("wrong", lambda x: x, lambda: (1,))
    expected = observe_run(one, natively)
    with pytest.raises(AssertionError, match="expected"):
        assert_same(one, expected, observe_run(one, lambda fn, args: 2))
    with pytest.raises(AssertionError, match="RuntimeError"):
        assert_same(one, expected, observe_run(one, _failing))


def _failing(fn: object, args: object) -> object:
    raise RuntimeError("no")


def assert_stops_anywhere(one: Case) -> int:
    """Raise if a run that stops at some instruction, and goes on, differs; how many there are."""
    expected = observe_run(one, natively)
    count = instructions_of(one)
    for k in range(1, count):
        assert_same(one, expected, observe_run(one, stopping_at(k)), f"stopped at {k}")
    return count
