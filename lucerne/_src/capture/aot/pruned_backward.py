"""The backward pass of a compiled function when only some of its results were used, or only some
of the gradients are asked for (`autograd.grad` to the inputs alone).

It is made of the whole pass when it is first needed, and kept: see `transforms.absent`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lucerne._src.backends.contract.step_runner import StepError
from lucerne._src.capture import faults
from lucerne._src.capture.aot.backward import Joint
from lucerne._src.capture.trace import subclasses
from lucerne._src.ir.graph import Graph
from lucerne._src.loops.stages import Stages
from lucerne._src.transforms.absent import UNFIT, Fewer, without

Compile = Callable[[Graph, dict[int, Any], Stages], tuple[Any, Any]]


@dataclass
class PrunedBackward:
    """`Joint.make_lean`: the pass for some of the tangents and gradients."""

    joint: Joint
    graph: Graph
    """Of the whole pass: what is kept, then the tangents."""
    sums: frozenset[int]
    """Numbers of the nodes that add up what two others bring."""
    constants: dict[int, Any]
    compile: Compile
    tell: Callable[[Exception, str], None]
    """What hears of errors of ours."""

    def __call__(self, arrives: tuple[bool, ...], asked: tuple[bool, ...]) -> Joint | None:
        joint, graph = self.joint, self.graph
        wanted = [x if there else None for x, there in zip(joint.gradients, asked, strict=True)]
        needed = {part.index for x in wanted if x is not None for part in _parts(x)}
        unasked = set(range(len(graph.outputs))) - needed
        tangents = graph.inputs[len(graph.inputs) - len(arrives) :]
        missing = [v for v, there in zip(tangents, arrives, strict=True) if not there]
        try:
            fewer = without(graph, missing, tangents, self.sums, unasked)
            gradients = [None if x is None else _among(x, fewer, graph) for x in wanted]
            stages = Stages()
            runner, program = self.compile(fewer.graph, self.constants, stages)
        except StepError:
            return None
        except Exception as error:
            if not isinstance(error, UNFIT) or faults.is_ours(error):
                self.tell(error, faults.WHOLE_BACKWARD)
            return None
        left = [m for m, there in zip(joint.tangents, arrives, strict=True) if there]
        return Joint(
            runner, joint.saved, left, program.results, gradients, joint.wanted, stages, None,
            joint.numbers,
        )  # fmt: skip


def _parts(x: Any) -> Sequence[Any]:
    return x.parts if type(x) is subclasses.Wrapped else (x,)


def _among(x: Any, fewer: Fewer, old: Graph) -> Any:
    """A gradient over the results of a lean pass; None: nothing reaches it."""
    if type(x) is subclasses.Wrapped:
        parts = [_among(part, fewer, old) for part in x.parts]
        if None in parts:
            raise ValueError("some of the parts of a gradient do not arrive")
        return subclasses.Wrapped(x.shape, parts)
    place = fewer.places[x.index]
    if place is None:
        return None
    was, now = old.outputs[x.index].meta, fewer.graph.outputs[place].meta
    if was is now:
        return replace(x, index=place)
    if x.offset or x.meta is not was:
        raise ValueError("a gradient is a view of a sum that lies otherwise now")
    return replace(x, index=place, meta=now)
