"""What one small eager op costs: Lucerne's Python path beside torch, in one interleaved run.

python benchmarks/overhead.py            table of microseconds per call and ratios
python benchmarks/overhead.py --profile  where the time of `a + b` goes
python benchmarks/overhead.py --smoke    a quick run that fails when the budget is broken (CI)
"""

from __future__ import annotations

import argparse
import cProfile
import importlib
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

BUDGET_US = {"a + b": 10.0, "chain of 10": 60.0}
TORCH_US = {"a + b": 1.6, "chain of 10": 17.0}  # what torch takes on the machine of the budget
SLOTS_LIMIT = 0.8
"""An attribute or a call of a module, as a share of what the Python functions for it take."""
IMPORT_BUDGET_S = 0.3
NUMPY_IMPORT_S = 0.055  # what NumPy takes of it on the machine of the budget


def cases(module: Any) -> dict[str, Callable[[], Any]]:
    """The same calls against any module with torch's names."""
    a, b = module.tensor([1.0, 2.0, 3.0, 4.0]), module.tensor([5.0, 6.0, 7.0, 8.0])
    w = module.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)

    def chain() -> Any:
        with module.no_grad():
            x = a
            for _ in range(5):
                x = x + b
                x = x * a
            return x

    return {
        "a + b": lambda: a + b,
        "a * 2.0": lambda: a * 2.0,
        "exp(a)": lambda: module.exp(a),
        "a.sum()": lambda: a.sum(),
        "a.view(2, 2)": lambda: a.view(2, 2),
        "a[0]": lambda: a[0],
        "w * b (grad)": lambda: w * b,
        "a.add_(b)": lambda: a.add_(b),
        "chain of 10": chain,
    }


def best_us(fn: Callable[[], Any], number: int) -> float:
    """CPU time of the best of several short runs, per call."""
    best = float("inf")
    for _ in range(7):
        start = time.process_time()
        for _ in range(number):
            fn()
        best = min(best, time.process_time() - start)
    return best / number * 1e6


def measure(number: int) -> dict[str, dict[str, float]]:
    """Microseconds per call for every module that is installed, interleaved case by case."""
    modules = {"lucerne": importlib.import_module("lucerne")}
    try:
        modules["torch"] = importlib.import_module("torch")
        modules["torch"].set_num_threads(1)
    except ImportError:
        print("torch is not installed: no comparison")
    tables = {name: cases(m) for name, m in modules.items()}
    return {
        case: {name: best_us(table[case], number) for name, table in tables.items()}
        for case in tables["lucerne"]
    }


def slot_shares(number: int) -> dict[str, tuple[float, float]]:
    """Attributes and calls of a module: microseconds, and those as a share of the same by the
    Python functions that they stand for (called by hand, rounds interleaved)."""
    nn = importlib.import_module("lucerne").nn
    m, parameter = nn.Identity(), nn.Linear(1, 1).weight
    m.register_parameter("weight", parameter)
    get, call = nn.Module.__getattr__, nn.Module._call_impl
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "m.weight": (lambda: m.weight, lambda: get(m, "weight")),
        "m(x)": (lambda: m(1), lambda: call(m, 1)),
    }
    found = {}
    for name, sides in pairs.items():
        best = [float("inf")] * 2
        for _ in range(5):
            best = [min(b, best_us(side, number)) for b, side in zip(best, sides, strict=True)]
        found[name] = best[0], best[0] / best[1]
    return found


def import_seconds() -> dict[str, tuple[float, float]]:
    """Of Lucerne and of NumPy: the import alone, and what it adds to a process that ends after it.

    Best of seven fresh processes, interleaved. Bytecode goes to a folder of its own and is warm, as
    it is after an installation.
    """
    timed = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"
    lines = {"": "pass", "lucerne": "import lucerne", "numpy": "import numpy"}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def run(line: str) -> tuple[float, float]:
            start = time.perf_counter()
            command = [sys.executable, "-c", timed.format(line)]
            inside = subprocess.run(command, check=True, env=environment, capture_output=True)
            return float(inside.stdout), time.perf_counter() - start

        runs = [{name: run(line) for name, line in lines.items()} for _ in range(8)][1:]
    alone = {name: min(found[name][0] for found in runs) for name in lines}
    whole = {name: min(found[name][1] for found in runs) for name in lines}
    return {name: (alone[name], whole[name] - whole[""]) for name in ("lucerne", "numpy")}


def report(number: int) -> dict[str, dict[str, float]]:
    found = measure(number)
    print(f"{'call':<16}{'lucerne us':>12}{'torch us':>12}{'ratio':>8}")
    for case, us in found.items():
        torch_us = us.get("torch", float("nan"))
        print(f"{case:<16}{us['lucerne']:>12.2f}{torch_us:>12.2f}{us['lucerne'] / torch_us:>8.2f}")
    return found


def slowness(found: dict[str, dict[str, float]]) -> float:
    """How much slower this machine is now than that of the budget, judged by torch's calls."""
    return max(1.0, *(found[c].get("torch", 0.0) / usual for c, usual in TORCH_US.items()))


def check_budget(found: dict[str, dict[str, float]]) -> None:
    """Fail when a call or the import takes longer than it may, given how busy the machine is."""
    factor = slowness(found)
    for case, nominal in BUDGET_US.items():
        took, limit = found[case]["lucerne"], nominal * factor
        if took > limit:
            sys.exit(f"FAIL overhead budget broken: {case} took {took:.1f} us > {limit:.1f} us")
    for case, (took, share) in slot_shares(2000).items():
        print(f"{case:<16}{took:>12.2f}   {share:.2f} of Python's, limit {SLOTS_LIMIT}")
        if share > SLOTS_LIMIT:
            sys.exit(f"FAIL {case} of a module is not machine code: {share:.2f} > {SLOTS_LIMIT}")
    imports = import_seconds()
    (seconds, whole), (numpy, _) = imports["lucerne"], imports["numpy"]
    limit = IMPORT_BUDGET_S * max(factor, numpy / NUMPY_IMPORT_S)
    print(
        f"import lucerne: {seconds:.3f} s, of which numpy {numpy:.3f} s, limit {limit:.2f} s; "
        f"it adds {whole:.3f} s to a process that then ends"
    )
    if seconds > limit:
        sys.exit(f"FAIL import budget broken: {seconds:.2f} s > {limit:.2f} s")


def profile() -> None:
    run = cases(importlib.import_module("lucerne"))["a + b"]
    run()
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(20000):
        run()
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if options.profile:
        profile()
        return
    found = report(2000 if options.smoke else 20000)
    check_budget(found)


if __name__ == "__main__":
    main()
