"""Pipelines: orders are torch's, and a model in stages trains as it does on one device."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

import lucerne as torch
from lucerne import nn
from lucerne._src.distributed.pipelining.orders import (
    Action,
    PipelineOrderError,
    fill_and_drain,
    in_time,
    most_alive,
    one_forward_one_backward,
)
from lucerne.nn import functional as F

jax = pytest.importorskip("jax", reason="pip install 'lucerne[xla]': the device 'xla' runs on jax")

from lucerne._src.backends.xla.programs import StepProgram  # noqa: E402 - after the skip
from lucerne.distributed.device_mesh import DeviceMesh  # noqa: E402
from lucerne.distributed.fsdp import fully_shard  # noqa: E402
from lucerne.distributed.pipelining import (  # noqa: E402
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleLoopedBFS,
)
from lucerne.distributed.tensor import distribute_module  # noqa: E402
from lucerne.distributed.tensor.parallel import parallelize_module  # noqa: E402
from tests.xla.meshes import COLLECTIVE, PLAN, SplitGPT  # noqa: E402

pytestmark = pytest.mark.usefixtures("meshes")


# ---- orders --------------------------------------------------------------------------------------


@pytest.mark.torch
def test_interleaved_orders_are_torchs() -> None:
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    checked = 0
    for ranks, local, times in itertools.product((1, 2, 3, 4), (2, 3), (1, 2, 4)):
        count = ranks * times
        oracle = object.__new__(schedules.ScheduleInterleaved1F1B)
        oracle.n_local_stages, oracle.pp_group_size = local, ranks
        oracle._n_microbatches, oracle.number_of_rounds = count, times
        oracle.microbatches_per_round = ranks
        orders = one_forward_one_backward(ranks, ranks * local, count)
        for rank, order in enumerate(orders):
            wanted = oracle._calculate_single_rank_operations(rank)
            assert [*map(str, order)] == [str(a) for a in wanted if a is not None]
            checked += 1
    assert checked == 60


@pytest.mark.parametrize(("ranks", "local"), [(1, 1), (2, 1), (4, 1), (2, 2), (3, 2), (4, 3)])
def test_orders_end_and_hold_what_they_must(ranks: int, local: int) -> None:
    stages, count = ranks * local, 2 * ranks
    everything = {Action(s, k, m) for s in range(stages) for k in "FB" for m in range(count)}
    for make in (fill_and_drain, one_forward_one_backward):
        assert set(in_time(make(ranks, stages, count), stages)) == everything
    held = [most_alive(order) for order in one_forward_one_backward(ranks, stages, count)]
    assert [most_alive(order) for order in fill_and_drain(ranks, stages, count)] == [
        local * count
    ] * ranks
    if local == 1:
        assert held == [ranks - rank for rank in range(ranks)]


def test_an_order_that_would_wait_for_ever_is_refused() -> None:
    """Before anything runs, with who waits for what."""
    first, second = one_forward_one_backward(2, 2, 2)
    with pytest.raises(PipelineOrderError, match="0B0 needs 1B0; 1B0 needs 1F0"):
        in_time([first[1:2] + first[:1] + first[2:], [second[1], second[0], *second[2:]]], 2)
    with pytest.raises(PipelineOrderError, match="0F0 stands twice"):
        in_time([[first[0], first[0]], []], 2)


# ---- training ------------------------------------------------------------------------------------


class Part(nn.Module):
    """Some of a GPT's layers; the first part has the embeddings, the last has the head."""

    def __init__(self, model: Any, blocks: Any, first: bool, last: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        if first:
            self.tokens, self.places = model.tokens, model.places
        if last:
            self.norm, self.head = model.norm, model.head
        self.first, self.last = first, last

    def forward(self, x: Any) -> Any:
        if self.first:
            x = self.tokens(x) + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)) if self.last else x


def _loss(found: Any, wanted: Any) -> Any:
    return F.cross_entropy(found.reshape(-1, found.shape[-1]), wanted.reshape(-1))


