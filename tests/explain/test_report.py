"""What an explanation says: kernels, verdicts, memory, passes; and that it changes nothing."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne._src.explain import Explanation, text
from lucerne._src.explain.collect import changes, joined, judge
from lucerne._src.explain.memory import memory_of, size
from lucerne._src.explain.report import COMPUTE, MEMORY, OVERHEAD, KernelReport
from lucerne._src.ir.checks.lifetimes import most_in_use
from lucerne.profiler.limits import Limits
from tests.explain.scenes import Block, Training, batch, broken, line_of, norms

MACHINE = Limits("a machine", 1, {"float32": {"fma": 100.0}}, memory_gbs=10.0)
"""100 GFLOP/s and 10 GB/s: ten operations for each byte are where the roof bends."""


@pytest.fixture(scope="module")
def step() -> Explanation:
    return torch.explain(Training().step)(*batch())


def kernel(flops: int, nbytes: int, seconds: float) -> KernelReport:
    return KernelReport(0, "k", [], "", "", "float32", seconds, nbytes, flops)


VERDICTS = [
    ("many operations", kernel(10**9, 10**6, 0.02), COMPUTE, 0.5),
    ("many bytes", kernel(10**6, 10**8, 0.02), MEMORY, 0.5),
    ("at the bend", kernel(10**8, 10**7, 1e-3), COMPUTE, 1.0),
    ("nothing to do", kernel(100, 400, 1e-6), OVERHEAD, 0.04),
    ("little, but slow", kernel(100, 400, 1.0), MEMORY, 4e-8),
    ("not measured", kernel(10**9, 10**6, 0.0), COMPUTE, 0.0),
]


@pytest.mark.parametrize(
    ("made", "verdict", "fraction"), [r[1:] for r in VERDICTS], ids=[r[0] for r in VERDICTS]
)
def test_verdicts(made: KernelReport, verdict: str, fraction: float) -> None:
    judge(made, MACHINE)
    assert made.verdict == verdict
    assert made.fraction == pytest.approx(fraction)


def test_every_kernel_is_measured_and_has_a_line(step: Explanation) -> None:
    kernels = list(step.report.kernels())
    assert len(kernels) > 10
    for k in kernels:
        assert k.seconds > 0
        assert k.origins
        assert k.nbytes > 0
        assert sum(seconds for _, seconds in k.by_line()) == pytest.approx(k.seconds)
    lines = {o.line for k in kernels for o in k.origins}
    wanted = {line_of("up"), line_of("down"), line_of("loss", Training.step)}
    assert wanted <= lines
    assert "graph(" in kernels[0].text


def test_time_goes_to_the_line_that_computes() -> None:
    def heavy_then_light(x: Any) -> Any:
        y = x @ x
        return y + 1

    found = torch.explain(heavy_then_light)(torch.ones(64, 64))
    [made] = found.report.kernels()
    assert made.name == "batch_matmul + add2"
    shares = [seconds / made.seconds for _, seconds in made.by_line()]
    assert shares[0] > 0.95
    assert sum(shares) == pytest.approx(1)


def test_passes_begin_with_all_and_go_on_with_differences(step: Explanation) -> None:
    [part] = step.report.parts
    names = [p.name for p in part.passes]
    assert names[:2] == ["capture", "functionalize"]
    assert "cse" in names
    assert part.passes[0].diff.startswith("graph(")
    for before, after in zip(part.passes, part.passes[1:], strict=False):
        assert after.before == before.after
        changed = after.before != after.after
        assert not changed or after.diff, after.name
    assert all(p.why for p in part.passes)


def test_memory_is_what_the_program_needs(step: Explanation) -> None:
    [part] = step.report.parts
    assert part.memory is not None
    assert part.memory.peak == max(part.memory.in_use) <= part.memory.arena
    assert sum(o.nbytes for o in part.memory.owners) == part.memory.peak
    assert sum(n for _, n in part.memory.by("module")) == part.memory.peak


@pytest.mark.parametrize("fn", [norms, lambda x: (x @ x).softmax(1) @ x, lambda x: x.cumsum(0)])
def test_peak_agrees_with_the_compiler(fn: Any) -> None:
    compiled = torch.compile(fn)
    compiled(torch.ones(32, 32))
    program = compiled.entries[0].stages.program
    assert memory_of(program).peak == most_in_use(program)


def test_the_function_is_called_once_and_nothing_else_changes() -> None:
    explained, called = Training(), Training()
    x, y = batch()
    torch.manual_seed(3)
    found = torch.explain(explained.step)(x, y)
    after = torch.rand(2).tolist()
    torch.manual_seed(3)
    loss = torch.compile(called.step)(x, y)
    assert torch.rand(2).tolist() == after
    np.testing.assert_array_equal(found.result.detach().numpy(), loss.detach().numpy())
    for a, b in zip(explained.parameters(), called.parameters(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_both_halves_are_measured() -> None:
    layer = torch.nn.Linear(64, 64)
    found = torch.explain(lambda x: layer(x).relu().sum())(torch.ones(8, 64))
    assert [p.name for p in found.report.parts] == ["forward", "backward"]
    assert all(k.seconds > 0 for k in found.report.kernels())
    found.result.backward()
    assert layer.weight.grad is not None


def test_breaks_with_line_reason_and_fix(capsys: pytest.CaptureFixture[str]) -> None:
    found = torch.explain(broken)(torch.ones(16, 16), 2.0)
    assert capsys.readouterr().out.startswith("sum")
    assert len(found.report.parts) >= 2
    first = found.report.breaks[0]
    assert first.line == line_of("item", broken)
    told = str(found)
    assert f"scenes.py:{first.line} in broken" in told
    assert f"fix: {first.fix}" in told


def test_ops_outside_of_programs_are_told() -> None:
    @torch.compiler.disable
    def apart(x: Any) -> Any:
        return x.softmax(1)

    def mixed(x: Any) -> Any:
        y = x @ x
        return apart(y) + 1

    found = torch.explain(mixed)(torch.ones(8, 8))
    told = {op for x in found.report.outside for op in x.ops}
    assert "softmax" in told
    assert "outside of programs" in str(found)
    assert torch.explain(norms)(torch.ones(4, 4)).report.outside == []


def test_a_version_that_does_not_fit_is_no_part_of_the_call() -> None:
    compiled = torch.compile(norms)
    compiled(torch.ones(4, 8))
    found = torch.explain(compiled)(torch.ones(6, 8))
    [part] = found.report.parts
    assert part.kernels[0].shape == "6x8"


def test_random_numbers_and_views_of_results_are_not_told() -> None:
    def drawn(x: Any) -> Any:
        return (torch.nn.functional.dropout(x, 0.5) + 1).T

    assert torch.explain(drawn)(torch.ones(4, 4)).report.outside == []


def test_compiled_before_is_not_compiled_again() -> None:
    compiled = torch.compile(norms)
    compiled(torch.ones(4, 4))
    before = len(torch.compiler.ledger())
    found = torch.explain(compiled)(torch.ones(4, 4))
    assert len(torch.compiler.ledger()) == before
    assert [c.why for c in found.report.compiles][-1] == "first call"


def test_a_module_and_a_compiled_module() -> None:
    block = Block()
    for fn in (block, torch.compile(block)):
        found = torch.explain(fn)(torch.ones(2, 16))
        assert found.report.function == "Block"
        assert {o.module for k in found.report.kernels() for o in k.origins} >= {"up", "down"}


def test_json_is_plain(step: Explanation) -> None:
    again = json.loads(json.dumps(step.json()))
    assert again["function"] == "Training.step"
    assert len(again["parts"][0]["kernels"]) == len(list(step.report.kernels()))


def test_table_says_what_matters(step: Explanation) -> None:
    told = str(step)
    for words in ("1 program", "0 breaks", "not fused", "memory  arena", "guards", "by line",
                  "adam_update", "x is float32[8, 16] on cpu", "first call"):  # fmt: skip
        assert words in told, words


def test_small_words() -> None:
    assert joined(["mul", "exp", "mul"]) == "mul x2 + exp"
    assert [size(n) for n in (0, 999, 1000, 2.5e9)] == ["0 B", "999 B", "1.0 KB", "2.5 GB"]
    slow = dataclasses.replace(kernel(0, 1000, 1e-6), verdict=MEMORY)
    assert text.rate(slow) == "1.0 GB/s"


def test_differences_where_all_values_have_new_numbers() -> None:
    before = [f"%{k} = op{k}(%{k - 1})" for k in range(1, 30)]
    moved = [f"%{k + 5} = op{k}(%{k + 4})" for k in range(1, 30)]
    assert changes(before, before) == []
    assert changes(before, moved) == []
    found = changes(before, [*moved[:9], "%99 = new(%3)", *moved[10:]])
    assert [line for line in found if line[0] in "+-"] == [f"-{before[9]}", "+%99 = new(%3)"]
    few = changes(before, [*before[:9], "%99 = new(%3)", *before[10:]])
    assert [line for line in few if line[0] in "+-"] == [f"-{before[9]}", "+%99 = new(%3)"]
