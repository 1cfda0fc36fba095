"""Models on meshes: the same training, placed in every way, and what the program sends about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import lucerne as torch
from lucerne import nn
from lucerne._src.distributed.mesh.dtensor import place_in_memory
from lucerne._src.distributed.mesh.fully_shard import replicate
from lucerne.distributed.device_mesh import init_device_mesh
from lucerne.distributed.fsdp import fully_shard
from lucerne.distributed.tensor import Replicate, Shard, distribute_module
from lucerne.distributed.tensor.experimental._attention import context_parallel, set_rotate_method
from lucerne.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from lucerne.nn import functional as F
from tests.xla.models import GPT

_KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
COLLECTIVE = re.compile(rf" = .*? ({_KINDS})(?:-start)?\(")


class Attention(nn.Module):
    """With a weight for each of queries, keys and values, so that heads can be cut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = (
            f(x).view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for f in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.first(x))
        return x + self.down(F.gelu(self.up(self.second(x))))


class SplitGPT(GPT):
    """A GPT whose heads can be cut: 4 of them."""

    def __init__(self) -> None:
        super().__init__(layers=0, length=16)
        self.blocks = nn.ModuleList(Layer(32, 4) for _ in range(2))


class Uneven(nn.Module):
    """Two layers whose sizes no mesh divides."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(7, 13), nn.Linear(13, 5)

    def forward(self, x: Any) -> Any:
        return self.down(F.gelu(self.up(x)))


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 16)

    def forward(self, x: Any) -> Any:
        return self.down(F.gelu(self.up(x)))


class Experts(nn.Module):
    """Of these each takes the tokens that were sent to it: (experts, batch, places, width)."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(count, width, 2 * width) / width**0.5)
        self.down = nn.Parameter(torch.randn(count, 2 * width, width) / width**0.5)

    def forward(self, x: Any) -> Any:
        rows = x.flatten(1, 2)
        return (F.gelu(rows @ self.up) @ self.down).unflatten(1, x.shape[1:3])


