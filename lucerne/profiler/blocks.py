"""What lies in memory while a profile runs, block by block, and what it is there for.

A block is the memory of one storage that an eager op made or read. What compiled programs use
inside shows in the total only.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from time import perf_counter_ns
from typing import Any

from lucerne._src.tensor.base import TensorBase
from lucerne.nn.parameter import Parameter

PARAMETER, OPTIMIZER_STATE, INPUT, TEMPORARY, ACTIVATION, GRADIENT = (
    "Parameter", "Optimizer_State", "Input", "Temporary", "Activation", "Gradient",
)  # fmt: skip
CATEGORIES = (PARAMETER, OPTIMIZER_STATE, INPUT, TEMPORARY, ACTIVATION, GRADIENT)


class Block:
    """The memory of one storage: from when to when it was seen, and what made it."""

    __slots__ = ("begin", "category", "end", "made_by", "nbytes", "where")

    def __init__(self, nbytes: int, begin: int, made_by: str, where: str = "") -> None:
        self.nbytes, self.begin, self.made_by, self.where = nbytes, begin, made_by, where
        self.end = 0
        """When it was freed; 0: not before the profile ended."""
        self.category = ""


class Blocks:
    """All blocks that were seen."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._of_storage: dict[int, tuple[weakref.ref[Any], Block]] = {}
        self._backward: list[tuple[int, int]] = []
        self._steps: list[tuple[int, int]] = []
        self._began = perf_counter_ns()

    def saw(self, span: Any, args: Sequence[Any], made: Iterable[Any]) -> None:
        """An op read these arguments and made these tensors."""
        for a in args:
            for t in a if isinstance(a, (tuple, list)) else (a,):
                if isinstance(t, TensorBase):
                    self._existing(t)
        for t in made:
            if id(t._storage) not in self._of_storage:
                self._add(t._storage, span.begin, span.name, span.stack[0] if span.stack else "")

    def _existing(self, t: Any) -> Block:
        """The block of a tensor that was there before the profile, or that nobody saw made."""
        known = self._of_storage.get(id(t._storage))
        block = self._add(t._storage, self._began, "", "") if known is None else known[1]
        if known is None:
            block.category = PARAMETER if _is_leaf(t) else INPUT
        elif not block.category and isinstance(t, Parameter):
            block.category = PARAMETER
        return block

    def _add(self, storage: Any, begin: int, made_by: str, where: str) -> Block:
        block = Block(storage.nbytes, begin, made_by, where)
        key, table = id(storage), self._of_storage

        def freed(ref: weakref.ref[Any]) -> None:
            block.end = perf_counter_ns()
            found = table.get(key)
            if found is not None and found[0] is ref:
                del table[key]

        table[key] = (weakref.ref(storage, freed), block)
        self.blocks.append(block)
        return block

    def node_done(self, span: Any) -> None:
        """A node of the backward pass, or a step of an optimizer, is over."""
        if span.node == "optimizer":
            self._steps.append((span.begin, span.end))
            return
        self._backward.append((span.begin, span.end))
        owner: Any = span.node if isinstance(span.node, TensorBase) else None
        grad = None if owner is None else owner.grad
        if grad is not None:
            self._existing(grad).category = GRADIENT
            self._existing(owner)

    def finish(self, now: int) -> None:
        """The profile is over: say of each block what it was there for."""
        self._of_storage.clear()
        for block in self.blocks:
            if not block.category:
                block.category = self._category(block, block.end or now)

    def _category(self, block: Block, end: int) -> str:
        for begin, stop in self._steps:
            if begin <= block.begin <= stop:
                return OPTIMIZER_STATE if end > stop else TEMPORARY
        if any(begin <= block.begin <= stop for begin, stop in self._backward):
            return TEMPORARY
        later = [begin for begin, _ in self._backward if begin > block.begin]
        return ACTIVATION if later and end > later[0] else TEMPORARY

    def timeline(self, ended: int) -> list[tuple[int, dict[str, int]]]:
        """Bytes of each category after every change: (time, bytes by category)."""
        changes: list[tuple[int, str, int]] = []
        for block in self.blocks:
            changes.append((block.begin, block.category, block.nbytes))
            if block.end:
                changes.append((block.end, block.category, -block.nbytes))
        changes.sort(key=lambda change: change[0])
        now = dict.fromkeys(CATEGORIES, 0)
        found: list[tuple[int, dict[str, int]]] = []
        for time, category, nbytes in changes:
            now[category] += nbytes
            if found and found[-1][0] == time:
                found[-1] = (time, dict(now))
            else:
                found.append((time, dict(now)))
        found.append((ended, dict(now)))
        return found

    def peak(self, ended: int) -> dict[str, int]:
        """What lay in memory, by category, when it was the most."""
        return max(self.timeline(ended), key=lambda moment: sum(moment[1].values()))[1]


def _is_leaf(t: Any) -> bool:
    """Whether gradients end here. Histories that are written down only stay so: to look at one
    makes nodes of it, whose order may be another."""
    if not t._needs_grad or getattr(t, "_record", None) is not None or t._view is not None:
        return False
    return getattr(t._auto, "grad_fn", None) is None
