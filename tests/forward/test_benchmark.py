"""`python -m benchmarks.transforms` runs, and its helpers notice what they are for."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks import transforms  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]


def test_rows_agree_with_torch(capsys: pytest.CaptureFixture[str]) -> None:
    transforms.main(["--eager", "--seconds", "0.01", "--rows", "grad,jvp"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["grad", "jvp"]
    assert all(float(line.split()[-1]) < 1e-4 for line in lines[:2])


def test_disagreement_is_relative() -> None:
    a, b = {"w": torch.tensor([1.0, 200.0])}, {"w": torch.tensor([1.0, 100.0])}
    np.testing.assert_allclose(transforms.disagreement(a, b), 1.0)
    assert transforms.disagreement(a, a) == 0


def test_ops_are_timed_on_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    assert transforms.main(["--ops", "--seconds", "0.01"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(transforms.chains(torch))
    assert all(line.count("lucerne") == line.count("torch") == 2 for line in lines)
