"""Small programs with sparse tensors that must show the same under torch and under Lucerne."""

from pathlib import Path

import pytest

import lucerne
from tests.support.both import show

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

CASES = Path(__file__).parent / "cases"
FILES = sorted(path.stem for path in CASES.glob("*.txt"))


def _cases(name: str) -> list[str]:
    lines = (CASES / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line.replace("; ", "\n") for line in lines if line and not line.startswith("#")]


def _differences(sources: list[str]) -> list[str]:
    found = []
    for source in sources:
        want, got = show(torch, source), show(lucerne, source)
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
