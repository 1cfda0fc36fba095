"""The device `xla` beside its engine run bare: steps written by hand in JAX, calls, eager ops.

    python -m benchmarks xla                    # steps, calls, an eager op, interleaved
    python -m benchmarks xla --only calls       # `steps` or `calls` alone
    XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m benchmarks xla --only meshes
    python -m benchmarks xla --start            # the first step of a process: cold, then from disk
    python -m benchmarks xla --first            # CPU seconds of one first step, in this process

Seconds are the processor's (of all threads for a step, of the calling one for a call), so that
others on the machine matter little. What is bare is `jax.jit` of a function with donated state (the
steps are in `benchmarks.by_hand`): JAX without anything of ours.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import lucerne as torch
from benchmarks import by_hand
from lucerne._src.base.config import config
from lucerne._src.distributed.mesh.fully_shard import replicate
from lucerne.distributed.device_mesh import init_device_mesh
from lucerne.distributed.fsdp import fully_shard
from tests.xla.models import GPT, resnet18

LAYERS, WIDTH, HEADS, LENGTH, BATCH, TOKENS = 4, 128, 4, 64, 8, 64
RESNET_WIDTH, RESNET_BATCH, RESNET_SIDE, CLASSES = 16, 8, 32, 10
ARGUMENTS = (1, 10, 50, 100)
CHUNKS = 20
"""Small calls are measured ten at a time, so often in each round: the least of many short times is
what they cost, while others on the machine are in every long one."""
WANTED = 0.4
"""A first step from disk may cost so much of a cold one."""


# ---- steps ---------------------------------------------------------------------------------------


class Ours:
    """A compiled training step on the device."""

    def __init__(self, name: str) -> None:
        torch.manual_seed(0)
        if name == "GPT":
            self.model = GPT(LAYERS, WIDTH, HEADS, LENGTH).to("xla")
            self.optimizer: Any = torch.optim.AdamW(
                self.model.parameters(), lr=by_hand.LR, weight_decay=by_hand.DECAY
            )
            data = torch.randint(0, TOKENS, (BATCH, LENGTH + 1))
            host = data[:, :-1], data[:, 1:]
        else:
            self.model = resnet18(RESNET_WIDTH).to("xla")
            self.optimizer = torch.optim.SGD(
                self.model.parameters(), lr=by_hand.SGD_LR, momentum=by_hand.MOMENTUM
            )
            images = torch.randn(RESNET_BATCH, 3, RESNET_SIDE, RESNET_SIDE)
            host = images, torch.randint(0, CLASSES, (RESNET_BATCH,))
        self.numpy = [np.array(t.numpy()) for t in host]
        self.batch = [t.to("xla") for t in host]
        self.step = torch.compile(self._step, fullgraph=True)

    def _step(self, x: Any, y: Any) -> Any:
        found = self.model(x)
        loss = torch.nn.functional.cross_entropy(found.reshape(-1, found.shape[-1]), y.reshape(-1))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def __call__(self) -> float:
        return self.step(*self.batch).item()


class ByHand:
    """The same step in JAX, jitted and donated, from the same numbers."""

    def __init__(self, name: str, like: Ours) -> None:
        params = by_hand.nested(like.model.named_parameters())
        zeros = [jax.tree.map(jnp.zeros_like, params) for _ in range(2)]
        if name == "GPT":
            self.state = [params, *zeros, jnp.float32(0)]
            made = by_hand.gpt_step(HEADS)
        else:
            self.state = [params, zeros[0], by_hand.nested(like.model.named_buffers())]
            made = by_hand.resnet_step
        self.batch = [jnp.asarray(z) for z in like.numpy]
        self.step = jax.jit(made, donate_argnums=tuple(range(len(self.state))))

    def __call__(self) -> float:
        loss, *self.state = self.step(*self.state, *self.batch)
        return float(loss)


class OnAMesh(ByHand):
    """A GPT's step by hand whose arrays lie as ours do: parameters, their moments, the batch."""

    def __init__(self, like: Ours) -> None:
        super().__init__("GPT", like)
        like()  # (the gradients and moments of ours are there, and lie as parameters)

        def placed(p: Any) -> Any:
            return p._storage.buffer.array.sharding

        lie = by_hand.nested(like.model.named_parameters(), placed)
        [first, *_] = jax.tree.leaves(lie)
        whole = NamedSharding(first.mesh, PartitionSpec())
        cut = NamedSharding(first.mesh, PartitionSpec(first.mesh.axis_names[0]))
        shardings = [lie, lie, lie, whole]
        self.state = jax.device_put(self.state, shardings)
        self.batch = jax.device_put(self.batch, [cut, cut])
        self.step = jax.jit(
            by_hand.gpt_step(HEADS),
            donate_argnums=tuple(range(len(self.state))),
            out_shardings=(whole, *shardings),
        )


MESHES: dict[str, Callable[[Any], Any]] = {
    "DDP": lambda model: replicate(model, device_mesh=init_device_mesh("xla", (8,))),
    "FSDP": lambda model: fully_shard(model, mesh=init_device_mesh("xla", (8,))),
}


def _meshes(rounds: int) -> None:
    if len(jax.devices()) < 8:
        raise SystemExit("set XLA_FLAGS=--xla_force_host_platform_device_count=8")
    for name, place in MESHES.items():
        ours = Ours("GPT")
        place(ours.model)
        bare = OnAMesh(ours)
        bare()
        worst = max(abs(ours() - bare()) for _ in range(3))
        print(f"{name}: 3 losses differ by at most {worst:.1e}")
        found = interleaved([ours, bare], rounds, 1, time.process_time)
        print(_row(f"GPT step, {name} on 8 devices", *found, 1e3, "ms"))


