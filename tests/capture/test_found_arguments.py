"""Arguments that the function finds elsewhere as well (`job.step(*job.batch)`): the quick way."""

from __future__ import annotations

from typing import Any

import lucerne as torch
from lucerne._src.capture.cache.entry import MISSED


class Job:
    """A model with its optimizer and its batch."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(4, 3)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.batch = torch.randn(5, 4), torch.randn(5, 3)

    def step(self, x: Any, target: Any) -> Any:
        self.optimizer.zero_grad()
        loss = ((self.model(x) - target) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def test_the_batch_of_the_object_itself_takes_the_quick_way() -> None:
    own, other = Job(), Job()
    step = torch.compile(own.step, fullgraph=True)
    for _ in range(3):
        assert torch.allclose(step(*own.batch), other.step(*other.batch))
    (entry,) = step.entries
    found = entry.quick(own.batch)
    assert found is not MISSED
    assert torch.allclose(found, other.step(*other.batch))
    for a, b in zip(own.model.parameters(), other.model.parameters(), strict=True):
        assert torch.allclose(a, b)


def test_another_batch_is_not_taken_for_it() -> None:
    own, other = Job(), Job()
    step = torch.compile(own.step, fullgraph=True)
    step(*own.batch), other.step(*other.batch)
    (entry,) = step.entries
    twins = tuple(t.clone() + 1 for t in own.batch)
    grads = [p.grad for p in own.model.parameters()]
    assert entry.quick(twins) is MISSED
    assert all(p.grad is g for p, g in zip(own.model.parameters(), grads, strict=True))
    assert torch.allclose(step(*twins), other.step(*twins))
    assert torch.allclose(step(own.batch[0], twins[1]), other.step(own.batch[0], twins[1]))
    assert torch.allclose(step(*own.batch), other.step(*other.batch))
