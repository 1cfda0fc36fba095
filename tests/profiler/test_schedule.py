"""When to record: the same as in PyTorch, step by step."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne.profiler as ours
from lucerne.profiler import ProfilerAction, profile, schedule

pytestmark = pytest.mark.torch

ACTIONS = list(ProfilerAction)


@pytest.fixture(scope="module")
def theirs() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("torch.profiler")


def called(module: Any, **plan: int) -> list[int]:
    """What a schedule says of the first 60 steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = module.schedule(**plan)
    return [found(step).value for step in range(60)]


@settings(max_examples=200, deadline=None)
@given(
    wait=st.integers(0, 5), warmup=st.integers(0, 4), active=st.integers(1, 5),
    repeat=st.integers(0, 3), skip_first=st.integers(0, 6), skip_first_wait=st.integers(0, 1),
)  # fmt: skip
def test_schedules_equal_those_of_torch(theirs: ModuleType, **plan: int) -> None:
    assert called(ours, **plan) == called(theirs, **plan)


class Watched:
    """Goes through given actions and notes whether it records in each step, when traces are handed
    over, and warnings. Nothing is recorded really: PyTorch 2.13 crashes where a schedule goes from
    RECORD to WARMUP."""

    def __init__(self, module: Any, actions: list[int]) -> None:
        self.ready: list[int] = []
        self.records: list[bool] = []
        self.on = False
        plan = [module.ProfilerAction(a) for a in actions]
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            prof = _dry(module, self)(
                activities=[module.ProfilerActivity.CPU],
                schedule=lambda step: plan[min(step, len(plan) - 1)],
                on_trace_ready=lambda p: self.ready.append(p.step_num),
            )
            with prof:
                self.records.append(self.on)
                for _ in range(len(plan) - 1):
                    prof.step()
                    self.records.append(self.on)
        self.records.append(self.on)
        self.warnings = [str(w.message) for w in told if "Incorrect schedule" in str(w.message)]

    def facts(self) -> Any:
        return self.ready, self.records, self.warnings


def _dry(module: Any, watched: Watched) -> Any:
    """The profile of a framework, which only says that it would record."""

    class Dry(module.profile):  # type: ignore[misc]
        def prepare_trace(self) -> None:
            """Nothing to prepare."""

        def start_trace(self) -> None:
            assert not watched.on
            watched.on = True

        def stop_trace(self) -> None:
            assert watched.on
            watched.on = False

    return Dry


@settings(max_examples=200, deadline=None)
@given(actions=st.lists(st.integers(0, 3), min_size=1, max_size=7))
def test_profiles_go_through_any_actions_as_in_torch(
    theirs: ModuleType, actions: list[int]
) -> None:
    assert Watched(ours, actions).facts() == Watched(theirs, actions).facts()


@pytest.mark.parametrize("before", ACTIONS, ids=lambda a: a.name)
@pytest.mark.parametrize("after", ACTIONS, ids=lambda a: a.name)
def test_every_transition_is_as_in_torch(
    before: ProfilerAction, after: ProfilerAction, theirs: ModuleType
) -> None:
    actions = [before.value, after.value]
    assert Watched(ours, actions).facts() == Watched(theirs, actions).facts()


@pytest.mark.parametrize(
    "wrong", [{"wait": -1}, {"warmup": -1}, {"active": 0}, {"repeat": -1}, {"skip_first": -2}],
    ids=str,
)  # fmt: skip
def test_senseless_schedules_are_refused_with_what_was_given(wrong: dict[str, int]) -> None:
    name, number = next(iter(wrong.items()))
    with pytest.raises(AssertionError, match=f"Invalid profiler schedule.*'{name}': {number}"):
        schedule(**{"wait": 1, "warmup": 1, "active": 1, **wrong})


def test_no_warmup_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="won't be using warmup"):
        schedule(wait=1, warmup=0, active=1)


def test_steps_are_named_and_only_the_last_stretch_is_kept() -> None:
    kept: list[list[str]] = []
    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(schedule=plan, on_trace_ready=lambda p: kept.append(names(p))) as prof:
        for _ in range(10):
            prof.step()
    assert kept == [
        ["ProfilerStep#2", "ProfilerStep#3"], ["ProfilerStep#6", "ProfilerStep#7"],
    ]  # fmt: skip


def test_acc_events_keeps_all_stretches() -> None:
    plan = schedule(wait=0, warmup=1, active=1, repeat=2)
    with profile(schedule=plan, acc_events=True) as prof:
        for _ in range(5):
            prof.step()
    assert names(prof) == ["ProfilerStep#1", "ProfilerStep#3"]
    starts = [e.time_range.start for e in prof.events()]
    assert starts == sorted(starts)


def names(prof: profile) -> list[str]:
    return [event.name for event in prof.events()]
