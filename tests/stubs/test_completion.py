"""What an editor offers behind a dot, asked as editors ask: through jedi."""

from __future__ import annotations

from pathlib import Path

import pytest

jedi = pytest.importorskip("jedi")

ROOT = Path(__file__).parents[2]
BEFORE = """import lucerne
import lucerne.nn.functional as F
from lucerne import Tensor
x = lucerne.rand(3, 3)
"""
CASES = [
    ("lucerne.", {"zeros", "float32", "nn", "Tensor", "compile", "no_grad"}),
    ("lucerne.zeros(3).relu().", {"sigmoid", "relu_", "shape", "backward", "T", "is_cuda"}),
    ("lucerne.tensor([1.0]).", {"item", "mean", "to", "grad"}),
    ("(x @ x.T + 1).", {"softmax", "argmax"}),
    ("x[0].exp_().", {"log", "add_"}),
    ("x.max(0).", {"values", "indices"}),
    ("x.sort().values.", {"cumsum", "unsqueeze"}),
    ("lucerne.linalg.svd(x).", {"U", "S", "Vh"}),
    ("F.cross_entropy(x, x).", {"backward", "item"}),
    ("lucerne.fft.fft(x).real.", {"abs", "numpy"}),
    ("x.split(1)[0].", {"flatten", "device"}),
    ("lucerne.float32.", {"is_floating_point", "itemsize"}),
]


def _offered(expression: str) -> set[str]:
    source = BEFORE + expression
    project = jedi.Project(ROOT, added_sys_path=[str(ROOT)], smart_sys_path=False)
    environment = jedi.api.environment.InterpreterEnvironment()
    asked = jedi.Script(source, path=ROOT / "asked.py", project=project, environment=environment)
    lines = source.splitlines()
    return {found.name for found in asked.complete(len(lines), len(lines[-1]))}


@pytest.mark.parametrize(("expression", "wanted"), CASES, ids=[case[0] for case in CASES])
def test_an_editor_completes(expression: str, wanted: set[str]) -> None:
    assert wanted - _offered(expression) == set()


def test_nothing_is_offered_for_what_is_unknown() -> None:
    assert "relu" not in _offered("x.no_such_member.")
