"""Profiles of eager programs: nothing changes, nothing leaks, everything adds up."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne as torch
from lucerne import backends, profiler
from lucerne._src.base.process.profiler_hook import Watch
from lucerne._src.conformance import frozen_cases
from lucerne._src.conformance.cases import Case
from lucerne._src.ir import dispatch
from lucerne.profiler import ProfilerActivity, profile, record_function
from lucerne.profiler.events import events_of
from lucerne.profiler.recording import Recording, Span, Wanted
from lucerne.utils.data import DataLoader
from tests.profiler import bits
from tests.profiler.corners import CORNERS
from tests.profiler.programs import PROGRAMS


def is_clean() -> bool:
    """Whether nobody watches, and calls go the short way again."""
    return Watch.current is None and dispatch.state.special == 0


def trained(steps: int, around: Callable[[], Any] | None = None) -> bytes:
    """The bits of a small network after some steps, run inside `around()` if it is given."""
    torch.manual_seed(3)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(72, 8), torch.nn.Dropout(0.2), torch.nn.GELU(), torch.nn.Linear(8, 3),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    x, target = torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])

    def run() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), target).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()

    if around is None:
        run()
    else:
        with around():
            run()
    return b"".join(p.detach().numpy().tobytes() for p in [*net.parameters(), *net.buffers()])


EVERYTHING = {
    "record_shapes": True, "profile_memory": True, "with_stack": True, "with_flops": True,
    "with_modules": True,
}  # fmt: skip


@pytest.mark.parametrize("options", [{}, EVERYTHING], ids=["times", "everything"])
def test_results_are_the_same_bit_for_bit(options: dict[str, bool]) -> None:
    assert trained(3) == trained(3, lambda: profile(**options))
    assert is_clean()


def test_bits_that_differ_would_be_seen() -> None:
    assert trained(2) != trained(3)


def values(x: Any) -> Any:
    """The bytes of all tensors of a result."""
    if isinstance(x, torch.Tensor):
        return str(x.dtype), tuple(x.shape), x.detach().numpy().tobytes()
    return [values(y) for y in x] if isinstance(x, (tuple, list)) else x


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p != "creation"])
def test_programs_give_the_same_when_profiled(program: str) -> None:
    torch.manual_seed(0)
    plain = values(PROGRAMS[program](torch)())
    torch.manual_seed(0)
    run = PROGRAMS[program](torch)
    with profile(**EVERYTHING):
        seen = run()
    assert values(seen) == plain


@pytest.mark.parametrize("options", [{}, EVERYTHING], ids=["times", "everything"])
@pytest.mark.parametrize("name", CORNERS)
def test_unusual_ways_give_the_same_when_profiled(name: str, options: dict[str, bool]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = values(CORNERS[name]())
        with profile(**options):
            seen = CORNERS[name]()
    assert repr(values(seen)) == repr(plain)
    assert is_clean()


def test_answers_of_the_conformance_suite_are_the_same_when_profiled() -> None:
    assert bits.differing(list(frozen_cases(torch))[::80]) == []


@pytest.mark.nightly
def test_all_answers_of_the_conformance_suite_are_the_same_when_profiled() -> None:
    """`python -m tests.profiler.bits`"""
    assert bits.differing(list(frozen_cases(torch))) == []


def test_an_answer_that_differs_is_found() -> None:
    def count(device: str) -> Any:
        return torch.tensor(1.0 if Watch.current is None else 2.0)

    [problem] = bits.differing([Case("count", "T0", "float32", count, None)])
    assert problem.startswith("count")


def used() -> int:
    """Bytes of the host's memory in use."""
    return int(backends.get(backends.HOST).memory.allocated_now())  # type: ignore[attr-defined]


