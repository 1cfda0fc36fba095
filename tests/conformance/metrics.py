"""The metrics by name: which entries each counts, and how it is run."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from tests.conformance import (
    catalog,
    errors,
    forward,
    gradients,
    own_cases,
    sweep,
    sweep_writes,
    training,
    variants,
)
from tests.conformance.bridge import Bridge
from tests.conformance.catalog import Entry
from tests.conformance.context import Context, Limits
from tests.conformance.result import Tally

MATRIX = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)

Check = Callable[[Context], list[Tally]]
CheckDtype = Callable[[Context, torch.dtype], list[Tally]]
Counts = Callable[[Entry], bool]


@dataclass(frozen=True)
class Metric:
    """A column of the report; several may come from one run."""

    name: str
    title: str
    run: str  # name in RUNS


@dataclass(frozen=True)
class Run:
    """One pass over an entry's samples."""

    counts: Counts
    check: Check | None = None
    check_dtype: CheckDtype | None = None  # once for each dtype; neither: see below


def _every(entry: Entry) -> bool:
    return True


def _has_gradients(entry: Entry) -> bool:
    return entry.differentiable(torch.float32)


def _has_complex_gradients(entry: Entry) -> bool:
    return entry.differentiable(torch.complex64)


def _has_double_backward(entry: Entry) -> bool:
    return entry.twice_differentiable


def _has_inplace(entry: Entry) -> bool:
    return entry.op.inplace_variant is not None


def _has_out(entry: Entry) -> bool:
    return bool(entry.op.supports_out)


def _none(entry: Entry) -> bool:
    return False


def _has_errors(entry: Entry) -> bool:
    return entry.has_errors


RUNS = {
    "forward": Run(_every, forward.check_forward),
    "gradients": Run(_has_gradients, gradients.check_gradients),
    "complex gradients": Run(_has_complex_gradients, gradients.check_complex_gradients),
    "reference": Run(_every, forward.check_reference),
    "dtypes": Run(_every, check_dtype=forward.check_dtype),
    "in-place": Run(_has_inplace, variants.check_inplace),
    "out": Run(_has_out, variants.check_out),
    "errors": Run(_has_errors, errors.check_errors),
    "double backward": Run(_has_double_backward, gradients.check_double_backward),
    "layouts": Run(_every, check_dtype=sweep.check_layouts),
    "values": Run(_every, check_dtype=sweep.check_values),
    "odd targets": Run(_has_inplace, check_dtype=sweep_writes.check_targets),
    "odd outputs": Run(_has_out, check_dtype=sweep_writes.check_outs),
    "own": Run(_none),  # a table of our own instead of op_db entries
    **{name: Run(_none) for name in training.RUNS},  # classes instead of op_db entries
}
METRICS = {
    metric.name: metric
    for metric in (
        Metric("M1", "forward", "forward"),
        Metric("M2", "gradients", "gradients"),
        Metric("M2c", "complex gradients", "complex gradients"),
        Metric("M3", "reference and non-contiguous samples", "reference"),
        Metric("M4", "dtypes", "dtypes"),
        Metric("M5i", "in-place", "in-place"),
        Metric("M5o", "out=", "out"),
        Metric("M6", "errors: raised and type", "errors"),
        Metric("M6t", "errors: text", "errors"),
        Metric("M7", "strides", "forward"),
        Metric("M8", "double backward", "double backward"),
        Metric("M8c", "complex double backward", "complex gradients"),
        Metric("M11", "odd layouts and sizes", "layouts"),
        Metric("M11v", "odd values", "values"),
        Metric("M11i", "odd targets in place", "odd targets"),
        Metric("M11o", "odd and overlapping out=", "odd outputs"),
        Metric("own", "own cases", "own"),
        Metric("M9", "modules", "modules"),
        Metric("M9e", "modules, errors: raised and type", "modules"),
        Metric("M9t", "modules, errors: text", "modules"),
        Metric("M9n", "modules, non-contiguous inputs", "module variants"),
        Metric("M9d", "modules in float64", "module variants"),
        Metric("M9o", "modules that module_db lacks", "own modules"),
        Metric("M10", "optimizers", "optimizers"),
        Metric("M10e", "optimizers, errors: raised and type", "optimizers"),
        Metric("M10t", "optimizers, errors: text", "optimizers"),
        Metric("M10s", "schedulers", "schedulers"),
        Metric("foreach", "ops over lists", "foreach"),
    )
}


