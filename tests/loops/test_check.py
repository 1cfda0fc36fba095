"""The check of memory plans: it holds for captured programs, and finds plans that lose a value."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.ir.checks.lifetimes import ProgramError, check_places, scratch_values
from lucerne._src.ir.graph import Value
from lucerne._src.ir.meta import make_meta
from lucerne._src.ir.program import ARENA, RESULT
from lucerne._src.loops import lower
from lucerne._src.loops.check import CheckedMemory, Contents
from lucerne._src.loops.memory import Lifetime, Spare

F = torch.nn.functional
RANDOM = range(20, 300, 40)


# ---- contents of a buffer -----------------------------------------------------------------------


def test_contents_are_those_written_last() -> None:
    held = Contents()
    held.put(0, 100, "a")
    held.put(40, 60, "b")
    held.put(90, 120, "c")
    assert list(zip(held.starts, held.stops, held.owners, strict=True)) == [
        (0, 40, "a"), (40, 60, "b"), (60, 90, "a"), (90, 120, "c"),
    ]  # fmt: skip
    assert held.other_than(0, 40, "a") == ""
    assert held.other_than(30, 50, "a") == "b lies at 40"
    assert held.other_than(100, 130, "c") == "nothing was written at 120"
    held.put(0, 120, "d")
    assert held.other_than(0, 120, "d") == ""
    assert held.other_than(200, 210, "d") == "nothing was written at 200"


def test_memory_names_what_is_missing() -> None:
    memory, meta = CheckedMemory(), make_meta(torch.float32, (4,), None, torch.device("cpu"))
    a, b = Value(0, meta), Value(1, meta)
    memory.write((ARENA, 0, 0), meta, a)
    memory.read((ARENA, 0, 0), meta, a, "unit 1")
    memory.write((ARENA, 0, 8), meta, b)
    with pytest.raises(ProgramError, match=r"unit 2 needs %0 in arena\+0, and %1 lies at 8"):
        memory.read((ARENA, 0, 0), meta, a, "unit 2")
    with pytest.raises(ProgramError, match="nothing was written at 0"):
        memory.read((RESULT, 2, 0), meta, a, "unit 2")


# ---- plans that lose a value --------------------------------------------------------------------


def chain(x: Any, w: Any) -> Any:
    a = x @ w
    b = a.cumsum(0) @ w
    c = b.sort(0)[0] @ a
    return c @ x, (c @ b).cumsum(1), a.t()


def train(x: Any, w: Any) -> Any:
    y = F.softmax(x @ w, -1) @ w
    w.add_(y.sum(0), alpha=-0.1)
    x.copy_(y @ w)
    return y.cumsum(0), w * 2


def update(x: Any, w: Any) -> Any:
    before = x.clone()
    x.add_(1)
    return (x @ w) @ before


def all_in_one_place(rooms: list[Lifetime], spares: list[Spare]) -> int:
    """Every room at the beginning of the arena."""
    for room in rooms:
        room.home = -1, 0
    return max(room.nbytes for room in rooms)


def ends_at_once(placing: Any) -> dict[Value, int]:
    """As if nobody read any value."""
    return {}


def overwrites_all(placing: Any, old: Value, at: int, new: Value) -> bool:
    """Inputs are written over by their new values though others still read them."""
    return True


WRONG = {
    "one place": (lower, "plan", all_in_one_place, chain),
    "no reads": (lower._Placing, "_last_reads", ends_at_once, chain),
    "overwritten": (lower._Placing, "_may_overwrite", overwrites_all, update),
}


def planned(fn: Any) -> Any:
    compiled = torch.compile(fn, fullgraph=True)
    compiled(torch.randn(48, 48), torch.randn(48, 48))
    return compiled.entries[-1].stages.program


@pytest.mark.parametrize("fn", [chain, train, update], ids=lambda f: f.__name__)
def test_right_plans_pass(fn: Any) -> None:
    program = planned(fn)
    check_places(program)
    assert scratch_values(program)


@pytest.mark.parametrize("name", WRONG)
def test_a_plan_that_loses_a_value_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, attribute, wrong, fn = WRONG[name]
    monkeypatch.setattr(where, attribute, wrong)
    with pytest.raises(Exception, match="the memory plan is wrong"):
        planned(fn)


# ---- random programs ----------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize(
    "seeds",
    [range(20), *(pytest.param(range(k, k + 40), marks=pytest.mark.nightly) for k in RANDOM)],
    ids=str,
)
def test_random_programs(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """python -m pytest tests/loops/test_check.py -m nightly: 300 programs."""
    generate = pytest.importorskip("tests.compiler.generate")
    inputs, spelled = (
        pytest.importorskip(f"tests.compiler.{name}") for name in ("inputs", "program")
    )
    followed: list[Any] = []
    ordinary = lower.check_values

    def counted(*arguments: Any) -> None:
        ordinary(*arguments)
        followed.append(arguments)

    monkeypatch.setattr(lower, "check_values", counted)
    for seed in seeds:
        program = generate.generated(seed)
        compiled = torch.compile(spelled.function(program, torch))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                compiled(*(a.value for a in inputs.tensors(program, torch, 0)))
            except Exception:  # as eager: some programs raise
                continue
        assert "ProgramError" not in (compiled.given_up or "")
        for entry in compiled.entries:
            check_places(entry.stages.program)
            scratch_values(entry.stages.program)
    assert len(followed) >= len(seeds) // 2, "most programs are compiled"
