"""A few ops of each kind through `python -m tests.forward`; at night all of them."""

import time

import pytest

torch = pytest.importorskip("torch")

from tests.conformance import catalog  # noqa: E402
from tests.conformance.bridge import lucerne_bridge  # noqa: E402
from tests.conformance.context import Context  # noqa: E402
from tests.conformance.result import Tally  # noqa: E402
from tests.forward.__main__ import GOAL, report  # noqa: E402
from tests.forward.against_torch import TookTooLongError, check, has_forward, time_limit  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]

FEW = (
    "mul", "softmax", "sort", "index_put", "cumprod", "linalg.inv", "nn.functional.conv2d",
    "masked.var", "nn.functional.layer_norm",
)  # fmt: skip


def tally_of(name: str, dtype: torch.dtype = torch.float64) -> Tally:
    return check(Context(catalog.load()[name], lucerne_bridge()), dtype, 2)


@pytest.mark.parametrize("name", FEW)
def test_forward_mode(name: str) -> None:
    tally = tally_of(name)
    assert tally.samples
    assert tally.ok, tally.failures


def test_complex_numbers() -> None:
    assert tally_of("linalg.inv", torch.complex128).ok
    assert tally_of("abs", torch.complex128).ok


def test_the_report_fails_below_the_goal(capsys: pytest.CaptureFixture[str]) -> None:
    bad = Tally("forward AD", "some", "T0", "float64")
    bad.lost("missing", "lucerne.some")
    assert report([bad], verbose=False) == 1
    assert f"must be at least {GOAL:.0%}" in capsys.readouterr().out


def test_a_slow_entry_is_stopped() -> None:
    with pytest.raises(TookTooLongError), time_limit(1):
        time.sleep(30)


@pytest.mark.nightly
def test_forward_mode_of_every_op() -> None:
    bridge = lucerne_bridge()
    entries = [e for e in catalog.load().values() if has_forward(e)]
    tallies = [check(Context(e, bridge), torch.float64, 2) for e in entries]
    assert report(tallies, verbose=False) == 0
