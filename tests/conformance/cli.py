"""`python -m tests.conformance COMMAND [options]`."""

import argparse
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from tests.conformance import (
    catalog,
    gaps,
    gradcheck,
    html,
    metrics,
    names,
    report,
    runner,
    training,
)
from tests.conformance.bridge import lucerne_bridge
from tests.conformance.catalog import TIERS, Entry
from tests.conformance.context import Limits
from tests.conformance.metrics import METRICS, Task
from tests.conformance.result import Tally
from tests.conformance.selfcheck import selfcheck

FAST_TIERS = ("T0", "T1")
REST_TIERS = ("T2",)
FAST_METRICS = ("M1", "M2", "M3", "M5i", "M5o", "M6", "M6t", "M7", "M8", "own")
REST_METRICS = ("M1", "M2", "M5i", "M6", "M6t", "M7", "M8")
"""What the gate looks at of T2, which is as large as the others together."""
REST_LIMITS = Limits(samples=2, double_backward=1)
FAST_LIMITS = Limits(samples=4, reference=2, double_backward=1, classes=4)
FAST_CLASSES = ("modules", "own modules", "optimizers", "schedulers", "foreach")

Arguments = argparse.Namespace


def main(arguments: list[str] | None = None) -> int:
    """Run a command; the exit code is 0 only if all it checked holds."""
    chosen = _parser().parse_args(arguments)
    command: Callable[[Arguments], int] = chosen.command
    return command(chosen)


# Commands


def run_fast(chosen: Arguments) -> int:
    """The gate of every change: T0 and T1, and fewer samples of fewer metrics of T2."""
    entries = catalog.entries_of(chosen.tiers or FAST_TIERS)
    tasks = metrics.plan(entries, FAST_METRICS) + metrics.plan_own()
    tasks += metrics.plan_classes(FAST_CLASSES)
    tallies = _run(tasks, chosen, _limits(chosen, FAST_LIMITS))
    if not chosen.tiers:
        rest = metrics.plan(catalog.entries_of(REST_TIERS), REST_METRICS)
        tallies += _run(rest, chosen, _limits(chosen, REST_LIMITS))
    _show(tallies, chosen)
    return _gate(tallies, capped=True)


def run_full(chosen: Arguments) -> int:
    """Every metric on every sample, and the names."""
    entries = catalog.entries_of(chosen.tiers or TIERS)
    tasks = metrics.plan(entries, METRICS, _dtypes(chosen)) + metrics.plan_own()
    tasks += metrics.plan_classes(training.RUNS)
    tallies = _run(tasks, chosen, _limits(chosen, Limits()))
    _show(tallies, chosen)
    spaces = names.survey()
    print(names.summary(spaces))
    print(names.training_summary(spaces))
    return _gate(tallies, capped=chosen.max_samples is not None)


def run_op(chosen: Arguments) -> int:
    """One op, every metric, every failure, in this process."""
    entries = _selected(chosen.name, chosen)
    tasks = metrics.plan(entries, chosen.metrics or METRICS, _dtypes(chosen))
    options = runner.Options(limits=_limits(chosen, Limits()))
    tallies = runner.run_here(tasks, options)
    print(report.failures_text(tallies, verbose=chosen.verbose, each=100))
    for tally in tallies:
        print(_line(tally))
    if chosen.gradcheck:
        _print_gradcheck(entries)
    _write(tallies, chosen)
    return int(not all(tally.ok for tally in tallies))


def run_family(chosen: Arguments) -> int:
    """Several ops by a list or a regular expression."""
    entries = _selected(chosen.pattern, chosen)
    tallies = _run_metrics(entries, chosen.metrics or list(METRICS), chosen)
    return int(not all(tally.ok for tally in tallies))


def run_metric(chosen: Arguments) -> int:
    """One metric on every entry of the tiers; what is not a known gap is a problem."""
    entries = catalog.entries_of(chosen.tiers or TIERS)
    tallies = _run_metrics(entries, metrics.expand([chosen.metric]), chosen)
    return _gate(tallies, capped=chosen.max_samples is not None)


def run_own(chosen: Arguments) -> int:
    """Our own cases, in this process when they are few."""
    tasks = metrics.plan_own(chosen.pattern)
    options = runner.Options(limits=Limits())
    few = len(tasks) <= 5
    tallies = runner.run_here(tasks, options) if few else _run(tasks, chosen, Limits())
    print(report.failures_text(tallies, verbose=chosen.verbose or few, each=3))
    print(report.summary(tallies))
    return int(not all(tally.ok for tally in tallies))