def test_a_thousand_steps_leave_memory_flat() -> None:
    x = torch.ones(64, 64, requires_grad=True)
    plan = profiler.schedule(wait=0, warmup=1, active=2)
    marks: list[tuple[int, int]] = []
    with profile(schedule=plan, profile_memory=True, record_shapes=True) as prof:
        for k in range(1000):
            (x * 2).relu().sum().backward()
            x.grad = None
            prof.step()
            if k in (300, 960):
                gc.collect()
                marks.append((used(), len(gc.get_objects())))
    (early_bytes, early_objects), (late_bytes, late_objects) = marks
    assert late_bytes <= early_bytes + 4096
    assert late_objects <= early_objects + 2000


def test_nested_profiles_are_refused_and_the_outer_one_goes_on() -> None:
    x = torch.ones(3)
    with profile() as outer:
        with pytest.raises(RuntimeError, match=r"a profile is already running.*record_function"):
            profile().start()
        x.exp()
    assert [e.name for e in outer.events()] == ["aten::exp"]
    assert is_clean()


def test_an_error_inside_leaves_everything_clean() -> None:
    x = torch.ones(3)
    prof = profile(record_shapes=True)

    def part() -> None:
        with prof, record_function("part"):
            x.exp()
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        part()
    assert is_clean()
    assert [e.name for e in prof.events()] == ["part", "aten::exp"]
    with profile() as again:
        x.sin()
    assert [e.name for e in again.events()] == ["aten::sin"]


def test_an_op_that_raises_is_closed_like_any_other() -> None:
    x = torch.ones(3)
    with profile() as prof:
        with pytest.raises(RuntimeError):
            x @ torch.ones(4)
        x.exp()
    top = [e.name for e in prof.events() if e.cpu_parent is None]
    assert top == ["aten::ones", "aten::matmul", "aten::exp"]


def test_an_error_in_on_trace_ready_leaves_everything_clean() -> None:
    def fail(prof: profile) -> None:
        raise KeyError("full disk")

    with pytest.raises(KeyError, match="full disk"), profile(on_trace_ready=fail):
        torch.ones(2)
    assert is_clean()


def test_results_before_the_end_are_refused() -> None:
    with pytest.raises(RuntimeError, match="nothing was recorded yet"):
        profile().events()
    with profile() as prof, pytest.raises(RuntimeError, match="nothing was recorded yet"):
        prof.key_averages()


def test_a_profile_that_does_not_run_can_not_be_stopped() -> None:
    with pytest.raises(RuntimeError, match="not running"):
        profile().stop()


# ---- sums ---------------------------------------------------------------------------------------


SHORT = [name for name in PROGRAMS if name not in ("linear_algebra", "attention")]


@settings(max_examples=20, deadline=None)
@given(chosen=st.lists(st.sampled_from(SHORT), min_size=1, max_size=3))
def test_self_times_and_memory_add_up(chosen: list[str]) -> None:
    runs = [PROGRAMS[name](torch) for name in chosen]
    with profile(profile_memory=True) as prof:
        for run in runs:
            run()
    events = prof.events()
    total = sum(e.cpu_time_total for e in events if e.cpu_parent is None)
    assert sum(e.self_cpu_time_total for e in events) == pytest.approx(total, abs=1e-3)
    assert events.self_cpu_time_total == pytest.approx(total, abs=1e-3)
    averages = prof.key_averages()
    assert sum(a.self_cpu_time_total for a in averages) == pytest.approx(total, abs=1e-3)
    assert sum(a.count for a in averages) == len(events)
    memory = sum(e.cpu_memory_usage for e in events if e.cpu_parent is None)
    assert sum(e.self_cpu_memory_usage for e in events) == memory
    assert all(e.self_cpu_time_total > -1e-3 for e in events)


@settings(max_examples=20, deadline=None)
@given(chosen=st.lists(st.sampled_from(SHORT), min_size=1, max_size=3))
def test_children_lie_inside_their_parents_and_beside_each_other(chosen: list[str]) -> None:
    runs = [PROGRAMS[name](torch) for name in chosen]
    with profile() as prof:
        for run in runs:
            run()
    for event in prof.events():
        assert event.time_range.start <= event.time_range.end
        before = event.time_range.start
        for child in event.cpu_children:
            assert child.cpu_parent is event
            assert before <= child.time_range.start <= child.time_range.end
            before = child.time_range.end
        assert before <= event.time_range.end


