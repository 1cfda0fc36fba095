"""Files that hold whole modules, for readers who vouch for the classes in them: ours and torch's
read what the other has written, as code that says `import torch` saves and loads them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import lucerne
from lucerne import nn
from lucerne.serialization import safe_globals
from tests.ecosystem import without_torch

SCRIPT = """
import sys
import torch
from torch import nn

VOUCHED = [
    nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention, nn.ModuleList,
    nn.modules.linear.NonDynamicallyQuantizableLinear, nn.Linear, nn.Dropout, nn.LayerNorm,
    nn.Sequential, nn.Embedding, nn.LSTM, nn.functional.relu, nn.functional.gelu,
    (nn.functional.gelu, "torch.nn.functional.gelu"),  # (torch's own files say torch._C._nn.gelu)
]

def made():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)  # keeps F.relu
    other = nn.TransformerEncoderLayer(8, 2, 16, 0.0, torch.nn.functional.gelu, batch_first=True)
    model = nn.Sequential(nn.Embedding(5, 8), nn.TransformerEncoder(layer, 1), other, nn.LSTM(8, 3))
    model.kept = [nn.functional.relu, nn.Linear]
    return model.eval()

way, path = sys.argv[1:]
if way == "save":
    torch.save(made(), path)
with torch.serialization.safe_globals(VOUCHED):
    model = torch.load(path)
assert model.kept == [nn.functional.relu, nn.Linear], model.kept
print(model(torch.arange(5))[0].sum(-1).tolist())
"""
OURS, THEIRS = "ours", "torch"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return without_torch.folder(tmp_path_factory.mktemp("site"))


def _run(way: str, by: str, packages: Path, path: Path) -> list[float]:
    script = packages / "whole.py"
    script.write_text(SCRIPT)
    arguments = [str(script), way, str(path)]
    if by == OURS:
        done = without_torch.run(packages, "-m", "lucerne.as_torch", *arguments)
    else:
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, check=False
        )
    assert not done.returncode, done.stderr[-2000:]
    return [float(x) for x in done.stdout.strip("[]\n").split(",")]


@pytest.mark.torch
@pytest.mark.parametrize(("writer", "reader"), [(OURS, OURS), (OURS, THEIRS), (THEIRS, OURS)])
def test_whole_modules(writer: str, reader: str, packages: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    wanted = _run("save", writer, packages, path)
    assert _run("load", reader, packages, path) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.torch
def test_a_plain_program_reads_torchs_modules(tmp_path: Path) -> None:
    """Where torch's name is not ours, `safe_globals` says our class, the file torch's."""
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    torch.save(theirs, tmp_path / "model.pt")
    with safe_globals([nn.Sequential, nn.Linear, nn.ReLU]):
        ours = lucerne.load(tmp_path / "model.pt")
    assert type(ours[0]) is nn.Linear
    assert ours(lucerne.ones(1, 2)).tolist() == theirs(torch.ones(1, 2)).tolist()
