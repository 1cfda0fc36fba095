"""What is wrong with data: positions out of bounds. A program can't raise, so it tells, and the
error is raised where somebody waits for the device next (as with CUDA; here it can be caught)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lucerne._src.base.errors import IndexBoundsError
from lucerne._src.ir.graph import Node

FINE = -(1 << 63)
"""What a program tells of positions that are all in bounds; else it tells a bad one."""


class Check(NamedTuple):
    """A value of the program, and what it means."""

    bad: Any
    node: Node
    dim: int
    size: int
    error: type[Exception]

    def text(self, bad: int) -> str:
        if self.error is IndexError and not self.node.args[-1]:
            return "index out of range in self"
        return f"index {bad} is out of bounds for dimension {self.dim} with size {self.size}"


def checks_of(node: Node, args: tuple[Any, ...]) -> list[Check]:
    """What must hold of a node's operands."""
    name = node.op.qualified
    if name in ("index", "index_put"):
        return list(_of_indices(node, args[0], args[1], args[-1]))
    if name not in ("gather", "scatter") or not args[2].size:
        return []
    x, dim, index = args[:3]
    size, dim = x.shape[dim] if x.ndim else 1, dim % max(x.ndim, 1)
    return [Check(_worst(index, 0, size), node, dim, size, IndexBoundsError)]


def _of_indices(node: Node, x: Any, indices: Any, wrap: bool) -> Iterator[Check]:
    for d, i in enumerate(indices):
        if i is not None and i.size:
            size = x.shape[d]
            yield Check(_worst(i, -size if wrap else 0, size), node, d, size, IndexError)


def _worst(index: Any, low: int, high: int) -> Any:
    least, most = jnp.min(index).astype(jnp.int64), jnp.max(index).astype(jnp.int64)
    return jnp.where(least < low, least, jnp.where(most >= high, most, jnp.int64(FINE)))


def told(checks: list[Check]) -> Any:
    """All that a program tells, as one small array; None: there is nothing to tell."""
    return jnp.stack([c.bad for c in checks]) if checks else None


class PendingChecks:
    """What programs have told that nobody has looked at yet, and whether any may run."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[jax.Array, list[Check], str]] = deque()
        self.refused = False

    def refuse(self) -> None:
        """This is a forked child, which hangs in a call of XLA: it is told so instead."""
        self.refused = True
        self._waiting.clear()

    def check(self) -> None:
        """Whether XLA may be called."""
        if self.refused:
            raise RuntimeError(
                "the device 'xla' was used before this process was forked, and XLA does not work "
                "in a forked child. Start workers with multiprocessing_context='spawn' (or "
                "'forkserver'), or keep tensors of the device out of them."
            )

    def add(self, found: jax.Array, checks: list[Check], line: str = "") -> None:
        """`line`: the user's, of a program that is one call."""
        waiting = self._waiting
        while len(waiting) > 64 or (waiting and waiting[0][0].is_ready()):
            self._look(*waiting.popleft())
        waiting.append((found, checks, line))

    def look(self) -> None:
        """Raise what there is to raise."""
        self.check()
        while self._waiting:
            self._look(*self._waiting.popleft())

    def _look(self, found: jax.Array, checks: list[Check], line: str) -> None:
        for bad, check in zip(np.asarray(found).tolist(), checks, strict=True):
            if bad != FINE:
                self._waiting.clear()
                place = line or (str(check.node.place) if check.node.place else "")
                raise check.error(
                    check.text(bad) + (f" (on the device 'xla', at {place})" if place else "")
                )
