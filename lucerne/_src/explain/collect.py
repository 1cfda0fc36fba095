"""From a call to a report: run it once, see which programs ran, go their way again, measure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lucerne._src import backends, capture
from lucerne._src.base.config import config
from lucerne._src.base.process.source_location import Origin
from lucerne._src.capture.guards import describe
from lucerne._src.capture.ledger import ENTRIES, ledger
from lucerne._src.capture.report import replay
from lucerne._src.capture.trace.pytree import flatten
from lucerne._src.explain import measure
from lucerne._src.explain.memory import memory_of
from lucerne._src.explain.report import (
    COMPUTE,
    MEMORY,
    OVERHEAD,
    KernelReport,
    Outside,
    PartReport,
    PassReport,
    Recompile,
    Report,
    StopReport,
)
from lucerne._src.explain.sources import sources_of
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.program import Program, Step
from lucerne._src.pipeline.passes import TAKING
from lucerne.profiler import work
from lucerne.profiler.limits import Limits, limits

_MOST_DIFF_LINES = 400
_MOSTLY = 0.4
"""Where fewer lines are the same, values were numbered anew."""
_VALUE = re.compile(r"%\d+")
_FIXED_SECONDS = 1e-6
"""What a step costs that has nothing to do, about."""


def compiled_of(fn: Any, options: dict[str, Any]) -> Any:
    """The compiled function that is meant: itself, a compiled module's, or a new one."""
    if hasattr(fn, "versions") and hasattr(fn, "options"):
        return fn
    inner = getattr(fn, "__dict__", {}).get("forward")
    if "_orig_mod" in getattr(fn, "_modules", ()) and hasattr(inner, "versions"):
        return inner
    return capture.compile(fn, **options)


@contextmanager
def _captured_here(anew: bool) -> Iterator[None]:
    """What comes from the program cache has no stages to show: who explains wants to see them."""
    before = config.program_cache
    config.program_cache = before and not anew
    try:
        yield
    finally:
        config.program_cache = before


def explained(
    compiled: Any, args: Sequence[Any], kwargs: dict[str, Any], *, anew: bool = False
) -> tuple[Any, Report]:
    """The result of a call, and everything about it. `anew`: it was compiled for this."""
    watch, before = measure.Stopwatch(), backends.bill().snapshot()
    with _captured_here(anew), measure.hearing(watch), measure.watching(watch):
        result = compiled(*args, **kwargs)
    fn = compiled.fn
    file, line = describe.place_of(fn)
    report = Report(describe.name_of(fn), file, line, given_up=compiled.given_up or "")
    report.bill = backends.bill().since(before).rows()
    stops = {b: _stop(b) for b in compiled.breaks}
    report.outside = [
        Outside(code.co_filename, at, code.co_qualname, names)
        for (code, at), names in watch.outside.items()
    ]
    report.compiles = [
        Recompile(r.kind, r.why, r.seconds)
        for r in ledger()
        if (r.function, r.file, r.line) == (report.function, file, line)
    ]
    best = limits()
    report.limits, report.threads = _limits(best), best.threads
    leaves: list[Any] = []
    shape = flatten((tuple(args), dict(kwargs)), leaves)
    last = [] if compiled.latest is None else [compiled.latest]
    for entry in entries_of(watch.seen) or last:  # a profile that is running hears of programs
        given = leaves if entry.guards.shape == shape else []
        parts = _parts(report, entry, given, best)
        if entry.broke in stops:
            stop = stops[entry.broke]
            stop.nbytes = max(stop.nbytes, _handed_on(parts))
        report.parts += parts
    report.breaks = sorted(stops.values(), key=lambda stop: -stop.nbytes)
    places = [(o.file, o.line) for k in report.kernels() for o in k.origins]
    places += [(b.file, b.line) for b in report.breaks]
    places += [(x.file, x.line) for x in report.outside]
    report.sources = sources_of(places, (file, line))
    return result, report


def _handed_on(parts: Sequence[PartReport]) -> int:
    """Bytes of the results of a version that ends at a break: of its call or forward half."""
    plan = parts[0].memory if parts else None
    return 0 if plan is None else plan.results


