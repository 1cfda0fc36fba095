"""Type checkers know tensors: programs as people write them, read by pyright and by mypy."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.sources import SCRIPTS, scripts, swapped

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

KNOWN = """
import lucerne as torch
import lucerne.nn.functional as F

x = torch.rand(3, 3, requires_grad=True)
reveal_type(torch.zeros(3).relu())  # Tensor
reveal_type(2 - x @ x.T)  # Tensor
reveal_type(x > 0)  # Tensor
reveal_type(x[0].add_(1))  # Tensor
reveal_type(torch.where(x > 0, x, 0.0))  # Tensor
reveal_type(F.cross_entropy(x, x).mean())  # Tensor
reveal_type(x.max())  # Tensor
reveal_type(x.max(0).indices)  # Tensor
reveal_type(torch.linalg.svd(x).S)  # Tensor
reveal_type(x.is_contiguous())  # bool
reveal_type(x.size(0))  # int
reveal_type(x.dtype)  # dtype
reveal_type(torch.float32)  # dtype
"""
UNKNOWN = "\nx.no_such_member\ntorch.no_such_function(x)\nx.relu(no_such_option=1)\n"


def _wanted() -> list[str]:
    return re.findall(r"# (\w+)$", KNOWN, flags=re.M)


def test_mypy_knows_tensors(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    program = tmp_path / "program.py"
    program.write_text(KNOWN + UNKNOWN)
    options = ["--cache-dir", str(tmp_path / "cache"), "--follow-imports", "silent"]
    options += ["--config-file", str(ROOT / "pyproject.toml"), "--no-warn-unused-configs"]
    out, _, _ = api.run([*options, str(program)])
    assert [t.rpartition(".")[2] for t in re.findall(r'Revealed type is "(.*)"', out)] == _wanted()
    errors = [line for line in out.splitlines() if "error:" in line]
    for part in ('"Tensor" has no attribute', "Module has no attribute", "Unexpected keyword"):
        assert sum(part in line for line in errors) == 1, out
    assert len(errors) == 3, out


# ---- pyright ------------------------------------------------------------------------------------

pyright = pytest.mark.skipif(
    importlib.util.find_spec("basedpyright") is None, reason="basedpyright is not installed"
)


def _told(folder: Path) -> list[dict[str, Any]]:
    """What pyright says of the programs in a folder."""
    settings = {
        "include": [str(folder)],
        "extraPaths": [str(ROOT), str(EXAMPLES)],
        "typeCheckingMode": "standard",
    }
    config = folder / "pyrightconfig.json"
    config.write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "-p", str(config), "--outputjson"]
    command += ["--pythonpath", sys.executable]
    ran = subprocess.run(command, capture_output=True, text=True)
    told = json.loads(ran.stdout)
    assert told["summary"]["filesAnalyzed"] == len(list(folder.rglob("*.py")))
    found: list[dict[str, Any]] = told["generalDiagnostics"]
    return found


def _unknown(told: list[dict[str, Any]]) -> list[str]:
    """Members that pyright does not know, of tensors or of modules of the package."""
    whose = re.compile(r'for class "(\w*Tensor|Parameter|Buffer)\*?"|of module "lucerne')
    return [
        f"{d['file']}:{d['range']['start']['line'] + 1}: {d['message']}"
        for d in told
        if d.get("rule") == "reportAttributeAccessIssue" and whose.search(d["message"])
    ]


@pyright
@pytest.mark.slow
def test_pyright_knows_every_member_that_programs_use(tmp_path: Path) -> None:
    """The scripts and the examples, with Lucerne in the place of the framework they choose."""
    chosen = "torch = common.framework(args)"
    for folder, paths in ((SCRIPTS, scripts()), (EXAMPLES, sorted(EXAMPLES.rglob("*.py")))):
        for path in paths:
            copy = tmp_path / folder.name / path.relative_to(folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            source = swapped(path.read_text(encoding="utf-8"), "lucerne")
            copy.write_text(source.replace(chosen, "import lucerne as torch"), encoding="utf-8")
    assert len(list(tmp_path.rglob("*.py"))) > 40
    assert _unknown(_told(tmp_path)) == []


@pyright
@pytest.mark.slow
def test_pyright_knows_tensors(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(KNOWN + UNKNOWN)
    told = _told(tmp_path)
    revealed = [d["message"] for d in told if d["severity"] == "information"]
    assert [re.findall(r'is "(\w+)"', text)[0] for text in revealed] == _wanted()
    assert len(_unknown(told)) == 2
