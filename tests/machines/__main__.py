"""`python -m tests.machines`: the tests as other machines would run them.

    python -m tests.machines                                   every machine, the engine's folders
    python -m tests.machines --only avx2 --folders tests/cpu   one of them
    python -m tests.machines --bits                            only whether the bits are the same

A machine is a table of settings (`MACHINES`): a processor without tiles or with narrower vectors,
another number of threads, hardly any room for the calls that machine code knows. Tests must pass on
all of them. `--bits` compares too: neither threads nor known calls may change a bit of what a
training step computes (other instructions may: they add in another order).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ["tests/cpu", "tests/tensor", "tests/loops", "tests/compiler"]
MACHINES: dict[str, dict[str, str]] = {
    "this": {},
    "no tiles": {"LUCERNE_CPU_FEATURES": "-amx"},
    "avx2": {"LUCERNE_CPU_FEATURES": "-amx,-avx512"},
    "no fma": {"LUCERNE_CPU_FEATURES": "-amx,-avx,-fma"},
    "1 thread": {"LUCERNE_THREADS": "1"},
    "4 threads": {"LUCERNE_THREADS": "4"},
    "2 known calls": {"LUCERNE_KNOWN_CALLS": "2"},
    "64 known calls": {"LUCERNE_KNOWN_CALLS": "64"},
    "no known calls": {"LUCERNE_FAST_PATH": "0"},
}
SAME_BITS = [("this", "1 thread", "4 threads", "2 known calls", "64 known calls")]
"""Machines whose results must be equal bit for bit. (Without known calls optimizers step tensor by
tensor instead of in one kernel, which rounds in other places.)"""


def settings(machine: str) -> dict[str, str]:
    """The environment of a process that takes itself for this machine."""
    own = MACHINES[machine]
    rest = {
        k: v for k, v in os.environ.items() if k not in {n for m in MACHINES.values() for n in m}
    }
    return {**rest, **own}


def digest(machine: str, *programs: str) -> str:
    """What `tests.machines.steps` prints on this machine: digests of training steps."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.machines.steps", *programs],
        cwd=ROOT,
        env=settings(machine),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise RuntimeError(f"the steps failed on {machine!r} ({done.returncode}):\n{last}")
    return done.stdout


def different(digests: dict[str, str]) -> list[str]:
    """A line for each machine whose digests are not those of the first of its group."""
    found = []
    for group in SAME_BITS:
        known = [m for m in group if m in digests]
        for machine in known[1:]:
            pairs = zip(digests[known[0]].splitlines(), digests[machine].splitlines(), strict=True)
            for a, b in pairs:
                if a != b:
                    found.append(f"DIFFERS {machine!r} from {known[0]!r}: {a} | {b}")
    return found


def tests(machine: str, folders: list[str], seconds: float) -> str:
    """pytest's last line on this machine, and the names of failed tests."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line"]
    command += ["-m", "not nightly", *folders]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=settings(machine),
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return f"stopped after {seconds:.0f} s"
    lines = done.stdout.strip().splitlines() or [f"exit code {done.returncode}"]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return "\n    ".join([lines[-1], *failed])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.machines", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", action="append", default=[], choices=list(MACHINES))
    parser.add_argument("--folders", nargs="+", default=FOLDERS)
    parser.add_argument("--seconds", type=float, default=480.0, help="for each run of tests")
    parser.add_argument("--bits", action="store_true", help="compare bits, run no tests")
    options = parser.parse_args(arguments)
    bad = False
    machines = options.only or list(MACHINES)
    lines = different({m: digest(m) for m in machines})
    print("\n".join(lines) or f"the same bits: {', '.join(machines)}", flush=True)
    bad = bool(lines)
    for machine in () if options.bits else machines:
        began = time.perf_counter()
        told = tests(machine, options.folders, options.seconds)
        print(f"{machine:16} {time.perf_counter() - began:4.0f} s  {told}", flush=True)
        bad = bad or " passed" not in told or " failed" in told or " error" in told
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
