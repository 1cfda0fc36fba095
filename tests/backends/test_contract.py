"""The backend contract: a second device by registration, a device that only compiles, coverage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne import backends, cli
from lucerne._src import contract
from lucerne._src.base.device import device
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.op import Op
from lucerne.backends import api


def test_the_reference_backend_has_every_primitive() -> None:
    assert contract.missing("reference") == []


def test_structural_primitives_stay_few() -> None:
    structural = [op for op in contract.primitives() if op.kind == "structural"]
    assert len(structural) < 40, (
        "structural primitives are the contract for every chip: compose instead"
    )
    assert len(contract.REQUIRED) <= 45


def test_the_printed_contract_is_the_documented_one() -> None:
    page = Path(__file__).parents[2] / "docs" / "extend" / "primitives.md"
    assert page.read_text() == contract.as_markdown(), (
        "run: lucerne primitives --markdown > docs/extend/primitives.md"
    )


def test_meta_tensors_have_shapes_and_no_data() -> None:
    x = torch.empty(2, 3, device="meta")
    y = (x @ x.T + 1).softmax(-1)
    assert y.shape == (2, 2)
    assert y.device.type == "meta"
    with pytest.raises(NotImplementedError, match="no data"):
        y.tolist()


def test_the_null_device_compiles_and_never_runs() -> None:
    x = torch.ones(3).to("null")
    y = x + x
    assert y.device == device("null")
    compiled = backends.get("null").compiled
    assert str(compiled[-1]).splitlines()[1].strip().startswith("%2: float32[3]@null = add")


class Upside:
    """A device of its own, made of the reference backend, that counts what it compiles."""

    contract_version = 4  # any object: what it lacks, `__getattr__` finds

    def __init__(self) -> None:
        self.inner = backends.get("reference")
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def compile(self, graph: Graph) -> api.Executable:
        self.count += 1
        return self.inner.compile(graph)

    def supports(self, op: Op) -> bool:
        return self.inner.supports(op)


def test_a_device_by_registration_trains() -> None:
    chip = Upside()
    backends.register("upside", chip)
    w = torch.ones(3, device="upside", requires_grad=True)
    x = torch.tensor([1.0, 2.0, 3.0]).to("upside")
    ((w * x).sum() ** 2).backward()
    assert w.grad.device.type == "upside"
    assert w.grad.cpu().tolist() == [12.0, 24.0, 36.0]
    assert chip.count > 0
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(3)


def test_an_unknown_device_is_named() -> None:
    with pytest.raises(RuntimeError, match="device string: nochip"):
        torch.device("nochip")


def test_results_are_aligned() -> None:
    for n in (1, 5, 1000, 100_000):
        assert (torch.ones(n) + 1).data_ptr() % 64 == 0


def test_command_prints_the_contract(capsys: Any) -> None:
    assert cli.main(["primitives"]) == 0
    assert "batch_matmul" in capsys.readouterr().out
    assert cli.main(["missing", "--device", "reference"]) == 0
    assert "0 of" in capsys.readouterr().out


def test_numpy_warnings_stay_the_users() -> None:
    assert np.isinf((torch.ones(1) / 0).item())
    with pytest.warns(RuntimeWarning):
        np.ones(1) / np.zeros(1)