def run_modules(chosen: Arguments) -> int:
    """M9: the classes of torch's module_db; with --compiled against themselves compiled."""
    if chosen.compiled:
        return _run_classes(["compiled modules"], chosen)
    return _run_classes(["modules", *(["module variants"] if chosen.variants else [])], chosen)


def run_own_modules(chosen: Arguments) -> int:
    """M9o: the classes of torch.nn that module_db lacks."""
    return _run_classes(["own modules"], chosen)


def run_optimizers(chosen: Arguments) -> int:
    """M10: every configuration of torch's optim_db."""
    return _run_classes(["optimizers"], chosen)


def run_schedulers(chosen: Arguments) -> int:
    """M10s: the schedulers of torch.optim.lr_scheduler."""
    return _run_classes(["schedulers"], chosen)


def run_foreach(chosen: Arguments) -> int:
    """torch's database of ops over lists of tensors."""
    return _run_classes(["foreach"], chosen)


def run_names(chosen: Arguments) -> int:
    """M12."""
    spaces = names.survey(chosen.module)
    print(names.summary(spaces, missing=chosen.missing))
    print(names.training_summary(spaces))
    return 0


def run_selfcheck(chosen: Arguments) -> int:
    """The harness against itself."""
    entries = list(catalog.entries_of(chosen.tiers or TIERS))
    limits = Limits() if chosen.all_samples else Limits(samples=6, reference=4)
    problems = selfcheck(entries, limits, chosen.jobs)
    print("\n".join(problems) or "the harness passes what is right and catches what is wrong")
    return int(bool(problems))


# Parts of commands


def _run_metrics(entries: Iterable[Entry], wanted: list[str], chosen: Arguments) -> list[Tally]:
    tasks = metrics.plan(entries, wanted, _dtypes(chosen))
    found = _run(tasks, chosen, _limits(chosen, Limits()))
    tallies = [tally for tally in found if tally.metric in wanted]
    _show(tallies, chosen)
    return tallies


def _run_classes(runs: list[str], chosen: Arguments) -> int:
    """Tables of classes, all of them or by name; few run in this process."""
    tasks = metrics.plan_classes(runs, chosen.classes)
    unknown = set(chosen.classes) - {task.entry for task in tasks}
    if unknown:
        raise SystemExit(f"no such class in this table: {', '.join(sorted(unknown))}")
    limits = _limits(chosen, Limits())
    few = len(tasks) <= 5
    options = runner.Options(limits=limits)
    tallies = runner.run_here(tasks, options) if few else _run(tasks, chosen, limits)
    print(report.failures_text(tallies, verbose=chosen.verbose, each=5 if few else 1))
    if few:
        print("\n".join(_line(tally) for tally in tallies))
    print(report.checks_table(tallies))
    print(report.summary(tallies))
    _write(tallies, chosen)
    return int(not all(tally.ok for tally in tallies))


def _run(tasks: list[Task], chosen: Arguments, limits: Limits) -> list[Tally]:
    options = runner.Options(chosen.jobs, chosen.timeout, limits)
    began = time.monotonic()
    done: list[Tally] = []
    usual = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        tallies = runner.run(tasks, options, _progress, done)
    except KeyboardInterrupt:  # hours of work are not lost: what was found is shown
        _show(done, chosen)
        took = time.monotonic() - began
        print(f"STOPPED after {took:.0f} s: {len(done)} results of {len(tasks)} tasks")
        raise SystemExit(1) from None
    finally:
        signal.signal(signal.SIGTERM, usual)
    print(f"{len(tasks)} tasks in {time.monotonic() - began:.0f} s, {chosen.jobs} workers")
    return tallies


def _show(tallies: list[Tally], chosen: Arguments) -> None:
    known = {gap.key: gap.reason for gap in gaps.load()}
    text = report.failures_text(tallies, verbose=chosen.verbose, known=known)
    if text:
        print(text)
    if not chosen.failures_only:
        print(report.summary(tallies))
    _write(tallies, chosen)


def _write(tallies: list[Tally], chosen: Arguments) -> None:
    if chosen.json:
        report.write_json(chosen.json, tallies, _about())
    if chosen.html:
        html.write(chosen.html, tallies, _about())


def _gate(tallies: list[Tally], *, capped: bool) -> int:
    problems = gaps.judge(tallies, gaps.load(), capped=capped)
    lines = [f"FAIL {problem}" for problem in problems]
    print("\n".join([*lines, f"gate: {len(problems)} problems"]))
    return int(bool(problems))


