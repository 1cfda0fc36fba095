"""Graphs are edited as torch's are: the same script in both packages tells the same."""

import contextlib
import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lucerne
from tests.fx.test_trace import plain

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPTS: dict[str, Callable[[Any], Any]] = {}


def script(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    SCRIPTS[f.__name__] = f
    return f


def told(f: Callable[[], Any]) -> str:
    """The kind of error that a call ends in."""
    try:
        f()
    except Exception as error:
        return type(error).__name__
    return "nothing"


def example(p: Any) -> Any:
    def f(x, y):
        a = x + y
        b = p.relu(a)
        c = p.relu(b * 2)
        return c - a

    return p.fx.symbolic_trace(f)


def named(graph: Any) -> dict[str, Any]:
    return {n.name: n for n in graph.nodes}


@script
def building(p: Any) -> Any:
    g = p.fx.Graph()
    x = g.placeholder("x")
    y = g.placeholder("y", default_value=3)
    z = g.call_function(p.add, (x, y), {"alpha": 2})
    w = g.call_method("sum", (z,), {"dim": 0})
    g.output({"a": [w, z]})
    g.lint()
    return str(g), len(g.nodes), [repr(n) for n in reversed(g.nodes)], g.output_node().name


@script
def names_are_unique(p: Any) -> Any:
    g = p.fx.Graph()
    wanted = [
        "add",
        "add",
        "add_1",
        "max",
        "0.weight",
        "class",
        "torch",
        "a.b-c",
        "",
        "add_7",
        "add",
    ]
    for name in wanted:
        g.create_node("placeholder", "t", name=name)
    g.create_node("call_function", p.relu)
    g.call_method("__getitem__", (1,))
    g.call_module("layers.0.ConvBlock")
    return [n.name for n in g.nodes]


@script
def users_are_kept(p: Any) -> Any:
    g = example(p).graph
    n = named(g)
    before = [list(n["add"].users), n["sub"].all_input_nodes]
    n["sub"].args = (n["relu"], n["relu"])
    after = [list(n["add"].users), list(n["relu"].users), n["sub"].all_input_nodes]
    n["sub"].update_arg(1, 5)
    n["sub"].update_kwarg("alpha", n["x"])
    more = [n["sub"].args, dict(n["sub"].kwargs), list(n["x"].users)]
    n["relu"].insert_arg(1, n["y"])
    return repr([before, after, more, n["relu"].args, list(n["y"].users)])


@script
def replacing(p: Any) -> Any:
    g = example(p).graph
    n = named(g)
    changed = n["relu"].replace_all_uses_with(n["add"])
    kept = n["add"].replace_all_uses_with(n["x"], delete_user_cb=lambda u: u.name == "sub")
    n["mul"].replace_input_with(n["add"], n["y"])
    return repr([changed, kept, str(g)]), told(lambda: g.erase_node(n["x"]))


@script
def inserting(p: Any) -> Any:
    g = example(p).graph
    n = named(g)
    with g.inserting_before(n["mul"]):
        g.call_function(p.neg, (n["relu"],))
        g.call_function(p.exp, (n["relu"],))
    with g.inserting_after(n["mul"]):
        g.call_function(p.sin, (n["mul"],))
        g.call_function(p.cos, (n["mul"],))
    with g.inserting_before():
        g.placeholder("first")
    g.call_function(p.tan, (n["relu"],))
    return [m.name for m in g.nodes]


@script
def moving(p: Any) -> Any:
    g = example(p).graph
    n = named(g)
    n["sub"].prepend(n["add"])
    order = [m.name for m in g.nodes]
    broken = told(g.lint)
    n["y"].append(n["add"])
    g.lint()
    return order, broken, [m.name for m in g.nodes], n["add"].next.name, n["add"].prev.name


@script
def order_of_nodes(p: Any) -> Any:
    n = named(example(p).graph)
    found = [n["x"] < n["add"], n["sub"] > n["mul"], n["sub"] <= n["sub"], n["sub"] < n["x"]]
    return found, [m.name for m in sorted([n["sub"], n["x"], n["relu"]])]


@script
def erasing_while_walking(p: Any) -> Any:
    g = example(p).graph
    for node in g.nodes:
        if node.op == "call_function" and node.target is p.relu:
            node.replace_all_uses_with(node.args[0])
            g.erase_node(node)
    return str(g), len(g.nodes)


@script
def dead_code(p: Any) -> Any:
    def f(x):
        y = x + 1
        p.relu(y)
        z = y * 2  # noqa: F841
        return x

    g = p.fx.symbolic_trace(f).graph
    return g.eliminate_dead_code(), g.eliminate_dead_code(), str(g)


@script
def dead_code_with_effects(p: Any) -> Any:
    def log(x: Any) -> None:
        raise NotImplementedError

    p.fx.has_side_effect(log)
    g = p.fx.Graph()
    x = g.placeholder("x")
    g.call_function(log, (x,))
    g.output(x)
    kept = g.eliminate_dead_code()
    return kept, g.eliminate_dead_code(lambda n: False), len(g.nodes)


@script
def finding(p: Any) -> Any:
    g = example(p).graph
    return (
        repr(g.find_nodes(op="call_function", target=p.relu)),
        repr(g.find_nodes(op="placeholder")),
        repr(g.find_nodes(op="call_function", target=p.tanh)),
    )


@script
def copying(p: Any) -> Any:
    source = example(p).graph
    source.output_node().meta["kept"] = 1
    g = p.fx.Graph()
    values: Any = {}
    result = g.graph_copy(source, values)
    g.output(result)
    other = p.fx.Graph()
    x = other.placeholder("x")
    copied = other.node_copy(named(source)["add"], lambda n: x)
    return str(g), str(other), repr(copied.args), len(values)


@script
def deep_copies(p: Any) -> Any:
    import copy

    g = example(p).graph
    named(g)["add"].meta["note"] = [1]
    made = copy.deepcopy(g)
    made.erase_node(made.output_node())
    return str(made), len(g.nodes), named(made)["add"].meta["note"]


@script
def refusals(p: Any) -> Any:
    g, other = example(p).graph, example(p).graph
    n = named(g)
    return [
        told(lambda: g.erase_node(n["add"])),
        told(lambda: g.create_node("call_thing", "x")),
        told(lambda: g.call_function("text")),
        told(lambda: g.create_node("call_method", p.relu)),
        told(lambda: other.erase_node(n["output"])),
        told(lambda: n["add"].prepend(named(other)["mul"])),
        told(lambda: n["add"].args[0].args.append(1)),
        told(lambda: n["add"].kwargs.update(a=1)),
        told(lambda: g.find_nodes(op="call_function")),
        told(lambda: n["add"].insert_arg(7, 1)),
    ]


@script
def lint_finds(p: Any) -> Any:
    def planted(change: Callable[[Any, Any], Any]) -> str:
        traced = example(p)
        change(traced.graph, named(traced.graph))
        return told(traced.graph.lint)

    def foreign(g: Any, n: Any) -> None:
        n["mul"].args = (named(example(p).graph)["add"], 2)

    return [
        planted(lambda g, n: None),
        planted(lambda g, n: n["x"].prepend(n["add"])),
        planted(foreign),
        planted(lambda g, n: setattr(n["mul"], "name", "add")),
        planted(lambda g, n: setattr(n["mul"], "op", "nonsense")),
    ]


@script
def formatting(p: Any) -> Any:
    n = named(example(p).graph)
    n["add"].type = int
    return [node.format_node() for node in n.values()]


@script
def mapping(p: Any) -> Any:
    n = named(example(p).graph)
    found = p.fx.node.map_arg([n["x"], (n["y"], 1), {"k": n["x"]}, slice(n["x"], None)], repr)
    doubled = p.fx.node.map_aggregate((1, [2], {"a": 3}), lambda v: v * 2)
    return repr(found), repr(doubled), type(doubled[1]).__name__, type(doubled[2]).__name__


@script
def body_transformer(p: Any) -> Any:
    traced = example(p)
    with traced.graph.on_generate_code(lambda old: lambda body: ["print('in')\n", *body]):
        traced.recompile()
        inside = traced.code
    traced.recompile()
    out = io.StringIO()
    return inside, traced.code, out.getvalue()


@script
def own_code(p: Any) -> Any:
    class Listed(p.fx.CodeGen):
        def gen_fn_def(self, free_vars: Any, maybe_return_annotation: Any) -> str:
            return f"def forward(self, args_list):\n    {', '.join(free_vars)} = args_list"

        def process_inputs(self, *inputs: Any) -> Any:
            return inputs[0]

    traced = example(p)
    traced.graph.set_codegen(Listed())
    traced.recompile()
    one = p.ones(1)
    ran = p.fx.Interpreter(traced).run([one, one])
    return traced.code, traced([one, one]).tolist(), ran.tolist()


@script
def pattern_replaced(p: Any) -> Any:
    def f(x, w):
        a = p.relu(x) + w
        b = p.relu(a) + 3
        return p.relu(p.relu(b) + a) + b

    traced = p.fx.symbolic_trace(f)
    matches = p.fx.replace_pattern(
        traced, lambda a, b: p.relu(a) + b, lambda a, b: p.sigmoid(a * 2) - b
    )
    traced.graph.lint()
    return traced.code, len(matches), [sorted(map(repr, m.nodes_map)) for m in matches]


@script
def pattern_not_contained(p: Any) -> Any:
    def f(x):
        a = p.relu(x)
        return p.neg(a), a

    traced = p.fx.symbolic_trace(f)
    matches = p.fx.replace_pattern(traced, lambda x: p.neg(p.relu(x)), lambda x: x)
    return traced.code, len(matches)


@script
def pattern_with_several_results(p: Any) -> Any:
    def f(x):
        a, b = p.sin(x), p.cos(x)
        return a + b, p.sin(a), p.cos(a)

    traced = p.fx.symbolic_trace(f)
    found = p.fx.replace_pattern(
        traced, lambda x: (p.sin(x), p.cos(x)), lambda x: (p.exp(x), p.tanh(x))
    )
    return traced.code, len(found)


@script
def pattern_with_filters(p: Any) -> Any:
    rewriter = p.fx.subgraph_rewriter

    def f(x):
        return (x + 1) * (x + 2) * (x + x)

    def literal(match: Any, graph: Any, pattern: Any) -> bool:
        return 2 in [n for n in match.placeholder_nodes if isinstance(n, int)]

    traced = p.fx.symbolic_trace(f)
    found = rewriter.replace_pattern_with_filters(
        traced, lambda a, b: a + b, lambda a, b: a - b, [literal]
    )
    any_number = p.fx.symbolic_trace(f)
    loose = rewriter.replace_pattern_with_filters(
        any_number, lambda a: a + 7, lambda a: a * 7, ignore_literals=True
    )
    return traced.code, [repr(m.replacements) for m in found], any_number.code, len(loose)


@script
def pattern_of_methods_and_modules(p: Any) -> Any:
    nn = p.nn
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    traced = p.fx.symbolic_trace(net)

    class Wanted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            setattr(self, "1", nn.ReLU())

        def forward(self, x: Any) -> Any:
            return getattr(self, "1")(x)

    class New(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.Tanh()

        def forward(self, x: Any) -> Any:
            return self.act(x).abs()

    found = p.fx.replace_pattern(traced, Wanted(), p.fx.symbolic_trace(New()))
    return traced.code, len(found), [n for n, _ in traced.named_modules()]


@pytest.mark.parametrize("name", SCRIPTS)
def test_same_script_same_story(name: str) -> None:
    stories = []
    for package in (torch, lucerne):
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()) as printed:
            warnings.simplefilter("ignore")
            stories.append(plain(f"{SCRIPTS[name](package)}{printed.getvalue()}"))
    assert stories[1] == stories[0]


def test_in_place_methods_are_no_dead_code() -> None:
    """torch takes them out, and the program then computes something else."""

    def f(x):
        y = x.clone()
        y.add_(1)
        return y

    traced = lucerne.fx.symbolic_trace(f)
    assert not traced.graph.eliminate_dead_code()
    assert traced(lucerne.zeros(1)).tolist() == [1.0]


def test_tabular_needs_no_package() -> None:
    table = example(lucerne).graph.tabular().split("\n")
    assert table[0].split() == ["opcode", "name", "target", "args", "kwargs"]
    assert table[2].split()[:3] == ["placeholder", "x", "x"]
    assert len(table) == 2 + len(example(lucerne).graph.nodes)


def test_mutation_of_arguments_says_what_to_do() -> None:
    g = lucerne.fx.Graph()
    node = g.call_function(lucerne.cat, ([g.placeholder("x")],))
    with pytest.raises(TypeError, match=r"node\.args = new_args"):
        node.args[0].append(1)
