"""Graphs of lazy mode as programs: compiled once for each different graph, then found again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from lucerne._src import backends
from lucerne._src.base.config import config
from lucerne._src.capture import faults, ledger
from lucerne._src.capture.lazy.cuts import REPORT
from lucerne._src.capture.trace.composites import Composites
from lucerne._src.capture.trace.fake import CaptureError
from lucerne._src.ir.graph import Graph, Value
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.loops.stages import Stages
from lucerne._src.pipeline.road import Road
from lucerne._src.transforms.functionalize import MutationError


class LazyRef(int):
    """The number of a value in a key; its type tells it from an integer."""

    __slots__ = ()


def static_key(a: Any) -> Any:
    """What is not a tensor, with its type: 1, 1.0 and True are equal but not the same."""
    kind = type(a)
    if kind is tuple or kind is list:
        return kind, tuple([static_key(x) for x in a])
    if kind is float or kind is complex:
        return kind, repr(a)  # 0.0 and -0.0 are equal, NaN is not equal to itself
    try:
        hash(a)
    except TypeError:
        return kind, id(a)
    return kind, a


@dataclass
class LazyProgram:
    """What runs a graph: `written` are the inputs (among the tensors) that it changes."""

    runner: Any
    written: list[int]
    stages: Stages
    kept: tuple[Any, ...]
    """Objects that stand in the key by their id."""


class Programs:
    """Those of one mode and backend; the ones unused for longest go first."""

    def __init__(self, mode: str | None) -> None:
        self.mode = mode
        self.whole = Composites(backends.HOST, mode == "bitwise")
        self._found: OrderedDict[Any, LazyProgram | None] = OrderedDict()
        self.fn = lazy_graph
        self.faults: list[Any] = []
        """As a compiled function has them."""
        self.problem: Exception | None = None
        """What was raised instead of the last program."""

    def get(self, key: Any, graph: Graph, roots: Sequence[Value]) -> LazyProgram | None:
        """The program of a graph whose results are the last values of `roots`; None: no program
        can be made of it."""
        if key not in self._found:
            found = self._found[key] = self._tried(graph, roots)
            while len(self._found) > config.lazy_programs:
                self._found.popitem(last=False)
        else:
            found = self._found[key]
            self._found.move_to_end(key)
        return found

    def _tried(self, graph: Graph, roots: Sequence[Value]) -> LazyProgram | None:
        self.problem = None
        try:
            return self._made(graph, roots)
        except (MutationError, CaptureError, NotImplementedError):
            return None
        except Exception as error:
            if faults.goes_through(error):
                raise
            self.problem = error
            return None

    def did_without(self) -> None:
        """A graph has run without a program: if it did not raise the same, the fault is ours."""
        error, self.problem = self.problem, None
        if error is not None:
            faults.tell(self, error, faults.EAGER_GRAPH)

    def _made(self, graph: Graph, roots: Sequence[Value]) -> LazyProgram:
        began = perf_counter()
        kind = ledger.FIRST if not self._found else ledger.SIZES
        with ledger.compiling(lazy_graph, kind, f"a graph of {len(graph.nodes)} ops") as row:
            stages = Stages()
            road = Road(
                backends.get(backends.HOST),
                mode=self.mode,
                stages=stages,
                body=self.whole.graph_of,
            )
            runner = road.compiled(road.functional(graph, roots))
            row.nodes = len(graph.nodes)
            row.stages.update(stages.seconds)
        program = stages.program
        if program is None:
            raise CaptureError("the backend made no program")
        REPORT.compiled += 1
        REPORT.seconds_compiling += perf_counter() - began
        statics = [a for n in graph.nodes for a in n.args if not isinstance(a, Value)]
        return LazyProgram(runner, sorted(program.written), stages, tuple(statics))


def lazy_graph() -> None:
    """Stands in the ledger for graphs of lazy mode, which belong to no function."""


def tensor_inputs(graph: Graph) -> list[int]:
    """The numbers of the inputs that are tensors."""
    return [k for k, v in enumerate(graph.inputs) if isinstance(v.meta, TensorMeta)]