def entries_of(programs: Sequence[Any]) -> list[Any]:
    """The compiled versions that programs belong to, in the order of the programs."""
    found = []
    for program in programs:
        for entry in list(ENTRIES):
            if entry.stages is not None and entry.stages.program is program:
                found.append(entry)
    return found


def _stop(b: Any) -> StopReport:
    code, line = b.place if b.place is not None else (None, 0)
    file = "" if code is None else code.co_filename
    name = "" if code is None else code.co_qualname
    return StopReport(b.number, b.kind, file, line, name, b.reason, b.fix)


def _limits(found: Limits) -> dict[str, Any]:
    return {
        "processor": found.processor,
        "threads": found.threads,
        "gflops": {name: found.gflops(name) for name in found.peaks},
        "memory_gbs": found.gbs(),
        "cache_gbs": found.gbs(1),
        "launch_us": found.launch_us,
        "parallel_us": found.parallel_us,
    }


def _parts(report: Report, entry: Any, leaves: Sequence[Any], best: Limits) -> list[PartReport]:
    fn, options = ENTRIES[entry]
    guards = describe.guards_in_words(fn, entry.guards)
    times, whole = measure.measure(entry, leaves)
    report.call_seconds += whole
    report.busy = report.busy or measure.busy()
    # (a program in stages is no graph that can be lowered again: its sizes are told by a run)
    unseen = not entry.captured.graph.nodes or entry.captured.unbacked is not None
    found = _from_disk(entry) if unseen else replay.replay(entry, options)
    made = []
    for way in found:
        part = PartReport(way.name, describe.name_of(fn), guards=guards)
        part.passes = _passes(way.stages)
        part.separate = list(way.apart)
        stages = entry.stages if way.name != replay.BACKWARD else entry.joint.stages
        part.stages = dict(stages.seconds)
        if TAKING.name in stages.seconds:  # whole, by its engine: it was never fused here
            way.program, part.separate = stages.program, []
        program = way.program or stages.program
        if program is not None:
            part.kernels = _kernels(program, times.get(way.name, ()), best)
            part.memory = memory_of(program)
        made.append(part)
    return made


def _from_disk(entry: Any) -> list[replay.ReplayedPart]:
    """A version whose way is not gone again; from the program cache, it happened elsewhere."""
    if entry.joint is None:
        return [replay.ReplayedPart(replay.CALL, program=entry.stages.program)]
    halves = (replay.FORWARD, entry.stages), (replay.BACKWARD, entry.joint.stages)
    return [replay.ReplayedPart(name, program=stages.program) for name, stages in halves]


# ---- passes -------------------------------------------------------------------------------------


def _passes(stages: Sequence[replay.Stage]) -> list[PassReport]:
    found: list[PassReport] = []
    before: list[str] = []
    for stage in stages:
        count = len(stage.graph.nodes)
        after = str(stage.graph).splitlines()
        last = found[-1].after if found else count
        diff = _difference(before, after)
        found.append(PassReport(stage.name, stage.why, last, count, stage.seconds, diff))
        before = after
    return found


def _difference(before: list[str], after: list[str]) -> str:
    """What changed; of the first stage, all of it."""
    lines = changes(before, after) if before else after
    if len(lines) > _MOST_DIFF_LINES:
        more = len(lines) - _MOST_DIFF_LINES
        lines = [*lines[:_MOST_DIFF_LINES], f"... {more} more lines (LUCERNE_DUMP has them all)"]
    return "\n".join(lines)


def changes(before: list[str], after: list[str]) -> list[str]:
    """Lines that went (-) and came (+), with one line around them.

    A pass that numbers all values anew changes every line; then numbers are not compared.
    """
    same = difflib.SequenceMatcher(None, before, after).ratio()
    if same == 1:
        return []
    if same > _MOSTLY:
        return list(difflib.unified_diff(before, after, lineterm="", n=1))[2:]
    old, new = ([_VALUE.sub("%", line) for line in lines] for lines in (before, after))
    found = ["@@ values have new numbers @@"]
    for group in difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(1):
        found.append("@@")
        for what, i, j, k, m in group:
            if what == "equal":
                found += [f" {line}" for line in after[k:m]]
            else:
                found += [f"-{line}" for line in before[i:j]]
                found += [f"+{line}" for line in after[k:m]]
    return found if len(found) > 1 else []


