"""Small programs with nested tensors that must show the same under torch and under Lucerne."""

import re
from pathlib import Path
from typing import Any

import pytest

import lucerne
from tests.support.both import show

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

CASES = Path(__file__).parent / "cases"
FILES = sorted(path.stem for path in CASES.glob("*.txt"))
MADE = """
entries = [torch.arange(6.0).reshape(2, 3), torch.arange(3.0).reshape(1, 3)]
st = torch.nested.nested_tensor(entries)
nt = torch.nested.nested_tensor(entries, layout=torch.jagged)
rows = [torch.arange(8.0).reshape(2, 4) / 8, torch.arange(12.0).reshape(3, 4) / 9]
q = torch.nested.nested_tensor(rows, layout=torch.jagged)
"""


def _cases(name: str) -> list[str]:
    lines = (CASES / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line.replace("; ", "\n") for line in lines if line and not line.startswith("#")]


def _shown(module: Any, source: str) -> tuple[str, ...]:
    """What a program shows; ragged sizes count up differently in each process."""
    return tuple(re.sub(r"\bj\d+\b", "j", part) for part in show(module, MADE + source))


def _differences(sources: list[str]) -> list[str]:
    found = []
    for source in sources:
        want, got = _shown(torch, source), _shown(lucerne, source)
        if want != got:
            found.append(f"{source}\n  torch:   {want}\n  lucerne: {got}")
    return found


@pytest.mark.parametrize("name", FILES)
def test_cases_agree(name: str) -> None:
    cases = _cases(name)
    assert len(cases) > 20
    differ = _differences(cases)
    assert not differ, f"{len(differ)} of {len(cases)} cases differ\n" + "\n".join(differ)


def test_a_difference_is_seen() -> None:
    [found] = _differences(["torch.__name__ == 'torch'"])
    assert "torch:" in found
