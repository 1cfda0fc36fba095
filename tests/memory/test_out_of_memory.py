"""Where memory runs out: a table of who has it, three fixes, and the process goes on."""

from __future__ import annotations

import copy
import gc
import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne import nn
from lucerne._src import backends
from lucerne.nn import functional as F
from lucerne.utils.checkpoint import checkpoint
from lucerne.utils.data import DataLoader, Dataset

MEMORY: Any = backends.get("cpu").memory
pytestmark = pytest.mark.skipif(MEMORY is None, reason="the host's backend has no allocator")
N = 1500
"""A matrix of N x N numbers takes 9 MB."""
TEXT = r"DefaultCPUAllocator: can't allocate memory: you tried to allocate \d+ bytes"


@contextmanager
def full() -> Iterator[None]:
    """Inside, the allocator gets next to nothing from the system."""
    gc.collect()
    MEMORY.empty_cache()
    MEMORY.set_most(MEMORY.stats()["reserved_bytes"] + (2 << 20))
    try:
        yield
    finally:
        MEMORY.set_most(0)


class Large(Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return torch.ones(N, N)


def _square(grad: bool = False) -> Any:
    return torch.rand(N, N, requires_grad=grad)


def _calls(work: Callable[..., Any], *given: Any) -> Callable[[], Any]:
    return lambda: work(*given)


def _backward(loss: Any) -> Callable[[], Any]:
    return lambda: loss.backward(retain_graph=True)


def _trained(kind: Any, **options: Any) -> Callable[[], Any]:
    net = nn.Linear(N, N)
    net(torch.ones(2, N)).sum().backward()
    return kind(net.parameters(), **options).step


def _compiled(x: Any, *, first: bool) -> Callable[[], Any]:
    fn = torch.compile(lambda x: (x @ x).relu() + 1)
    if not first:
        fn(x)
    return lambda: fn(x)


def _loaded() -> Callable[[], Any]:
    file = io.BytesIO()
    torch.save({"w": _square()}, file)

    def load() -> Any:
        file.seek(0)
        return torch.load(file)

    return load


PLACES: dict[str, Callable[[], Callable[[], Any]]] = {
    "creation": lambda: _calls(torch.zeros, N, N),
    "random creation": lambda: _calls(torch.randn, N, N),
    "module creation": lambda: _calls(nn.Linear, N, N),
    "from numpy, copied": lambda: _calls(torch.tensor, np.ones((N, N), np.float32)),
    "pointwise": lambda: _calls(torch.exp, _square()),
    "matmul": lambda: _calls(torch.matmul, _square(), _square()),
    "broadcast": lambda: _calls(torch.add, torch.ones(N, 1), torch.ones(N)),
    "linear forward": lambda: _calls(nn.Linear(N, N), torch.ones(N, N)),
    "conv forward": lambda: _calls(nn.Conv2d(3, 64, 3), torch.ones(4, 3, 128, 128)),
    "indexing": lambda: _calls(lambda x: x[torch.arange(N).flip(0)], _square()),
    "nonzero": lambda: _calls(torch.nonzero, torch.ones(1200, 1200)),
    "cat": lambda: _calls(torch.cat, [_square(), _square()]),
    "cast": lambda: _calls(lambda x: x.double(), _square()),
    "out=": lambda: _calls(lambda x: torch.mul(x, x, out=torch.empty(0)), _square()),
    "sort": lambda: _calls(torch.sort, _square()),
    "backward": lambda: _backward((_square(True) * _square()).sum()),
    "backward of a product": lambda: _backward((_square(True) @ _square()).sum()),
    "checkpoint backward": lambda: _backward(
        checkpoint(torch.exp, _square(True), use_reentrant=False).sum()
    ),
    "Adam": lambda: _trained(torch.optim.Adam),
    "SGD with momentum": lambda: _trained(torch.optim.SGD, lr=0.1, momentum=0.9),
    "loader": lambda: _calls(lambda d: list(DataLoader(d)), Large()),
    "loader with a worker": lambda: _calls(lambda d: list(DataLoader(d, num_workers=1)), Large()),
    "compile, first call": lambda: _compiled(_square(), first=True),
    "compile, later call": lambda: _compiled(_square(), first=False),
    "compiled backward": lambda: _backward(torch.compile(lambda x: (x @ x).sum())(_square(True))),
    "deepcopy": lambda: _calls(copy.deepcopy, nn.Linear(N, N)),
    "load": _loaded,
}


BY_DAY = {"creation", "backward", "loader with a worker", "compile, first call"}
"""The table looks through all objects of the process: that takes long behind many tests."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "place", [p if p in BY_DAY else pytest.param(p, marks=pytest.mark.nightly) for p in PLACES]
)
def test_a_table_and_the_process_goes_on(place: str) -> None:
    call = PLACES[place]()
    kept = [torch.ones(N, N)]  # something that has memory
    with full(), pytest.raises(torch.OutOfMemoryError, match=TEXT) as caught:
        call()
    assert isinstance(caught.value, RuntimeError)
    notes = "\n".join([*getattr(caught.value, "__notes__", []), str(caught.value)])
    assert "asked for " in notes
    assert "kept for reuse" in notes
    assert f"float32[{N}, {N}]" in notes
    assert "what to do, the likeliest first:" in notes
    assert all(f"  {k}. " in notes for k in (1, 2, 3))
    call()
    assert kept[0].sum().item() == N * N


def test_the_table_names_parameters_gradients_states_and_lines() -> None:
    net = nn.Sequential(nn.Linear(N, N), nn.ReLU())
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(2, N)).sum().backward()
    optimizer.step()
    x = net(torch.ones(N, N))
    with full(), pytest.raises(torch.OutOfMemoryError) as caught:
        F.gelu(x)
    where, table = caught.value.__notes__
    assert f"{__file__}:" in where
    for what in (
        "Sequential.0.weight ", "gradient of Sequential.0.weight", "exp_avg of Sequential.0.weight",
        "exp_avg_sq of Sequential.0.weight", "x at test_out_of_memory.py:",
    ):  # fmt: skip
        assert what in table
    assert "checkpoint" in table


LIMITED = """
import resource
import lucerne as torch
torch.ones(3) + 1
most = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (300 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
kept = torch.ones(1 << 20)
try:
    torch.ones(1 << 30)
except torch.OutOfMemoryError as error:
    print(str(error)[:45], "|", error.__notes__[-1].splitlines()[0])
print(kept.sum().item())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_limit_of_the_system() -> None:
    ran = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True)
    first, second = ran.stdout.splitlines()
    assert first.startswith("DefaultCPUAllocator: can't allocate memory: y | asked for 4.3 GB")
    assert "are free on this machine" in first
    assert second == str(float(1 << 20))
