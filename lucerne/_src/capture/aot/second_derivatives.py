"""Second derivatives through a compiled function.

A compiled backward pass has no history. Who asks for one (`create_graph=True`) gets the gradients
of the function run once more, uncompiled, from the same arguments: autograd's own graph, with all
that a graph of ops does not know (detached tensors, `no_grad`, the backward of a user's Function).
That is the same call only if the function does nothing but compute, draws no random numbers, and
nothing it reads has changed since; otherwise a second derivative raises (`NoSecond`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lucerne._src.base.changed import changed
from lucerne._src.capture.trace.captured import Captured, CapturedResult
from lucerne._src.capture.trace.pytree import flatten, rebuild
from lucerne._src.ir.dispatch import state
from lucerne._src.ops.checks import zeros_of
from lucerne._src.tensor.autograd.engine import run_backward, without_hooks
from lucerne._src.tensor.autograd.modes import enable_grad
from lucerne._src.tensor.autograd.node import Edge, gradient_edge
from lucerne._src.tensor.eager import autocast
from lucerne._src.tensor.random.api import default_generator

_MOST = 3
"""Second derivatives after which a function is better left as it is."""


class Again:
    """How a call of a compiled version is made once more: what it needs of the version."""

    def __init__(self, compiled: Any, entry: Any) -> None:
        self.fn, self.guards = compiled.fn, entry.guards
        self.give_up, self.count = compiled.give_up, 0
        captured: Captured = entry.captured
        self.precision = autocast.snapshot()
        self.refused = _why_not(entry)
        returned = captured.leaves[: min((k for *_, k in captured.stored), default=None)]
        self.outputs = [
            (k, x.tangent)
            for k, x in enumerate(returned)
            if type(x) is CapturedResult and x.tangent is not None
        ]

    def at(self, entry: Any) -> Again:
        """The same for a version for other sizes."""
        return changed(self, guards=entry.guards, count=0)

    def gradients(
        self,
        leaves: Sequence[Any],
        edges: Sequence[Edge | None],
        grads: Sequence[Any],
        hooks: Mapping[int, Any] | None = None,
    ) -> list[Any] | str:
        """The gradients that flow along `edges`, with a history if one is wanted; or why there are
        none. `hooks` of outputs see their gradients on the way."""
        if self.refused:
            return self.refused
        create_graph = state.grad_enabled
        self.count += create_graph
        if create_graph and self.count == _MOST:  # every call would be made twice
            self.give_up(
                "second derivatives of it are asked for, which are those of the function as it is. "
                "Compile the whole step, of which they are a part"
            )
        with enable_grad(), autocast.restored(self.precision):
            changed = self.guards.failure(leaves, self.guards.shape)
            if changed is not None:
                return f"what it reads has changed since the call ({changed})"
            before = default_generator._engine.mark()
            args, kwargs = rebuild(self.guards.shape, iter(leaves))
            found: list[Any] = []
            flatten(self.fn(*args, **kwargs), found)
            if default_generator._engine.mark() != before:
                default_generator._engine.rewind(before)
                return "it draws random numbers"
        starts = []
        for k, tangent in self.outputs:
            (node, index), g = gradient_edge(found[k]), grads[tangent]
            if hooks and tangent in hooks:
                node.tensor_hooks = node.tensor_hooks or {}
                node.tensor_hooks.setdefault(index, {}).update(hooks[tangent])
            if g is None and not hooks:  # (a hook is called only where a gradient arrives)
                g = zeros_of(found[k]._meta)
            starts.append(((node, index), g))
        wanted = [e for e in dict.fromkeys(edges) if e is not None]
        with without_hooks(wanted):
            made = run_backward(starts, keep_graph=True, create_graph=create_graph, wanted=wanted)
        first = dict(zip(wanted, made, strict=True))
        return [None if e is None else first.pop(e, None) for e in edges]


def _why_not(entry: Any) -> str:
    """Why a call of a version can't be made once more; empty: it can."""
    captured: Captured = entry.captured
    if captured.stored or captured.counted or captured.effects or entry.written:
        return "it writes to something that it is given or keeps"
    if entry.draws:
        return "it draws random numbers"
    if entry.guards.wrapped is not None:
        return "it is given tensors that wrap others"
    return ""
