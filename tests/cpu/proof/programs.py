"""Compiled training steps in every kind of memory: the same bits, and nobody leaves their values.

A child process trains small models (compiled as one program each) and prints a hash of losses and
parameters. It is started once as usual, once for each way to look closely (`WAYS`): scratch full of
junk, every value on pages of its own, the allocator that puts every tensor at a forbidden page, and
other numbers of threads.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from typing import Any

import lucerne
from benchmarks import sides

WAYS: dict[str, dict[str, str]] = {
    "as usual": {},
    "scratch full of junk": {"LUCERNE_PROGRAM_MEMORY": "poison"},
    "values on pages of their own": {"LUCERNE_PROGRAM_MEMORY": "guarded"},
    "tensors end at a page": {"LUCERNE_GUARD_PAGES": "64"},
    "tensors begin at a page": {"LUCERNE_GUARD_PAGES": "-64"},
    "one thread": {"LUCERNE_THREADS": "1"},
    "four threads": {"LUCERNE_THREADS": "4"},
    "pages in both": {"LUCERNE_PROGRAM_MEMORY": "guarded", "LUCERNE_GUARD_PAGES": "16"},
}
MODELS = ("mlp", "gpt", "resnet")
TYPES = {"float32": contextlib.nullcontext, "bfloat16": lambda: _half()}
STEPS = 3


def _half() -> Any:
    return lucerne.autocast("cpu", lucerne.bfloat16)


def trained(model: str, dtype: str) -> str:
    """A hash of what a model has become after some steps."""
    name = "gpt_bf16" if (model, dtype) == ("gpt", "bfloat16") else model
    job = sides.training(lucerne, "step", name, sides.SIZES[name][1])
    compiled = lucerne.compile(job.step)
    digest = hashlib.sha256()
    for _ in range(STEPS):
        with contextlib.nullcontext() if name.endswith("bf16") else TYPES[dtype]():
            loss = compiled(*job.batch)
        digest.update(loss.detach().numpy().tobytes())
    assert compiled.given_up is None, compiled.given_up
    for p in job.model.parameters():
        digest.update(p.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def main(options: argparse.Namespace) -> int:
    """The parent, or with `--quick` a child."""
    if options.quick:
        print(json.dumps({f"{m} {t}": trained(m, t) for m in MODELS for t in TYPES}))
        return 0
    began, problems = time.perf_counter(), 0
    wanted: dict[str, str] = {}
    for way, settings in WAYS.items():
        found, end = child(settings)
        wanted = wanted or found
        different = [name for name in wanted if found.get(name) != wanted[name]]
        problems += len(different) + (end != "")
        print(f"{way:<30} {len(found)} steps, {len(different)} differ {' '.join(different)}{end}")
    print(f"{problems} problems ({time.perf_counter() - began:.0f} s)")
    return 1 if problems else 0


def child(settings: dict[str, str]) -> tuple[dict[str, str], str]:
    """The hashes of a process with these settings, and how it ended if not well."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.cpu.proof", "programs", "--quick"]
    done = subprocess.run(
        command, env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {}, f"\n  ended with {done.returncode}:\n{done.stderr[-3000:]}"
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found, ""