# ---- what is noted ------------------------------------------------------------------------------


def test_shapes_memory_work_lines_and_modules() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(16, 32))
    x = torch.ones(8, 16)
    with profile(**EVERYTHING) as prof:
        net(x)
    linear = next(e for e in prof.events() if e.name == "aten::linear")
    assert linear.input_shapes == [[8, 16], [32, 16], [32]]
    assert linear.input_types == ["float", "float", "float"]
    assert linear.flops == 2 * 8 * 16 * 32
    assert linear.cpu_memory_usage == 8 * 32 * 4
    assert linear.stack[0].startswith(__file__)
    assert linear.stack[0].endswith("test_shapes_memory_work_lines_and_modules")
    assert linear.module_hierarchy == ("Sequential", "Linear")


def test_nothing_is_noted_that_was_not_asked_for() -> None:
    x = torch.ones(8, 16)
    with profile() as prof:
        x @ x.mT
    for event in prof.events():
        facts = event.input_shapes, event.stack, event.flops, event.cpu_memory_usage
        assert facts == ([], [], 0, 0)


def test_averages_by_shape_and_by_line() -> None:
    small, large = torch.ones(2), torch.ones(3)
    with profile(record_shapes=True, with_stack=True) as prof:
        small.exp()
        large.exp()
        large.exp()
    assert {a.key: a.count for a in prof.key_averages()} == {"aten::exp": 3}
    by_shape = prof.key_averages(group_by_input_shape=True)
    assert {str(a.input_shapes): a.count for a in by_shape} == {"[[2]]": 1, "[[3]]": 2}
    assert len(prof.key_averages(group_by_stack_n=1)) == 3


def test_optimizers_and_loaders_are_named_as_in_torch() -> None:
    p = torch.ones(3, requires_grad=True)
    loader = DataLoader([torch.ones(2), torch.zeros(2)], batch_size=1)
    optimizers = [torch.optim.SGD([p], lr=0.1), torch.optim.AdamW([p])]
    with profile() as prof:
        for _ in loader:
            continue
        for optimizer in optimizers:
            p.sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    counts = {a.key: a.count for a in prof.key_averages()}
    assert counts["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"] == 3
    assert counts["Optimizer.step#SGD.step"] == counts["Optimizer.step#AdamW.step"] == 1
    assert counts["Optimizer.zero_grad#AdamW.zero_grad"] == 1


def test_record_function_is_a_decorator_too() -> None:
    @record_function("twice")
    def twice(x: Any, again: bool = True) -> Any:
        return twice(x, False) if again else x * 2

    x = torch.ones(2)
    twice(x)  # without a profile it does nothing
    with profile() as prof:
        twice(x)
    outer, inner, op = prof.events()
    assert (outer.name, inner.name, op.name) == ("twice", "twice", "aten::mul")
    assert inner.cpu_parent is outer
    assert op.cpu_parent is inner
    assert outer.is_user_annotation


def test_other_threads_are_seen_with_their_own_number() -> None:
    x = torch.ones(3)

    def work() -> None:
        with record_function("there"):
            x.sin()

    with profile() as prof, record_function("here"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        x.cos()
    numbers = {e.name: e.thread for e in prof.events()}
    assert numbers["here"] == numbers["aten::cos"] == 1
    assert numbers["there"] == numbers["aten::sin"] == 2
    assert next(e for e in prof.events() if e.name == "there").cpu_parent is None


def test_threads_are_numbered_as_they_appear() -> None:
    recording = Recording(Wanted())
    for thread, begin in ((900, 5), (17, 10), (900, 20)):
        span = Span(f"at {begin}", "function", thread, None)
        span.begin, span.end = begin, begin + 1
        recording.spans.append(span)
    found = [(e.name, e.thread) for e in events_of(recording)]
    assert found == [("at 5", 1), ("at 20", 1), ("at 10", 2)]


def test_a_profile_is_stopped_where_it_was_started() -> None:
    prof = profile()
    prof.start()
    errors: list[BaseException] = []

    def stop() -> None:
        try:
            prof._recording.stop()  # type: ignore[union-attr]
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=stop)
    thread.start()
    thread.join()
    prof.stop()
    assert "the thread that started it" in str(errors[0])
    assert is_clean()


