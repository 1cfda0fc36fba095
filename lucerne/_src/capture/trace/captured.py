"""What a capture finds: the graph of a call, where its inputs come from, what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lucerne._src.base.unspecialized import NumberUse
from lucerne._src.capture.effects.stores import Slot
from lucerne._src.capture.guards.tensor_reads import Fact
from lucerne._src.capture.trace.input_sources import InputSource
from lucerne._src.ir.graph import Graph, Value
from lucerne._src.ir.meta import TensorMeta


@dataclass
class CapturedResult:
    """A tensor the function leaves behind: a reading of a result or of an input."""

    of_input: bool
    index: int
    offset: int
    """In elements of its own dtype, from the first of the root."""
    meta: TensorMeta
    itself: InputSource | None = None
    """It is the very tensor object that was given there."""
    requires_grad: bool = False
    is_leaf: bool = False
    """It requires a gradient though nothing it was computed from does."""
    used_up: str = ""
    """Why its backward pass can't run: it has run inside, or what it needs was written to."""
    tangent: int | None = None
    view_of: int | None = None
    """Which of the leaves it is a view of: who writes to one writes to the other, and to its
    history."""
    value: Value | None = None
    """Itself in the captured graph, where it is known."""
    inference: bool = False
    """It was made in inference mode, inside."""
    detached: bool = False
    """It lies in the memory of an input but is no view of it: who writes to one writes to the
    other, but not to its history."""
    feeds: bool = False
    """Other results that need gradients were computed from it."""
    subclass: tuple[type, dict[str, Any]] | None = None
    """The class that it gets, and the attributes, if it is no plain tensor."""
    gradient: Any = None
    """Of a leaf that was made inside: what its `.grad` becomes, an outcome or a
    `subclasses.Wrapped`."""


@dataclass
class GradientStore:
    """`owner.grad` becomes an outcome (None: is cleared). The owner is a source of a tensor."""

    owner: InputSource
    outcome: Any
    """An Outcome, or a `subclasses.Wrapped`."""


@dataclass
class Captured:
    """One captured call."""

    graph: Graph
    sources: list[InputSource]
    roots: list[Value]
    """Values of the memories that results are readings of, in order."""
    fresh: frozenset[Value]
    shape: Any
    """Of the returned tree; leaves are outcomes or constants."""
    leaves: list[Any]
    effects: list[GradientStore]
    facts: list[Fact]
    """What was asked about tensors from outside besides their values: guards compare it."""
    uses: list[NumberUse]
    forward_roots: int = 0
    """How many of the roots belong to the results; the rest are gradients."""
    gradients: list[Any] = field(default_factory=list)
    """Joint graph: the gradient of each differentiable input, over the roots that follow."""
    wanted: list[InputSource] = field(default_factory=list)
    """Those inputs."""
    stored: list[tuple[Slot, Any, int]] = field(default_factory=list)
    """(slot that a call fills, shape of what it gets, the first of the leaves that are put there):
    these leaves come after the returned ones."""
    counted: list[tuple[Slot, Any]] = field(default_factory=list)
    """(slot, number that a call puts there): what the function counts."""
    checks: list[tuple[int, Callable[[], Exception]]] = field(default_factory=list)
    """(leaf that must be false, what to raise if it is true)."""
    covered: list[tuple[InputSource, InputSource, int, int]] = field(default_factory=list)
    """(tensor, another one in the same memory, where that begins, bytes of the memory): one input
    of the graph stands for both."""
    recorded: list[Value] = field(default_factory=list)
    """The inputs in the order in which the function came to them."""
    backward_at: int = 0
    """How many nodes there are before those of the backward pass."""
    differentiated: list[Value] = field(default_factory=list)
    """Joint graph: the values whose gradients the tangents are."""
    backward_uses: list[NumberUse] = field(default_factory=list)
    """What user code in the backward pass took for granted."""
    handled: bool = False
    """Whether the function handles what some of its ops may raise (`try: cholesky(x)`)."""
    draws: bool = False
    """Whether it draws random numbers. (Asked here: a graph that comes from disk has no nodes.)"""
    unbacked: Any = None
    """Sizes that only a run tells (`symbolic.unbacked.UnbackedSizes`); None: there are none."""
