"""A function recorded once and replayed node by node: capture without a compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucerne as lu
from lucerne._src.base.unspecialized import GivenFloat, NumberUse, watching
from lucerne._src.capture.trace.recorder import Recorder
from lucerne._src.ir import dispatch
from lucerne._src.ir.graph import map_values
from lucerne._src.tensor.eager.inplace import write

WHOLE = ("adam_update", "sgd_update", "counted_up")


class Replayed:
    """`fn()` as it was recorded; learning rates are read anew, everything else is fixed."""

    def __init__(self, fn: Callable[[], Any], params: list[Any], whole: tuple[str, ...] = WHOLE):
        grads = [p.grad for p in params]
        self.recorder = Recorder(lambda op, args: op.name in whole)
        self.uses: list[NumberUse]
        with watching() as self.uses, self.recorder:
            result = fn()
            self.result = None if result is None else self.recorder.value(result)
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        self.graph = self.recorder.graph

    @property
    def names(self) -> list[str]:
        return [n.op.name for n in self.graph.nodes]

    def holds(self) -> bool:
        return all(u.holds() for u in self.uses)

    def __call__(self) -> Any:
        values: dict[int, Any] = {
            v.index: x.now() if type(x) is GivenFloat else x
            for v, x in zip(self.graph.inputs, self.recorder.outside, strict=True)
        }
        with lu.no_grad():
            for node in self.graph.nodes:
                args = map_values(lambda v: values[v.index], node.args)
                if not node.outputs:
                    write(*args)
                    continue
                found = dispatch.entry.run(node.op, args)
                outs = found if isinstance(found, tuple) else (found,)
                values.update((v.index, o) for v, o in zip(node.outputs, outs, strict=True))
        return None if self.result is None else values[self.result.index]
