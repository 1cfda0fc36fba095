"""Context managers, most of them generators, in functions that break inside: a trace that is let
go must not run their ends once more, now or when it is collected."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.capture.effects import new_objects
from lucerne._src.capture.process_state import ProcessState
from lucerne.nn.attention import SDPBackend, sdpa_kernel
from lucerne.utils.checkpoint import _EarlyStop, set_checkpoint_early_stop


class Depth:
    now = 0


@contextlib.contextmanager
def deeper() -> Iterator[None]:
    Depth.now += 1
    try:
        yield
    finally:
        Depth.now -= 1


MANAGERS: dict[str, Callable[[], Any]] = {
    "a user's": deeper,
    "fork_rng": torch.random.fork_rng,
    "sdpa_kernel": lambda: sdpa_kernel(SDPBackend.MATH),
    "disable_saved_tensors_hooks": lambda: torch.autograd.graph.disable_saved_tensors_hooks("no"),
    "sdp_kernel": lambda: torch.backends.cuda.sdp_kernel(enable_flash=False),
    "early stop": lambda: set_checkpoint_early_stop(False),
    "mkldnn": lambda: torch.backends.mkldnn.flags(enabled=False),
}
SEEN: list[str] = []
BY_DAY = {"a user's", "fork_rng", "sdpa_kernel"}
"""Each collects garbage many times, which takes long behind ten thousand tests."""
NAMES = [m if m in BY_DAY else pytest.param(m, marks=pytest.mark.nightly) for m in MANAGERS]


def decides(x: Any) -> Any:
    return x * 2 if float(x.sum()) > 0 else x - 1


def tells(x: Any) -> Any:
    SEEN.append(repr(x))
    return x + 1


def raises_inside(x: Any) -> Any:
    try:
        with deeper():
            if float(x.sum()) > -1e9:
                raise ValueError
    except ValueError:
        x = x + 1
    return x


@pytest.mark.parametrize("manager", NAMES)
@pytest.mark.parametrize("inside", [decides, tells, raises_inside])
def test_ends_run_once(manager: str, inside: Callable[[Any], Any]) -> None:
    def fn(x: Any) -> Any:
        with MANAGERS[manager]():
            y = inside(x + torch.rand(3) * 0)
            y = y + torch.rand(3) * 0
        return y * 3

    compiled, state = torch.compile(fn), ProcessState()
    for k in range(4):
        x = torch.full((3,), float(k - 1))
        before = torch.get_rng_state()
        assert torch.equal(compiled(x), fn(x))
        gc.collect()
        assert Depth.now == 0
        assert _EarlyStop.enabled
        assert state.is_same()
        if manager == "fork_rng":
            assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("manager", NAMES)
def test_a_sweep_puts_back_nothing_of_a_trace(
    manager: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Garbage of earlier traces is collected in the middle of a `with` block of the same kind."""

    def fn(x: Any) -> Any:
        with MANAGERS[manager]():
            return decides(x + torch.rand(3) * 0)

    torch.compile(fn)(torch.ones(3))
    with MANAGERS[manager]():
        state, before = ProcessState(), torch.get_rng_state()
        monkeypatch.setattr(new_objects._sweep, "limit", 0)
        new_objects.sweep()
        assert state.is_same()
        assert torch.equal(torch.get_rng_state(), before)
    assert _EarlyStop.enabled
    assert Depth.now == 0
