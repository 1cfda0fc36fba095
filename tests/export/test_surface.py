"""What an exported program tells, with PyTorch's names."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as lu
from lucerne import nn
from lucerne._src.ir import op as op_
from lucerne.export import Dim, ExportedProgram, export
from lucerne.export.signature import InputKind, OutputKind
from tests.export.rows import Attention, Counter, Fn, Held, resnet


def _program() -> Any:
    lu.manual_seed(0)
    batch = Dim("batch", min=2, max=64)
    return export(resnet(), (lu.randn(4, 3, 9, 9),), dynamic_shapes=({0: batch},))


def test_signature() -> None:
    program = export(Counter(), (lu.ones(2, 3),))
    told = program.graph_signature
    assert told.buffers == ("count", "last")
    assert told.non_persistent_buffers == {"last"}
    assert set(told.buffers_to_mutate.values()) == {"count", "last"}
    assert told.user_inputs == ("x",)
    assert len(told.user_outputs) == 1
    kinds = [s.kind for s in told.output_specs]
    assert kinds == [OutputKind.BUFFER_MUTATION] * 2 + [OutputKind.USER_OUTPUT]
    assert list(program.state_dict) == ["count"]
    assert list(program.constants) == ["last"]


def test_graph_is_fx() -> None:
    program = export(Held(), (lu.ones(2, 3),))
    names = [n.name for n in program.graph.nodes if n.op == "placeholder"]
    assert names[-1] == "x"
    assert names[:-1] == [s.arg.name for s in program.graph_signature.input_specs[:-1]]
    kinds = [s.kind for s in program.graph_signature.input_specs]
    assert kinds == [InputKind.CONSTANT_TENSOR] * 2 + [InputKind.USER_INPUT]
    given = [
        program.tensors["constant", n] for n in program.graph_signature.lifted_tensor_constants
    ]
    [got] = program.graph_module(*given, lu.ones(2, 3))
    assert (got == program.module()(lu.ones(2, 3))).all()
    assert "def forward(self" in str(program)


def test_ranges_and_parameters() -> None:
    program = _program()
    assert str(program.range_constraints["batch"]) == "batch from 2 to 64"
    assert [n for n, _ in program.named_parameters()] == [n for n, _ in resnet().named_parameters()]
    assert len(list(program.parameters())) == len(list(resnet().parameters()))
    assert [n for n, _ in program.named_buffers()]
    assert list(program.buffers())
    with pytest.raises(RuntimeError, match=r"module\(\)"):
        program(lu.ones(2))


@pytest.mark.parametrize("make", [resnet, Attention], ids=["resnet", "attention"])
def test_decomposed_is_the_same_in_primitives(make: Any) -> None:
    lu.manual_seed(0)
    module = make().eval()
    args = (lu.randn(4, 3, 9, 9),) if make is resnet else (lu.randn(4, 5, 16),)
    program = export(module, args, dynamic_shapes=({0: Dim("batch", min=2)},))
    apart = program.run_decompositions()
    assert isinstance(apart, ExportedProgram)
    assert all(n.op.kind != op_.COMPOSITE for n in apart.plan.graph.nodes)
    assert any(n.op.kind == op_.COMPOSITE for n in program.plan.graph.nodes)
    other = (lu.randn(6, *args[0].shape[1:]),)
    with lu.no_grad():
        assert lu.allclose(apart.module()(*other), module(*other), atol=1e-5)
    assert apart.graph_signature.parameters == program.graph_signature.parameters


class _Keeps(nn.Module):
    def forward(self, x: Any) -> Any:
        self.last = x * 2
        return x


class _Sets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(lu.ones(2))

    def forward(self, x: Any) -> Any:
        with lu.enable_grad():
            (x * self.w).sum().backward()
        return x


class _Own(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + lu.rand(2, generator=lu.Generator().manual_seed(0))


class _Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.total = lu.zeros(2)

    def forward(self, x: Any) -> Any:
        self.total += x
        return x


class _Looks(nn.Module):
    def forward(self, x: Any) -> Any:
        return x if x.sum() > 0 else -x


REFUSED = [
    (_Keeps, "register_buffer"), (_Sets, "autograd.grad"), (_Own, "generator"),
    (_Writes, "register_buffer"), (_Looks, r"test_surface.py:\d+ in forward"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), REFUSED, ids=lambda x: getattr(x, "__name__", None))
def test_refused_in_words(kind: Any, text: str) -> None:
    with pytest.raises(Exception, match=f"(?s)export: .*{text}"):
        export(kind(), (lu.ones(2),))


def test_checks_of_values_travel_along() -> None:
    module = export(nn.Embedding(5, 3), (lu.tensor([1, 2]),)).module()
    with pytest.raises(IndexError, match="out of range"):
        module(lu.tensor([1, 9]))


def test_wrong_calls() -> None:
    with pytest.raises(ValueError, match="a Module is expected"):
        export(lambda x: x, (lu.ones(2),))
    with pytest.raises(TypeError, match="args is a tuple"):
        export(nn.ReLU(), lu.ones(2))
    with pytest.raises(TypeError, match="ExportedProgram"):
        lu.export.save(nn.ReLU(), "x")


def test_code_can_ask_whether_it_is_exported() -> None:
    program = export(Fn(lambda x: x + lu.compiler.is_exporting()), (lu.ones(2),), check=False)
    assert program.module()(lu.ones(2)).tolist() == [2.0, 2.0]
    assert not lu.compiler.is_exporting()


class _Views(nn.Module):
    def forward(self, x: Any) -> Any:
        y = x.view(-1).sin()
        x.mul_(2)
        return y


@pytest.mark.parametrize("compiled", [False, True])
def test_arguments_in_another_layout(compiled: bool) -> None:
    module = export(_Views(), (lu.ones(4, 3),)).module()
    module = module.compiled() if compiled else module
    x = lu.rand(3, 8)[:, ::2].t()  # neither contiguous nor without gaps
    want = x.reshape(-1).sin()
    before = x.clone()
    assert lu.allclose(module(x), want)
    assert lu.equal(x, before * 2)
    sliced = export(nn.Linear(3, 2), (lu.rand(4, 6)[:, ::2],)).module()
    assert sliced(lu.ones(4, 3)).shape == (4, 2)