def _parts(model: Any, count: int) -> list[Any]:
    """In as many stages: with 4 the middle ones have a layer each."""
    a, b = model.blocks
    cuts = [[a], [b]] if count == 2 else [[], [a], [b], []]
    return [Part(model, cut, k == 0, k == count - 1) for k, cut in enumerate(cuts)]


def _alone(part: Any, mesh: Any) -> None:
    distribute_module(part, mesh)


def _fsdp(part: Any, mesh: Any) -> None:
    fully_shard(part, mesh=mesh)


def _both(part: Any, mesh: Any) -> None:
    if len(part.blocks):
        parallelize_module(part, mesh["model"], PLAN)
    fully_shard(part, mesh=mesh["data"])


FORMS: dict[str, tuple[Any, int, Any, tuple[int, ...]]] = {
    "GPipe": (ScheduleGPipe, 2, _alone, (1,)),
    "1F1B": (Schedule1F1B, 2, _alone, (1,)),
    "interleaved": (ScheduleInterleaved1F1B, 4, _alone, (1,)),
    "looped": (ScheduleLoopedBFS, 4, _alone, (1,)),
    "1F1B x FSDP": (Schedule1F1B, 2, _fsdp, (4,)),
    "FSDP x TP x PP": (Schedule1F1B, 2, _both, (2, 2)),
    "FSDP x TP x PP, interleaved": (ScheduleInterleaved1F1B, 4, _both, (2, 2)),
}
"""The schedule, in how many stages, how each is placed on its half of the devices, and their
shape."""
COUNTS: dict[str, dict[str, int]] = {
    "GPipe": {"programs": 4},
    "1F1B": {"programs": 4},
    "interleaved": {"programs": 8},
    "looped": {"programs": 8},
    "1F1B x FSDP": {
        "programs": 4, "all-gather": 44, "all-reduce": 20, "all-to-all": 4, "collective-permute": 1,
    },
    "FSDP x TP x PP": {
        "programs": 4, "all-gather": 54, "all-reduce": 16, "all-to-all": 2, "collective-permute": 5,
    },
    "FSDP x TP x PP, interleaved": {
        "programs": 8, "all-gather": 54, "all-reduce": 18, "all-to-all": 2, "collective-permute": 5,
    },
}  # fmt: skip
"""How many programs there are, one forward and one backward for each stage, and what they send
among the devices of a stage (one micro-batch; XLA for CPUs). Between stages values are put where
the next one is: no program, no collective."""
QUICK = ("1F1B",)


class Pipeline:
    """A model in stages on two halves of the devices, with an optimizer for each stage."""

    def __init__(self, form: str) -> None:
        schedule, count, place, sizes = FORMS[form]
        torch.manual_seed(0)
        model = SplitGPT().to("xla")
        x = torch.randint(0, 64, (8, 17)).to("xla")
        self.batch = x[:, :-1].contiguous(), x[:, 1:].contiguous()
        grid = torch.arange(8).reshape(2, -1)[:, : sizes[0] * (sizes[1:] or (1,))[0]]
        names = ("data", "model")[: len(sizes)]
        halves = [DeviceMesh("xla", half.reshape(sizes), mesh_dim_names=names) for half in grid]
        self.parts = _parts(model, count)
        for k, part in enumerate(self.parts):
            place(part, halves[k % 2])
        self.programs = [torch.compile(part, fullgraph=True) for part in self.parts]
        stages = [PipelineStage(p, k, count, "xla") for k, p in enumerate(self.programs)]
        self.schedule = schedule(stages, 4, loss_fn=_loss)
        self.optimizers = [torch.optim.AdamW(p.parameters(), lr=1e-2) for p in self.parts]

    def losses(self, steps: int) -> list[float]:
        found = []
        for _ in range(steps):
            losses: list[Any] = []
            self.schedule.step(self.batch[0], target=self.batch[1], losses=losses)
            for optimizer in self.optimizers:
                optimizer.step()
                optimizer.zero_grad()
            found.append(sum(loss.item() for loss in losses) / len(losses))
        return found


