"""A trace leaves no state of the process changed: whatever is switched on where it ends (a break,
an error of the user's, or one of ours), is afterwards as it would be uncompiled."""

from __future__ import annotations

import contextvars
import functools
import gc
import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne import nn
from lucerne._src.base import device as devices
from lucerne._src.base.process.profiler_hook import Watch
from lucerne._src.base.unspecialized import _watch
from lucerne._src.capture.process_state import ProcessState
from lucerne._src.ir import dispatch
from lucerne._src.tensor.autograd import saved
from lucerne._src.tensor.autograd.node import anomaly
from lucerne._src.tensor.eager.autocast import Thread
from lucerne._src.tensor.eager.specialize import Observation
from lucerne._src.tensor.settings import _Flags
from lucerne.nn.modules import hooks as module_hooks


def snapshot() -> dict[str, Any]:
    """Everything that one call can leave behind for the next."""
    state = dispatch.state
    found: dict[str, Any] = {f"dispatch.{k}": _copy(v) for k, v in vars(state).items()}
    found |= {f"saved.{k}": _copy(v) for k, v in vars(saved.hooks).items()}
    found |= {f"anomaly.{k}": getattr(anomaly, k) for k in ("enabled", "check_nan")}
    found |= {f"autocast.{k}": getattr(Thread.now, k) for k in ("cache", "nesting")}
    found["autocast"] = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    found |= {f"flags.{k}": v for k, v in vars(_Flags).items() if not k.startswith("_")}
    found |= {
        f"modules.{k}": dict(v)
        for k, v in vars(module_hooks).items()
        if k.startswith("_global") and isinstance(v, dict)
    }
    kept = getattr(state.cast, "kept", None)
    return found | {
        "modules.full": module_hooks.GlobalKind.full, "variables of classes": class_variables(),
        "optimizers": dict(torch.optim.optimizer._global_optimizer_pre_hooks),
        "default dtype": torch.get_default_dtype(), "default device": torch.get_default_device(),
        "entered devices": list(devices.entered), "threads": torch.get_num_threads(),
        "members of Tensor": {k: id(v) for k, v in vars(torch.Tensor).items()},
        "members of Module": {k: id(v) for k, v in vars(nn.Module).items()},
        "autocast kept": None if kept is None else dict(kept),
        "watchers": (Watch.current, Observation.current, _watch.uses),
        "torch's numbers": torch.get_rng_state().tolist(), "Python's numbers": random.getstate(),
        "NumPy's numbers": np.random.get_state(legacy=True)[1].tolist(),
        "NumPy's errors": np.geterr(),
        "warnings": list(warnings.filters), "variables": dict(contextvars.copy_context().items()),
        "tracer": (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
        "collector": (gc.isenabled(), gc.get_freeze_count()), "environment": dict(os.environ),
        "recursion": sys.getrecursionlimit(), "streams": (sys.stdout, sys.stderr),
    }  # fmt: skip


COUNTERS = frozenset(("lucerne._src.base.process.structure_version.StructureVersion.count",))
"""Variables of classes that count, or remember for good, and decide nothing."""


def class_variables() -> dict[str, Any]:
    """Plain values that classes of ours hold: switches and depths that nobody thought of above."""
    found = {
        f"{name}.{k}": v
        for name, c in classes(tuple(n for n in sys.modules if n.startswith("lucerne.")))
        for k, v in vars(c).items()
        if isinstance(v, (bool, int, float, str, type(None))) and not k.startswith("__")
    }
    return {k: v for k, v in found.items() if k not in COUNTERS}


@functools.lru_cache(1)
def classes(modules: tuple[str, ...]) -> list[tuple[str, type]]:
    """The classes of these modules, found again only when one more of them has been loaded."""
    found = {
        c for n in modules for c in vars(sys.modules[n]).values()
        if isinstance(c, type) and c.__module__.startswith("lucerne.")
    }  # fmt: skip
    return [(f"{c.__module__}.{c.__qualname__}", c) for c in found]


def _copy(x: Any) -> Any:
    return x.copy() if isinstance(x, (list, dict)) else x


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    found = [k for k in {**before, **after} if before.get(k) != after.get(k)]
    at = "variables of classes"
    return [k for k in found if k != at] + [
        k for k, v in before.get(at, {}).items() if v != after.get(at, {}).get(k, v)
    ]


# ---- what is switched on ------------------------------------------------------------------------


def _pack(t: Any) -> Any:
    return t


BLOCKS: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "set_grad_enabled": lambda: torch.set_grad_enabled(False),
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "saved tensors": lambda: torch.autograd.graph.saved_tensors_hooks(_pack, _pack),
    "no saved tensors": lambda: torch.autograd.graph.disable_saved_tensors_hooks("no"),
    "on the host": torch.autograd.graph.save_on_cpu,
    "anomaly": torch.autograd.detect_anomaly,
    "device": lambda: torch.device("cpu"),
    "deterministic": lambda: deterministic(),
    "dtype": lambda: default_dtype(),
    "threads": lambda: one_thread(),
    "dual level": torch.autograd.forward_ad.dual_level,
    "fork_rng": torch.random.fork_rng,
    "parametrizations": nn.utils.parametrize.cached,
    "flop counting": lambda: torch.utils.flop_counter.FlopCounterMode(display=False),
}


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class UsersError(Exception):
    pass


