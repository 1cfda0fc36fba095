"""Does the harness itself work? torch against torch must pass, planted faults must be caught."""

from collections.abc import Iterable

from tests.conformance import catalog, metrics, runner, training
from tests.conformance.bridge import torch_bridge
from tests.conformance.catalog import Entry
from tests.conformance.context import Limits
from tests.conformance.faults import FAULTS, SAMPLES, TIER, faulty_bridge
from tests.conformance.metrics import METRICS
from tests.conformance.result import Tally

LIMITS = Limits(samples=SAMPLES)


def clean_run(entries: Iterable[Entry], limits: Limits, jobs: int) -> list[Tally]:
    """torch as the other side, every metric and every own case."""
    tasks = metrics.plan(entries, METRICS) + metrics.plan_own()
    tasks += metrics.plan_classes(training.RUNS)
    options = runner.Options(jobs=jobs, limits=limits, make_bridge=torch_bridge)
    return runner.run(tasks, options)


def caught(name: str, jobs: int) -> tuple[int, int]:
    """Entries on which a fault is noticed by the right check, of those that count."""
    fault = FAULTS[name]
    tasks = metrics.plan(catalog.entries_of([TIER]), [fault.metric])
    options = runner.Options(jobs=jobs, limits=LIMITS, make_bridge=faulty_bridge(name))
    tallies = [tally for tally in runner.run(tasks, options) if tally.metric == fault.metric]
    seen = [any(f.check == fault.check for f in tally.failures) for tally in tallies]
    return sum(seen), len(tallies)


def selfcheck(entries: list[Entry], limits: Limits, jobs: int) -> list[str]:
    """What is wrong with the harness; prints as it goes."""
    problems = []
    tallies = clean_run(entries, limits, jobs)
    failed = [tally for tally in tallies if not tally.ok]
    samples = sum(tally.samples for tally in tallies)
    clean = len(tallies) - len(failed)
    print(f"torch against torch: {clean}/{len(tallies)} pass, {samples} samples", flush=True)
    problems += [f"torch against torch: {t.entry} {t.metric} {t.failures[0]}" for t in failed]
    for name, fault in FAULTS.items():
        found, total = caught(name, jobs)
        counts = f"caught on {found}/{total}, at least {fault.caught}"
        print(f"fault {name:<26} {fault.metric:<4} {counts}", flush=True)
        if found < fault.caught:
            problems.append(f"fault {name!r} caught on {found} entries, not {fault.caught}")
    return problems
