"""Exercise 13: a device: the null backend, and one primitive that is really computed."""

from __future__ import annotations

import numpy as np

import lucerne as torch
from lucerne import backends
from lucerne._src.backends.null import NullBackend
from lucerne.backends.api import device

TOLD = r"AssertionError: full\(\(2, 3\), 7\) on the device holds \[\[0\.0"


def start() -> object:
    class Blackboard(NullBackend):
        def devices(self):
            return [device("blackboard")]

    return Blackboard()


def solution() -> object:
    class Slate(NullBackend):
        def devices(self):
            return [device("slate")]

        def supports(self, op):
            return op.qualified in ("filled", "uninitialized")

        def compile(self, graph):
            (node,) = graph.nodes
            if not self.supports(node.op):
                raise NotImplementedError(f"slate has no rule for {node.op.qualified}")

            def execute(inputs, outputs):
                if node.op.qualified == "filled":
                    given = iter(inputs)
                    args = [next(given) if a in graph.inputs else a for a in node.args]
                    room = outputs[0]._storage.buffer.view(outputs[0]._meta.dtype.storage)
                    np.copyto(room, args[1])

            return execute

    return Slate()


def check(backend: NullBackend) -> None:
    name = type(backend).__name__.lower()
    backends.register(name, backend)
    x = torch.full((2, 3), 7.0, device=name)
    got = x.cpu().tolist()
    assert got == [[7.0] * 3] * 2, f"full((2, 3), 7) on the device holds {got}: nobody wrote there"
    told = "sort gave a result that nobody computed: what does `supports` say?"
    try:
        x.sort()
    except NotImplementedError as error:
        told = str(error)
    assert f"{name} has no rule for sort_along" in told, told