def _breaks(x: Any) -> Any:
    print(end="")
    return x


def _looks(x: Any) -> Any:
    return x * x.sum().item()


def _raises(x: Any) -> Any:
    raise UsersError("of the user's")


def _fails(x: Any) -> Any:
    return x @ x  # of the wrong shape


def _seeds(x: Any) -> Any:
    torch.manual_seed(3)
    return x * torch.rand(3)


def _writes(x: Any) -> Any:
    KEPT.append(1)
    return x


KEPT: list[int] = []
POINTS: dict[str, Callable[[Any], Any]] = {
    "succeeds": lambda x: x * 2, "breaks": _breaks, "looks": _looks, "raises": _raises,
    "fails": _fails, "seeds": _seeds, "writes": _writes,
}  # fmt: skip


def program(block: str, point: str) -> Callable[[Any], Any]:
    make, act = BLOCKS[block], POINTS[point]

    def fn(x: Any) -> Any:
        x = x * 3
        with make():
            y = act(x * 2)
            y = y.sin()
        return y * 2

    return fn


def left_by(call: Any, collect: bool = False) -> list[Any]:
    """What is told and left by two calls, one after the other."""
    found: list[Any] = []
    for _ in range(2):
        torch.manual_seed(0)
        before = snapshot()
        try:
            out: Any = call(torch.ones(3, requires_grad=True)).dtype
        except Exception as error:
            out = type(error).__name__
        if collect:  # what a trace has let go
            gc.collect()
        found.append((out, differences(before, snapshot())))
    return found


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("block", BLOCKS)
def test_nothing_is_left(block: str, point: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = left_by(program(block, point))
        assert left_by(torch.compile(program(block, point)), point == "breaks") == want


@pytest.mark.parametrize("block", BLOCKS)
def test_the_first_use_in_a_thread_is_no_change(block: str) -> None:
    """A switch that was never touched equals one that is back where it was: a fresh process (here
    a fresh thread, whose switches are as new) has no break that the next one has not."""

    def breaks() -> list[str]:
        fn = torch.compile(program(block, "succeeds"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fn(torch.ones(3, requires_grad=True))
        return [b.kind for b in fn.breaks]

    known = [breaks(), breaks()][1]
    with ThreadPoolExecutor(1) as fresh:
        assert fresh.submit(breaks).result() == known


@pytest.mark.parametrize("point", ["succeeds", "breaks", "raises"])
def test_nothing_is_left_of_a_training_step(point: str) -> None:
    m = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    act = POINTS[point]

    def step(x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = act(m(x)).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    fn = torch.compile(step)
    left = [names for _, names in left_by(fn)]
    assert left in ([[], []], [["torch's numbers"]] * 2)


# ---- a switch that the function throws for good -------------------------------------------------

SWITCHES: dict[str, Callable[[], Any]] = {
    "grad": lambda: torch.set_grad_enabled(False),
    "dtype": lambda: torch.set_default_dtype(torch.float64),
    "deterministic": lambda: torch.use_deterministic_algorithms(True),
    "threads": lambda: torch.set_num_threads(1 + torch.get_num_threads() % 2),
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "hook": lambda: HANDLES.append(nn.modules.module.register_module_forward_hook(_hook)),
}
HANDLES: list[Any] = []


def _hook(*given: Any) -> None:
    """Of all modules."""


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_is_thrown_at_each_call(name: str) -> None:
    def fn(x: Any) -> Any:
        SWITCHES[name]()
        return x * 2

    found = []
    for call in (fn, torch.compile(fn)):
        here = ProcessState()
        try:
            told = []
            for _ in range(3):
                before = snapshot()
                call(torch.ones(3))
                told.append(differences(before, snapshot()))
                if name != "threads":
                    here.restore()
            found.append(told)
        finally:
            here.restore()
            while HANDLES:
                HANDLES.pop().remove()
            module_hooks.GlobalKind.full = None
    assert found[1] == found[0]
    assert found[0][0]


def test_a_change_is_seen() -> None:
    before = snapshot()
    saved.hooks.stack.append((_pack, _pack))
    try:
        assert differences(before, snapshot()) == ["saved.stack"]
    finally:
        saved.hooks.stack.pop()
