"""A small training program for `lucerne run`: it goes on from its checkpoint, and fails as told.

lucerne run --nproc-per-node 4 --max-restarts 1 -m tests.processes.train F --fault kill:2:17
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
import time
from typing import Any

import lucerne as torch
import lucerne.distributed as dist
import lucerne.distributed.checkpoint as dcp
from lucerne._src.io import atomic
from lucerne._src.io.errors import CorruptFileError


def fail(kind: str) -> None:
    """What this rank does at the step of its fault."""
    print(f"fault {kind} at {time.time():.3f}", flush=True)
    match kind:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "stuck":
            while True:
                time.sleep(0.1)
        case "slow":
            time.sleep(3.0)
        case "raise":
            raise ValueError("told to")
        case "agent":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(30)
        case "save":
            atomic.OPS = _Killing()  # the next file that is written ends the process
            atomic.write_atomic.__defaults__ = (atomic.OPS,)


class _Killing(atomic.FileOps):
    def sync(self, fd: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--fault", default="none:0:0")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds, after each step")
    options = parser.parse_args()
    kind, rank, at = options.fault.split(":")
    first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    mine = first and os.environ.get("RANK") == rank  # (srun and mpirun call it otherwise)
    if mine and kind == "init":
        fail("kill")
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    state: dict[str, Any] = {"model": model, "step": 0}
    start = load(state, optimizer, options.folder)
    size = dist.get_world_size()
    for step in range(start, options.steps):
        if mine and kind != "init" and step == int(at):
            fail(kind)
        drawn = torch.Generator().manual_seed(step)
        x, y = torch.randn(12, 16, generator=drawn), torch.randn(12, 4, generator=drawn)
        optimizer.zero_grad()
        mine_x, mine_y = x[dist.get_rank() :: size], y[dist.get_rank() :: size]
        ((ddp(mine_x) - mine_y) ** 2).mean().backward()
        optimizer.step()
        if (step + 1) % options.every == 0:
            save = {"model": model, "step": step + 1, "optimizer": optimizer.state_dict()}
            dcp.save(save, checkpoint_id=options.folder)
            if options.pause and dist.get_rank() == 0:
                print(f"step {step + 1}", flush=True)
        time.sleep(options.pause)
    if dist.get_rank() == 0:
        raw = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        print(f"digest {hashlib.sha256(raw).hexdigest()} from step {start}", flush=True)
    dist.destroy_process_group()


def load(state: dict[str, Any], optimizer: Any, folder: str) -> int:
    """The step to go on with."""
    try:
        for p in optimizer.param_groups[0]["params"]:
            p.grad = torch.zeros_like(p)
        rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        optimizer.step()  # (makes the optimizer's tensors, which are then filled)
        full = {**state, "optimizer": optimizer.state_dict()}
        dcp.load(full, checkpoint_id=folder)
        optimizer.load_state_dict(full["optimizer"])
        return int(full["step"])
    except (FileNotFoundError, dcp.CheckpointException) as error:
        if "no checkpoint in" not in str(error):
            raise CorruptFileError(str(error)) from error
        optimizer.state.clear()
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        return 0


if __name__ == "__main__":
    main()
    sys.exit(0)