def _on_one_device(steps: int) -> list[float]:
    torch.manual_seed(0)
    model = SplitGPT().to("xla")
    x = torch.randint(0, 64, (8, 17)).to("xla")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = []
    for _ in range(steps):
        loss = _loss(model(x[:, :-1]), x[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What the programs that a test makes send, and how many there are."""
    found: Counter[str] = Counter()
    compiled = StepProgram._compiled

    def counted(self: Any, lowered: Any) -> Any:
        made = compiled(self, lowered)
        found.update(["programs", *COLLECTIVE.findall(made.as_text())])
        return made

    monkeypatch.setattr(StepProgram, "_compiled", counted)
    return found


@pytest.mark.parametrize(
    "form",
    [pytest.param(k, marks=[] if k in QUICK else [pytest.mark.nightly]) for k in FORMS],
)
def test_a_pipeline_trains_as_on_one_device(form: str, sent: Counter[str]) -> None:
    steps = 3 if form in QUICK else 10
    wanted = _on_one_device(steps)
    made = Pipeline(form)
    assert made.losses(steps) == pytest.approx(wanted, abs=2e-6)
    if jax.__version__.startswith("0.10."):  # (XLA's choices are those of a version)
        assert dict(sent) == COUNTS[form]
    for k, part in enumerate(made.parts):
        devices = {n for p in part.parameters() for n in p.device_mesh.mesh.flatten().tolist()}
        assert devices <= set(range(4 * (k % 2), 4 * (k % 2) + 4)), "a stage left its devices"


def test_without_a_loss_and_without_a_mesh() -> None:
    """Stages of one device, here the host: forward alone, outputs joined, keyword arguments."""
    parts = [nn.Linear(4, 6), nn.Linear(6, 3)]
    x = torch.randn(5, 4)
    schedule = ScheduleGPipe([PipelineStage(p, k, 2, "cpu") for k, p in enumerate(parts)], 2)
    torch.testing.assert_close(schedule.step(x), parts[1](parts[0](x)))
    with torch.no_grad():
        torch.testing.assert_close(schedule.eval(x), parts[1](parts[0](x)))
    losses: list[Any] = []
    trained = Schedule1F1B(schedule.stages, 5, loss_fn=F.mse_loss)
    trained.step(x, target=torch.zeros(5, 3), losses=losses)
    found = [p.grad.clone() for part in parts for p in part.parameters()]
    for part in parts:
        part.zero_grad()
    loss = F.mse_loss(parts[1](parts[0](x)), torch.zeros(5, 3))
    loss.backward()
    torch.testing.assert_close(sum(losses) / 5, loss.detach())
    torch.testing.assert_close(found, [p.grad for part in parts for p in part.parameters()])


def test_what_is_refused() -> None:
    stages = [PipelineStage(nn.Linear(2, 2), k, 2, "cpu") for k in range(2)]
    with pytest.raises(ValueError, match=r"all 2 are given, each once: got \[1\]"):
        ScheduleGPipe(stages[1], 2)
    with pytest.raises(ValueError, match="greater than or equal to the number of stages"):
        Schedule1F1B(stages, 1)
    with pytest.raises(NotImplementedError, match="first dimension"):
        ScheduleGPipe(stages, 2, args_chunk_spec=(0,))
    with pytest.raises(RuntimeError, match="needs a `target`"):
        ScheduleGPipe(stages, 2, loss_fn=F.mse_loss).step(torch.ones(2, 2))
    with pytest.raises(RuntimeError, match="Please call eval"), torch.no_grad():
        ScheduleGPipe(stages, 2, loss_fn=F.mse_loss).step(torch.ones(2, 2))
    with pytest.raises(NotImplementedError, match="group"):
        PipelineStage(nn.Linear(2, 2), 0, 2, "cpu", group=object())