def test_a_profile_of_another_thread_sees_that_thread() -> None:
    x = torch.ones(3)
    found: list[str] = []

    def work() -> None:
        with profile() as prof:
            x.sin().sum()
        found.extend(e.name for e in prof.events())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == ["aten::sin", "aten::sum"]
    assert is_clean()


def test_a_profile_may_end_in_the_middle_of_a_backward_pass() -> None:
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    prof = profile(profile_memory=True)

    def stop(g: Any) -> None:
        prof.stop()

    y.register_hook(stop)
    prof.start()
    y.exp().sum().backward()
    assert is_clean()
    assert x.grad is not None
    assert "ExpBackward0" in {e.name for e in prof.events()}
    assert all(e.time_range.end >= e.time_range.start for e in prof.events())


FORKING = """
import os, warnings
import lucerne as torch
from lucerne._src.base.process.profiler_hook import Watch
from lucerne._src.ir import dispatch
from lucerne.profiler import profile

x = torch.ones(3)
warnings.simplefilter("ignore")
with profile() as prof:
    child = os.fork()
    if not child:
        good = Watch.current is None and dispatch.state.special == 0 and x.exp().sum().item() > 8
        os._exit(0 if good else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    x.sin()
print(code, [e.name for e in prof.events()])
"""


def test_a_forked_process_is_not_profiled() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True)
    assert done.stdout.split("\n")[0] == "0 ['aten::sin']", done.stderr


def test_collection_can_be_switched_off_for_a_while() -> None:
    x = torch.ones(2)
    with profile() as prof:
        x.exp()
        prof.toggle_collection_dynamic(False, [ProfilerActivity.CPU])
        x.sin()
        prof.toggle_collection_dynamic(True, [ProfilerActivity.CPU])
        x.cos()
    assert [e.name for e in prof.events()] == ["aten::exp", "aten::cos"]


def test_devices_that_are_not_there_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="CUDA is not available, disabling CUDA profiling"):
        prof = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    assert prof.activities == profiler.supported_activities() == {ProfilerActivity.CPU}
    with (
        pytest.warns(UserWarning, match="XPU is not available"),
        pytest.raises(AssertionError, match="No valid profiler activities"),
    ):
        profile(activities=[ProfilerActivity.XPU])


@pytest.mark.parametrize("name", ["experimental_config", "execution_trace_observer"])
def test_parts_of_another_library_are_refused(name: str) -> None:
    with pytest.raises(NotImplementedError, match="leave it out"):
        profile(**{name: object()})


# ---- the older spelling -------------------------------------------------------------------------


def test_the_older_profile_does_the_same() -> None:
    x = torch.ones(2)
    older = torch.autograd.profiler
    with older.profile(record_shapes=True) as prof, older.record_function("part"):
        x.exp()
    assert [e.name for e in prof.function_events] == ["part", "aten::exp"]
    assert "aten::exp" in prof.table()
    assert prof.total_average().count == 2
    assert prof.self_cpu_time_total > 0
    assert str(torch.autograd.profiler.profile()) == "<unfinished profile>"


def test_a_disabled_profile_sees_nothing() -> None:
    with torch.autograd.profiler.profile(enabled=False) as prof:
        assert prof is None
        assert is_clean()


@pytest.mark.parametrize("name", ["emit_nvtx", "emit_itt"])
def test_marks_for_other_tools_are_refused_with_what_to_do(name: str) -> None:
    marks = getattr(torch.autograd.profiler, name)
    with pytest.raises(RuntimeError, match="export_chrome_trace"), marks():
        torch.ones(1)
    with marks(enabled=False):
        torch.ones(1)
    assert not profiler.itt.is_available()
