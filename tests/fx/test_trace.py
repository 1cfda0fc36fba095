"""symbolic_trace writes the graphs that torch writes: nodes, names, arguments, code, text."""

from __future__ import annotations

import inspect
import math
import re
from typing import Any

import pytest

import lucerne
from tests.fx.programs import PROGRAMS, asserting

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def plain(text: str) -> str:
    """Text without what differs by design: in which module a function of the package lives."""
    return re.sub(r"\btorch(?:\.\w+)*\.(?:linalg_|fft_)?(\w+)(?=[(\]])", r"torch.\1", text)


def argument(a: Any) -> Any:
    """An argument in a form both frameworks share."""
    if isinstance(a, slice):
        return ("slice", argument(a.start), argument(a.stop), argument(a.step))
    if isinstance(a, (list, tuple)):
        return type(a).__name__.removeprefix("immutable_"), [argument(x) for x in a]
    if isinstance(a, dict):
        return {k: argument(v) for k, v in a.items()}
    return repr(a)


def rows(graph: Any) -> list[Any]:
    """The nodes: kind, name, target, arguments, type."""
    found = []
    for n in graph.nodes:
        target = n.target if isinstance(n.target, str) else plain(f"{n._pretty(n.target)}(")
        found.append((n.op, n.name, target, argument(n.args), argument(n.kwargs)))
    return found


