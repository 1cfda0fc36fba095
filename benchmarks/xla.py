"""The device `xla` beside its engine run bare: the same GPT step, written by hand in JAX.

    python -m benchmarks.xla                    # a step, a call, an eager op, interleaved
    python -m benchmarks.xla --first            # CPU seconds until the first step is done

`--first` twice, with LUCERNE_CACHE_DIR set to a fresh folder: the second process finds XLA's
programs on disk.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lucerne as torch
from tests.xla.models import GPT

LAYERS, WIDTH, HEADS, LENGTH, BATCH, TOKENS = 4, 128, 4, 64, 8, 64
LR, BETAS, EPS, DECAY = 1e-3, (0.9, 0.999), 1e-8, 0.01


# ---- ours ----------------------------------------------------------------------------------------


class Ours:
    """A compiled training step on the device."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = GPT(LAYERS, WIDTH, HEADS, LENGTH).to("xla")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LR, weight_decay=DECAY)
        data = torch.randint(0, TOKENS, (BATCH, LENGTH + 1))
        self.numpy = data.numpy()
        self.batch = data[:, :-1].to("xla"), data[:, 1:].to("xla")
        self.step = torch.compile(self._step, fullgraph=True)

    def _step(self, x: Any, y: Any) -> Any:
        loss = torch.nn.functional.cross_entropy(self.model(x).reshape(-1, TOKENS), y.reshape(-1))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def __call__(self) -> float:
        return self.step(*self.batch).item()


# ---- by hand -------------------------------------------------------------------------------------


def _linear(p: Any, x: Any) -> Any:
    y = jnp.matmul(x, p["weight"].T, precision="highest")
    return y + p["bias"] if "bias" in p else y


def _norm(p: Any, x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-5) * p["weight"] + p["bias"]


def _block(p: Any, x: Any) -> Any:
    b, t, c = x.shape
    parts = jnp.split(_linear(p["qkv"], _norm(p["first"], x)), 3, -1)
    q, k, v = (y.reshape(b, t, HEADS, c // HEADS).transpose(0, 2, 1, 3) for y in parts)
    scores = jnp.matmul(q, k.swapaxes(-1, -2), precision="highest") / np.float32(
        (c // HEADS) ** 0.5
    )
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
    y = jnp.matmul(jax.nn.softmax(scores, -1), v, precision="highest")
    x = x + _linear(p["out"], y.transpose(0, 2, 1, 3).reshape(b, t, c))
    return x + _linear(p["down"], jax.nn.gelu(_linear(p["up"], _norm(p["second"], x)), False))


def _loss(params: Any, x: Any, y: Any) -> Any:
    h = params["tokens"]["weight"][x] + params["places"]["weight"][: x.shape[1]]
    for k in range(LAYERS):
        h = _block(params["blocks"][str(k)], h)
    logits = _linear(params["head"], _norm(params["norm"], h)).reshape(-1, TOKENS)
    logs = jax.nn.log_softmax(logits, -1)
    return -jnp.take_along_axis(logs, y.reshape(-1, 1), 1).mean()


def _adamw(p: Any, g: Any, m: Any, v: Any, t: Any) -> Any:
    m = BETAS[0] * m + (1 - BETAS[0]) * g
    v = BETAS[1] * v + (1 - BETAS[1]) * g * g
    denom = jnp.sqrt(v / (1 - BETAS[1] ** t)) + EPS
    return p * np.float32(1 - LR * DECAY) - LR * (m / (1 - BETAS[0] ** t)) / denom, m, v


def _by_hand(params: Any, m: Any, v: Any, t: Any, x: Any, y: Any) -> Any:
    loss, grads = jax.value_and_grad(_loss)(params, x, y)
    leaves, tree = jax.tree.flatten(params)
    rest = (jax.tree.leaves(z) for z in (grads, m, v))
    made = [_adamw(*given, t + 1) for given in zip(leaves, *rest, strict=True)]
    return loss, *(jax.tree.unflatten(tree, z) for z in zip(*made, strict=True)), t + 1


class ByHand:
    """The same step in JAX, jitted and donated."""

    def __init__(self, like: Ours) -> None:
        params: dict[str, Any] = {}
        for name, p in like.model.named_parameters():
            *path, last = name.split(".")
            place = params
            for part in path:
                place = place.setdefault(part, {})
            place[last] = jnp.array(p.detach().cpu().numpy())
        zeros = [jax.tree.map(jnp.zeros_like, params) for _ in range(2)]
        self.state = (params, *zeros, jnp.float32(0))
        self.batch = [jnp.asarray(z) for z in (like.numpy[:, :-1], like.numpy[:, 1:])]
        self.step = jax.jit(_by_hand, donate_argnums=(0, 1, 2, 3))

    def __call__(self) -> float:
        loss, *self.state = self.step(*self.state, *self.batch)
        return float(loss)


# ---- measuring -----------------------------------------------------------------------------------


def interleaved(calls: list[Callable[[], Any]], rounds: int, inner: int = 1) -> list[list[float]]:
    """Seconds per call of each, in turns."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for times, call in zip(found, calls, strict=True):
            began = time.perf_counter()
            for _ in range(inner):
                call()
            times.append((time.perf_counter() - began) / inner)
    return found


def _row(name: str, ours: list[float], bare: list[float], scale: float, unit: str) -> str:
    low = min(ours) / min(bare)
    mid = statistics.median(ours) / statistics.median(bare)
    return (
        f"{name:28s} ours {scale * min(ours):9.2f} {unit}, bare {scale * min(bare):9.2f} {unit}: "
        f"{low:5.2f} x (minima), {mid:5.2f} x (medians)"
    )


def _steps(rounds: int) -> None:
    ours = Ours()
    bare = ByHand(ours)
    pairs = [(ours(), bare()) for _ in range(5)]
    worst = max(abs(a - b) for a, b in pairs)
    print(
        f"losses of 5 steps differ by at most {worst:.1e}: {pairs[0][0]:.4f} to {pairs[-1][0]:.4f}"
    )
    found = interleaved([ours, bare], rounds)
    print(_row(f"GPT step ({LAYERS} x {WIDTH})", *found, 1e3, "ms"))


def _small(rounds: int) -> None:
    x = torch.ones(64).to("xla")
    array = jnp.ones(64)
    add = jax.jit(lambda a, b: a + b)
    found = interleaved([lambda: x + x, lambda: add(array, array)], rounds, 200)
    print(_row("eager x + x", *found, 1e6, "us"))
    many = [torch.ones(4).to("xla") for _ in range(100)]
    arrays = [jnp.ones(4) for _ in range(100)]
    for count in (1, 100):
        f = torch.compile(lambda *xs: xs[0] + xs[-1], fullgraph=True)
        bare = jax.jit(lambda *xs: xs[0] + xs[-1], keep_unused=True)
        ins, given = many[:count], arrays[:count]
        pair = interleaved([lambda f=f, a=ins: f(*a), lambda f=bare, a=given: f(*a)], rounds, 100)
        print(_row(f"compiled call, {count} arguments", *pair, 1e6, "us"))


def main() -> int:
    made = argparse.ArgumentParser(prog="python -m benchmarks.xla")
    made.add_argument("--rounds", type=int, default=20)
    made.add_argument("--first", action="store_true")
    options = made.parse_args()
    if options.first:
        began = time.process_time()
        ours = Ours()
        built = time.process_time()
        loss = ours()
        done = time.process_time()
        before = f"{built - began:.2f} s before"
        print(f"first step: {done - built:.2f} s of CPU ({before}), loss {loss:.4f}")
        return 0
    _steps(options.rounds)
    _small(options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
