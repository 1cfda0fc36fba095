"""ONNX out and in again. Without the packages of the extra `onnx` nothing here can run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne import nn
from lucerne._src.ir import op as op_
from lucerne.export import Dim

onnx = pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")

from lucerne.control_flow import scan, while_loop  # noqa: E402
from lucerne.export.onnx import command  # noqa: E402
from lucerne.export.onnx.errors import OnnxExporterError, OnnxImportError  # noqa: E402
from lucerne.export.onnx.rules import load_rules  # noqa: E402
from lucerne.export.onnx.table import RULES  # noqa: E402


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.last = nn.Linear(4 * 4 * 4, 5)

    def forward(self, x: Any) -> Any:
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return torch.softmax(self.last(x.flatten(1)), -1)


class Bad(nn.Module):
    def forward(self, x: Any) -> Any:
        q, _ = torch.linalg.qr(x)
        y = torch.linalg.cholesky(x @ x.t() + torch.eye(3))
        return q + y


class Choice(nn.Linear):
    def forward(self, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: super(Choice, self).forward(x), torch.square, (x,))


class Rounds(nn.Linear):
    """As many as the data wants, five at most."""

    def forward(self, x: Any) -> Any:
        def more(n: Any, y: Any) -> Any:
            return (n < 5) & (y.sum() < 50)

        def step(n: Any, y: Any) -> Any:
            return n + 1, y + nn.functional.softplus(super(Rounds, self).forward(y))

        return while_loop(more, step, (torch.tensor(0), x))


class Steps(nn.Linear):
    def forward(self, x: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            h = torch.tanh(super(Steps, self).forward(h) + row)
            return h, h * 2

        return scan(step, torch.zeros(4), x)


@pytest.fixture(scope="module")
def made() -> Any:
    torch.manual_seed(0)
    batch = Dim("batch", min=2, max=9)
    net = Net().eval()
    return net, torch.onnx.export(net, (torch.randn(3, 3, 8, 8),), dynamic_shapes=({0: batch},))


def test_a_model_is_run_at_two_sizes(made: Any) -> None:
    _, program = made
    assert [c.sizes for c in program.comparisons] == ["as in the example", "batch = 4"]
    assert max(c.largest for c in program.comparisons) < 1e-5
    assert "largest difference" in program.report


def test_weights_of_linear_are_constants_in_the_order_engines_want(made: Any) -> None:
    _, program = made
    kinds = [n.op_type for n in program.model_proto.graph.node]
    assert "Transpose" not in kinds
    assert kinds.count("MatMul") == 1


def test_out_and_in_again(made: Any, tmp_path: Path) -> None:
    net, program = made
    program.save(tmp_path / "net.onnx", external_data=True)
    assert (tmp_path / "net.onnx.data").exists()
    again = torch.onnx.load(tmp_path / "net.onnx")
    x = torch.randn(5, 3, 8, 8)
    with torch.no_grad():
        assert torch.allclose(again(x), net(x), 1e-5, 1e-6)
        assert torch.allclose(program(x)[0], net(x), 1e-5, 1e-6)


@pytest.mark.parametrize("kind", [Choice, Rounds, Steps])
def test_graphs_inside_of_nodes(kind: Any) -> None:
    """Both branches, and several numbers of rounds."""
    torch.manual_seed(0)
    net = kind(4, 4).eval()
    program = torch.onnx.export(net, (torch.rand(3, 4),))
    for x in (torch.rand(3, 4), -torch.rand(3, 4), 9 * torch.rand(3, 4)):
        with torch.no_grad():
            wanted = net(x)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for have, want in zip(program(x), wanted, strict=True):
            assert torch.allclose(have, want, 1e-5, 1e-5)


def test_all_refusals_are_told_at_once_with_their_lines() -> None:
    with pytest.raises(OnnxExporterError) as caught:
        torch.onnx.export(Bad(), (torch.randn(3, 3),))
    lines = [r.place for r in caught.value.refusals]
    assert len(lines) >= 2
    assert all("test_export.py" in line for line in lines)


def test_a_module_that_writes_is_told_to_call_eval() -> None:
    with pytest.raises(OnnxExporterError, match=r"call eval\(\) first"):
        torch.onnx.export(nn.BatchNorm1d(3), (torch.randn(4, 3),))


def test_arguments_that_mean_nothing_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="dynamo=False"):
        torch.onnx.export(nn.ReLU(), (torch.ones(2),), dynamo=False)
    with pytest.raises(ValueError, match="opset_version"):
        torch.onnx.export(nn.ReLU(), (torch.ones(2),), opset_version=7)


def test_command_lists_refusals(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "model.py"
    text = "import lucerne as torch\ndef build():\n    return torch.nn.ReLU(), (torch.ones(2),)\n"
    file.write_text(text, encoding="utf-8")
    assert command.check(str(file), 20) == 0
    assert "nothing to refuse" in capsys.readouterr().out
    file.write_text("x = 1\n", encoding="utf-8")
    assert command.check(str(file), 20) == 2
    assert "no function build()" in capsys.readouterr().err


def test_every_rule_belongs_to_an_op() -> None:
    load_rules()
    assert [name for name in RULES if name not in op_.table()] == []


# ---- files that lie ------------------------------------------------------------------------------


def _model(**changes: Any) -> Any:
    t = onnx.numpy_helper.from_array(np.ones(4, np.float32), "w")
    for name, value in changes.items():
        if name == "external":
            t.ClearField("raw_data")
            t.data_location = 1
            for key, told in value.items():
                entry = t.external_data.add()
                entry.key, entry.value = key, told
        elif name == "dims":
            del t.dims[:]
            t.dims.extend(value)
    x = onnx.helper.make_tensor_value_info("x", 1, [4])
    y = onnx.helper.make_tensor_value_info("y", 1, [4])
    node = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    return onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y], [t]))


LIES = [
    ({"dims": [5]}, "needs 20 bytes"),
    ({"dims": [2**40, 2**40]}, "has the shape"),
    ({"dims": [-4]}, "has the shape"),
    ({"external": {"location": "../w.bin"}}, "outside of the model's folder"),
    ({"external": {"location": "/etc/passwd"}}, "outside of the model's folder"),
    ({"external": {"location": "none.bin"}}, "no such file"),
    ({"external": {"location": "w.bin", "offset": "9"}}, "which has 20 bytes"),
    ({"external": {"location": "w.bin", "offset": "-1"}}, "offset is"),
    ({"external": {"location": "w.bin", "checksum": "0" * 40}}, "its checksum is another"),
]


@pytest.mark.parametrize(("changes", "text"), LIES, ids=[text for _, text in LIES])
def test_a_file_that_lies_is_refused(changes: Any, text: str, tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 20)
    (tmp_path / "m.onnx").write_bytes(_model(**changes).SerializeToString())
    with pytest.raises(OnnxImportError, match=text):
        torch.onnx.load(tmp_path / "m.onnx")


def test_bytes_that_are_no_model_are_refused() -> None:
    with pytest.raises(OnnxImportError):
        torch.onnx.load(b"\xff" * 50)
    model = _model()
    model.graph.node[0].op_type = "Nonsense"
    with pytest.raises(OnnxImportError, match="not known here: Nonsense"):
        torch.onnx.load(model)
