"""What the first compiled call costs by the depth of a model: CPU time, by stage, and a block more.

python -m benchmarks depth                       a training step of 6, 12, 24 and 48 blocks
python -m benchmarks depth --depths 1 96         other depths
python -m benchmarks depth --kind forward        without a backward pass
python -m benchmarks depth --kind outside        backward and optimizer outside of the function

Each depth runs in a process of its own that finds the kernels on disk (and the bytecode of our
modules, as an installed package does, whatever PYTHONDONTWRITEBYTECODE says), but no program.
Blocks are those of a GPT of width 64. "a block" is what each block costs above the depth before.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import lucerne as torch
import lucerne.nn.functional as F
from benchmarks import programs, weights
from lucerne._src.loops import stages
from lucerne._src.pipeline import road

_WORDS = 256
_BEHIND = ("functionalize", "key", "fold", "simplify", "cse", "lower", "assemble", "store")


def _model(blocks: int) -> Any:
    torch.manual_seed(0)
    sizes = weights.Language(blocks, 64, 4, words=_WORDS, batch=2, length=32)
    return programs.gpt_model(torch, sizes)


def _loss(scores: Any, tokens: Any) -> Any:
    return F.cross_entropy(scores[:, :-1].reshape(-1, _WORDS), tokens[:, 1:].reshape(-1))


def _step(blocks: int) -> tuple[Any, Any]:
    model = _model(blocks)
    optimizer = torch.optim.AdamW(model.parameters())

    @torch.compile
    def step(tokens: Any) -> Any:
        optimizer.zero_grad()
        loss = _loss(model(tokens), tokens)
        loss.backward()
        optimizer.step()
        return loss

    return step, step


def _forward(blocks: int) -> tuple[Any, Any]:
    model = _model(blocks).eval()
    compiled = torch.compile(model)

    def run(tokens: Any) -> Any:
        with torch.no_grad():
            return compiled(tokens)

    return compiled, run


def _outside(blocks: int) -> tuple[Any, Any]:
    model = _model(blocks)
    compiled = torch.compile(model)

    def run(tokens: Any) -> Any:
        loss = _loss(compiled(tokens), tokens)
        loss.backward()
        return loss

    return compiled, run


KINDS = {"step": _step, "forward": _forward, "outside": _outside}


def measured(kind: str, blocks: int) -> dict[str, float]:
    """CPU milliseconds of the first call in this process: all of it, and its stages."""
    vars(stages)["perf_counter"] = vars(road)["perf_counter"] = time.process_time
    compiled, run = KINDS[kind](blocks)
    tokens = torch.arange(64).reshape(2, 32)
    began = time.process_time()
    run(tokens)
    found = {"all": 1e3 * (time.process_time() - began)}
    compiled = getattr(compiled, "_compiled", compiled)
    for entry in getattr(compiled, "entries", ()):
        found |= {name: 1e3 * s for name, s in entry.stages.seconds.items()}
    return found


def _in_a_process(kind: str, blocks: int, cache: Path) -> dict[str, float]:
    shutil.rmtree(cache / "programs", ignore_errors=True)
    command = [sys.executable, "-m", "benchmarks.depth", "--one", str(blocks), "--kind", kind]
    settings = {**os.environ, "LUCERNE_CACHE_DIR": str(cache), "LUCERNE_PROGRAM_CACHE": "1"}
    settings.pop("PYTHONDONTWRITEBYTECODE", None)
    settings["PYTHONPYCACHEPREFIX"] = str(cache / "bytecode")
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(rows: dict[int, dict[str, float]]) -> str:
    """Milliseconds by depth (the least of what was measured)."""
    names = ["reach", "capture", *_BEHIND]
    lines = [f"{'blocks':>6} {'all':>8} {'a block':>8}" + "".join(f"{n:>14}" for n in names)]
    before: tuple[int, float] | None = None
    for blocks, row in rows.items():
        slope = "" if before is None else f"{(row['all'] - before[1]) / (blocks - before[0]):.1f}"
        cells = "".join(f"{row.get(n, 0.0):14.0f}" for n in names)
        lines.append(f"{blocks:>6} {row['all']:8.0f} {slope:>8}{cells}")
        before = blocks, row["all"]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depths", type=int, nargs="+", default=[6, 12, 24, 48])
    parser.add_argument("--kind", choices=KINDS, default="step")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measured(options.kind, options.one)))
        return 0
    best: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        _in_a_process(options.kind, 2, cache)
        for _ in range(options.repeats):
            for blocks in options.depths:
                found = _in_a_process(options.kind, blocks, cache)
                if blocks not in best or found["all"] < best[blocks]["all"]:
                    best[blocks] = found
    print(table(best))
    return 0


if __name__ == "__main__":
    sys.exit(main())
