"""The backward pass of a compiled function, when it is called from outside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lucerne.capture import wrappers
from lucerne.capture.fake import CaptureError
from lucerne.capture.trace import Captured, Outcome, Source
from lucerne.capture.tree import rebuild
from lucerne.ir import dispatch
from lucerne.ir.meta import TensorMeta
from lucerne.ops.move import filled
from lucerne.tensor.autograd.node import Node, gradient_edge
from lucerne.tensor.autograd.saved import USED_UP
from lucerne.tensor.autograd.state import AutogradState
from lucerne.tensor.base import make_tensor, new_tensor

ONE_AT_A_TIME = threading.RLock()
"""While a function is captured, gradients of parameters are looked at and put back."""


@dataclass
class Joint:
    """How to run the backward part: what it reads, and where its results go.

    `saved`: for each value kept from the forward pass, (is it an argument, its index).
    """

    runner: Any
    saved: list[tuple[bool, int]]
    tangents: list[TensorMeta]
    result_metas: list[TensorMeta]
    gradients: list[Any]
    """For each wanted input: None, or an Outcome over the inputs and results of the pass."""
    wanted: list[Source]
    stages: Any = None
    report: Any = None
    numbers: list[Any] = field(default_factory=list)
    """What the pass reads besides tensors: numbers that are given at each call."""
    make_lean: Callable[[tuple[bool, ...]], Joint | None] | None = None
    """The pass for some of the tangents (True: it arrives). None, of it or by it: there is no such
    pass, those that do not arrive are noughts."""
    made_lean: dict[tuple[bool, ...], Joint | None] = field(default_factory=dict)

    def for_tangents(self, grads: Sequence[Any]) -> tuple[Joint, Sequence[Any]]:
        """The pass for what arrives, and its tangents. It is made when it is first needed."""
        if self.make_lean is None:
            return self, grads
        arrives = tuple([g is not None for g in grads])
        if all(arrives):
            return self, grads
        if arrives not in self.made_lean:
            with ONE_AT_A_TIME:
                self.made_lean[arrives] = self.make_lean(arrives)
        lean = self.made_lean[arrives]
        return (self, grads) if lean is None else (lean, [g for g in grads if g is not None])


class CompiledBackward(Node):
    """One node for the whole function."""

    __slots__ = ("joint", "numbers", "saved", "versions")

    def __init__(self, joint: Joint, inputs: Sequence[Any], metas: Sequence[TensorMeta]) -> None:
        super().__init__([gradient_edge(t) for t in inputs], tuple(metas))
        self.joint = joint
        self.numbers: tuple[float, ...] = ()
        self.saved: list[Any] | None = None
        self.versions: list[int] = []

    def save(self, tensors: list[Any]) -> None:
        self.saved = tensors
        self.versions = [t._storage.version for t in tensors]

    def apply(self, grads: Sequence[Any]) -> list[Any]:
        joint = self.joint
        if dispatch.recording():
            raise CaptureError(
                "the function calls backward() through the result of an earlier call: detach what "
                "is kept from call to call"
            )
        if self.saved is None:
            raise RuntimeError(USED_UP)
        for t, version in zip(self.saved, self.versions, strict=True):
            if t._storage.version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    f"inplace operation: a {list(t._meta.shape)} tensor that the backward pass of "
                    f"a compiled function reads is at version {t._storage.version}, expected "
                    f"version {version}. Clone it before it is written to."
                )
        joint, grads = joint.for_tangents(grads)
        given = [_laid_out(g, meta) for g, meta in zip(grads, joint.tangents, strict=True)]
        results = [new_tensor(meta) for meta in joint.result_metas]
        joint.runner([*self.saved, *given], self.numbers, results)
        found = [None if x is None else _left(x, results) for x in joint.gradients]
        if dispatch.state.grad_enabled:  # create_graph=True
            for g in found:
                if g is not None:
                    g._auto = AutogradState(NoSecond([], (g._meta,)), 0, requires_grad=True)
        return found

    def release(self) -> None:
        self.saved = None


def _laid_out(g: Any, meta: TensorMeta) -> Any:
    """A gradient in the layout the pass was compiled for; zeros where none arrived."""
    if g is None:
        return filled(tuple(meta.shape), 0, meta.dtype, meta.device, meta.strides)
    if g._meta is meta:
        return g
    made = new_tensor(meta)
    made.copy_(g.detach())
    return made


def _left(x: Any, results: list[Any]) -> Any:
    if type(x) is wrappers.Wrapped:
        return rebuild(x.shape, iter([_tensor(part, results) for part in x.parts]))
    return _tensor(x, results)


def _tensor(x: Outcome, results: list[Any]) -> Any:
    base = results[x.index]
    if x.meta is base._meta and not x.offset:
        return base
    return make_tensor(base._storage, x.offset, x.meta)


def attach(
    joint: Joint, node_inputs: Sequence[Any], saved: list[Any], captured: Captured,
    out: list[Any], numbers: tuple[float, ...] = (),
) -> None:  # fmt: skip
    """Give the outputs their history."""
    outputs = [
        (x.tangent, t)
        for x, t in zip(captured.leaves, out, strict=True)
        if type(x) is Outcome and x.tangent is not None
    ]
    node = CompiledBackward(joint, node_inputs, [t._meta for _, t in outputs])
    node.save(saved)
    node.numbers = numbers
    for k, t in outputs:
        t._auto = AutogradState(node, k, requires_grad=True)


class NoSecond(Node):
    """History of a gradient that a compiled backward pass computed."""

    __slots__ = ()

    def apply(self, grads: Sequence[Any]) -> list[Any]:
        raise RuntimeError(
            "a compiled function can be differentiated once, not twice: its backward pass has no "
            "history. Call the function uncompiled, or take both derivatives inside of it "
            "(autograd.grad with create_graph=True)."
        )


class UsedUp(Node):
    """History of a result whose backward pass can't run: it has run inside the compiled function,
    or what it needs was written to there."""

    __slots__ = ("why",)
    why: str

    def apply(self, grads: Sequence[Any]) -> list[Any]:
        raise RuntimeError(self.why)


def used_up(t: Any, why: str) -> None:
    node = UsedUp([], (t._meta,))
    node.why = why
    t._auto = AutogradState(node, 0, requires_grad=True)
