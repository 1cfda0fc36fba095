"""An estimate beside the peak that the allocator counts in real steps of training."""

from __future__ import annotations

import gc
from typing import Any

import lucerne as torch
from lucerne._src.tensor.memory import (
    max_memory_allocated,
    memory_allocated,
    reset_peak_memory_stats,
)
from tests.memory.models import made

STEPS = 3
LIMIT = 0.10


def loss_of(y: Any) -> Any:
    return (y * y).mean()


def _steps(model: Any, batch: Any, optimizer: Any) -> None:
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model(batch)).backward()
        optimizer.step()


def compared(name: str, way: str) -> tuple[int, int, Any]:
    """(estimate, measured, the estimate's report)."""
    gc.collect()
    before = memory_allocated()
    model, batch = made(name, way)
    optimizer = torch.optim.AdamW(model.parameters())
    report = torch.estimate_memory(model, batch, optimizer, loss_of)
    _steps(model, batch, optimizer)  # (what is made once is made)
    model, batch = None, None
    optimizer = None
    gc.collect()
    model, batch = made(name, way)
    optimizer = torch.optim.AdamW(model.parameters())
    reset_peak_memory_stats()
    _steps(model, batch, optimizer)
    measured = max_memory_allocated() - before
    return report.peak, measured, report
