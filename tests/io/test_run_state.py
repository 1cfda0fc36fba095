"""A run that is stopped and restored goes on bit for bit as one that was not."""

from __future__ import annotations

import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne as torch
from lucerne.run_state import RunState, latest
from lucerne.serialization import LoadError, SaveError
from lucerne.utils.data import DataLoader, TensorDataset
from tests.io.corpus import assert_same

STEPS = 17


class Run:
    """A small training run with everything that has a state."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(4, 8),
            torch.nn.BatchNorm1d(8),
            torch.nn.Dropout(0.3),
            torch.nn.Linear(8, 2),
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, STEPS)
        self.scaler = torch.amp.GradScaler("cpu", growth_interval=3)
        self.ema = torch.optim.swa_utils.AveragedModel(self.model)
        self.generator = torch.Generator().manual_seed(seed)
        x = torch.arange(80.0).reshape(20, 4) / 80
        y = torch.arange(20) % 2
        self.loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
        self.state = RunState(
            model=self.model, optimizer=self.optimizer, scheduler=self.scheduler,
            scaler=self.scaler, loader=self.loader, ema=self.ema, generator=self.generator,
            numpy=np.random.default_rng(seed), python=random.Random(seed),
        )  # fmt: skip
        self.log: list[Any] = []

    def train(self, until: int) -> None:
        while self.state.step < until:
            for x, y in self.loader:
                self.one(x, y)
                self.state.step += 1
                if self.state.step == until:
                    return

    def one(self, x: Any, y: Any) -> None:
        noise = torch.randn(x.shape) * random.random() + np.random.rand() * 0.1
        noise = noise + torch.rand(4, generator=self.generator)
        draw = self.state.parts["numpy"].random() + self.state.parts["python"].random()
        loss = torch.nn.functional.cross_entropy(self.model(x + 0.1 * noise), y) * draw
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        self.ema.update_parameters(self.model)
        self.log.append((x[:, 0].tolist(), loss.item()))


@pytest.fixture(autouse=True)
def _keep_generators() -> Any:
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    yield
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])


@settings(max_examples=6)
@given(stop=st.integers(1, STEPS - 1))
def test_continuing_is_bit_identical(stop: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("run")
    whole = Run(seed=1)
    whole.train(STEPS)
    first = Run(seed=1)
    first.train(stop)
    first.state.save(folder, note="half way")
    second = Run(seed=99)
    second.train(3)
    assert second.state.restore(folder) == {"note": "half way"}
    assert second.state.step == stop
    second.log = list(first.log)
    second.train(STEPS)
    assert second.log == whole.log
    assert_same(
        second.state.state_dict()["parts"]["model"], whole.state.state_dict()["parts"]["model"]
    )
    assert_same(second.state.state_dict()["random"], whole.state.state_dict()["random"])
    for name in ("optimizer", "scheduler", "scaler", "ema"):
        ours, theirs = (run.state.state_dict()["parts"][name] for run in (second, whole))
        assert_same(ours, theirs, name)


def test_in_a_new_process(tmp_path: Path) -> None:
    whole = Run(seed=1)
    whole.train(STEPS)
    half = Run(seed=1)
    half.train(8)
    half.state.save(tmp_path)
    code = (
        "import sys; from tests.io.test_run_state import STEPS, Run\n"
        "run = Run(seed=77)\n"
        "run.state.restore(sys.argv[1])\n"
        "run.train(STEPS)\n"
        "print(run.log[-1], [p.double().sum().item().hex() for p in run.model.parameters()])\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    root = Path(__file__).parents[2]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True)
    sums = [p.double().sum().item().hex() for p in whole.model.parameters()]
    assert ran.stdout.strip() == f"{whole.log[-1]} {sums}", ran.stderr


# ---- checkpoints ------------------------------------------------------------------------------


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    state = RunState(model=torch.nn.Linear(1, 1), keep=2)
    for n in range(4):
        state.save(tmp_path, n=n)
    assert names(tmp_path) == ["state-00000003.pt", "state-00000004.pt"]
    assert latest(tmp_path) == str(tmp_path / "state-00000004.pt")
    assert state.restore(tmp_path) == {"n": 3}


def test_a_damaged_newest_one_is_passed_over(tmp_path: Path) -> None:
    state = RunState(model=torch.nn.Linear(1, 1), keep=3)
    for n in range(3):
        state.save(tmp_path, n=n)
    newest = tmp_path / "state-00000003.pt"
    raw = bytearray(newest.read_bytes())
    raw[len(raw) // 2] ^= 1
    newest.write_bytes(raw)
    with pytest.warns(UserWarning, match="damaged checkpoint, using state-00000002.pt"):
        assert state.restore(tmp_path) == {"n": 1}
    (tmp_path / "state-00000002.pt").write_bytes(b"")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert state.restore(tmp_path) == {"n": 0}
    (tmp_path / "state-00000001.pt").unlink()
    with pytest.raises(LoadError, match="no checkpoint is intact"):
        state.restore(tmp_path)
    state.save(tmp_path, n=5)
    assert state.restore(tmp_path) == {"n": 5}


def test_one_file(tmp_path: Path) -> None:
    state = RunState(model=torch.nn.Linear(1, 1))
    state.save(tmp_path / "x.pt", a=[1, torch.ones(1)])
    state.save(tmp_path / "x.pt", a=2)
    assert names(tmp_path) == ["x.pt"]
    assert state.restore(tmp_path / "x.pt") == {"a": 2}


def test_nothing_is_changed_when_parts_differ(tmp_path: Path) -> None:
    RunState(model=torch.nn.Linear(1, 1)).save(tmp_path)
    model = torch.nn.Linear(1, 1)
    before = model.weight.item()
    state = RunState(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(RuntimeError, match="Make it with the same parts"):
        state.restore(tmp_path)
    assert model.weight.item() == before


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SaveError, match="part 'lr'"):
        RunState(lr=0.1)
    with pytest.raises(ValueError, match="keep"):
        RunState(keep=0)
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        RunState().restore(tmp_path)
    torch.save({"a": 1}, tmp_path / "x.pt")
    with pytest.raises(LoadError, match="no run state"):
        RunState().restore(tmp_path / "x.pt")
    assert latest(tmp_path / "nowhere") is None


@pytest.mark.torch
def test_torch_reads_a_run_state(tmp_path: Path) -> None:
    """Nothing in it is ours alone; NumPy's generator state needs weights_only=False there."""
    theirs = pytest.importorskip("torch")
    run = Run(seed=1)
    run.train(3)
    run.state.save(tmp_path / "x.pt")
    found = theirs.load(tmp_path / "x.pt", weights_only=False)
    assert found["step"] == 3
    assert_same(found["parts"]["model"], run.state.state_dict()["parts"]["model"])
