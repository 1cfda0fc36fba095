"""`python -m tests.lazy scripts|fuzz|loops`: unmodified programs under lazy mode beside eager.

scripts: what every script of tests/scripts prints. fuzz: random programs of tests.compiler.
loops: an MLP's and a GPT's training loop: losses, compiles, cuts, and the time of a step.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import time
import warnings
from typing import Any

import numpy as np

import lucerne as torch
from tests.lazy.models import gpt, mlp
from tests.support import sources

# ---- scripts


_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:e[-+]?\d+)?")


def alike(a: str, b: str) -> bool:
    """The same line but for the last digits of its numbers (of gradients' names for nothing)."""
    if a == b:
        return True
    x, y = (_NUMBER.findall(t) for t in (a, b))
    if _NUMBER.sub("#", a) != _NUMBER.sub("#", b) or len(x) != len(y):
        return False
    return bool(np.allclose([float(n) for n in x], [float(n) for n in y], 2e-3, 2e-4))


def scripts() -> int:
    wrong = 0
    for path in sources.scripts():
        torch.lazy_report().clear()
        want = sources.printed(path, "lucerne")
        try:
            with torch.lazy():
                got = sources.printed(path, "lucerne")
        except Exception as error:
            got = [f"{type(error).__name__}: {error}"]
        differ = [(a, b) for a, b in zip(want, got, strict=False) if not alike(a, b)]
        bad = bool(differ) or len(want) != len(got)
        wrong += bad
        r = torch.lazy_report()
        print(
            f"{'DIFFERS' if bad else 'same':8}{path.stem:28} {r.nodes:6d} ops {r.evaluated:5d} "
            f"graphs {r.compiled:4d} compiled"
        )
        for a, b in differ[:3]:
            print(f"    eager: {a}\n    lazy:  {b}")
    print(f"{len(sources.scripts())} scripts, {wrong} differ")
    return wrong


# ---- random programs


def fuzz(cases: int, first: int) -> int:
    from tests.compiler.check import _Noise
    from tests.compiler.compare import problems
    from tests.compiler.generate import generated
    from tests.compiler.outcome import run
    from tests.compiler.program import function

    class Report:
        shaken = False

    wrong = 0
    for seed in range(first, first + cases):
        program = generated(seed)
        fn = function(program, torch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = run(program, torch, fn)
            with torch.lazy():
                got = run(program, torch, fn)
            found = problems(got, want, noise=_Noise(program, 0, Report()))
        if found:
            wrong += 1
            print(f"seed {seed}: {found[0]}\n{program}\n", flush=True)
    r = torch.lazy_report()
    print(
        f"{cases} random programs, {wrong} differ; {r.nodes} ops in {r.evaluated} graphs, "
        f"{r.compiled} compiled"
    )
    return wrong


# ---- training loops


def trained(make: Any, steps: int, lazy: bool) -> tuple[list[float], list[float]]:
    """Losses, and the processor time of each step."""
    torch.manual_seed(0)
    model, (x, y) = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, times = [], []
    with torch.lazy() if lazy else contextlib.nullcontext():
        for _ in range(steps):
            began = time.thread_time()
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            times.append(time.thread_time() - began)
    return losses, times


def loops(steps: int = 12) -> int:
    torch.set_num_threads(1)
    wrong = 0
    for name, make in (("MLP", mlp), ("GPT", gpt)):
        want, eager = trained(make, steps, lazy=False)
        torch.lazy_report().clear()
        got, lazy = trained(make, steps, lazy=True)
        r = torch.lazy_report()
        same = bool(np.allclose(want, got, 1e-3, 1e-4))
        wrong += not same
        print(
            f"{name}: losses {'the same' if same else 'DIFFER'} ({want[-1]:.4f}, {got[-1]:.4f}); "
            f"{r.compiled} compiles, {r.evaluated} graphs, {r.nodes // steps} ops a step; "
            f"step {1e3 * min(eager):.2f} ms eager, {1e3 * min(lazy):.2f} ms lazy"
        )
        print(r)
    return wrong


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lazy", description=__doc__)
    parser.add_argument("what", choices=("scripts", "fuzz", "loops"))
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.what == "fuzz":
        return min(fuzz(options.cases, options.seed), 1)
    return min(scripts() if options.what == "scripts" else loops(), 1)


if __name__ == "__main__":
    sys.exit(main())
