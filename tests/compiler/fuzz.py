"""`python -m tests.compiler.fuzz --cases 2000`: random programs through all engines.

A child process runs the programs, so that one that crashes is found and told like any other. For
each failing program a shortened one is printed, ready to paste.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from typing import Any

from tests.compiler.compare import Problem


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.compiler.fuzz", description=__doc__)
    made.add_argument("--cases", type=int, default=500)
    made.add_argument("--seed", type=int, default=0, help="of the first program")
    made.add_argument("--mode", default="default", choices=("default", "bitwise"))
    made.add_argument("--around", default="", help="how calls are made: a row of AROUND, or all")
    made.add_argument("--eager", action="store_true", help="no compiled functions: eager alone")
    made.add_argument("--no-minimise", action="store_true", help="print failing programs whole")
    made.add_argument("--most", type=int, default=10, help="failures to shorten and print")
    made.add_argument("--show", action="store_true", help="print the programs, run nothing")
    made.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return made


# ---- the child: programs in order, one line of JSON for each


def child(options: argparse.Namespace) -> int:
    import torch

    import lucerne
    from tests.compiler.around import called
    from tests.compiler.check import Options, checked
    from tests.compiler.generate import generated

    torch.set_num_threads(1)
    lucerne.set_num_threads(1)
    # In the bitwise mode eager is what is wanted: whether it is right is asked in the other one.
    plain = options.mode == "default"
    how = Options(mode=options.mode, compiled=not options.eager, rival=plain, float64=plain)
    for seed in range(options.seed, options.seed + options.cases):
        _say({"start": seed})
        program = called(generated(seed), options.around)
        began = time.perf_counter()
        report = checked(program, how)
        _say({
            "seed": seed,
            "seconds": time.perf_counter() - began,
            "problems": [[p.kind, p.where, p.text] for p in report.problems],
            "error": report.error,
            "covered": report.covered,
            "gradients": report.gradients,
            "shaken": report.shaken,
            "given_up": report.given_up,
            "ops": [s.op for s in program.steps],
        })  # fmt: skip
    return 0


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


# ---- the parent


class Tally:
    def __init__(self) -> None:
        self.done: list[dict[str, Any]] = []
        self.crashed: list[tuple[int, int]] = []

    def run(self, options: argparse.Namespace) -> None:
        """All cases; after a crash the rest in a new child."""
        seed, last = options.seed, options.seed + options.cases
        while seed < last:
            at = self._run_child(options, seed, last - seed)
            if at is None:
                return
            seed = at + 1

    def _run_child(self, options: argparse.Namespace, seed: int, cases: int) -> int | None:
        """None: finished; otherwise the seed that ended the child."""
        command = [sys.executable, "-m", "tests.compiler.fuzz", "--child", "--mode", options.mode]
        command += ["--seed", str(seed), "--cases", str(cases)] + ["--eager"] * options.eager
        command += ["--around", options.around]
        running = seed
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for text in process.stdout:
                line = json.loads(text)
                if "start" in line:
                    running = line["start"]
                else:
                    self._add(line)
        if process.returncode == 0:
            return None
        print(f"seed {running}: the process ended with {process.returncode}", flush=True)
        self.crashed.append((running, process.returncode))
        return running

    def _add(self, line: dict[str, Any]) -> None:
        self.done.append(line)
        if line["problems"]:
            print(f"seed {line['seed']}: {'; '.join(line['problems'][0])}", flush=True)
        if len(self.done) % 250 == 0:
            print(f"{len(self.done)} programs done, {len(self.failed)} failed", flush=True)

    @property
    def failed(self) -> list[dict[str, Any]]:
        return [d for d in self.done if d["problems"]]


def shortened(options: argparse.Namespace, seed: int, kind: str, where: str) -> str:
    """A failing program, made small, as text to paste."""
    from tests.compiler.around import called
    from tests.compiler.check import Options, checked
    from tests.compiler.generate import generated
    from tests.compiler.minimise import minimised, script

    sides = where.split(",")[0]
    mode = options.mode
    how = Options(mode=mode, compiled=not options.eager, rival=sides.startswith("eager"))
    if "first" in where:
        how.calls = ("first",)

    program = called(generated(seed), options.around)
    raises = checked(program, how).error

    def found(p: Any) -> list[Problem]:
        report = checked(p, how)
        if report.error != raises:  # another program
            return []
        return [x for x in report.problems if x.kind == kind and x.where.startswith(sides)]

    small = minimised(program, lambda p: bool(found(p)))
    left = found(small)
    how_called = f"\n# called: {small.around}" if small.around else ""
    return f"{script(small, mode)}{how_called}\n# {left[0] if left else 'it did not fail again'}"


def told(tally: Tally, options: argparse.Namespace, seconds: float) -> None:
    done = tally.done
    ops = Counter(o for d in done for o in set(d["ops"]))
    print(
        f"{len(done)} programs, mode {options.mode}: {len(tally.failed)} with mismatches, "
        f"{len(tally.crashed)} crashes; {sum(d['covered'] for d in done)} also checked in float64 "
        f"({sum(d['gradients'] for d in done)} with gradients), "
        f"{sum(bool(d['error']) for d in done)} raise alike, "
        f"{sum(d['shaken'] for d in done)} needed the rounding measured; {len(ops)} ops; "
        f"{seconds / max(len(done), 1):.3f} s each"
    )
    why = Counter(d["given_up"][:90] for d in done if d["given_up"])
    if why:
        print(f"  {sum(why.values())} run uncompiled, nothing compared:")
        for text, n in why.most_common(8):
            print(f"    {n:5d}  {text}")
    kinds = Counter(
        (w.split(",")[0], k) for d in tally.failed for k, w in {(p[0], p[1]) for p in d["problems"]}
    )
    for (sides, kind), n in kinds.most_common():
        print(f"  {n:5d}  {sides}: {kind}")


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.child:
        return child(options)
    if options.show:
        from tests.compiler.generate import generated

        for seed in range(options.seed, options.seed + options.cases):
            print(f"# seed {seed}\n{generated(seed)}\n")
        return 0
    tally = Tally()
    began = time.perf_counter()
    tally.run(options)
    told(tally, options, time.perf_counter() - began)
    for d in tally.failed[: 0 if options.no_minimise else options.most]:
        kind, where, _ = d["problems"][0]
        text = shortened(options, d["seed"], kind, where)
        print(f"\n# seed {d['seed']}\n{text}")
    return 1 if tally.failed or tally.crashed else 0


if __name__ == "__main__":
    sys.exit(main())
