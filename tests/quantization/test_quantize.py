"""`quantize_`, training with rounding, the report and torch.ao's front."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import lucerne as torch
from lucerne import quantization as q

# config, the largest relative error of a layer with random weights
CONFIGS = [
    (q.Int8WeightOnlyConfig(), 0.01),
    (q.Int8WeightOnlyConfig(group_size=16), 0.01),
    (q.Int4WeightOnlyConfig(group_size=32), 0.12),
    (q.Int8DynamicActivationInt8WeightConfig(), 0.02),
    (q.Int8DynamicActivationInt4WeightConfig(), 0.12),
    (q.Float8WeightOnlyConfig(), 0.05),
]


def _model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 96), torch.nn.GELU(), torch.nn.Linear(96, 32, bias=False)
    )


@pytest.mark.parametrize(("config", "most"), CONFIGS, ids=lambda x: type(x).__name__)
def test_models_stay_what_they_are(config: Any, most: float) -> None:
    """Near the model in float; the same compiled, saved and loaded, copied."""
    model, x = _model(), torch.randn(9, 64)
    want = model(x)
    assert q.quantize_(model, config) is None
    got = model(x)
    assert (got - want).norm() / want.norm() < most
    assert torch.equal(torch.compile(model, fullgraph=True)(x), got)
    other = copy.deepcopy(model)
    for buffer in other.buffers():
        buffer.zero_()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), got)
    assert not list(model.parameters())


def test_one_program_for_all_numbers_of_rows() -> None:
    """Heights of blocks follow from the rows at the call; scales that change are read anew."""
    model = _model()
    q.quantize_(model, q.Int8DynamicActivationInt8WeightConfig())
    run = torch.compile(model, dynamic=True, fullgraph=True)
    for rows in (5, 9, 2, 70, 1):
        x = torch.randn(rows, 64)
        assert torch.equal(run(x), model(x)), rows
    model[0].scale.mul_(2)
    assert torch.equal(run(x), model(x))


def test_an_exported_model_has_the_op() -> None:
    model, x = _model().eval(), torch.randn(4, 64)
    q.quantize_(model, q.Int8WeightOnlyConfig())
    program = torch.export.export(model, (x,))
    assert torch.allclose(program.module()(x), model(x), atol=1e-5)


def test_scales_stay_float32_in_a_model_that_is_cast() -> None:
    model = _model()
    q.quantize_(model, q.Int4WeightOnlyConfig(group_size=32))
    x = torch.randn(3, 64)
    want, model = model(x), model.bfloat16()
    assert model[0].scale.dtype is torch.float32
    got = model(x.bfloat16())
    assert got.dtype is torch.bfloat16
    assert (got.float() - want).norm() / want.norm() < 0.03


def test_filter_and_layers_that_do_not_fit() -> None:
    model = _model()
    q.quantize_(model, q.Int8WeightOnlyConfig(), lambda m, name: name == "2")
    assert [type(m).__name__ for m in model] == ["Linear", "GELU", "QuantizedLinear"]
    with pytest.raises(TypeError, match="chose '1', a GELU"):
        q.quantize_(_model(), q.Int8WeightOnlyConfig(), lambda m, name: name == "1")
    with pytest.warns(UserWarning, match="'0' stays as it is: its 64 columns"):
        q.quantize_(model := _model(), q.Int4WeightOnlyConfig(group_size=48))
    assert [type(m).__name__ for m in model] == ["Linear", "GELU", "QuantizedLinear"]


@pytest.mark.parametrize("config", [c for c, _ in CONFIGS], ids=lambda c: type(c).__name__)
def test_training_with_rounding_computes_what_convert_gives(config: Any) -> None:
    model, x = _model(), torch.randn(5, 64)
    q.quantize_(model, q.QATConfig(config, step="prepare"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    first = model(x).square().mean()
    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    trained = model(x)
    assert trained.square().mean() < first
    q.quantize_(model, q.QATConfig(config, step="convert"))
    assert isinstance(model[0], q.QuantizedLinear)
    assert torch.allclose(model(x), trained, atol=1e-4)


def _loss(model: Any, batch: Any) -> Any:
    return torch.nn.functional.mse_loss(model(batch[0]), batch[1])


def test_report_and_budget(tmp_path: Path) -> None:
    """A layer that spoils the model stays in float; the others do not."""
    model = _model()
    with torch.no_grad():
        model[0].weight[0], model[0].bias[0] = 0.0, 0.0
        model[2].weight[:, 0] = 50.0  # meets zeros; beside it all other columns round to nothing
    x = torch.randn(8, 64)
    batches = [(x, model(x).detach() + 0.05 * torch.randn(8, 32))]
    found = q.quantize_(model, q.Int8WeightOnlyConfig(), check=batches, loss=_loss, budget=0.05)
    assert found is not None
    assert [layer.kept for layer in found.layers] == [False, True]
    assert [type(m).__name__ for m in model] == ["QuantizedLinear", "GELU", "Linear"]
    assert found.change <= 0.05
    assert abs(found.loss_after - float(_loss(model, batches[0]))) < 1e-6
    assert found.layers[0].sqnr > 30
    assert abs(sum(x.share for x in found.layers) - 1) < 1e-6
    assert found.bytes_after < found.bytes_before == 4 * (64 * 96 + 96 * 32)
    told = str(found)
    assert "stays in float" in told
    assert "budget 5.000%: kept; layers that stay in float: 2" in told
    found.save(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "http" not in page
    assert "stays in float" in page


def test_report_without_a_loss_measures_outputs() -> None:
    found = q.quantize_(_model(), q.Int4WeightOnlyConfig(group_size=32), check=[torch.randn(4, 64)])
    assert found is not None
    assert found.loss_before == 0 < found.loss_after < 0.05
    assert found.measured == "distance of the outputs"


def test_torch_ao_front() -> None:
    model, x = _model(), torch.randn(4, 64)
    made = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    assert type(model[0]).__name__ == "Linear"
    assert made[0].dynamic
    assert (made(x) - model(x)).norm() / model(x).norm() < 0.02
    named = torch.ao.quantization.quantize_dynamic(model, {"2"})
    assert [type(m).__name__ for m in named] == ["Linear", "GELU", "QuantizedLinear"]


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (lambda: q.quantize_(_model(), "int8"), TypeError, "expected a config"),
    (lambda: q.quantize_(_model(), CONFIGS[0][0], budget=0.1), ValueError, "need batches"),
    (lambda: q.quantize_(_model(), CONFIGS[0][0], check=[]), ValueError, "no batch"),
    (lambda: q.QATConfig(CONFIGS[0][0], "done"), ValueError, "'prepare' or 'convert'"),
    (lambda: q.Float8WeightOnlyConfig(torch.float8_e5m2), ValueError, "float8_e4m3fn"),
    (lambda: q.quantize_dynamic(_model(), {torch.nn.LSTM}), NotImplementedError, "only nn.Linear"),
    (lambda: q.quantize_dynamic(_model(), dtype=torch.float16), NotImplementedError, "qint8"),
    (lambda: q.quantize_weight(torch.full((4, 4), float("nan")), "int8"), ValueError, "finite"),
    (lambda: q.quantize_weight(torch.ones(4, 6), "int4", 4), ValueError, "do not divide"),
]


@pytest.mark.parametrize(("call", "kind", "says"), REFUSED, ids=[r[2] for r in REFUSED])
def test_refusals_teach(call: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        call()