# ---- kernels ------------------------------------------------------------------------------------


def _kernels(program: Program, times: Sequence[float], best: Limits) -> list[KernelReport]:
    found = []
    for k, step in enumerate(program.steps):
        seconds = times[k] if k < len(times) else 0.0
        found.append(_kernel(k, step, seconds, best))
    return found


def _kernel(number: int, step: Step, seconds: float, best: Limits) -> KernelReport:
    meta = step.outputs[0].meta if step.outputs else None
    made = KernelReport(
        number,
        name_of(step.graph),
        list(step.origins),
        str(step.graph),
        "" if meta is None else "x".join(map(str, meta.shape)) or "1",
        "" if meta is None else meta.dtype.name,
        seconds,
        work.bytes_of_step(step),
        work.flops_of_graph(step.graph),
    )
    made.shares = _shares(step)
    judge(made, best)
    return made


def _shares(step: Step) -> list[float]:
    """How the time of a kernel is divided among its lines: by the operations of their nodes."""
    weights = dict.fromkeys(step.origins, 0.0)
    for node in step.graph.nodes:
        if node.place in weights:
            weights[node.place] += max(work.flops_of_node(node), 1)
    total = sum(weights.values())
    return [w / total for w in weights.values()] if total else []


def judge(kernel: KernelReport, best: Limits) -> None:
    """What limits a kernel: the roofline of this machine, or that it has next to nothing to do."""
    dtype = kernel.dtype if kernel.dtype in best.peaks else "float32"
    arithmetic = kernel.flops / (1e9 * best.gflops(dtype))
    moving = kernel.nbytes / (1e9 * best.gbs(kernel.nbytes))
    kernel.least = max(arithmetic, moving)
    fixed = max(_FIXED_SECONDS, 1e-6 * best.parallel_us)
    small = kernel.least < fixed and kernel.seconds < 10 * fixed
    kernel.verdict = OVERHEAD if small else COMPUTE if arithmetic >= moving else MEMORY


def name_of(graph: Graph) -> str:
    """The ops of a kernel, repetitions counted.

    >>> from lucerne._src.explain.collect import joined
    >>> joined(["linear", "mul", "mul", "erf"])
    'linear + mul x2 + erf'
    """
    return joined([n.op.name for n in graph.nodes if n.op.kind != "view"]) or "view"


def joined(names: Sequence[str]) -> str:
    """Names in order, each once with its count."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return " + ".join(n if c == 1 else f"{n} x{c}" for n, c in counts.items())


def line_kernels(report: Report) -> dict[tuple[str, int], list[tuple[int, KernelReport]]]:
    """For each of the user's lines: (part, kernel) of the kernels that come from it."""
    found: dict[tuple[str, int], list[tuple[int, KernelReport]]] = {}
    for p, part in enumerate(report.parts):
        for kernel in part.kernels:
            for at in dict.fromkeys((o.file, o.line) for o in kernel.origins):
                found.setdefault(at, []).append((p, kernel))
    return found


def op_seconds(report: Report) -> dict[str, float]:
    """Seconds by what kernels compute."""
    found: dict[str, float] = {}
    for kernel in report.kernels():
        found[kernel.name] = found.get(kernel.name, 0.0) + kernel.seconds
    return found


def module_seconds(report: Report) -> dict[str, float]:
    """Seconds by module, backward passes included; a kernel's time is divided among its lines."""
    found: dict[str, float] = {}
    for origin, seconds in line_seconds(report).items():
        name = origin.module or "(no module)"
        found[name] = found.get(name, 0.0) + seconds
    return found


def line_seconds(report: Report) -> dict[Origin, float]:
    """Seconds by line; a kernel's time is divided among the lines it comes from."""
    found: dict[Origin, float] = {}
    for kernel in report.kernels():
        for origin, seconds in kernel.by_line():
            found[origin] = found.get(origin, 0.0) + seconds
    return found
