"""Mixed precision on a device that a backend brings."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as torch
from lucerne import backends, nn

KINDS = ("slate", "cpu")


@pytest.fixture(autouse=True)
def _host_computes() -> None:
    """The chip itself knows no 16-bit floats."""
    backends.set_fallback("host")


def _dtypes(fn: Any) -> dict[str, Any]:
    """The dtype of a call on each device."""
    return {kind: fn(torch.ones(2, 2).to(kind)).dtype for kind in KINDS}


def _square(x: Any) -> Any:
    return x @ x


@pytest.mark.parametrize("wrap", [lambda f: f, torch.compile], ids=["eager", "compiled"])
def test_each_device_has_its_own_setting(wrap: Any) -> None:
    """In turn, so that what was remembered for one setting meets the next."""
    fn = wrap(_square)
    full, low, half = torch.float32, torch.bfloat16, torch.float16
    for _ in range(2):
        assert _dtypes(fn) == {"slate": full, "cpu": full}
        with torch.autocast("slate", dtype=low):
            assert _dtypes(fn) == {"slate": low, "cpu": full}
            with torch.autocast("cpu", dtype=half):
                assert _dtypes(fn) == {"slate": low, "cpu": half}
            with torch.autocast("slate", enabled=False):
                assert _dtypes(fn) == {"slate": full, "cpu": full}
        with torch.autocast("cpu", dtype=low):
            assert _dtypes(fn) == {"slate": full, "cpu": low}
    with torch.autocast("slate"):
        assert _dtypes(fn) == {"slate": half, "cpu": full}  # torch's default off the CPU


def test_training_is_that_of_the_host() -> None:
    found = {}
    for kind in KINDS:
        torch.manual_seed(0)
        model, x = nn.Linear(3, 2).to(kind), torch.linspace(-1, 1, 12).view(4, 3).to(kind)
        with torch.autocast(kind, dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(x), x[:, 1:])
        assert loss.dtype is torch.float32
        loss.backward()
        assert model.weight.grad.dtype is torch.float32
        found[kind] = model.weight.grad.to("cpu")
    torch.testing.assert_close(found["slate"], found["cpu"], rtol=2e-2, atol=1e-3)


def test_what_is_not_there_converts_nothing() -> None:
    with torch.autocast("xpu", dtype=torch.bfloat16):
        assert _dtypes(_square) == dict.fromkeys(KINDS, torch.float32)
    with pytest.raises(RuntimeError, match=r"Expected one of cpu, cuda, .* device string: slat"):
        torch.autocast("slat")


def test_other_dtypes_are_refused_as_on_the_host() -> None:
    with pytest.warns(UserWarning, match="In SLATE autocast, but the target dtype"):
        context = torch.autocast("slate", dtype=torch.float64)
    with context:
        assert _dtypes(_square)["slate"] is torch.float32
