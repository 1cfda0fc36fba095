"""The run behind `suite.py`: measure the machine, then the sections, then report."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from typing import Any

from benchmarks import machine, process, report
from benchmarks.cases import OURS, THEIRS, Result, Section, geometric_mean, measure
from benchmarks.sections import SECTIONS
from benchmarks.timing import Effort, full_effort, smoke_effort

THREADS = 2
SMOKE_SLACK = 3.0
"""In a smoke run a limit may be missed by so much before the run fails, more on a busy machine."""
SMOKE_SECONDS = 40.0
"""After so long a smoke run starts no further case."""


def main() -> None:
    options = _options()
    began = time.perf_counter()
    modules = _modules()
    effort = smoke_effort() if options.smoke else full_effort()
    effort.one_thread = options.one_thread
    for module in modules.values():
        module.set_num_threads(1 if options.one_thread else THREADS)
    limits = machine.limits(effort)
    print(report.machine_line(limits), flush=True)
    results: list[Result] = []
    end = began + SMOKE_SECONDS if options.smoke else float("inf")
    for section in _chosen(options.section):
        results += _run(section, modules, effort, end, options.case)
    facts = {
        "machine": limits,
        "versions": {name: getattr(m, "__version__", "") for name, m in modules.items()},
        "threads": 1 if options.one_thread else THREADS,
        "smoke": options.smoke,
        "seconds": time.perf_counter() - began,
        "noisy": effort.noisy / max(1, effort.taken),
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }
    report.summary(results, facts)
    for path, write in (
        (options.json, report.write_json),
        (options.plot, report.write_plot),
        (options.html, report.write_html),
    ):
        if path:
            write(path, results, facts)
    if options.smoke and (broken := [r for r in results if not _bearable(r)]):
        sys.exit("budget broken: " + ", ".join(f"{r.section}: {r.name}" for r in broken))


def _options() -> argparse.Namespace:
    names = ", ".join(s.name for s in (*SECTIONS, *process.SECTIONS))
    parser = argparse.ArgumentParser(
        prog="benchmarks/suite.py", description="Lucerne beside PyTorch, in one interleaved run."
    )
    parser.add_argument(
        "--section", action="append", default=[], help=f"sections by the start of a name: {names}"
    )
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    parser.add_argument("--smoke", action="store_true", help="quick, with loose limits")
    parser.add_argument(
        "--one-thread", action="store_true", help="processor time of one thread: for busy machines"
    )
    parser.add_argument("--json", help="write all figures here")
    parser.add_argument("--plot", help="write a picture (PNG) here; needs matplotlib")
    parser.add_argument("--html", help="write one self-contained page here")
    return parser.parse_args()


def _modules() -> dict[str, Any]:
    found = {OURS: importlib.import_module("lucerne")}
    try:
        found[THEIRS] = importlib.import_module("torch")
    except ImportError:
        print("torch is not installed: Lucerne's times alone")
    return found


def _chosen(names: list[str]) -> list[Section]:
    every = [*SECTIONS, *process.SECTIONS]
    if not names:
        return every
    found = [s for s in every if any(s.name.startswith(n) for n in names)]
    if not found:
        sys.exit(f"no section starts with {names}: there are {', '.join(s.name for s in every)}")
    return found


def _run(
    section: Section, modules: dict[str, Any], effort: Effort, end: float, wanted: str
) -> list[Result]:
    """One section; with an `end` only its quick cases, and none that would start after it."""
    smoke = end < float("inf")
    if time.perf_counter() > end:
        print(f"\n{section.title}: left out, no time", flush=True)
        return []
    print(report.section_head(section), flush=True)
    results = []
    if section.direct is not None:
        for result in section.direct(smoke):
            print(report.line(result), flush=True)
            results.append(result)
    for case in section.cases():
        if wanted not in case.name or (smoke and case.long) or time.perf_counter() > end:
            continue
        result = measure(section.name, case, modules, effort)
        print(report.line(result), flush=True)
        results.append(result)
    ratios = [r.ratio for r in results if r.ratio is not None]
    if section.mean_limit is not None and ratios:
        mean = geometric_mean(ratios)
        total = Result(section.name, "geometric mean", mean, 1.0, section.mean_limit, unit="x")
        total.busy = sum(r.busy for r in results) / len(results)
        print(report.line(total), flush=True)
        results.append(total)
    return results


def _bearable(r: Result) -> bool:
    if r.note.startswith("WRONG"):
        return False
    ratio = 0.0 if r.ratio is None or r.limit is None else r.ratio / r.limit
    absolute = 0.0 if r.ours is None or r.limit_ours is None else r.ours / r.limit_ours
    crowd = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    return max(ratio, absolute) <= SMOKE_SLACK * crowd


if __name__ == "__main__":
    main()
