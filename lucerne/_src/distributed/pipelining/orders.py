"""In what order each rank of a pipeline runs its stages: data, checked before anything runs.

A rank is what a stage lies on: the devices of one part of a mesh. GPipe (Huang et al. 2019); one
forward, one backward, interleaved or not (Narayanan et al. 2021).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

FORWARD, BACKWARD = "F", "B"


class Action(NamedTuple):
    """A micro-batch goes through a stage, forward or backward."""

    stage: int
    kind: str
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


Orders = list[list[Action]]
"""Of each rank."""


def fill_and_drain(ranks: int, stages: int, count: int, backward: bool = True) -> Orders:
    """All micro-batches forward, then all backward (GPipe; breadth first with several stages)."""
    return [
        list(_fill_and_drain(range(rank, stages, ranks), count, backward)) for rank in range(ranks)
    ]


def _fill_and_drain(own: Sequence[int], count: int, backward: bool) -> Iterator[Action]:
    for stage in own:
        yield from (Action(stage, FORWARD, k) for k in range(count))
    if backward:
        for stage in reversed(own):
            yield from (Action(stage, BACKWARD, k) for k in range(count))


def one_forward_one_backward(ranks: int, stages: int, count: int) -> Orders:
    """A rank begins as many micro-batches as it must, then ends one for each that it begins.

    >>> [" ".join(map(str, order)) for order in one_forward_one_backward(2, 2, 3)]
    ['0F0 0F1 0B0 0F2 0B1 0B2', '1F0 1B0 1F1 1B1 1F2 1B2']
    """
    local = stages // ranks
    rounds = max(1, count // ranks)
    if local > 1 and count % rounds:
        raise ValueError(
            f"Interleaved 1F1B requires the number of microbatches to be a multiple of the number "
            f"of rounds ({rounds}), but got {count}."
        )
    at_once = count if local == 1 else count // rounds
    return [_alternating(rank, ranks, local, count, at_once) for rank in range(ranks)]


def _alternating(rank: int, ranks: int, local: int, count: int, at_once: int) -> list[Action]:
    total = local * count

    def action(step: int, kind: str) -> Action:
        """The one after so many of its kind: micro-batches in groups, which go through all own
        stages before the next group."""
        group, rest = divmod(step, at_once * local)
        turn, k = divmod(rest, at_once)
        turn = turn if kind == FORWARD else local - 1 - turn
        return Action(turn * ranks + rank, kind, group * at_once + k)

    behind = ranks - 1 - rank
    ahead = behind if local == 1 else (local - 1) * at_once + 2 * behind
    ahead = min(ahead, total)
    found = [action(k, FORWARD) for k in range(ahead)]
    for k in range(total - ahead):
        found += [action(ahead + k, FORWARD), action(k, BACKWARD)]
    return found + [action(k, BACKWARD) for k in range(total - ahead, total)]


class PipelineOrderError(RuntimeError):
    """Ranks that would wait for each other for ever, or an order that says a thing twice."""


def in_time(orders: Orders, stages: int) -> list[Action]:
    """All actions in an order in which each finds what it needs, ranks side by side. Raises
    `PipelineOrderError` where there is none: before anything has run."""
    todo = [list(reversed(order)) for order in orders]
    done: dict[Action, None] = {}
    while any(todo):
        ready = [
            order.pop() for order in todo if order and _needs(order[-1], stages) <= done.keys()
        ]
        if not ready:
            waiting = [
                (order[-1], _needs(order[-1], stages) - done.keys()) for order in todo if order
            ]
            raise PipelineOrderError(
                "the ranks of this pipeline wait for each other: "
                + "; ".join(f"{a} needs {', '.join(map(str, b))}" for a, b in waiting)
            )
        for action in ready:
            if action in done:
                raise PipelineOrderError(f"{action} stands twice in the order of a pipeline")
            done[action] = None
    return list(done)


def _needs(action: Action, stages: int) -> set[Action]:
    stage, kind, k = action
    if kind == FORWARD:
        return {Action(stage - 1, FORWARD, k)} if stage else set()
    if stage == stages - 1:
        return {Action(stage, FORWARD, k)}
    return {Action(stage, FORWARD, k), Action(stage + 1, BACKWARD, k)}


def most_alive(order: Sequence[Action]) -> int:
    """How many micro-batches a rank holds at most: begun and not ended."""
    alive = most = 0
    for action in order:
        alive += 1 if action.kind == FORWARD else -1
        most = max(most, alive)
    return most
