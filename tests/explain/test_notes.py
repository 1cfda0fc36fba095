"""Why two kernels are two: the reason is recorded where it was decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.capture.report.replay import replay
from lucerne._src.loops import group
from lucerne._src.loops.group import Grouping
from lucerne._src.loops.notes import NO_KERNEL, Notes, neighbours

x = torch.ones(64, 64)


def large_exp(a: Any) -> Any:
    return torch.exp(a @ a)


ROWS: list[tuple[str, Callable[..., Any], tuple[Any, ...], str]] = [
    ("a product's operands", lambda a: a.sin() @ a, (x,), "reads each element many times"),
    ("another shape", lambda a: a.exp().sum(0).sin().sum(), (x,), group.OTHER_SHAPE),
    ("other folds", lambda a: (a.sin(), a.sin().sum(0) + a.sin().sum(1)), (x,), group.OTHER_FOLDS),
    ("a fold behind a product", lambda a: (a @ a).sum(1), (x,), group.FOLD_BEHIND),
    ("long code behind it", large_exp, (torch.ones(512, 512),), group.COSTLY),
    ("turned around", lambda a: a.sin().T.contiguous().cos() * a, (x,), "order of elements"),
    ("a kernel of its own", lambda a: torch.sort(a.sin()).values, (x,), "kernel of its own"),
]


def reasons(fn: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    compiled = torch.compile(fn)
    compiled(*args)
    [entry] = compiled.entries
    [part] = replay(entry, compiled.options)
    assert part.program is not None
    for a in part.apart:
        assert 0 <= a.first < len(part.program.steps)
        assert 0 <= a.second < len(part.program.steps)
        assert a.first != a.second
    return [a.why for a in part.apart]


@pytest.mark.parametrize(("fn", "args", "why"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_reason(fn: Callable[..., Any], args: tuple[Any, ...], why: str) -> None:
    found = reasons(fn, args)
    assert any(why in reason for reason in found), found


def test_one_kernel_has_no_neighbours() -> None:
    assert reasons(lambda a: (a.sin() + 1).sum(), (x,)) == []


def test_nobody_asks_nothing_is_noted() -> None:
    compiled = torch.compile(lambda a: a.sin() @ a)
    compiled(x)
    [entry] = compiled.entries
    assert Grouping(entry.captured.graph, group.Fusion()).notes is None


def test_what_the_backend_refuses() -> None:
    compiled = torch.compile(lambda a: a.sin().cos())
    compiled(x)
    graph = compiled.entries[0].captured.graph
    notes = Notes(grouping=Grouping(graph, group.Fusion()))
    first, second = graph.nodes
    notes.units = [(0, [first], []), (1, [second], [])]
    notes.refused = [[first, second]]
    [apart] = neighbours(notes)
    assert (apart.first, apart.second, apart.why) == (0, 1, NO_KERNEL)
