"""A sample of the table in each run; all of it at night (`python -m tests.capture_python`)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.capture.bytecode import with_instructions_removed
from tests.capture_python import all_programs
from tests.capture_python.machine import compare_case, machine_cases
from tests.capture_python.table import Program, compare, program

ROWS = all_programs()


@pytest.mark.parametrize("row", ROWS[::7], ids=lambda row: row.name)
def test_a_program_does_what_it_does_uncompiled(row: Program) -> None:
    wrong, _ = compare(row)
    assert wrong == []


@pytest.mark.nightly
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_all_programs(row: Program) -> None:
    wrong, _ = compare(row)
    assert wrong == []


def test_the_comparison_sees_a_difference() -> None:
    def makes() -> Any:
        sides.append(1)
        return (lambda x: x * len(sides)), None

    sides: list[int] = []
    wrong, _ = compare(Program("differs", makes))
    assert wrong


def test_names_are_unique() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names)) >= 80
    assert callable(program)


def test_a_loop_that_breaks_at_each_turn_is_compiled_once() -> None:
    def fn(x: Any) -> Any:
        for _ in range(20):
            x = x * 0.9 + 0.1
            if x.sum() > 1e6:
                break
        return x

    compiled = torch.compile(fn)
    x = torch.ones(4)
    assert torch.allclose(compiled(x), fn(x))
    count = len(compiled.entries)
    assert count <= 3
    compiled(x + 1)
    assert len(compiled.entries) == count


def test_a_counter_is_no_reason_to_compile_again() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.steps, self.seen = 0, []

        def step(self, x: Any) -> Any:
            y = x * 2
            self.steps += 1
            self.seen.append(y.sum())
            return y + 1

    trainer = Trainer()
    compiled = torch.compile(trainer.step)
    counts = []
    for k in range(6):
        compiled(torch.ones(3) * k)
        counts.append(len(compiled.entries))
    assert counts[1] == counts[-1] <= 3
    assert trainer.steps == 6
    assert [t.item() for t in trainer.seen] == [6.0 * k for k in range(6)]


def test_what_is_not_read_is_not_compared() -> None:
    class Holder:
        def __init__(self) -> None:
            self.scale, self.noise = 2.0, 0

    holder = Holder()

    def fn(x: Any) -> Any:
        y = x * holder.scale
        print(end="")
        return y + 1

    compiled = torch.compile(fn)
    for k in range(4):
        holder.noise = k
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2) * 2 + 1)
    count = len(compiled.entries)
    holder.scale = 3.0
    assert torch.equal(compiled(torch.ones(2)), torch.ones(2) * 3 + 1)
    assert len(compiled.entries) == count + 1


def test_sizes_in_random_order_need_three_compiles() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    compiled = torch.compile(lambda x: model(x).sum())
    for n in (torch.randperm(64) + 1).tolist():
        x = torch.ones(n, 4)
        assert torch.allclose(compiled(x), model(x).sum(), rtol=1e-4)
    assert len(compiled.entries) <= 3


@pytest.mark.parametrize("share", [0.33, 0.04])
@pytest.mark.parametrize("row", ROWS[3::24], ids=lambda row: row.name)
def test_with_unknown_instructions_it_is_still_right(row: Program, share: float) -> None:
    with with_instructions_removed(share, 5) as gone:
        assert gone
        wrong, _ = compare(row)
    assert wrong == []


def test_an_interpreter_without_a_table_captures_by_ops_alone() -> None:
    with with_instructions_removed(1.0, 0):
        compiled = torch.compile(lambda x: (x * 2).relu() + 1)
        assert torch.equal(compiled(torch.ones(3)), torch.ones(3) * 3)
        assert len(compiled.entries) == 1
        looks = torch.compile(lambda x: x * x.sum().item())
        with pytest.warns(UserWarning, match="runs uncompiled: break 2"):
            assert torch.equal(looks(torch.ones(2)), torch.ones(2) * 2)


@pytest.mark.parametrize("row", machine_cases()[::40], ids=lambda one: one.name)
def test_programs_of_the_machine(row: Any) -> None:
    wrong, _ = compare_case(row)
    assert wrong == []


def test_sizes_change_in_parts_too() -> None:
    def fn(x: Any) -> Any:
        y = x * 2
        if y.sum() > 1e9:
            return y
        return (y + 1).relu()

    compiled = torch.compile(fn)
    for n in (3, 7, 2, 11, 30, 5, 64, 9, 12, 40):
        assert torch.equal(compiled(torch.ones(n, 2)), fn(torch.ones(n, 2)))
    assert len(compiled.entries) <= 4
    assert [b.kind for b in compiled.breaks] == ["branch"]


def test_threads_may_call_it_together() -> None:
    def fn(x: Any) -> Any:
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        return y * 3

    compiled = torch.compile(fn)
    wrong: list[Any] = []

    def work(k: int) -> None:
        x = torch.ones(4) * (k - 2)
        for _ in range(5):
            if not torch.equal(compiled(x), fn(x)):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []
