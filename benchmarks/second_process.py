"""What a second process finds of the compiled programs of a first one: no trace, and in what time.

python -m benchmarks second_process              the set of tests/programs, a GPT of 4 blocks
python -m benchmarks second_process gpt4 vae tcn some of them

Each process has an empty cache or that of the first; in both, every program takes two steps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from typing import Any

import lucerne as torch
import lucerne.nn.functional as F
from benchmarks import programs, weights
from lucerne._src.capture.ledger import BOOKS, NOT_PAID
from tests.programs.rows import Run, found

_GPT, _GPT_MS = "gpt4", 100.0
_SHARE = 0.9
_CHILD = "SECOND_PROCESS_CHILD"


def _gpt(run: Run) -> Any:
    """Four blocks of modules of its own, the whole step compiled."""
    sizes = weights.Language(4, 64, 4, words=64, batch=2, length=32)
    model = programs.gpt_model(torch, sizes)
    optimizer = torch.optim.AdamW(model.parameters())

    @run.step
    def step(tokens: Any) -> Any:
        optimizer.zero_grad()
        scores = model(tokens)
        loss = F.cross_entropy(scores[:, :-1].reshape(-1, 64), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        yield step(torch.arange(64).reshape(2, 32))


def one(made: Any) -> dict[str, Any]:
    """What two steps of a program had to trace, and the CPU time of the first."""
    for way in ("step", "model"):
        torch.manual_seed(0)
        torch.set_grad_enabled(True)
        run, before = Run(torch, way, 2), len(BOOKS.rows)
        steps, began = iter(made(run)), time.process_time()
        next(steps)
        took = 1e3 * (time.process_time() - began)
        if run.compiled:
            break
    next(steps, None)
    rows = [r for r in list(BOOKS.rows)[before:] if r.kind != NOT_PAID]
    traced = [f"{r.function} ({r.kind})" for r in rows if r.program != "hit"]
    return {"ms": took, "traced": traced, "compiled": bool(run.compiled)}


def child(names: list[str]) -> int:
    torch.set_num_threads(1)
    made = {_GPT: _gpt, **found("lucerne")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names or made:
            print(json.dumps({"name": name, **one(made[name])}), flush=True)
    return 0


def _process(names: list[str], folder: str) -> list[dict[str, Any]]:
    environment = {**os.environ, _CHILD: "1", "LUCERNE_CACHE_DIR": folder}
    environment["LUCERNE_PROGRAM_CACHE"] = "1"  # (other benchmarks want it off)
    command = [sys.executable, "-m", "benchmarks.second_process", *names]
    told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in told.stdout.splitlines()]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    names = parser.parse_args(arguments).names
    if _CHILD in os.environ:
        return child(names)
    with tempfile.TemporaryDirectory() as folder:
        first, second = _process(names, folder), _process(names, folder)
    print(f"{'first step, ms of CPU':<24} {'first':>9} {'second':>9}  traced again")
    for a, b in zip(first, second, strict=True):
        again = ", ".join(b["traced"][:2]) + (", ..." if len(b["traced"]) > 2 else "")
        print(f"{a['name']:<24} {a['ms']:9.1f} {b['ms']:9.1f}  {again}")
    rows = [b for b in second if b["name"] != _GPT and b["compiled"]]
    free = sum(not b["traced"] for b in rows)
    if rows:
        print(f"no trace: {free} of {len(rows)} ({free / len(rows):.0%}, must {_SHARE:.0%})")
    for b in second:
        if b["name"] == _GPT:
            print(f"GPT of 4 blocks: {b['ms']:.0f} ms of CPU (must {_GPT_MS:.0f})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
