"""Per-sample gradients of a GPT: `compile(vmap(grad(loss)))` beside torch.func, same run.

    python -m benchmarks.per_sample                 6 layers, 384 wide, 4 x 256 tokens, 2 threads
    python -m benchmarks.per_sample --one-thread    processor time of one thread
    python -m benchmarks.per_sample --small         a GPT of one layer, for CI
    python -m benchmarks.per_sample --eager         without compile, on both sides

Both sides run in this process, in turn, on the same weights and tokens; their gradients must agree.
Prints the best time of each and the ratio, which must be at most 0.8.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import programs, weights
from benchmarks.timing import best_in_turn
from benchmarks.weights import Language

LIMIT = 0.8


def gradients_of(torch: Any, s: Language) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function that gives the gradient of each example, and its arguments."""
    model = programs.gpt_model(torch, s)
    programs.load(torch, model, weights.filled(weights.gpt_shapes(s)))
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    buffers = {name: b.detach() for name, b in model.named_buffers()}
    ids, target = weights.words(s)
    ids, target = torch.from_numpy(ids), torch.from_numpy(target).view(s.batch, s.length)

    def loss(parameters: Any, buffers: Any, ids: Any, target: Any) -> Any:
        state = (parameters, buffers)
        logits = torch.func.functional_call(model, state, (ids.unsqueeze(0),))
        return torch.nn.functional.cross_entropy(logits.squeeze(0), target)

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, None, 0, 0))
    return each, (parameters, buffers, ids, target)


def ready(name: str, s: Language, compiled: bool) -> Callable[[], Any]:
    """One side, compiled and called once."""
    torch = importlib.import_module(name)
    each, arguments = gradients_of(torch, s)
    if compiled:
        each = torch.compile(each)
    call: Callable[[], Any] = lambda: each(*arguments)  # noqa: E731
    for _ in range(2):
        call()
    return call


def disagreement(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """The largest difference of two gradients, relative to the largest element of each."""
    worst = 0.0
    for name, expected in theirs.items():
        a, b = ours[name].numpy(), expected.detach().numpy()
        worst = max(worst, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-12)))
    return worst


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.per_sample")
    parser.add_argument("--one-thread", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--seconds", type=float, default=40.0)
    options = parser.parse_args(arguments)
    s = weights.SMALL_GPT if options.small else weights.GPT
    for name in ("lucerne", "torch"):
        importlib.import_module(name).set_num_threads(1 if options.one_thread else 2)
    sides = {name: ready(name, s, not options.eager) for name in ("lucerne", "torch")}
    difference = disagreement(sides["lucerne"](), sides["torch"]())
    clock = time.thread_time if options.one_thread else time.perf_counter
    best = best_in_turn(sides, clock, seconds=options.seconds)
    ratio = best["lucerne"] / best["torch"]
    print(f"per-sample gradients of a GPT, {s.layers} x {s.width}, {s.batch} x {s.length} tokens")
    print(f"gradients differ by at most {difference:.1e}")
    for name, seconds in best.items():
        print(f"{name:8} {seconds * 1e3:9.1f} ms")
    print(f"ratio    {ratio:9.2f} (must be at most {LIMIT})")
    return 0 if ratio <= LIMIT and difference < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
