"""GraphModule: runs its graph, can be changed, copied, pickled and written out."""

from __future__ import annotations

import copy
import importlib
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

import lucerne
from lucerne.fx import Graph, GraphModule, Interpreter, Transformer, symbolic_trace
from lucerne.fx.passes.infra.pass_base import PassResult
from lucerne.fx.passes.infra.pass_manager import PassManager, pass_result_wrapper
from lucerne.fx.passes.shape_prop import ShapeProp
from lucerne.fx.passes.split_module import split_module


class Net(lucerne.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = lucerne.nn.Linear(3, 4)
        self.deep = lucerne.nn.Sequential(lucerne.nn.ReLU(), lucerne.nn.Linear(4, 2))
        self.scale = lucerne.nn.Parameter(lucerne.ones(2))
        self.register_buffer("shift", lucerne.full((2,), 0.5))
        self.unused = lucerne.nn.Linear(1, 1)

    def forward(self, x):
        return self.deep(self.first(x)) * self.scale + self.shift


X = lucerne.arange(6.0).reshape(2, 3)


def test_it_shares_what_the_module_has() -> None:
    net = Net()
    traced = symbolic_trace(net)
    assert lucerne.equal(traced(X), net(X))
    assert traced.first is net.first
    assert traced.scale is net.scale
    assert set(traced.state_dict()) == set(net.state_dict()) - {"unused.weight", "unused.bias"}
    traced(X).sum().backward()
    assert net.scale.grad is not None


def test_training_flag_and_name_come_along() -> None:
    net = Net().eval()
    assert not symbolic_trace(net).training
    assert type(symbolic_trace(net)).__name__ == "Net"
    assert type(symbolic_trace(net)) is not type(symbolic_trace(net))


def test_change_and_recompile() -> None:
    traced = symbolic_trace(Net())
    before = traced(X)
    for node in traced.graph.nodes:
        if node.name == "add":
            node.target = lucerne.sub
    assert lucerne.equal(traced(X), before)
    traced.recompile()
    assert lucerne.allclose(traced(X), before - 1.0)
    assert "torch.sub" in traced.code


def test_modules_can_be_added_and_removed() -> None:
    traced = symbolic_trace(Net())
    assert traced.add_submodule("a.b.c", lucerne.nn.Tanh())
    assert not traced.add_submodule("shift.x", lucerne.nn.Tanh())
    assert isinstance(traced.a.b.c, lucerne.nn.Tanh)
    assert traced.delete_submodule("a.b.c")
    assert not traced.delete_submodule("a.b.c")
    assert not traced.delete_submodule("nowhere.x")
    traced.delete_all_unused_submodules()
    assert not hasattr(traced, "a")
    assert lucerne.equal(traced(X), traced(X))


def test_made_from_a_dictionary() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    y = graph.call_module("layer.act", (x,))
    graph.output(graph.call_function(lucerne.add, (y, graph.get_attr("layer.bias"))))
    module = GraphModule({"layer.act": lucerne.nn.ReLU(), "layer.bias": lucerne.ones(1)}, graph)
    assert module(lucerne.tensor([-1.0, 2.0])).tolist() == [1.0, 3.0]
    with pytest.raises(RuntimeError, match=r"layer\.\w+ but that target was not provided"):
        GraphModule({}, graph)


@pytest.mark.parametrize("way", ["deepcopy", "copy", "pickle"])
def test_copies(way: str) -> None:
    traced = symbolic_trace(Net())
    traced.note = "kept"
    if way == "deepcopy":
        made = copy.deepcopy(traced)
    elif way == "copy":
        made = copy.copy(traced)
    else:
        made = pickle.loads(pickle.dumps(traced))
    assert lucerne.equal(made(X), traced(X))
    assert made.code == traced.code
    assert made.note == "kept"
    assert made.graph is not traced.graph
    assert made.graph.owning_module is made
    assert (made.first is traced.first) == (way == "copy")
    made.graph.lint()
    for node in made.graph.nodes:
        if node.name == "add":
            node.target = lucerne.sub
    made.recompile()
    assert not lucerne.equal(made(X), traced(X))


def test_nested_modules() -> None:
    inner = symbolic_trace(Net())
    outer = symbolic_trace(lucerne.nn.Sequential(inner, lucerne.nn.ReLU()))
    assert lucerne.equal(outer(X), lucerne.relu(inner(X)))

    class Keeping(lucerne.fx.Tracer):
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            return isinstance(m, GraphModule) or super().is_leaf_module(m, module_qualified_name)

    root = lucerne.nn.Sequential(inner, lucerne.nn.ReLU())
    kept = GraphModule(root, Keeping().trace(root))
    assert [n.target for n in kept.graph.nodes if n.op == "call_module"] == ["0", "1"]
    copied = copy.deepcopy(kept)
    assert lucerne.equal(copied(X), outer(X))
    assert "class GraphModule" in kept.print_readable(print_output=False)


def test_tracebacks_show_the_generated_line() -> None:
    traced = symbolic_trace(Net())
    with pytest.raises(RuntimeError) as caught:
        traced(lucerne.ones(2, 7))
    shown = "".join(traceback.format_exception(caught.value))
    assert "first = self.first(x)" in shown


def test_to_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced = symbolic_trace(Net())
    traced.to_folder(tmp_path / "written_net", "Written")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        made = importlib.import_module("written_net").Written()
    finally:
        sys.modules.pop("written_net", None)
    assert lucerne.equal(made(X), traced(X))


def test_interpreter_runs_and_tells_where_it_failed() -> None:
    traced = symbolic_trace(Net())
    assert lucerne.equal(Interpreter(traced).run(X), traced(X))
    assert lucerne.equal(Interpreter(traced).boxed_run([X]), traced(X))
    with pytest.raises(RuntimeError, match="While executing %first"):
        Interpreter(traced).run(lucerne.ones(2, 7))
    with pytest.raises(RuntimeError, match="parameter x"):
        Interpreter(traced).run()


def test_interpreter_frees_values_and_takes_given_ones() -> None:
    traced = symbolic_trace(lambda x: lucerne.relu(x + 1) * 2)
    alive = []

    class Watching(Interpreter):
        def run_node(self, n: Any) -> Any:
            alive.append(len(self.env))
            return super().run_node(n)

    Watching(traced).run(X)
    assert max(alive) <= 2
    relu = traced.graph.find_nodes(op="call_function", target=lucerne.relu)[0]
    given = Interpreter(traced, garbage_collect_values=False).run(
        X, initial_env={relu: lucerne.ones(1)}
    )
    assert given.tolist() == [2.0]


def test_transformer_changes_every_kind() -> None:
    class Changed(Transformer):
        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target == "deep.0":
                return args[0]
            return super().call_module(target, args, kwargs)

        def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
            found = super().get_attr(target, args, kwargs)
            return found * 2 if target == "scale" else found

    net = Net()
    made = Changed(symbolic_trace(net)).transform()
    wanted = net.deep[1](net.first(X)) * (net.scale * 2) + net.shift
    assert lucerne.allclose(made(X), wanted)
    same = Transformer(symbolic_trace(net)).transform()
    assert same.code == symbolic_trace(net).code


def test_shapes_are_noted() -> None:
    traced = symbolic_trace(lambda x: (lucerne.relu(x), x.split(1))[1])
    ShapeProp(traced).propagate(X)
    metas = {n.name: n.meta for n in traced.graph.nodes}
    assert tuple(metas["relu"]["tensor_meta"].shape) == (2, 3)
    assert metas["relu"]["tensor_meta"].dtype is lucerne.float32
    assert metas["relu"]["tensor_meta"].stride == (3, 1)
    assert metas["relu"]["tensor_meta"].memory_format is lucerne.contiguous_format
    assert [tuple(m.shape) for m in metas["split"]["tensor_meta"]] == [(1, 3), (1, 3)]
    assert metas["split"]["type"] is tuple
    assert 'relu: "f32[2, 3]"' in traced.print_readable(print_output=False)


def test_split_module() -> None:
    net = Net()
    traced = symbolic_trace(net)
    parts = {"first": 0, "deep_0": 1}
    split = split_module(traced, net, lambda n: parts.get(n.name, 2))
    assert lucerne.equal(split(X), net(X))
    calls = [n.target for n in split.graph.nodes if n.op == "call_module"]
    assert calls == ["submod_0", "submod_1", "submod_2"]
    assert isinstance(split.submod_1, GraphModule)


def test_split_module_with_shared_values_and_a_cycle() -> None:
    def f(x: Any) -> Any:
        a = x + 1
        b = a * 2
        return a - b, b

    traced = symbolic_trace(f)
    split = split_module(traced, None, lambda n: n.name == "sub")
    assert [t.tolist() for t in split(X)] == [t.tolist() for t in f(X)]
    with pytest.raises(RuntimeError, match="cycle"):
        split_module(traced, None, lambda n: n.name == "mul")


def test_pass_manager() -> None:
    def double(gm: Any) -> PassResult:
        found = gm.graph.find_nodes(op="call_function", target=lucerne.relu)
        for node in found:
            node.target = lucerne.tanh
        return PassResult(gm, bool(found))

    traced = symbolic_trace(lambda x: lucerne.relu(x))
    ran = PassManager([double, pass_result_wrapper(lambda gm: gm)], steps=3)(traced)
    assert lucerne.equal(ran.graph_module(X), lucerne.tanh(X))

    def broken(gm: Any) -> PassResult:
        raise ValueError("no")

    with pytest.raises(RuntimeError, match="broken"):
        PassManager([broken])(traced)
    with pytest.raises(TypeError, match="PassResult"):
        PassManager([lambda gm: None])(traced)
