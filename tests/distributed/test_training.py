"""DistributedDataParallel and what goes with it: ranks alike, and like one process."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import lucerne as lu
import lucerne.distributed as dist
from lucerne._src.distributed.parallel import reducer
from lucerne.distributed.algorithms.ddp_comm_hooks import default_hooks
from lucerne.distributed.optim import ZeroRedundancyOptimizer
from tests.processes import ranks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="ranks are forked here")


class Net(lu.nn.Module):
    """Convolution, batch norm, a branch that some passes leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = lu.nn.Conv2d(2, 4, 3)
        self.norm = lu.nn.BatchNorm2d(4)
        self.head = lu.nn.Linear(4 * 16, 3)
        self.other = lu.nn.Linear(4 * 16, 3)

    def forward(self, x: Any, other: bool = False) -> Any:
        x = lu.nn.functional.gelu(self.norm(self.conv(x))).flatten(1)
        return (self.other if other else self.head)(x)


def _data(step: int) -> tuple[Any, Any]:
    drawn = lu.Generator().manual_seed(step)
    return lu.randn(12, 2, 6, 6, generator=drawn), lu.randn(12, 3, generator=drawn)


def _train(model: Any, rank: int, size: int, both: bool, step_with: Any = None) -> None:
    optimizer = step_with or lu.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(4):
        x, y = _data(step)
        optimizer.zero_grad()
        mine = slice(12 * rank // size, 12 * (rank + 1) // size)
        out = model(x[mine])
        if both:
            out = out + model(x[mine], other=True) if size == 1 else out
        ((out - y[mine]) ** 2).mean().backward()
        optimizer.step()


def _job(rank: int, size: int, place: str, form: str) -> Any:
    dist_ = ranks.join(lu, rank, size, place)
    lu.manual_seed(rank)  # rank 0's parameters become those of all
    model: Any = Net()
    model = lu.nn.SyncBatchNorm.convert_sync_batchnorm(model)
    options: dict[str, Any] = {"find_unused_parameters": True, "bucket_cap_mb": 0.001}
    if form == "static":
        options = {"static_graph": True}
    if form == "views":
        options["gradient_as_bucket_view"] = True
    ddp = lu.nn.parallel.DistributedDataParallel(model, **options)
    if form == "hook":
        ddp.register_comm_hook(None, default_hooks.allreduce_hook)
    step_with = None
    if form == "zero":
        step_with = ZeroRedundancyOptimizer(model.parameters(), lu.optim.SGD, lr=0.1, momentum=0.9)
    _train(lu.compile(ddp) if form == "compiled" else ddp, rank, size, False, step_with)
    unused = model.other.weight.grad is None
    dist_.destroy_process_group()
    raw = [p.detach().numpy().tobytes() for p in (*model.parameters(), *model.buffers())]
    return raw, [p.detach().numpy() for p in model.parameters()], unused


@pytest.mark.parametrize("form", ["plain", "views", "static", "hook", "zero", "compiled"])
def test_ranks_are_alike_and_like_one_process(form: str) -> None:
    found = ranks.results(2, _job, ranks.meeting(), form)
    assert found[0][0] == found[1][0]  # bit for bit
    lu.manual_seed(0)
    alone = Net()
    _train(alone, 0, 1, False)
    worst = max(
        float(np.abs(a - b.detach().numpy()).max())
        for a, b in zip(found[0][1], alone.parameters(), strict=True)
    )
    assert worst <= 1e-6
    assert found[0][2], "a parameter that no rank used got a gradient"


def _wrong(rank: int, size: int, place: str, kind: str) -> Any:
    ranks.join(lu, rank, size, place)
    model: Any = lu.nn.Linear(3, 4 if kind == "shape" and rank else 3)
    if kind == "unused":
        model = Net()
    ddp = lu.nn.parallel.DistributedDataParallel(model)
    for _ in range(2):
        ddp(lu.ones(2, 2, 6, 6)).sum().backward()
    return "nothing"


@pytest.mark.parametrize(
    ("kind", "text"),
    [("shape", "DDP expects same model across all ranks"), ("unused", "find_unused_parameters")],
)
def test_what_does_not_fit_is_told(kind: str, text: str) -> None:
    found = ranks.run(2, _wrong, ranks.meeting(), kind)
    assert [word for word, _ in found] == ["RuntimeError"] * 2
    assert all(text in said for _, said in found)


def _gathers(rank: int, size: int, place: str) -> Any:
    ranks.join(lu, rank, size, place)
    model = lu.nn.Linear(2, 1, bias=False)
    ddp = lu.nn.parallel.DistributedDataParallel(model)
    x = lu.ones(1, 2) * (rank + 1)
    with ddp.no_sync():
        ddp(x).sum().backward()
    alone = model.weight.grad.tolist()
    ddp(x).sum().backward()
    sampler = lu.utils.data.DistributedSampler(range(5), shuffle=False)
    return alone, model.weight.grad.tolist(), list(sampler)


def test_no_sync_adds_up_on_each_rank_alone() -> None:
    found = ranks.results(2, _gathers, ranks.meeting())
    assert [row[0] for row in found] == [[[1.0, 1.0]], [[2.0, 2.0]]]
    assert [row[1] for row in found] == [[[3.0, 3.0]]] * 2
    assert [row[2] for row in found] == [[0, 2, 4], [1, 3, 0]]


def test_buckets_hold_one_dtype_and_the_last_parameters_first() -> None:
    wide = [lu.zeros(1 << 18), lu.zeros(3, dtype=lu.float64), lu.zeros(1 << 18), lu.zeros(2)]
    assert reducer.cut(wide, 1 << 21) == [[3, 2], [1], [0]]


def test_a_mistake_in_the_arguments_is_told() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match="leave them out"):
            lu.nn.parallel.DistributedDataParallel(lu.nn.Linear(1, 1), device_ids=["cuda:0"])
        with pytest.raises(RuntimeError, match="doesn't have any parameter"):
            lu.nn.parallel.DistributedDataParallel(lu.nn.ReLU())
    finally:
        dist.destroy_process_group()
