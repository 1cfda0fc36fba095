"""The backward pass of a compiled function, when it is called from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lucerne._src.base.process import forks, notices
from lucerne._src.base.unspecialized import NumberUse
from lucerne._src.capture import faults
from lucerne._src.capture.finite.found import NotFiniteError
from lucerne._src.capture.trace import subclasses
from lucerne._src.capture.trace.captured import Captured, CapturedResult
from lucerne._src.capture.trace.fake import CaptureError, OtherSizesError
from lucerne._src.capture.trace.input_sources import HELD, InputSource
from lucerne._src.capture.trace.pytree import rebuild
from lucerne._src.ir import dispatch
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ops.copy.cast import filled
from lucerne._src.tensor.autograd.node import Edge, GradientNode, anomaly, gradient_edge
from lucerne._src.tensor.autograd.saved import USED_UP
from lucerne._src.tensor.autograd.saved import hooks as saved_hooks
from lucerne._src.tensor.autograd.state import AutogradState
from lucerne._src.tensor.base import make_tensor, new_tensor
from lucerne._src.tensor.eager.dry_run import DryExecution

_SELDOM = 3
"""Times that a part of the gradients is asked for before a pass is compiled that gives only it."""
ONE_AT_A_TIME = forks.rlock()
"""While a function is captured, gradients of parameters are looked at and put back."""


def _nobody(error: Exception, cost: str) -> None:
    """Hears of errors where nobody else does."""


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
    wanted: list[InputSource]
    stages: Any = None
    report: Any = None
    numbers: list[Any] = field(default_factory=list)
    """What the pass reads besides tensors: numbers that are given at each call."""
    uses: Sequence[NumberUse] = ()
    """What user code in it took for granted when it was captured."""
    make_lean: Callable[[tuple[bool, ...], tuple[bool, ...]], Joint | None] | None = None
    """The pass for some of the tangents (True: it arrives) and of the gradients (True: asked for).
    None, of it or by it: there is no such pass, what does not arrive is noughts."""
    made_lean: dict[tuple[bool, ...], Joint | None] = field(default_factory=dict)
    times_asked: dict[tuple[bool, ...], int] = field(default_factory=dict)
    """How often some of the gradients alone were asked for: a pass for them is made when it is
    likely to be used again."""

    watches: Joint | None = None
    """The same, with nobody looking at the gradients; None: nobody does (`finite`)."""
    tell: Callable[[Exception, str], None] = _nobody
    """What hears of errors that are ours (`faults.Teller`)."""

    def __post_init__(self) -> None:
        self.launch: Any = self.runner.launch
        """Runs the pass by one call of machine code, or says None; None: there is no such."""
        self._kept: dict[int, tuple[AutogradState, Edge]] = {}
        """By number of a wanted input that is the same at each call: where its gradient goes."""

    def edges(self, inputs: Sequence[Any]) -> list[Edge | None]:
        """Where the gradients of the inputs flow. Those of parameters, which the program holds
        anyway, are looked up once."""
        found: list[Edge | None] = []
        kept = self._kept
        for k, t in enumerate(inputs):
            known = kept.get(k)
            if known is not None and t._auto is known[0] and known[0].grad_fn is None:
                found.append(known[1])
                continue
            edge = gradient_edge(t)
            found.append(edge)
            if self.wanted[k].kind == HELD and t._view is None and t._auto.grad_fn is None:
                kept[k] = t._auto, edge
        return found

    def computed(
        self,
        saved: Sequence[Any],
        numbers: Any,
        grads: Sequence[Any],
        asked: tuple[bool, ...] | None = None,
    ) -> list[Any]:
        """The gradients; those that are not asked for may be None."""
        joint, grads = self.lean_for(grads, asked)
        given = [_laid_out(g, meta) for g, meta in zip(grads, joint.tangents, strict=True)]
        results: Any = None
        if DryExecution.current is not None:
            results = DryExecution.current.program(joint.runner, joint.result_metas)
        elif joint.launch is not None:
            results = joint.launch((), (*saved, *given), numbers)
        if results is None:
            results = [new_tensor(meta) for meta in joint.result_metas]
            joint.runner([*saved, *given], numbers, results)
        return [None if x is None else _left(x, results) for x in joint.gradients]

    def lean_for(
        self, grads: Sequence[Any], asked: tuple[bool, ...] | None
    ) -> tuple[Joint, Sequence[Any]]:
        """The pass for what arrives and is asked for, and its tangents. It is made when it is first
        needed."""
        if self.make_lean is None:
            return self, grads
        arrives = tuple([g is not None for g in grads])
        if asked is not None and not self._is_often(asked):
            asked = None
        if asked is None:
            if all(arrives):
                return self, grads
            asked = (True,) * len(self.gradients)
        key = arrives + asked
        if key not in self.made_lean:
            with ONE_AT_A_TIME:
                self.made_lean[key] = self.make_lean(arrives, asked)
        lean = self.made_lean[key]
        return (self, grads) if lean is None else (lean, [g for g in grads if g is not None])

    def _is_often(self, asked: tuple[bool, ...]) -> bool:
        times = self.times_asked[asked] = self.times_asked.get(asked, 0) + 1
        return times > _SELDOM


class RepeatedCall:
    """A call, to be made once more where its gradients are to have a history."""

    __slots__ = ("again", "arguments", "leaves", "versions")

    def __init__(self, again: Any, leaves: Sequence[Any], arguments: Sequence[Any]) -> None:
        self.again, self.leaves, self.arguments = again, leaves, arguments
        self.versions = [t._storage.version for t in arguments]

    def gradients(
        self, edges: Sequence[Any], grads: Sequence[Any], hooks: Mapping[int, Any] | None = None
    ) -> list[Any] | str:
        """See `second_derivatives.Again`."""
        if self.versions != [t._storage.version for t in self.arguments]:
            return "a tensor that it reads was written to since the call"
        found: list[Any] | str = self.again.gradients(self.leaves, edges, grads, hooks)
        return found


_IN_PARTS = "it runs in parts"


class PackedTensor:
    """A tensor that a program saves while hooks want to see what is saved (a checkpoint's)."""

    __slots__ = ("meta", "packed", "unpack")

    def __init__(self, t: Any) -> None:
        pack, self.unpack = saved_hooks.stack[-1]
        self.meta = t._meta
        self.packed = pack(make_tensor(t._storage, t._offset, t._meta))

    def unpacked(self) -> Any:
        """It, or one like it, laid out as the program wants it."""
        return _laid_out(self.unpack(self.packed), self.meta)


PARTIAL = (
    "the gradient of this output of a compiled function is what arrives from outside of it; other "
    "outputs are computed from it inside, and what they add is not part of it"
)


class CompiledBackward(GradientNode):
    """One node for the whole function."""

    __slots__ = ("call", "feeds", "joint", "numbers", "saved", "versions")
    keeps_stack = False

    def __init__(self, joint: Joint, inputs: Sequence[Any], metas: tuple[TensorMeta, ...]) -> None:
        super().__init__(joint.edges(inputs), metas)
        self.joint = joint
        if joint.watches is not None:
            self.is_watched = True
        self.feeds: dict[int, dict[int, Callable[..., Any]]] = {}
        """Outputs that other outputs were computed from, inside, and their hooks: what arrives from
        outside is a part of their gradient, so hooks are called where the call is made again."""
        self.numbers: tuple[float, ...] = ()
        self.call: RepeatedCall | None = None
        """None: it can't be made once more."""
        self.saved: list[Any] | None = None
        self.versions: list[int] = []

    def save(self, tensors: list[Any]) -> None:
        self.saved = tensors
        self.versions = [t._storage.version for t in tensors]
        if saved_hooks.stack:
            self.saved = [PackedTensor(t) for t in tensors]

    def hooks_inside(self, index: int) -> dict[int, Callable[..., Any]] | None:
        if index not in self.feeds:
            return None
        if self.call is None or self.call.again.refused:
            notices.warn(PARTIAL)
            return None
        return self.feeds[index]

    def apply(self, grads: Sequence[Any]) -> list[Any]:
        return self.apply_for(grads, None)

    def apply_for(self, grads: Sequence[Any], asked: tuple[bool, ...] | None) -> list[Any]:
        joint = self.joint
        if dispatch.capturing():
            raise CaptureError(
                "the function calls backward() through the result of an earlier call: detach what "
                "is kept from call to call"
            )
        if self.saved is None:
            raise RuntimeError(USED_UP)
        why = ""
        hooks = {k: found for k, found in self.feeds.items() if found} if self.feeds else None
        if (
            hooks
            or dispatch.state.grad_enabled
            or dispatch.recording()
            or (anomaly.enabled and joint.watches is None)
        ):
            # create_graph=True, vmap, or somebody wants to know which op makes a NaN
            again = self._again(grads, hooks)
            if not isinstance(again, str):
                return again
            why = again
            if hooks:
                raise RuntimeError(
                    "an output of a compiled function has a hook (register_hook, retain_grad), and "
                    "others are computed from it inside: its gradient is known only if the "
                    f"function is run once more, and {why}. Call the function uncompiled."
                )
            if dispatch.recording():
                raise RuntimeError(
                    "the backward pass of a compiled function can't run inside of a transform: "
                    f"{why}. Call the function uncompiled, or transform it before it is called."
                )
        saved = [t.unpacked() if type(t) is PackedTensor else t for t in self.saved]
        for t, version in zip(self.saved, self.versions, strict=True):
            if type(t) is PackedTensor:
                continue
            if t._storage.version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    f"inplace operation: a {list(t._meta.shape)} tensor that the backward pass of "
                    f"a compiled function reads is at version {t._storage.version}, expected "
                    f"version {version}. Clone it before it is written to."
                )
        for use in joint.uses:
            if not use.holds():
                raise RuntimeError(
                    f"no longer true in the backward pass of a compiled function: {use.text}. It "
                    "has changed since the function was called: change it before the call, or "
                    "after the backward pass"
                )
        try:
            found = joint.computed(saved, self.numbers, grads, asked)
        except NotFiniteError as error:
            found = self._born(error, saved, grads, asked)
        except Exception as error:  # the function itself says it, or the fault is ours
            again = self._again(grads, None)
            if isinstance(again, str):
                raise
            if not isinstance(error, OtherSizesError):
                joint.tell(error, faults.BACKWARD)
            return again
        if dispatch.state.grad_enabled:  # create_graph=True
            for g in found:
                if g is not None:
                    node = NoSecond(list(self.next_edges), (g._meta,))
                    node.why = why
                    g._auto = AutogradState(node, 0, requires_grad=True)
        return found

    def _born(
        self, error: NotFiniteError, saved: list[Any], grads: Sequence[Any], asked: Any
    ) -> list[Any]:
        """Raise what made a gradient that is not finite. If nothing did, it was given such ones."""
        again = self._again(grads, None)
        if not isinstance(again, str):
            return again
        birth = error.birth()
        if birth is not None:
            raise birth.error() from None
        assert self.joint.watches is not None
        return self.joint.watches.computed(saved, self.numbers, grads, asked)

    def _again(self, grads: Sequence[Any], hooks: Mapping[int, Any] | None) -> list[Any] | str:
        """The gradients by the function run once more; or why that can't be."""
        return (
            _IN_PARTS if self.call is None else self.call.gradients(self.next_edges, grads, hooks)
        )

    def release(self) -> None:
        self.saved = self.call = None