# ---- measuring -----------------------------------------------------------------------------------


def interleaved(
    calls: list[Callable[[], Any]], rounds: int, inner: int, clock: Callable[[], float]
) -> list[list[float]]:
    """Seconds per call of each, in turns."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for times, call in zip(found, calls, strict=True):
            began = clock()
            for _ in range(inner):
                call()
            times.append((clock() - began) / inner)
    return found


def line(counts: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """The fixed cost and that of each argument, in microseconds (least squares)."""
    slope, fixed = np.polyfit(counts, 1e6 * np.asarray(seconds), 1)
    return float(fixed), float(slope)


def _row(name: str, ours: list[float], bare: list[float], scale: float, unit: str) -> str:
    low = min(ours) / min(bare)
    mid = statistics.median(ours) / statistics.median(bare)
    return (
        f"{name:28s} ours {scale * min(ours):9.2f} {unit}, bare {scale * min(bare):9.2f} {unit}: "
        f"{low:5.2f} x (minima), {mid:5.2f} x (medians)"
    )


def _steps(rounds: int) -> None:
    sizes = {"GPT": f"{LAYERS} x {WIDTH}", "ResNet-18": f"width {RESNET_WIDTH}"}
    for name, size in sizes.items():
        ours = Ours(name)
        bare = ByHand(name, ours)
        pairs = [(ours(), bare()) for _ in range(3)]
        worst = max(abs(a - b) for a, b in pairs)
        first, last = pairs[0][0], pairs[-1][0]
        print(f"{name}: 3 losses differ by at most {worst:.1e} ({first:.4f} to {last:.4f})")
        found = interleaved([ours, bare], rounds, 1, time.process_time)
        print(_row(f"{name} step ({size})", *found, 1e3, "ms"))


def _calls(rounds: int) -> None:
    x, array = torch.ones(64).to("xla"), jnp.ones(64)
    add = jax.jit(lambda a, b: a + b)
    loose: list[Callable[[], Any]] = [lambda: x + x, lambda: add(array, array)]
    found = interleaved(loose, rounds * CHUNKS, 10, time.thread_time)
    print(_row("eager x + x", *found, 1e6, "us"))
    config.payoff_calls = 0  # (one small op does not pay, and would run as it is)
    low: list[list[float]] = [[], []]
    for count in ARGUMENTS:
        f = torch.compile(lambda *xs: xs[0] + xs[-1], fullgraph=True)
        bare = jax.jit(lambda *xs: xs[0] + xs[-1], keep_unused=True)
        ins = [torch.ones(4).to("xla") for _ in range(count)]
        arrays = [jnp.ones(4) for _ in range(count)]
        both = [lambda f=f, a=ins: f(*a), lambda f=bare, a=arrays: f(*a)]
        pair = interleaved(both, rounds * CHUNKS, 10, time.thread_time)
        print(_row(f"compiled call, {count} arguments", *pair, 1e6, "us"))
        for kept, times in zip(low, pair, strict=True):
            kept.append(min(times))
    for name, seconds in zip(("ours", "bare"), low, strict=True):
        fixed, each = line(ARGUMENTS, seconds)
        print(f"a compiled call, {name}: {fixed:.1f} us + {each:.2f} us per argument")
    fixed, each = line(ARGUMENTS, [a - b for a, b in zip(*low, strict=True)])
    print(f"a compiled call, above bare: {fixed:.1f} us + {each:.2f} us per argument")


# ---- the first step of a process -----------------------------------------------------------------


def _first() -> None:
    began = time.process_time()
    ours = Ours("GPT")
    built = time.process_time()
    loss = ours()
    done = time.process_time()
    before = f"{built - began:.2f} s before"
    print(f"first step: {done - built:.2f} s of CPU ({before}), loss {loss:.4f}")


def _start() -> int:
    """Two processes with one fresh cache folder."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "LUCERNE_CACHE_DIR": folder}
        env.pop("JAX_COMPILATION_CACHE_DIR", None)
        seconds = []
        for name in ("cold", "from disk"):
            command = [sys.executable, "-m", "benchmarks.xla", "--first"]
            said = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
            print(f"{name:10s} {said.stdout.strip()}")
            seconds.append(float(re.findall(r"first step: ([\d.]+) s", said.stdout)[0]))
    ratio = seconds[1] / seconds[0]
    print(f"a first step from disk costs {ratio:.2f} x a cold one (wanted: {WANTED})")
    return 0 if ratio <= WANTED else 1


def main() -> int:
    made = argparse.ArgumentParser(prog="python -m benchmarks xla")
    made.add_argument("--rounds", type=int, default=20)
    made.add_argument("--only", choices=["steps", "calls", "meshes"])
    made.add_argument("--start", action="store_true", help="two processes, one cache folder")
    made.add_argument("--first", action="store_true", help="one first step, CPU seconds")
    options = made.parse_args()
    if options.start:
        return _start()
    if options.first:
        _first()
        return 0
    if options.only in (None, "steps"):
        _steps(options.rounds)
    if options.only in (None, "calls"):
        _calls(options.rounds)
    if options.only == "meshes":
        _meshes(options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