@dataclass(frozen=True)
class Task:
    """The unit of work of a worker: one run on one entry (or own case), at one dtype for M4."""

    entry: str
    run: str
    dtype: str = ""


def expand(names: Iterable[str]) -> list[str]:
    """Metric names as a user writes them: `M5`, `M6`, `M9` and `M10` stand for their columns."""
    wanted = []
    for name in names:
        pattern = f"{re.escape(name)}[a-z]?"
        matches = [metric for metric in METRICS if re.fullmatch(pattern, metric)]
        if not matches:
            raise ValueError(f"no metric {name!r}; there are {', '.join(METRICS)}")
        wanted += matches
    return wanted


def plan(
    entries: Iterable[Entry], metrics: Iterable[str], dtypes: Iterable[torch.dtype] | None = MATRIX
) -> list[Task]:
    """The work that these metrics take on these entries. `dtypes` of None means all."""
    runs = list(dict.fromkeys(METRICS[name].run for name in metrics))
    wanted = None if dtypes is None else set(dtypes)
    tasks = []
    for entry in entries:
        for run in runs:
            if not RUNS[run].counts(entry):
                continue
            if RUNS[run].check_dtype is None:
                tasks.append(Task(entry.name, run))
                continue
            supported = entry.dtypes if wanted is None else entry.dtypes & wanted
            supported = supported or {entry.dtype}  # a few have complex dtypes alone
            tasks += [Task(entry.name, run, _dtype_name(dtype)) for dtype in _ordered(supported)]
    return tasks


def plan_own(pattern: str = "") -> list[Task]:
    """One task for each of our own cases whose name matches."""
    return [Task(name, "own") for name in own_cases.load() if re.search(pattern, name)]


def plan_classes(runs: Iterable[str], names: Iterable[str] = ()) -> list[Task]:
    """One task for each class of the tables of modules, optimizers or schedulers."""
    wanted = set(names)
    tasks = []
    for run in runs:
        entries = list(training.RUNS[run].entries())
        tasks += [Task(name, run) for name in entries if not wanted or name in wanted]
    return tasks


def needs_op_database(tasks: Iterable[Task]) -> bool:
    """Whether torch's op_db must be loaded for them; it takes five seconds."""
    return any(task.run != "own" and task.run not in training.RUNS for task in tasks)


def load_classes(tasks: Iterable[Task]) -> None:
    """Read the tables that these tasks need, before workers are forked."""
    for run in {task.run for task in tasks} & set(training.RUNS):
        training.RUNS[run].entries()


def perform(task: Task, bridge: Bridge, limits: Limits) -> list[Tally]:
    """Do one task here and now."""
    if task.run in training.RUNS:
        return training.RUNS[task.run].check(task.entry, bridge, limits)
    if task.run == "own":
        return [own_cases.check(task.entry, bridge)]
    context = Context(catalog.load()[task.entry], bridge, limits)
    run = RUNS[task.run]
    if run.check_dtype is not None:
        return run.check_dtype(context, getattr(torch, task.dtype))
    assert run.check is not None, task
    return run.check(context)


def lost(task: Task, check: str, message: str, trace: str = "") -> list[Tally]:
    """The tallies of a task that never came back: each of its metrics has failed."""
    entry = catalog.load().get(task.entry) if needs_op_database([task]) else None
    classes = training.RUNS.get(task.run)
    tier = entry.tier if entry else classes.tier if classes else own_cases.TIER
    dtype = task.dtype or (_dtype_name(entry.dtype) if entry else "")
    tallies = []
    for metric in METRICS.values():
        if metric.run == task.run:
            tally = Tally(metric.name, task.entry, tier, dtype)
            tally.lost(check, message, trace)
            tallies.append(tally)
    return tallies


def _ordered(dtypes: Iterable[torch.dtype]) -> list[torch.dtype]:
    return sorted(dtypes, key=str)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
