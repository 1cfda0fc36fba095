"""Data-parallel training of a GPT and a ResNet-18: ranks like each other, and like one process."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import lucerne as lu
from benchmarks import programs, weights
from tests.processes import ranks

STEPS = 3
GPT = weights.Language(words=96, length=24, width=64, heads=4, layers=2, batch=8)
RESNET = weights.Images(batch=8, side=16, widths=(16, 32, 48, 64))


def _model(m: Any, name: str) -> Any:
    m.manual_seed(0)
    if name == "gpt":
        return programs.gpt_model(m, GPT)
    return m.nn.SyncBatchNorm.convert_sync_batchnorm(programs.resnet_model(m, RESNET))


def _batch(m: Any, name: str, step: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(step)
    if name == "gpt":
        ids = draw.integers(0, GPT.words, (GPT.batch, GPT.length + 1))
        return m.from_numpy(ids[:, :-1].copy()), m.from_numpy(ids[:, 1:].copy())
    images = draw.standard_normal((RESNET.batch, 3, RESNET.side, RESNET.side)).astype(np.float32)
    return m.from_numpy(images), m.from_numpy(draw.integers(0, 10, (RESNET.batch,)))


def _train(m: Any, name: str, model: Any, rank: int, size: int) -> tuple[list[float], float]:
    """Losses on this rank's part of each batch, and the seconds of the fastest step."""
    optimizer = m.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses, best = [], 1e9
    for step in range(STEPS):
        x, y = _batch(m, name, step)
        if x.dtype == m.float32:
            x = x.to(next(model.parameters()).dtype)
        mine = slice(len(x) * rank // size, len(x) * (rank + 1) // size)
        start = time.perf_counter()
        optimizer.zero_grad()
        out = model(x[mine])
        loss = m.nn.functional.cross_entropy(out.flatten(0, -2), y[mine].flatten())
        loss.backward()
        optimizer.step()
        best = min(best, time.perf_counter() - start)
        losses.append(float(loss.detach()))
    return losses, best


def job(rank: int, size: int, place: str, name: str) -> Any:
    dist = ranks.join(lu, rank, size, place)
    model = _model(lu, name)
    losses, best = _train(lu, name, lu.nn.parallel.DistributedDataParallel(model), rank, size)
    dist.destroy_process_group()
    return losses, [p.detach().numpy() for p in model.parameters()], best


def report(size: int = 2) -> list[str]:
    wrong = []
    for name in ("gpt", "resnet"):
        found = ranks.results(size, job, ranks.meeting(), name)
        alone = _model(lu, name)
        losses, _ = _train(lu, name, alone, 0, 1)
        same = all(
            a.tobytes() == b.tobytes()
            for row in found[1:]
            for a, b in zip(row[1], found[0][1], strict=True)
        )
        together = np.mean([row[0] for row in found], axis=0)
        loss = float(np.abs(together - losses).max())
        exact = _model(lu, name).double()
        _train(lu, name, exact, 0, 1)
        one = [p.detach().numpy() for p in alone.parameters()]
        true = [p.detach().numpy() for p in exact.parameters()]
        many, own = _apart(found[0][1], true), _apart(one, true)
        print(
            f"{name} on {size} ranks, {STEPS} steps: ranks bit-equal {same}; to one process: loss "
            f"{loss:.1e}, parameters {_apart(found[0][1], one):.1e}; to float64: ranks {many:.1e}, "
            f"one process {own:.1e}; step {max(row[2] for row in found) * 1e3:.0f} ms"
        )
        if not same or loss > 1e-6 or many > 10 * own + 1e-6:
            wrong.append(f"{name} on {size} ranks")
    return wrong


def _apart(a: list[Any], b: list[Any]) -> float:
    """Distance of all parameters together, relative to their length: a single activation near zero
    that falls on the other side of a ReLU moves single ones, in one process as well."""
    apart = sum(float(((x - y) ** 2).sum()) for x, y in zip(a, b, strict=True))
    return float(np.sqrt(apart / sum(float((y**2).sum()) for y in b)))
