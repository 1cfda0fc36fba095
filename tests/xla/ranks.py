"""What each rank of a job does that `test_processes.py` starts.

    lucerne run --nproc-per-node 2 -m tests.xla.ranks FOLDER CHECK...

A check gives plain data, which its rank writes to a file of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucerne as torch
import lucerne.distributed as dist
from lucerne import backends, nn
from lucerne.distributed import checkpoint
from lucerne.distributed.device_mesh import DeviceMesh, init_device_mesh
from lucerne.distributed.fsdp import fully_shard
from lucerne.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from lucerne.distributed.tensor.parallel import parallelize_module
from tests.xla.meshes import FORMS, TWO, MeshTraining, Two, replicate

RANK, COUNT = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
S0, S1, R, P = Shard(0), Shard(1), Replicate(), Partial()


def _all() -> int:
    """How many devices the processes have together."""
    return COUNT * int(os.environ.get("DEVICES_EACH", "1"))


def mesh(*sizes: int) -> Any:
    sizes = sizes or (_all(),)
    return init_device_mesh("xla", sizes, mesh_dim_names=("data", "model")[: len(sizes)])


def _both(model: Any, plan: Any) -> None:
    grid = mesh(2, _all() // 2)
    parallelize_module(model, grid["model"], plan)
    fully_shard(model, mesh=grid["data"])


FORMS |= {
    "one, all": FORMS["one"],
    "DDP, all": lambda model, plan: replicate(model, device_mesh=mesh()) and None,
    "FSDP, all": lambda model, plan: fully_shard(model, mesh=mesh()) and None,
    "TP, all": lambda model, plan: parallelize_module(model, mesh(), plan) and None,
    "FSDP x TP, all": _both,
}


def training(name: str, form: str, steps: str) -> Any:
    """Losses, and what the program sends."""
    found = MeshTraining(name, f"{form}, all")
    losses = found.losses(int(steps))
    return {"losses": losses, "collectives": found.collectives()}


def parts_of_a_batch() -> Any:
    """Each process feeds its own part: the loss is that of the whole batch."""
    whole, own = MeshTraining("two layers", "FSDP, all"), MeshTraining("two layers", "FSDP, all")
    rows = len(own.batch[0]) // COUNT
    at = slice(RANK * rows, (RANK + 1) * rows)
    own.batch = [DTensor.from_local(x[at].clone(), mesh(), [S0]) for x in own.batch]
    assert own.batch[0].shape == whole.batch[0].shape
    return {"whole": whole.losses(2), "parts": own.losses(2)}


def tensors() -> Any:
    """Placements and values, as torch has them on each rank."""
    torch.manual_seed(RANK)  # (each its own numbers: those of rank 0 count)
    x = torch.randn(5, 4)
    torch.manual_seed(0)
    first, grid = torch.randn(5, 4), mesh()
    placed = distribute_tensor(x, grid, [S0])
    step = -(-5 // COUNT)
    assert torch.equal(placed.to_local().cpu(), first[RANK * step : (RANK + 1) * step])
    assert torch.equal(placed.full_tensor().cpu(), first)
    assert torch.equal(placed.cpu(), first)
    again = placed.redistribute(grid, [S1])
    assert tuple(again.placements) == (S1,)
    assert torch.equal(again.full_tensor().cpu(), first)
    assert torch.equal((placed * 2 + first.to("xla")).full_tensor().cpu(), first * 3)
    assert torch.equal(placed[1:3].cpu(), first[1:3])
    assert [p.shape for p in torch.distributed.tensor.local_parts(placed)] == [
        placed.to_local().shape
    ]
    uneven = DTensor.from_local(torch.full((3 - RANK // (COUNT - 1), 2), 1.0 * RANK), grid, [S0])
    assert uneven.shape == (3 * COUNT - 1, 2)
    assert uneven.sum().item() == sum(range(COUNT)) * 6 - 2 * (COUNT - 1)
    terms = DTensor.from_local(torch.full((2, 2), RANK + 1.0), grid, [P])
    assert torch.equal(terms.to_local().cpu(), torch.full((2, 2), RANK + 1.0))
    assert terms.redistribute(grid, [R]).to_local()[0, 0].item() == COUNT * (COUNT + 1) / 2
    return {"rank": grid.get_rank(), "local": grid.get_local_rank(), "world": dist.get_world_size()}


def drawn() -> Any:
    """Numbers are rank 0's, though nobody seeded them alike."""
    torch.manual_seed(100 + RANK)
    grid = init_device_mesh("xla", (_all(),))
    x = distribute_tensor(torch.ones(64, 8), grid, [S0])
    return torch.compile(nn.functional.dropout)(x, 0.5).cpu().sum().item()


def saved(folder: str) -> Any:
    """A trained model's state, and a checkpoint of it."""
    state = trained("FSDP")
    checkpoint.save(state, checkpoint_id=folder)
    return values(state)


def loaded(folder: str, form: str) -> Any:
    """The state that a checkpoint gives a model which lies in another way."""
    state = trained(form, 1)
    checkpoint.load(state, checkpoint_id=folder)
    return values(state)


def trained(form: str, seed: int = 0) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = Two().to("xla")
    FORMS[f"{form}, all"](model, TWO)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model(torch.randn(8, 8).to("xla")).square().mean().backward()
    optimizer.step()
    return {"model": model, "optimizer": optimizer}


def values(state: dict[str, Any]) -> list[str]:
    """Of each parameter and its moments, as a digest of the bits."""
    params = list(state["model"].parameters())
    moments = [state["optimizer"].state[p][k] for p in params for k in ("exp_avg", "exp_avg_sq")]
    found = [t.detach().cpu().numpy().tobytes() for t in (*params, *moments)]
    return [hashlib.sha256(data).hexdigest()[:16] for data in found]


def refused() -> Any:
    """What is not there, or differs between processes, is said by each of them."""
    grid, own = mesh(), torch.full((4,), 1.0 * RANK)
    placed = distribute_tensor(torch.ones(4 * COUNT), grid, [S0])
    rows: list[Callable[[], Any]] = [
        lambda: DeviceMesh("xla", [0]) if RANK else DeviceMesh("xla", [_all() - 1]),
        lambda: grid.get_group(),
        lambda: placed + own.to("xla").repeat(COUNT),
        lambda: torch.compile(lambda a, b: a * b)(placed, own.to("xla").repeat(COUNT)),
        lambda: torch.compile(lambda a: a * (2 + RANK))(placed),
        lambda: DTensor.from_local(torch.ones(2 + RANK), grid, [S0]),
        lambda: DTensor.from_local(own, grid, [R], run_check=True),
        lambda: backends.get("xla").part(placed, 1 - min(RANK, 1)),
        lambda: torch.manual_seed(RANK) and torch.compile(nn.functional.dropout)(placed),
    ]
    return [_said(run) for run in rows]


def _said(run: Callable[[], Any]) -> str:
    try:
        run()
    except (RuntimeError, NotImplementedError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def dies(how: str) -> Any:
    """Rank 1 ends in the middle of training."""
    found = MeshTraining("two layers", "FSDP, all")
    for k in range(1000):
        found.losses(1)
        if k == 2 and RANK == 1:
            (Path(sys.argv[1]) / "died").write_text("")
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("rank 1 has had enough")


CHECKS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (training, parts_of_a_batch, tensors, drawn, saved, loaded, refused, dies)
}

if __name__ == "__main__":
    told = {}
    for text in sys.argv[2:]:
        name, *arguments = text.split(":")
        told[text] = CHECKS[name](*arguments)
    (Path(sys.argv[1]) / f"{RANK}.json").write_text(json.dumps(told))
