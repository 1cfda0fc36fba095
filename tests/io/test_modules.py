"""Files that hold whole modules: the state dict comes out, and no code of the file runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lucerne
from lucerne._src.io.errors import LoadError, UnsafeFileError
from lucerne._src.io.modules import convert, module_state

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Attack:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/should_not_be_there",)


def _model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.TransformerEncoderLayer(36, 4, 16),
    )


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_the_state_dict_of_a_module_comes_out(tmp_path: Path, suffix: str) -> None:
    model = _model()
    torch.save(model, tmp_path / "whole.pt")
    with pytest.raises(LoadError, match="lucerne convert"):
        lucerne.load(tmp_path / "whole.pt")
    command = [sys.executable, "-m", "lucerne", "convert", "whole.pt", f"out.{suffix}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "(model): torch.nn.modules.container.Sequential" in done.stdout
    found = lucerne.load(tmp_path / f"out.{suffix}")
    wanted = model.state_dict()
    assert set(found) == set(wanted)
    for name, t in wanted.items():
        assert found[name].numpy().tobytes() == t.numpy().tobytes(), name


def test_an_attack_is_refused_and_nothing_runs(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    model.extra = Attack()
    torch.save(model, tmp_path / "bad.pt")
    with pytest.raises(UnsafeFileError, match="attack"):
        convert(tmp_path / "bad.pt", tmp_path / "out.safetensors")
    assert not (tmp_path / "out.safetensors").exists()
    assert not Path("/tmp/should_not_be_there").exists()


def test_a_class_that_is_nowhere_is_no_obstacle(tmp_path: Path) -> None:
    kind = type("Mine", (torch.nn.Linear,), {"__module__": "nowhere"})
    module = type(sys)("nowhere")
    module.Mine = kind  # type: ignore[attr-defined]
    sys.modules["nowhere"] = module
    try:
        torch.save(kind(2, 3), tmp_path / "mine.pt")
    finally:
        del sys.modules["nowhere"]
    state, layers = module_state(tmp_path / "mine.pt")
    assert {k: tuple(t.shape) for k, t in state.items()} == {"weight": (3, 2), "bias": (3,)}
    assert layers == ["(model): nowhere.Mine"]


def test_other_files_are_for_load(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "w.pt")
    with pytest.raises(LoadError, match=r"lucerne\.load reads it"):
        module_state(tmp_path / "w.pt")
