"""Ray's `TorchTrainer`, unmodified, with Lucerne as torch: four workers, of which one is killed.

Run twice: undisturbed, and with a worker that ends in the middle; weights are printed for both.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

STEPS, EVERY, KILLED_AT = 24, 4, 13


def loop(config: dict[str, Any]) -> None:
    """What each worker does."""
    import ray.train
    import torch
    from ray.train.torch import prepare_model

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    start = 0
    last = ray.train.get_checkpoint()
    if last is not None:
        with last.as_directory() as folder:
            state = torch.load(Path(folder) / "state.pt", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    ddp = prepare_model(model)
    context = ray.train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    marker = Path(config["marker"])
    for step in range(start, STEPS):
        if config["kill"] and rank == 2 and step == KILLED_AT and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        drawn = torch.Generator().manual_seed(step)
        x, y = torch.randn(8, 8, generator=drawn), torch.randn(8, 2, generator=drawn)
        optimizer.zero_grad()
        ((ddp(x[rank::size]) - y[rank::size]) ** 2).mean().backward()
        optimizer.step()
        if (step + 1) % EVERY == 0:
            with tempfile.TemporaryDirectory() as folder:
                checkpoint = None
                if rank == 0:
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                    torch.save({**state, "step": step + 1}, Path(folder) / "state.pt")
                    checkpoint = ray.train.Checkpoint.from_directory(folder)
                ray.train.report({"step": step + 1}, checkpoint=checkpoint)
    if rank == 0:
        raw = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        found = hashlib.sha256(raw).hexdigest()[:16]
        Path(config["result"]).write_text(f"weights {found} after {STEPS} steps, from step {start}")


def main(room: str) -> None:
    import ray
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    ray.init(num_cpus=6, include_dashboard=False, log_to_driver=True)
    for kill in (False, True):
        result = Path(room) / f"result-{kill}"
        trainer = TorchTrainer(
            loop,
            train_loop_config={
                "kill": kill, "marker": f"{room}/killed", "result": str(result),
            },
            scaling_config=ScalingConfig(num_workers=4, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(
                name=f"run-{kill}", storage_path=f"{room}/storage",
                failure_config=FailureConfig(max_failures=1),
                checkpoint_config=CheckpointConfig(num_to_keep=2),
            ),
        )  # fmt: skip
        trainer.fit()
        print(result.read_text(), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
