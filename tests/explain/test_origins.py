"""Every node of every stage knows the user's line and the module it comes from."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as torch
from lucerne._src.base.process.source_location import Origin, describe, naming_modules, user_place
from lucerne._src.capture.breaks import native_callbacks
from lucerne._src.capture.report.replay import replay
from lucerne._src.ir.graph import Graph
from lucerne._src.transforms import cse
from tests.explain.scenes import Block, Training, batch, line_of


def entry_of(compiled: Any) -> Any:
    [entry] = compiled.entries
    return entry


def compiled_step() -> tuple[Any, Any]:
    job = Training()
    step = torch.compile(job.step)
    step(*batch())
    return step, entry_of(step)


def origins(graph: Graph) -> list[Origin]:
    return [n.place for n in graph.nodes if n.place is not None]


def found(graph: Graph, op: str, **wanted: Any) -> list[Origin]:
    places = [n.place for n in graph.nodes if n.op.name == op and n.place is not None]
    return [p for p in places if all(getattr(p, k) == v for k, v in wanted.items())]


ROWS = [
    ("linear", {"module": "0.up", "backward": False}, ("up", Block.forward), 1),
    ("linear", {"module": "2.down", "backward": False}, ("down", Block.forward), 1),
    ("gelu", {"module": "0", "backward": False}, ("up", Block.forward), 1),
    ("batch_matmul", {"module": "2.down", "backward": True}, ("down", Block.forward), 2),
    ("layer_norm_backward", {"module": "1", "backward": True}, ("loss", Training.step), 1),
    ("adam_update", {"module": "", "backward": False}, ("update", Training.step), 1),
]


@pytest.mark.parametrize(
    ("op", "wanted", "at", "count"), ROWS, ids=[f"{r[0]} {r[1]['module']}" for r in ROWS]
)
def test_lines_and_modules(op: str, wanted: Any, at: Any, count: int) -> None:
    _, entry = compiled_step()
    places = found(entry.captured.graph, op, **wanted)
    assert len(places) == count
    assert {p.line for p in places} == {line_of(*at)}
    assert {p.function for p in places} == {at[1].__qualname__}


def test_no_stage_loses_a_line() -> None:
    step, entry = compiled_step()
    [part] = replay(entry, step.options)
    known = set(origins(part.stages[0].graph))
    for stage in part.stages:
        assert all(n.place is not None for n in stage.graph.nodes), stage.name
        assert set(origins(stage.graph)) <= known, stage.name
    assert part.program is not None
    for s in part.program.steps:
        assert s.origins, s.name
        assert set(s.origins) <= known, s.name
        assert len(set(s.origins)) == len(s.origins)


def test_both_halves_of_a_joint_graph() -> None:
    layer = torch.nn.Linear(4, 4)
    compiled = torch.compile(lambda x: layer(x).relu())
    compiled(torch.ones(2, 4))
    forward, backward = replay(entry_of(compiled), compiled.options)
    assert forward.program is not None
    assert backward.program is not None
    # What the backward pass needs may be computed early, what the forward pass had again.
    assert any(not o.backward for s in forward.program.steps for o in s.origins)
    assert any(o.backward for s in backward.program.steps for o in s.origins)
    for part in (forward, backward):
        assert part.program is not None
        assert all(s.origins for s in part.program.steps)


def test_other_sizes_keep_the_lines() -> None:
    compiled = torch.compile(lambda x: (x * 2).sum(), dynamic=True)
    compiled(torch.ones(4, 3))
    compiled(torch.ones(6, 3))
    assert compiled.instances == 1
    program = compiled.latest.stages.program
    assert all(s.origins for s in program.steps)


def test_what_is_computed_once_has_the_first_line() -> None:
    compiled = torch.compile(torch.exp)
    compiled(torch.ones(3))
    [node] = entry_of(compiled).captured.graph.nodes
    op, graph = node.op, Graph()
    x = graph.input(torch.ones(3)._meta)
    for line in (1, 2):
        graph.place = Origin("a.py", line, "f")
        graph.outputs += graph.call(op, (x,), [x.meta])
    graph.outputs = graph.outputs[:1]
    [node] = cse.run(graph).nodes
    assert node.place == Origin("a.py", 1, "f")


def test_text_and_equality_know_nothing_of_lines() -> None:
    _, entry = compiled_step()
    text = str(entry.captured.graph)
    assert "scenes.py" not in text


def test_a_place_is_still_a_pair() -> None:
    class Thing(torch.nn.Module):
        def forward(self) -> Any:
            return user_place()

    thing = Thing()
    with naming_modules({id(thing): "a.b"}):
        place = thing.forward()
    code, line = place
    assert place.module == "a.b"
    assert describe(place) == f"{code.co_filename}:{line} in forward"
    assert thing.forward().__class__ is tuple


def test_local_variables_are_not_kept_alive() -> None:
    """Looking for `self` in a frame must not hold what the frame lets go."""
    gone = []

    class Weak:
        def __del__(self) -> None:
            gone.append(True)

    class Thing(torch.nn.Module):
        def forward(self) -> Any:
            held = Weak()
            user_place()
            del held
            return list(gone)

    thing = Thing()
    with naming_modules({id(thing): "t"}):
        assert thing.forward() == [True]


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


class Doubled(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        return found * 2 if func is torch.nn.functional.layer_norm else found


class Own(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = super().__torch_function__(func, types, args, kwargs or {})
        return found * 3 if func is torch.nn.functional.layer_norm else found


class Overridden(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = torch.nn.LayerNorm(8), torch.nn.LayerNorm(8)

    def forward(self, x: Any) -> Any:
        with Doubled():
            x = torch.nn.functional.layer_norm(self.norm(x), (8,))
        return self.last(x.as_subclass(Own)).as_subclass(torch.Tensor)


class Hooked(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8))
        self.norm = torch.nn.LayerNorm(8)
        self.norm.register_forward_hook(lambda module, given, out: out * 3)
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, x: Any) -> Any:
        x = self.norm(self.inner(x))
        x.register_hook(lambda g: g + 1)
        return Twice.apply(torch.nn.functional.layer_norm(self.layer(x), (8,)))


@pytest.mark.parametrize(("kind", "count"), [(Hooked, 50), (Overridden, 20)])
def test_a_line_that_is_looked_for_once_is_the_line_of_each_op(
    kind: type, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def places() -> list[str]:
        torch.manual_seed(0)
        model = kind()
        optimizer = torch.optim.AdamW(model.parameters())

        @torch.compile
        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        step(torch.ones(2, 3, 8))
        return [f"{n} {n.place}" for n in entry_of(step).captured.graph.nodes]

    found = places()
    monkeypatch.setattr(native_callbacks, "_is_one_module", lambda fn, given: False)
    assert found == places()
    assert len(set(found)) > count
