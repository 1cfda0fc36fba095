"""Interpreters over the dispatch stack: the place where tracing, vmap and forward mode will stand.

Each toy here is a whole interpreter; that they stay this short is the point.
"""

from __future__ import annotations

from typing import Any

import lucerne as torch
from lucerne._src.ir.dispatch import Interpreter
from lucerne._src.ir.graph import Graph, verify
from lucerne._src.ir.op import COMPOSITE, Op


class Names(Interpreter):
    """Writes down what it sees."""

    def __init__(self, level: str) -> None:
        self.level = level
        self.seen: list[str] = []

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        self.seen.append(op.name)
        return proceed(op, args, out)


class Flops(Interpreter):
    """Counts multiply-adds of matrix products, backward included."""

    level = "kernel"

    def __init__(self) -> None:
        self.total = 0

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        result = proceed(op, args, out)
        if op.name in ("bmm", "mm", "matmul", "batch_matmul"):
            self.total += 2 * result.numel() * args[0].shape[-1]
        return result


class Recorder(Interpreter):
    """Records a graph of primitives: composites are opened, primitives become nodes."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.values: dict[int, Any] = {}
        self.kept: list[Any] = []

    def value(self, t: Any) -> Any:
        if not hasattr(t, "_meta"):
            return t
        if id(t) not in self.values:
            self.values[id(t)] = self.graph.input(t._meta)
            self.kept.append(t)
        return self.values[id(t)]

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        if op.kind == COMPOSITE:
            with self.active_again():
                return op.body(*args)
        placed = tuple(
            tuple(map(self.value, a)) if isinstance(a, tuple) else self.value(a) for a in args
        )
        result = proceed(op, args, out)
        outs = result if isinstance(result, tuple) else (result,)
        made = self.graph.call(op, placed, [o._meta for o in outs])
        for o, v in zip(outs, made, strict=True):
            self.values[id(o)] = v
            self.kept.append(o)
        return result


def test_call_level_sees_what_the_user_wrote_and_kernel_level_what_runs() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with Names("call") as above, Names("kernel") as below:
        (x * x).sum().backward()
    assert above.seen[:2] == ["mul", "sum"]
    assert below.seen.count("mul") == 3, "one forward, two in backward"


def test_interpreters_leave_no_trace() -> None:
    with Names("call") as names:
        torch.tensor([1.0]) + 1
    before = len(names.seen)
    torch.tensor([1.0]) + 1
    assert len(names.seen) == before


def test_an_interpreter_counts_flops_of_forward_and_backward() -> None:
    a = torch.ones(2, 3, requires_grad=True)
    b = torch.ones(3, 4, requires_grad=True)
    with Flops() as flops:
        (a @ b).sum().backward()
    assert flops.total == 3 * (2 * 2 * 3 * 4)


def test_a_recorded_graph_is_valid_and_readable() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0]])
    with Recorder() as recorder:
        y = (x * 2.0 + x).sum(dim=1)
    recorder.graph.outputs = (recorder.values[id(y)],)
    verify(recorder.graph)
    text = str(recorder.graph)
    assert text.startswith("graph(%0: float32[1, 3])")
    assert "mul(%0, 2.0)" in text
    assert text.endswith(f"return {recorder.graph.outputs[0]!r}")


def test_an_interpreter_may_change_the_call() -> None:
    class Negated(Interpreter):
        def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
            result = proceed(op, args, out)
            return -result if op.name == "exp" else result

    with Negated():
        assert torch.tensor([0.0]).exp().tolist() == [-1.0]