class Mixture(nn.Module):
    """A mixture of 4 experts of which each token takes two (GShard's dispatch by products: a token
    has a place in its expert, by how many of its batch came before it)."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.router, self.head = nn.Linear(8, 16), nn.Linear(16, 4), nn.Linear(16, 16)
        self.experts = Experts(4, 16)

    def forward(self, x: Any) -> Any:
        x = self.into(x)
        gates = F.softmax(self.router(x), -1)
        chosen = torch.zeros_like(gates).scatter(-1, gates.topk(2, -1).indices, 1.0)
        place = (chosen.cumsum(1) * chosen - 1).long()
        sent = (place[..., None] == torch.arange(x.shape[1], device=x.device)).to(x.dtype)
        found = self.experts(torch.einsum("bsec,bsd->ebcd", sent, x))
        return self.head(x + torch.einsum("bsec,ebcd->bsd", sent * gates[..., None], found))


def _tokens() -> tuple[Any, Any]:
    x = torch.randint(0, 64, (8, 17))
    return x[:, :-1], x[:, 1:]


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], tuple[Any, Any]]]] = {
    "two layers": (Two, lambda: (torch.randn(16, 8), torch.randint(0, 16, (16,)))),
    "uneven": (Uneven, lambda: (torch.randn(11, 7), torch.randint(0, 5, (11,)))),
    "mixture": (Mixture, lambda: (torch.randn(8, 6, 8), torch.randint(0, 16, (8, 6)))),
    "GPT": (SplitGPT, _tokens),
    "GPT, fused heads": (lambda: GPT(heads=4), _tokens),
}
TWO = {"up": ColwiseParallel(), "down": RowwiseParallel()}
HEADS = {f"blocks.*.attention.{name}": ColwiseParallel() for name in "qkv"}
PLAN = {
    **{f"blocks.*.{name}": style for name, style in TWO.items()},
    **HEADS,
    "blocks.*.attention.out": RowwiseParallel(),
}
FUSED = {
    "blocks.*.up": ColwiseParallel(),
    "blocks.*.down": RowwiseParallel(),
    "blocks.*.qkv": ColwiseParallel(),
    "blocks.*.out": RowwiseParallel(),
}
SEQUENCE = {
    "blocks.*.first": SequenceParallel(),
    "blocks.*.second": SequenceParallel(),
    "norm": SequenceParallel(),
    "blocks.*.attention": PrepareModuleInput(
        input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
    ),
    **HEADS,
    "blocks.*.attention.out": RowwiseParallel(output_layouts=Shard(1)),
    "blocks.*.up": ColwiseParallel(input_layouts=Shard(1)),
    "blocks.*.down": RowwiseParallel(output_layouts=Shard(1)),
}
PLANS = {"two layers": TWO, "uneven": TWO, "mixture": {}, "GPT": PLAN, "GPT, fused heads": FUSED}
NAMES = ("data", "model")


def _ddp(model: Any, plan: Any) -> None:
    replicate(model, device_mesh=init_device_mesh("xla", (8,)))


def _fsdp(model: Any, plan: Any) -> None:
    fully_shard(model, mesh=init_device_mesh("xla", (8,)))


def _hsdp(model: Any, plan: Any) -> None:
    fully_shard(model, mesh=init_device_mesh("xla", (2, 4)))


def _tp(model: Any, plan: Any) -> None:
    parallelize_module(model, init_device_mesh("xla", (4,), mesh_dim_names=("model",)), plan)


def _sp(model: Any, plan: Any) -> None:
    _tp(model, SEQUENCE)


def _both(model: Any, plan: Any) -> None:
    mesh = init_device_mesh("xla", (2, 4), mesh_dim_names=NAMES)
    parallelize_module(model, mesh["model"], plan)
    fully_shard(model, mesh=mesh["data"])


def _both_turned(model: Any, plan: Any) -> None:
    mesh = init_device_mesh("xla", (2, 4), mesh_dim_names=NAMES)
    for part in model.children():
        if next(part.parameters(), None) is not None:
            fully_shard(part, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    parallelize_module(model, mesh["model"], plan)


def _cp(rotate: str, *sizes: int) -> Callable[[Any, Any], Any]:
    """Sequences cut over the last dimension of a mesh, parameters over the others."""

    def form(model: Any, plan: Any) -> Any:
        mesh = init_device_mesh("xla", sizes, mesh_dim_names=("data", "seq")[-len(sizes) :])
        if len(sizes) > 1:
            fully_shard(model, mesh=mesh["data"])
        set_rotate_method(rotate)
        return lambda x, y: context_parallel(mesh["seq"], buffers=[x, y], buffer_seq_dims=[1, 1])

    return form


def _experts(*sizes: int) -> Callable[[Any, Any], None]:
    """Experts cut over the last dimension of a mesh, the batch over all: tokens go to the devices
    of their experts and back."""

    def form(model: Any, plan: Any) -> None:
        mesh = init_device_mesh("xla", sizes, mesh_dim_names=("data", "expert")[-len(sizes) :])
        distribute_module(
            model.experts,
            mesh["expert"],
            lambda name, part, mesh: [
                place_in_memory(p, mesh, [Shard(0)]) for p in part.parameters()
            ],
            lambda part, inputs, mesh: inputs[0].redistribute(mesh, [Shard(0)]),
            lambda part, output, mesh: output.redistribute(mesh, [Shard(1)]),
        )
        if len(sizes) > 1:
            fully_shard(model, mesh=mesh)
        else:
            replicate(model, device_mesh=mesh)

    return form


def _vocabulary(model: Any, plan: Any) -> Any:
    """Tensor parallelism in which the logits are cut along the vocabulary."""
    _tp(model, {**plan, "head": ColwiseParallel(use_local_output=False)})
    return lambda x, y: loss_parallel()


FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "one": lambda model, plan: None,
    "DDP": _ddp,
    "FSDP": _fsdp,
    "HSDP": _hsdp,
    "TP": _tp,
    "SP": _sp,
    "FSDP x TP": _both,
    "TP x FSDP by layers": _both_turned,
    "CP, ring": _cp("alltoall", 4),
    "CP, gathered": _cp("allgather", 4),
    "FSDP x CP": _cp("alltoall", 2, 4),
    "TP, loss": _vocabulary,
    "EP": _experts(4),
    "FSDP x EP": _experts(2, 4),
}


class MeshTraining:
    """A model placed in one way, with its optimizer and batch."""

    def __init__(self, name: str, form: str, compiled: bool = True) -> None:
        torch.manual_seed(0)
        model, data = MODELS[name]
        self.model = model().to("xla")
        self.batch = [x.to("xla") for x in data()]
        self.block = FORMS[form](self.model, PLANS[name]) or (lambda x, y: nullcontext())
        """What a step is called in."""
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.step = torch.compile(self._step, fullgraph=True) if compiled else self._step

    def _step(self, x: Any, y: Any) -> Any:
        found = self.model(x)
        loss = F.cross_entropy(found.reshape(-1, found.shape[-1]), y.reshape(-1))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def losses(self, steps: int) -> list[float]:
        return [self._called() for _ in range(steps)]

    def _called(self) -> float:
        with self.block(*self.batch):
            return self.step(*self.batch).item()

    def collectives(self) -> dict[str, int]:
        """Of the one program that its steps are."""
        return collectives(self.step)


def collectives(fn: Any) -> dict[str, int]:
    (entry,) = fn.entries
    (made,) = entry.runner.inner.inner._programs.values()
    return dict(Counter(COLLECTIVE.findall(made.run.as_text())))
