"""What a tensor carries for autograd: its place in the graph, and what it is a view of."""

from __future__ import annotations

import weakref
from typing import Any

from lucerne._src.base.process import forks
from lucerne._src.ir import dispatch

ADDING = forks.rlock()
"""Held while something is added to a gradient: another thread may be adding to the same."""


class LeafHooks(dict[int, Any]):
    """What runs after a leaf's gradient was added to. `lock` is held from before the addition to
    behind the last hook, so that one that uses the gradient up loses nothing of another thread.
    Each leaf has its own: hooks of two leaves may wait for one another."""

    __slots__ = ("lock",)

    def __init__(self) -> None:
        super().__init__()
        self.lock = forks.rlock()


class AutogradState:
    """requires_grad, .grad, and the node that made the tensor."""

    __slots__ = (
        "accumulator", "grad", "grad_fn", "hooks", "output_nr", "post_hooks", "requires_grad",
        "retains_grad",
    )  # fmt: skip

    def __init__(self, grad_fn: Any = None, output_nr: int = 0, requires_grad: bool = False):
        self.grad_fn = grad_fn
        self.output_nr = output_nr
        self.requires_grad = requires_grad
        self.grad: Any = None
        self.accumulator: weakref.ref[Any] | None = None
        self.hooks: dict[int, Any] | None = None
        self.post_hooks: LeafHooks | None = None
        self.retains_grad = False


class ViewState:
    """A view: its base, and the op calls that lead from the base to it."""

    __slots__ = ("base", "no_grad", "several", "steps", "version")

    def __init__(
        self, base: Any, steps: tuple[Any, ...], version: int, *, several: bool, no_grad: bool
    ) -> None:
        self.base = base
        self.steps = steps
        self.version = version
        self.several = several
        self.no_grad = no_grad

    def replay(self, x: Any) -> Any:
        """The same view of another tensor laid out as the base, recorded by autograd."""
        for op, args, index in self.steps:
            x = dispatch.entry.run(op, (x, *args))
            if index is not None:
                x = x[index]
        return x


def state_of(t: Any) -> AutogradState:
    """The tensor's autograd state, made when missing."""
    found: AutogradState | None = t._auto
    if found is None:
        found = t._auto = AutogradState()
    return found


def set_history(t: Any, grad_fn: Any, output_nr: int, requires_grad: bool = True) -> AutogradState:
    """Give a tensor another history. The state is a new one: records made earlier keep the old."""
    old = state_of(t)
    new = t._auto = AutogradState(grad_fn, output_nr, requires_grad)
    new.grad, new.accumulator, new.retains_grad = old.grad, old.accumulator, old.retains_grad
    new.hooks, new.post_hooks = old.hooks, old.post_hooks
    return new


def requires_grad(t: Any) -> bool:
    answer: bool = t._needs_grad
    return answer
