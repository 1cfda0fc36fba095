"""An internal error costs the optimisation, never the call. All of it: `python -m tests.faults`."""

from __future__ import annotations

import ast
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.capture.compiled import Compiled
from lucerne._src.capture.ledger import CompileBudgetError
from lucerne._src.capture.trace.fake import CaptureError
from lucerne._src.pipeline.passes import PASSES
from tests.faults.check import checked, name_of, points
from tests.faults.planting import ERRORS, PACKAGE, PUTS_BACK, entered, is_point, planted
from tests.faults.programs import PROGRAMS, Program, run, same

_SAMPLE = 5
"""Faults per program."""
F = torch.nn.functional


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_a_sample_of_faults(program: Program) -> None:
    found = points(program)
    assert len(found) > 100, "the profile hook has seen too little"
    rng = random.Random(program.name)
    for code in rng.sample(found, _SAMPLE):
        error = rng.choice(ERRORS)
        outcome = checked(program, code, error, rng.randrange(2))
        assert not outcome.problems, str(outcome)


@pytest.mark.parametrize("name", [p.name for p in PASSES])
def test_every_pass(name: str) -> None:
    """Each pass of the list raises in turn."""
    chosen = next(p for p in PASSES if p.name == name)
    program = next(p for p in PROGRAMS if p.name == "gradients")
    outcome = checked(program, chosen.run.__code__, IndexError, 0)
    assert outcome.fired
    assert not outcome.problems, str(outcome)


STAGES = {
    "reach": "lucerne._src.capture.guards.reachable:ReachableState.__init__",
    "bytecode": "lucerne._src.capture.bytecode.handlers.operators:binary_op",
    "recorder": "lucerne._src.capture.trace.recorder:Recorder.run",
    "new objects": "lucerne._src.capture.effects.new_objects:NewObjects.end",
    "sweep": "lucerne._src.capture.effects.new_objects:_Sweep.count",
    "narrow": "lucerne._src.capture.guards.prune:narrow",
    "guards": "lucerne._src.capture.cache.entry:Guards.__init__",
    "functionalize": "lucerne._src.transforms.functionalize:functionalize",
    "count_draws": "lucerne._src.transforms.random:count_draws",
    "partition": "lucerne._src.transforms.partition:split",
    "grouping": "lucerne._src.loops.group:Grouping.__init__",
    "lowering": "lucerne._src.loops.lower:Lowering.program",
    "assembly": "lucerne._src.loops.run:make_runner",
    "entry": "lucerne._src.capture.cache.entry:CacheEntry.__init__",
    "ledger": "lucerne._src.capture.ledger:note",
    "joint": "lucerne._src.capture.cache.build:Building._backward",
}
BETWEEN_PARTS = {
    "a call": "lucerne._src.capture.breaks.resume:Glue._decided",
    "a branch": "lucerne._src.capture.breaks.resume:Glue._tell",
    "finding a part": "lucerne._src.capture.breaks.resume:ResumableFunction._found_anew",
}


@pytest.mark.parametrize("stage", [*STAGES, *BETWEEN_PARTS])
def test_every_stage(stage: str) -> None:
    module, _, name = {**STAGES, **BETWEEN_PARTS}[stage].partition(":")
    found: Any = __import__(module, fromlist=["x"])
    for part in name.split("."):
        found = getattr(found, part)
    wanted = "parts" if stage in BETWEEN_PARTS else "gradients"
    program = next(p for p in PROGRAMS if p.name == wanted)
    outcome = checked(program, found.__code__, ERRORS[len(stage) % (len(ERRORS) - 1)], 0)
    assert outcome.fired
    assert not outcome.problems, str(outcome)


# ---- what goes through ---------------------------------------------------------------------------


def _failing(error: type[BaseException]) -> tuple[Any, Any]:
    code = Compiled._make.__code__
    return planted(code, error), torch.compile(lambda x: x * 2)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, CompileBudgetError])
def test_what_is_meant_for_the_caller_goes_through(error: type[BaseException]) -> None:
    context, compiled = _failing(error)
    with context, pytest.raises(error):
        compiled(torch.ones(2))
    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
    assert not compiled.faults


def test_fullgraph_raises() -> None:
    code = Compiled._make.__code__
    compiled = torch.compile(lambda x: x * 2, fullgraph=True)
    with planted(code, IndexError), pytest.raises(CaptureError, match="raised PlantedIndexError"):
        compiled(torch.ones(2))


def test_the_warning_has_a_reference() -> None:
    compiled = torch.compile(lambda x: x * 2)
    with (
        planted(Compiled._make.__code__, KeyError),
        pytest.warns(UserWarning, match="internal") as told,
    ):
        compiled(torch.ones(2))
    text = str(told[0].message)
    for piece in (
        "runs uncompiled",
        "PlantedKeyError",
        "capture/compiled.py",
        "report",
        "disable",
    ):
        assert piece in text
    assert compiled.given_up is not None
    assert len(compiled.faults) == 1


def test_a_function_that_raises_itself_is_no_fault() -> None:
    def f(x: Any) -> Any:
        raise ValueError("mine")

    compiled = torch.compile(f)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="mine"):
            compiled(torch.ones(2))
    assert not compiled.faults


def test_what_is_spared_is_there() -> None:
    """A function that has moved would be planted in, though nothing is left to catch it."""
    for file, names in PUTS_BACK.items():
        found = {
            node.name
            for node in ast.walk(ast.parse(Path(PACKAGE, file).read_text()))
            if isinstance(node, ast.FunctionDef)
        }
        assert found >= set(names.split()), file


# ---- the harness can fail ------------------------------------------------------------------------


def test_the_harness_sees_wrong_results() -> None:
    numbers: Iterator[int] = iter(range(100))
    odd = Program("odd", lambda compiled, mark: lambda k: next(numbers))
    outcome = checked(odd, Compiled._make.__code__, RuntimeError, 0)
    assert any("gives" in p for p in outcome.problems)


def test_the_harness_sees_missing_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucerne._src.capture.faults.tell", lambda *args: None)
    outcome = checked(PROGRAMS[0], Compiled._make.__code__, RuntimeError, 0)
    assert outcome.fired
    assert any("0 warnings" in p for p in outcome.problems)


def test_numbers_are_compared() -> None:
    assert same([1.0, [2, "a"]], [1.00001, [2, "a"]])
    assert not same([1.0], [1.1])
    assert not same([1.0], [1])
    assert not same([1.0], [1.0, 2.0])


def test_planting_is_undone() -> None:
    code = Compiled._make.__code__
    with planted(code, RuntimeError):
        assert Compiled._make.__code__ is not code
    assert Compiled._make.__code__ is code
    assert is_point(code)
    assert code in entered(lambda: run(PROGRAMS[0], True, 1.5))
    assert "Compiled._make" in name_of(code)
