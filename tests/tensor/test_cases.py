"""Small programs that must show the same under torch and under Lucerne (`cases/*.txt`)."""

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


@pytest.mark.parametrize("name", FILES)
def test_cases_agree(name: str) -> None:
    differ = []
    for source in _cases(name):
        want, got = show(torch, source), show(lucerne, source)
        if want != got:
            differ.append(f"{source}\n  torch:   {want}\n  lucerne: {got}")
    assert not differ, f"{len(differ)} cases differ\n" + "\n".join(differ)


@pytest.mark.parametrize("name", FILES)
def test_files_hold_cases(name: str) -> None:
    assert len(_cases(name)) > 20