def _laid_out(g: Any, meta: TensorMeta) -> Any:
    """A gradient in the layout the pass was compiled for; zeros where none arrived."""
    if g is None:
        return filled(tuple(meta.shape), 0, meta.dtype, meta.device, meta.strides)
    if g._meta is meta:
        return g
    made = new_tensor(meta)
    made.copy_(g.detach())
    return made


def _left(x: Any, results: Sequence[Any]) -> Any:
    if type(x) is subclasses.Wrapped:
        return rebuild(x.shape, iter([_tensor(part, results) for part in x.parts]))
    return _tensor(x, results)


def _tensor(x: CapturedResult, results: Sequence[Any]) -> Any:
    base = results[x.index]
    if x.meta is base._meta and not x.offset:
        return base
    return make_tensor(base._storage, x.offset, x.meta)


def with_tangents(captured: Captured) -> list[tuple[int, int, bool]]:
    """Of what is left behind: (its number among the leaves, that of its gradient, `feeds`)."""
    return [
        (k, x.tangent, x.feeds)
        for k, x in enumerate(captured.leaves)
        if type(x) is CapturedResult and x.tangent is not None
    ]


def attach(
    joint: Joint, node_inputs: Sequence[Any], saved: list[Any],
    outputs: Sequence[tuple[int, int, bool]], out: list[Any], numbers: tuple[float, ...] = (),
    call: RepeatedCall | None = None,
) -> None:  # fmt: skip
    """Give the outputs (`with_tangents`) their history."""
    metas = tuple([out[i]._meta for i, _, _ in outputs])
    node = CompiledBackward(joint, node_inputs, metas)
    node.save(saved)
    node.numbers, node.call = numbers, call
    for i, k, feeds in outputs:
        out[i]._auto = AutogradState(node, k, requires_grad=True)
        if feeds:
            node.feeds[k] = {}


class NoSecond(GradientNode):
    """History of a gradient that a compiled backward pass computed. It leads to what the function
    was given, so that whoever asks for a second derivative comes by here."""

    __slots__ = ("why",)
    why: str

    def apply(self, grads: Sequence[Any]) -> list[Any]:
        raise RuntimeError(
            "this compiled function can be differentiated once, not twice: its backward pass has "
            f"no history, and the function can't be run once more: {self.why}. Call it uncompiled, "
            "or take both derivatives inside of it (autograd.grad with create_graph=True)."
        )


class UsedUp(GradientNode):
    """History of a result whose backward pass can't run: it has run inside the compiled function,
    or what it needs was written to there."""

    __slots__ = ("why",)
    keeps_stack = False
    why: str

    def apply(self, grads: Sequence[Any]) -> list[Any]:
        raise RuntimeError(self.why)


def used_up(t: Any, why: str) -> None:
    node = UsedUp([], (t._meta,))
    node.why = why
    t._auto = AutogradState(node, 0, requires_grad=True)
