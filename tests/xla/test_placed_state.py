"""What must not depend on the mesh: numbers that are drawn, and state that was saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lucerne as torch
from lucerne.distributed import checkpoint
from lucerne.nn import functional as F

pytest.importorskip("jax", reason="pip install 'lucerne[xla]': the device 'xla' runs on jax")

from lucerne.distributed.device_mesh import init_device_mesh
from lucerne.distributed.fsdp import fully_shard
from lucerne.distributed.tensor import Shard, distribute_tensor
from lucerne.distributed.tensor.parallel import parallelize_module
from tests.xla.meshes import TWO, Two, Uneven

pytestmark = pytest.mark.usefixtures("meshes")

DISTRIBUTIONS: dict[str, Callable[[Any], Any]] = {
    "uniform": torch.rand_like,
    "integers": lambda x: torch.randint_like(x, 0, 1000),
    "bernoulli": lambda x: torch.empty_like(x).bernoulli_(0.3),
    "geometric": lambda x: torch.empty_like(x).geometric_(0.3),
    "dropout": lambda x: F.dropout(x, 0.3),
    "normal": torch.randn_like,
    "exponential": lambda x: torch.empty_like(x).exponential_(),
}
QUICK = ("uniform", "normal")
ROUNDED = ("normal", "exponential")
"""The same bits on every mesh; the host's logarithm may round the last bit in the other way."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(k, marks=[] if k in QUICK else [pytest.mark.nightly]) for k in DISTRIBUTIONS],
)
def test_drawn_numbers_are_the_same_bits_everywhere(name: str) -> None:
    """On one device, cut over 2 and over 8, and on the host."""
    x = torch.linspace(0, 1, 16 * 24).reshape(16, 24)
    draw = torch.compile(DISTRIBUTIONS[name], fullgraph=True)

    def drawn(given: Any) -> Any:
        torch.manual_seed(5)
        return draw(given).cpu()

    wanted = drawn(x.to("xla"))
    if name in ROUNDED:
        torch.testing.assert_close(drawn(x), wanted, rtol=2.4e-7, atol=1.2e-7)
    else:
        assert torch.equal(drawn(x), wanted), "the host"
    for count in (2, 8):
        mesh = init_device_mesh("xla", (count,))
        for dim in (0, 1):
            placed = distribute_tensor(x, mesh, [Shard(dim)])
            assert torch.equal(drawn(placed), wanted), (count, dim)


def _fsdp(count: int) -> Callable[[Any], Any]:
    return lambda model: fully_shard(model, mesh=init_device_mesh("xla", (count,)))


def _both(model: Any) -> None:
    mesh = init_device_mesh("xla", (2, 4), mesh_dim_names=("data", "model"))
    parallelize_module(model, mesh["model"], TWO)
    fully_shard(model, mesh=mesh["data"])


PLANS: dict[str, Callable[[Any], Any]] = {
    "one": lambda model: None,
    **{f"FSDP on {n}": _fsdp(n) for n in (1, 2, 3, 4, 8)},
    "FSDP x TP": _both,
}


def _trained(kind: Any, plan: str, seed: int) -> dict[str, Any]:
    """A model and its optimizer on a plan, after one step."""
    torch.manual_seed(seed)
    model = kind().to("xla")
    PLANS[plan](model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x = torch.randn(8, model.up.in_features).to("xla")
    model(x).square().mean().backward()
    optimizer.step()
    return {"model": model, "optimizer": optimizer}


def _values(state: dict[str, Any]) -> list[Any]:
    params = list(state["model"].parameters())
    moments = [state["optimizer"].state[p][k] for p in params for k in ("exp_avg", "exp_avg_sq")]
    return [t.detach().cpu() for t in (*params, *moments)]


@pytest.mark.parametrize(
    ("kind", "plans"),
    [
        (Two, ["one", "FSDP on 3", "FSDP x TP"]),
        pytest.param(Two, list(PLANS), marks=pytest.mark.nightly),
        pytest.param(Uneven, list(PLANS), marks=pytest.mark.nightly),
    ],
)
def test_state_saved_on_8_is_loaded_anywhere(kind: Any, plans: list[str], tmp_path: Path) -> None:
    saved = _trained(kind, "FSDP on 8", 0)
    checkpoint.save(saved, checkpoint_id=tmp_path)
    wanted = _values(saved)
    for plan in plans:
        other = _trained(kind, plan, 1)
        lay = [getattr(p, "placements", None) for p in other["model"].parameters()]
        assert any(not torch.equal(a, b) for a, b in zip(_values(other), wanted, strict=True))
        checkpoint.load(other, checkpoint_id=tmp_path)
        assert all(torch.equal(a, b) for a, b in zip(_values(other), wanted, strict=True)), plan
        assert [getattr(p, "placements", None) for p in other["model"].parameters()] == lay