@pytest.fixture(autouse=True)
def _targets(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = torch.fx.Node
    monkeypatch.setattr(theirs, "_pretty", staticmethod(theirs._pretty_print_target), raising=False)
    ours = lucerne.fx.names.pretty_target
    monkeypatch.setattr(lucerne.fx.Node, "_pretty", staticmethod(ours), raising=False)


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_graph(name: str) -> None:
    make = PROGRAMS[name]
    theirs = torch.fx.symbolic_trace(make(torch))
    ours = lucerne.fx.symbolic_trace(make(lucerne))
    assert rows(ours.graph) == rows(theirs.graph)
    assert plain(ours.code) == plain(theirs.code)
    assert plain(str(ours.graph)) == plain(str(theirs.graph))
    ours.graph.lint()
    assert type(ours).__name__ == type(theirs).__name__


def test_the_comparison_sees_a_difference() -> None:
    ours = lucerne.fx.symbolic_trace(lambda x: lucerne.sum(x, 1))
    theirs = torch.fx.symbolic_trace(lambda x: torch.sum(x, dim=1))
    assert rows(ours.graph) != rows(theirs.graph)
    assert plain(ours.code) != plain(theirs.code)


REFUSED: list[tuple[Any, str]] = [
    (lambda t: lambda x: 1 if x > 0 else 2, "control flow"),
    (lambda t: lambda x: [y + 1 for y in x], "cannot be iterated"),
    (lambda t: lambda x: len(x), "'len' is not supported"),
    (lambda t: lambda x: max(x.sum(), 3), "control flow"),
    (lambda t: lambda x: t.nn.Linear(2, 2)(x), "module is not installed as a submodule"),
    (lambda t: lambda x: x.foo({x: 1}), "Keys for dictionaries"),
    (lambda t: lambda x: x + object(), "argument of type"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_refused_as_torch_does(make: Any, message: str) -> None:
    with pytest.raises(Exception, match=message) as theirs:
        torch.fx.symbolic_trace(make(torch))
    with pytest.raises(Exception, match=message) as ours:
        lucerne.fx.symbolic_trace(make(lucerne))
    kinds = [k.__name__ for k in type(ours.value).__mro__]
    assert type(theirs.value).__name__ in kinds


def test_control_flow_names_the_users_line() -> None:
    def f(x: Any) -> Any:
        if x.sum() > 0:  # the line in question
            return x
        return -x

    with pytest.raises(lucerne.fx.TraceError) as caught:
        lucerne.fx.symbolic_trace(f)
    assert "if x.sum() > 0:  # the line in question" in str(caught.value)
    assert "test_trace.py" in str(caught.value)
    with pytest.raises(lucerne.fx.TraceError, match=r"range\(int\(x\)\)"):
        lucerne.fx.symbolic_trace(lambda x: list(range(int(x))))


CONCRETE: list[tuple[Any, Any]] = [
    (lambda x, flag: x + 1 if flag else x, {"flag": True}),
    (lambda x, flag: x + 1 if flag else x, {"flag": False}),
    (lambda x, y=None: x if y is None else x + y, {"y": None}),
    (lambda x, n: [x * i for i in range(n)], {"n": 3}),
]


@pytest.mark.parametrize(("f", "concrete"), CONCRETE)
def test_concrete_args(f: Any, concrete: Any) -> None:
    theirs = torch.fx.symbolic_trace(f, concrete_args=concrete)
    ours = lucerne.fx.symbolic_trace(f, concrete_args=concrete)
    assert rows(ours.graph) == rows(theirs.graph)
    value = next(iter(concrete.values()))
    given = lucerne.tensor([1.0])
    assert str(ours(given, value)) == str(f(given, value))
    with pytest.raises(AssertionError, match="has been specialized"):
        ours(given, 17)


def test_structured_concrete_args() -> None:
    for package in (torch, lucerne):
        ph = package.fx.PH

        def f(x: Any) -> Any:
            return {"sum": x["a"] + x["b"][0]}

        traced = package.fx.symbolic_trace(f, concrete_args={"x": {"a": ph, "b": [ph]}})
        one = package.ones(1)
        assert float(traced({"a": one, "b": [one]})["sum"]) == 2.0
        assert [n.op for n in traced.graph.nodes] == [
            "placeholder", "placeholder", "call_function", "output",
        ]  # fmt: skip


def test_modules_are_as_before_after_tracing() -> None:
    layer = lucerne.nn.Linear(2, 2)
    before = type(layer).__call__, lucerne.nn.Module.__getattr__
    lucerne.fx.symbolic_trace(lucerne.nn.Sequential(layer))
    with pytest.raises(ValueError, match="control flow"):
        lucerne.fx.symbolic_trace(lambda x: x if x else layer(x))
    assert (type(layer).__call__, lucerne.nn.Module.__getattr__) == before
    assert layer(lucerne.ones(1, 2)).shape == (1, 2)
    assert isinstance(layer.weight, lucerne.nn.Parameter)
    assert math.sqrt(4) == 2


class Opened(lucerne.fx.Tracer):
    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        return module_qualified_name == "0"


def test_is_leaf_module_and_stack() -> None:
    net = lucerne.nn.Sequential(lucerne.nn.ReLU(), lucerne.nn.Tanh())
    graph = Opened().trace(net)
    found = [(n.op, str(n.target)) for n in graph.nodes][1:3]
    assert found[0] == ("call_module", "0")
    assert found[1][0] != "call_module"
    tanh = list(graph.nodes)[2]
    assert list(tanh.meta["nn_module_stack"]) == ["1"]


def test_record_stack_traces() -> None:
    class Noting(lucerne.fx.Tracer):
        record_stack_traces = True

    graph = Noting().trace(lambda x: x + 17)
    add = graph.find_nodes(op="call_function", target=__import__("operator").add)[0]
    assert "x + 17" in add.stack_trace


def test_asserts_can_be_traced() -> None:
    class Asserting(lucerne.fx.Tracer):
        trace_asserts = True

    graph = Asserting().trace(asserting)
    assert "assert_fn" in str(graph)
    module = lucerne.fx.GraphModule(lucerne.nn.Module(), graph)
    with pytest.raises(AssertionError):
        module(lucerne.tensor([-1.0]))


def test_buffers_and_shapes_of_parameters() -> None:
    class Reads(lucerne.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = lucerne.nn.Parameter(lucerne.ones(2, 3))
            self.register_buffer("table", lucerne.ones(10, 3))

        def forward(self, x: Any) -> Any:
            x = x + self.table[: x.size(0)]
            return x * self.w.shape[0] if self.w.shape[0] == 2 else x

    tracer = lucerne.fx.Tracer(param_shapes_constant=True)
    root = Reads()
    graph = tracer.trace(root)
    module = lucerne.fx.GraphModule(root, graph)
    x = lucerne.ones(4, 3)
    assert lucerne.equal(module(x), root(x))
    assert "__getitem__" in str(graph)


def test_a_proxy_made_by_hand_appends() -> None:
    for package in (torch, lucerne):
        graph = package.fx.Graph()
        x = package.fx.Proxy(graph.placeholder("x"))
        out = package.relu(x).sum(dim=0) + 1
        graph.output(out.node)
        names = [n.name for n in graph.nodes]
        assert names == ["x", "relu", "sum_1", "add", "output"]


def test_a_traced_module_can_be_traced_again() -> None:
    net = PROGRAMS["residual"](lucerne)
    once = lucerne.fx.symbolic_trace(net)
    twice = lucerne.fx.symbolic_trace(once)
    assert twice.code == once.code


def test_results_are_those_of_the_module() -> None:
    for name in ("residual", "attention", "sequential", "transformer_layer"):
        net = PROGRAMS[name](lucerne).eval()
        shape = {"residual": (2, 3, 8, 8), "sequential": (5, 3)}.get(name, (2, 4, 8))
        x = lucerne.randn(*shape)
        assert lucerne.equal(lucerne.fx.symbolic_trace(net)(x), net(x))


DIFFER = {
    "cosine_embedding_loss": "torch's default is the int 0",
    "margin_ranking_loss": "torch's default is the int 0",
    "fractional_max_pool2d_with_indices": "an op of another signature",
    "fractional_max_pool3d_with_indices": "an op of another signature",
    "grouped_mm": "torch's is another function inside",
    "scaled_grouped_mm": "torch's is another function inside",
    "scaled_mm": "torch's is another function inside",
    "l1_loss": "torch forgets weight",
    "normalize": "torch spells out=None",
    "sigmoid": "torch's calls the method",
    "tanh": "torch's calls the method",
    "threshold": "torch's is named _threshold",
    "upsample": "torch's calls interpolate",
    "upsample_bilinear": "torch's calls interpolate",
    "upsample_nearest": "torch's calls interpolate",
}


def recorded(package: Any, name: str, count: int) -> Any:
    """What a function of nn.functional writes down when it is called with proxies."""
    graph = package.fx.Graph()
    tracer = package.fx.proxy.GraphAppendingTracer(graph)
    given = [package.fx.Proxy(graph.placeholder(f"p{i}"), tracer) for i in range(count)]
    getattr(package.nn.functional, name)(*given)
    node = list(graph.nodes)[-1]
    return node.op, node.name, argument(node.args), argument(node.kwargs)


@pytest.mark.filterwarnings("ignore")
def test_functions_are_spelled_out_as_torch_does() -> None:
    compared, differ = 0, []
    for name, function in sorted(vars(torch.nn.functional).items()):
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        if not hasattr(lucerne.nn.functional, name):
            continue
        kinds = inspect.signature(function).parameters.values()
        starred = any(p.kind == p.VAR_POSITIONAL for p in kinds)
        count = 2 if starred else sum(p.default is p.empty for p in kinds)
        compared += 1
        if recorded(lucerne, name, count) != recorded(torch, name, count):
            differ.append(name)
    assert compared > 90
    assert set(differ) == set(DIFFER)
