"""Sequences cut over a mesh: the ring gives what attention gives, and sends what it must."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as torch
from lucerne._src.distributed.mesh.context_parallel import _Options
from lucerne.nn import functional as F

pytest.importorskip("jax", reason="pip install 'lucerne[xla]': the device 'xla' runs on jax")

from lucerne.distributed.device_mesh import init_device_mesh
from lucerne.distributed.tensor import DTensor, Shard, distribute_tensor
from lucerne.distributed.tensor.experimental import context_parallel
from lucerne.distributed.tensor.experimental._attention import (
    context_parallel_unshard,
    set_rotate_method,
)
from tests.xla.meshes import collectives

pytestmark = pytest.mark.usefixtures("meshes")


@pytest.fixture(autouse=True)
def _as_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Options, "rotate", "allgather")


def _attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    found = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return found.detach(), *torch.autograd.grad((found * found.sin()).sum(), [q, k, v])


def _in_a_block(rotate: str, run: Any, *given: Any, dim: int = 2) -> Any:
    set_rotate_method(rotate)
    mesh = init_device_mesh("xla", (4,), mesh_dim_names=("seq",))
    buffers = [x.to("xla") for x in given]
    with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[dim] * len(buffers)):
        assert all(b.placements == (Shard(dim),) for b in buffers)
        found = run(*[b.requires_grad_() for b in buffers])
    assert not any(isinstance(b, DTensor) for b in buffers)
    return found


@pytest.mark.parametrize("causal", [False, True])
def test_the_ring_gives_what_attention_gives(causal: bool) -> None:
    torch.manual_seed(0)
    given = [torch.randn(2, 3, 16, 8) for _ in range(3)]
    wanted = _attention(*[x.clone().requires_grad_() for x in given], causal)
    step = torch.compile(lambda q, k, v: _attention(q, k, v, causal), fullgraph=True)
    found = _in_a_block("alltoall", step, *given)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a.cpu(), b, atol=2e-5, rtol=1e-5)
    assert all(x.placements == (Shard(2),) for x in found)
    # Keys and values take three turns, which the backward pass shares; their gradients take four.
    assert collectives(step) == {"collective-permute": 2 * 3 + 2 * 4}


@pytest.mark.parametrize("rotate", ["alltoall", "allgather"])
@pytest.mark.parametrize(
    ("length", "options"),
    [(16, {}), (10, {}), (16, {"attn_mask": True}), (16, {"enable_gqa": True})],
    ids=["ring", "uneven", "mask", "shared heads"],
)
def test_whatever_a_call_asks(rotate: str, length: int, options: dict[str, Any]) -> None:
    """What the ring has no form for is partitioned by the engine."""
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(2, 4, length, 8),
        torch.randn(2, 2, length, 8),
        torch.randn(2, 2, length, 8),
    )
    if "enable_gqa" not in options:
        k, v = k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)
    mask = torch.ones(length, length).tril().bool() if "attn_mask" in options else None

    def run(q: Any, k: Any, v: Any) -> Any:
        here = None if mask is None else mask.to(q.device)
        gqa = "enable_gqa" in options
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=here, enable_gqa=gqa)
        return found.detach().cpu()

    torch.testing.assert_close(_in_a_block(rotate, run, q, k, v), run(q, k, v))


def test_blocks() -> None:
    mesh, x = init_device_mesh("xla", (4,)), torch.arange(32.0).reshape(2, 16).to("xla")
    with context_parallel(mesh, buffers=[x], buffer_seq_dims=[1], no_restore_buffers={x}):
        [whole] = context_parallel_unshard(mesh, [x], [1])
        assert torch.equal(whole.cpu(), x.cpu())
    assert x.placements == (Shard(1),)
    y = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
    with pytest.raises(ZeroDivisionError), context_parallel(mesh, buffers=[y], buffer_seq_dims=[1]):
        1 / 0  # noqa: B018
    assert y.placements == (Shard(0),)
    with pytest.raises(ValueError, match="same number of elements"):
        context_parallel(mesh, buffers=[x])
    with pytest.raises(ValueError, match="must be a subset"):
        context_parallel(mesh, buffers=[y], buffer_seq_dims=[0], no_restore_buffers={x})
    with pytest.raises(NotImplementedError, match="using ring for kv shards rotation"):
        set_rotate_method("ring")
