"""Compile, FSDP, TP and activation checkpointing in any order: one program."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne.nn import functional as F
from lucerne.utils.checkpoint import checkpoint

pytest.importorskip("jax", reason="pip install 'lucerne[xla]': the device 'xla' runs on jax")

from lucerne._src.backends.xla.programs import StepProgram
from lucerne.distributed.device_mesh import init_device_mesh
from lucerne.distributed.fsdp import fully_shard
from lucerne.distributed.tensor.parallel import parallelize_module
from tests.xla.meshes import TWO, Two

pytestmark = pytest.mark.usefixtures("meshes")


def _compile(model: Any, mesh: Any) -> None:
    model.compile(fullgraph=True)


def _fsdp(model: Any, mesh: Any) -> None:
    fully_shard(model, mesh=mesh["data"])


def _tp(model: Any, mesh: Any) -> None:
    parallelize_module(model, mesh["model"], TWO)


def _checkpoint(model: Any, mesh: Any) -> None:
    forward = model.forward
    model.forward = lambda x: checkpoint(forward, x, use_reentrant=False)


STEPS: list[Callable[[Any, Any], None]] = [_compile, _fsdp, _tp, _checkpoint]
QUICK = [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)]


def _programs(steps: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], float]:
    """What XLA is given, forward and backward, and a number that comes of it."""
    seen: list[str] = []
    compiled = StepProgram._compiled

    def told(self: Any, lowered: Any) -> Any:
        seen.append(lowered.as_text())
        return compiled(self, lowered)

    torch.manual_seed(0)
    model, x = Two().to("xla"), torch.randn(16, 8).to("xla")
    y = torch.randint(0, 16, (16,)).to("xla")
    mesh = init_device_mesh("xla", (2, 4), mesh_dim_names=("data", "model"))
    for step in steps:
        step(model, mesh)
    with monkeypatch.context() as patched:
        patched.setattr(StepProgram, "_compiled", told)
        F.cross_entropy(model(x), y).backward()
    return seen, sum(p.grad.double().abs().sum().item() for p in model.parameters())


def _same(orders: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    texts, sums = set(), set()
    for order in orders:
        seen, total = _programs([STEPS[k] for k in order], monkeypatch)
        assert len(seen) == 2, f"{len(seen)} programs: one forward, one backward was expected"
        texts.add(tuple(seen))
        sums.add(total)
    assert len(sums) == 1
    return len(texts)


def test_orders_make_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _same(QUICK, monkeypatch) == 1


@pytest.mark.nightly
def test_all_24_orders_make_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = list(itertools.permutations(range(4)))
    assert len(orders) == 24
    assert _same(orders, monkeypatch) == 1


@pytest.mark.parametrize("lacks", [_fsdp, _tp])
def test_texts_tell_what_was_done(lacks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """(Not of checkpointing: inside of a compiled forward pass what it computes again is joined
    with what was computed, so a program is the same with and without it.)"""
    with_it, _ = _programs(STEPS, monkeypatch)
    without, _ = _programs([step for step in STEPS if step is not lacks], monkeypatch)
    assert with_it != without
