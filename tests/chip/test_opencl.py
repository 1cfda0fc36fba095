"""The OpenCL example: small, right, and it trains."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lucerne as torch
from lucerne import backends
from lucerne._src.conformance import frozen_cases
from lucerne._src.conformance.run import check

FOLDER = Path(__file__).parents[2] / "examples" / "backend_opencl"
MOST_LINES = 300
cl = pytest.importorskip("pyopencl", reason="pip install 'lucerne[opencl]': the example needs it")


@pytest.fixture(scope="module", autouse=True)
def _example() -> Iterator[None]:
    try:
        found = [d for p in cl.get_platforms() for d in p.get_devices()]
    except cl.LogicError:
        found = []
    if not found:
        pytest.skip("there is no OpenCL device: pip install pocl-binary-distribution gives one")
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


@pytest.fixture(params=["OpenCL", "FastOpenCL"])
def _opencl(request: pytest.FixtureRequest) -> None:
    example: Any = importlib.import_module("lucerne_opencl")
    backends.register("opencl", getattr(example, request.param)())


def test_the_backend_is_small() -> None:
    files = [FOLDER / "lucerne_opencl" / name for name in ("__init__.py", "backend.py")]
    assert sum(len(f.read_text().splitlines()) for f in files) <= MOST_LINES


SAMPLE = {"add": "float32", "softmax": "bfloat16", "mm": "float32", "exp": "complex64"}


@pytest.mark.usefixtures("_opencl")
@pytest.mark.parametrize("name", SAMPLE)
def test_it_agrees_with_torch(name: str) -> None:
    chosen = [c for c in frozen_cases(torch) if c.op == name and c.dtype == SAMPLE[name]]
    assert chosen
    assert not [problem for c in chosen[:3] if (problem := check(c, "opencl"))]


@pytest.mark.usefixtures("_opencl")
def test_memory_is_its_own() -> None:
    x = torch.tensor([1.0, 2.0]).to("opencl")
    assert not x._storage.host().flags.writeable
    x[0] = 5.0
    assert x.tolist() == [5.0, 2.0]
    with pytest.raises(IndexError, match="index out of range in self"):
        torch.nn.functional.embedding(torch.tensor([9]).to("opencl"), x.view(2, 1))
    assert len(backends.bill()) == 0


@pytest.mark.usefixtures("_opencl")
@pytest.mark.nightly
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_gpt_trains(compiled: bool) -> None:
    train = load_train()
    host = train.losses("cpu", 10, layers=2, width=16)
    found = train.losses("opencl", 10, compiled=compiled, layers=2, width=16)
    assert max(abs(a - b) for a, b in zip(host, found, strict=True)) < 1e-4
    assert len(backends.bill()) == 0


@pytest.mark.nightly
@pytest.mark.parametrize("factory", ["OpenCL", "FastOpenCL"])
def test_all_of_t0(factory: str) -> None:
    """The command of the README; the first run compiles about a thousand kernels."""
    command = [
        sys.executable, "-m", "lucerne", "conformance", "--device", "opencl", "--backend",
        f"lucerne_opencl:{factory}", "--tier", "T0", "--strict",
    ]  # fmt: skip
    paths = f"{FOLDER}:{FOLDER.parents[1]}"
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def load_train() -> Any:
    """The example's script as a module."""
    spec = importlib.util.spec_from_file_location("opencl_train", FOLDER / "train_gpt.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