def _selected(pattern: str, chosen: Arguments) -> list[Entry]:
    entries = catalog.select(pattern, chosen.tiers or TIERS)
    if not entries:
        raise SystemExit(f"no entry of op_db is called {pattern!r}")
    return entries


def _print_gradcheck(entries: list[Entry]) -> None:
    bridge = lucerne_bridge()
    for entry in entries:
        if entry.differentiable(torch.float64):
            failed = gradcheck.gradcheck_entry(entry, bridge)
            print(f"gradcheck {entry.name}: {'passes' if not failed else f'fails {failed}'}")


def _line(tally: Tally) -> str:
    verdict = "pass" if tally.ok else "FAIL"
    counts = f"{tally.passed}/{tally.samples}"
    wide = f", {tally.by_float64} by float64" if tally.by_float64 else ""
    head = f"{verdict} {tally.metric:<4}{tally.dtype:<10}{tally.entry}"
    return f"{head:<60}{counts}{wide} ({tally.seconds:.2f} s)"


def _limits(chosen: Arguments, default: Limits) -> Limits:
    if chosen.max_samples is None:
        return default
    limit = chosen.max_samples
    return Limits(limit, limit, default.double_backward, classes=limit)


def _dtypes(chosen: Arguments) -> Iterable[torch.dtype] | None:
    if chosen.all_dtypes:
        return None
    if chosen.dtype:
        return [getattr(torch, name) for name in chosen.dtype.split(",")]
    return metrics.MATRIX


def _about() -> dict[str, Any]:
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "when": time.strftime("%Y-%m-%d %H:%M:%S"),
        "arguments": sys.argv[1:],
    }


def _progress(done: int, total: int) -> None:
    """On a terminal at every task; in a file a line at each twentieth of them."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{done}/{total}" + ("\n" if done == total else ""))
    elif done * 20 // total > (done - 1) * 20 // total:
        sys.stderr.write(f"{done}/{total}\n")
    sys.stderr.flush()


# Arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    commands = parser.add_subparsers(required=True)

    def add(name: str, run: Callable[[Arguments], int]) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=run.__doc__, description=run.__doc__)
        command.set_defaults(command=run)
        _add_common(command)
        return command

    add("fast", run_fast)
    add("full", run_full)
    op = add("op", run_op)
    op.add_argument("name", help="name in op_db, for example `add` or `norm.fro`")
    op.add_argument("--gradcheck", action="store_true", help="also against finite differences")
    family = add("family", run_family)
    family.add_argument("pattern", help="names with commas, or a regular expression")
    for command in (op, family):
        command.add_argument("--metrics", type=_metric_list, help="for example M1,M2")
    add("metric", run_metric).add_argument("metric", help=", ".join(METRICS))
    own = add("own", run_own)
    own.add_argument("pattern", nargs="?", default="", help="regular expression")
    tables = {
        "modules": add("modules", run_modules),
        "own-modules": add("own-modules", run_own_modules),
        "optimizers": add("optimizers", run_optimizers),
        "schedulers": add("schedulers", run_schedulers),
        "foreach": add("foreach", run_foreach),
    }
    for table in tables.values():
        table.add_argument("classes", nargs="*", help="class names; all of them without any")
    tables["modules"].add_argument(
        "--variants", action="store_true", help="also non-contiguous inputs, and float64"
    )
    tables["modules"].add_argument(
        "--compiled", action="store_true", help="M9c, M9b: each against itself compiled"
    )
    tables["modules"].add_argument(
        "--fullgraph", dest="compiled", action="store_true", help="the same: each as one graph"
    )
    named = add("names", run_names)
    named.add_argument("--missing", action="store_true", help="list what is missing")
    named.add_argument("--module", default="lucerne")
    check = add("selfcheck", run_selfcheck)
    check.add_argument("--all-samples", action="store_true", help="torch against torch on all")
    return parser


def _add_common(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--tiers", type=lambda text: text.split(","), help="for example T0,T1")
    add("--jobs", type=int, default=2, help="worker processes")
    add("--timeout", type=float, default=120.0, help="seconds for one metric of one entry")
    add("--max-samples", type=int, help="samples per entry, spread over all of them")
    add("--dtype", help="dtypes of M4, for example bfloat16,int64")
    add("--all-dtypes", action="store_true", help="M4 at every dtype that torch supports")
    add("--json", type=Path, help="write all results")
    add("--html", type=Path, help="write one page to look at")
    add("--failures-only", action="store_true", help="no table of rates")
    add("--verbose", action="store_true", help="every failure, with the end of its traceback")


def _metric_list(text: str) -> list[str]:
    return metrics.expand(text.split(","))
