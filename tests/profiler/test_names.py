"""The same small programs under both profilers show the same ops at the top, in the same order."""

from __future__ import annotations

import warnings
from functools import cache
from types import ModuleType
from typing import Any

import pytest

import lucerne
import lucerne.profiler
from lucerne._src.ir.op import table as op_table
from lucerne.profiler import names
from tests.profiler.differences import MORE, RENAMED, UNSEEN, translated
from tests.profiler.programs import PROGRAMS

pytestmark = pytest.mark.torch


def top_level(framework: Any, program: str) -> list[str]:
    """Names of the events that lie in no other, in their order."""
    run = PROGRAMS[program](framework)
    run()  # the first calls make kernels
    activities = [framework.profiler.ProfilerActivity.CPU]
    with framework.profiler.profile(activities=activities) as prof:
        run()
    events = sorted(prof.events(), key=lambda e: e.time_range.start)
    return [e.name for e in events if e.cpu_parent is None]


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pytest.importorskip("torch")
        pytest.importorskip("torch.profiler")
    return found


@cache
def shown_by(torch: ModuleType, program: str) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return top_level(torch, program)


@pytest.mark.parametrize("program", PROGRAMS)
def test_top_level_names_equal_those_of_torch(program: str, torch: ModuleType) -> None:
    assert top_level(lucerne, program) == translated(shown_by(torch, program), program)


def test_every_difference_occurs_and_has_a_reason(torch: ModuleType) -> None:
    theirs = {name for program in PROGRAMS for name in shown_by(torch, program)}
    assert set(UNSEEN) <= theirs
    assert set(RENAMED) <= theirs
    assert set(MORE) <= set(PROGRAMS)
    reasons = [*UNSEEN.values(), *(r for _, r in RENAMED.values()), *(r for _, r in MORE.values())]
    assert all(len(reason) > 5 for reason in reasons)


def test_translation_notices_a_difference() -> None:
    assert translated(["aten::rsub", "aten::detach", "aten::exp"], "x") == [
        "aten::sub",
        "aten::exp",
    ]
    assert translated(["aten::exp"], "x") != ["aten::sin"]


def test_names_of_backward_ops_carry_the_number_of_their_forward_op() -> None:
    x = lucerne.ones(3, requires_grad=True)
    with lucerne.profiler.profile() as prof:
        (x.exp() * 2).sum().backward()
    forward = {e.name: e.sequence_nr for e in prof.events() if e.scope == 0 and e.sequence_nr >= 0}
    backward = {e.name: e.sequence_nr for e in prof.events() if e.scope == 1}
    assert forward["aten::exp"] < forward["aten::mul"] < forward["aten::sum"]
    for op, node in (("exp", "ExpBackward0"), ("mul", "MulBackward0"), ("sum", "SumBackward0")):
        assert forward[f"aten::{op}"] == backward[node]


def test_columns_of_the_table_equal_those_of_torch(torch: ModuleType) -> None:
    heads = []
    for framework in (torch, lucerne):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = framework.ones(64, 64)
            options = {"record_shapes": True, "profile_memory": True, "with_flops": True}
            with framework.profiler.profile(**options) as prof:
                framework.mm(x, x)
        text = prof.key_averages(group_by_input_shape=True).table(row_limit=3)
        heads.append(text.splitlines()[1].split("  "))
        assert text.endswith("\n")
        assert text.splitlines()[-1].startswith("Self CPU time total: ")
    theirs, ours = ([part.strip() for part in head if part.strip()] for head in heads)
    assert ours[:-1] == theirs[:-1]
    assert ours[-1].startswith("Total ")
    assert theirs[-1].startswith("Total ")


def test_every_name_with_torchs_prefix_is_one_of_torchs(torch: ModuleType) -> None:
    known = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    shown = {names.spelled(name) for name in op_table()}
    assert (
        sorted(n for n in shown if n is not None and n.startswith("aten::") and n not in known)
        == []
    )
