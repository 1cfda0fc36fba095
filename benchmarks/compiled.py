"""Lucerne's compiler beside torch (eager, compiled) and JAX: whole programs, interleaved.

    python -m benchmarks.compiled                        every section
    python -m benchmarks.compiled --section gpt          one of them (may be repeated)
    python -m benchmarks.compiled --one-thread           processor time of one thread
    python -m benchmarks.compiled --smoke                under 40 seconds, small sizes, for CI
    python -m benchmarks.compiled --full                 20 processes where bits are compared
    python -m benchmarks.compiled --section determinism --processes 5 --program mlp
    python -m benchmarks.compiled --html F.html --json F.json

Every side has a process of its own (see `worker.py`); the parent asks them in turn. All sides
start from the same weights and data, and their first steps must agree or the row says WRONG.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import determinism as same_bits
from benchmarks import rows, sides
from benchmarks.rows import Row
from benchmarks.sides import OURS, OURS_EAGER, TORCH, TORCH_COMPILE
from benchmarks.timing import quiet
from benchmarks.worker import Answer, Worker

HOW = (
    "each side in its own process, asked in turn; torch with raised malloc thresholds "
    "(its better setting); best of many runs"
)
SMOKE_SECONDS = 36.0
PROGRAMS = {
    "gpt": ("GPT 6 x 384, 4 x 256, AdamW, f32", 0.80),
    "gpt_bf16": ("GPT 6 x 384, 4 x 256, AdamW, bf16", 0.60),
    "resnet": ("ResNet-18, 32 x 3 x 32 x 32, SGD", 0.90),
    "mlp": ("MLP 784-256-256-10, batch 64, Adam", 0.50),
    "decode": ("GPT decode, batch 1, 256 words", 1.3),
    "bert": ("BERT-base encoder, 8 x 128", 0.90),
}


class Plan:
    """How much a run may do."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.smoke, self.full, self.only = options.smoke, options.full, options.side
        self.one_thread = options.one_thread or options.smoke
        self.threads = 1 if self.one_thread else 2
        self.rounds = 3 if self.smoke else 12
        self.processes = options.processes or (20 if self.full else 1 if self.smoke else 2)
        self.programs = options.program
        self.repeats = 2 if self.smoke else 4
        self.seconds = 1.5 if self.smoke else options.seconds
        self.end = time.perf_counter() + (SMOKE_SECONDS if self.smoke else 1e9)

    def job(self, side: str, way: str, program: str, kind: str = "time", **more: Any) -> Answer:
        found = {"side": side, "way": way, "program": program, "kind": kind}
        return {**found, "threads": self.threads, "small": self.smoke, **more}

    def wanted(self, side: str) -> bool:
        return not self.only or any(side.startswith(s) for s in self.only)

    @property
    def over(self) -> bool:
        return time.perf_counter() > self.end


# ---- whole programs ----------------------------------------------------------------------------


def started(program: str, plan: Plan, row: Row) -> dict[tuple[str, str], Worker]:
    """A worker for every way that runs; the row tells which did not, and why."""
    found: dict[tuple[str, str], Worker] = {}
    for side, names in sides.ways(program, plan.smoke).items():
        for way in names if plan.wanted(side) else ():
            worker = Worker(plan.job(side, way, program))
            if worker.error is None:
                found[side, way] = worker
                continue
            worker.close()
            if "not in Lucerne yet" not in worker.error:
                row.note += f"{side} ({way}) failed: {worker.error[:160]} "
    values = {f"{s} ({w})": worker.first["values"] for (s, w), worker in found.items()}
    row.note = sides.disagreement(program, values) or row.note.strip()
    return found


def interleaved(
    workers: dict[tuple[str, str], Worker], plan: Plan, row: Row
) -> dict[tuple[str, str], float]:
    """The best seconds of each way; ways far behind their side's best are soon left out."""
    best: dict[tuple[str, str], float] = {}
    for key, worker in workers.items():
        best[key] = _asked(worker, 1, 1, plan)
    inner = {key: max(1, int(3e-3 / t)) for key, t in best.items()}
    end, noisy, taken = time.perf_counter() + plan.seconds, 0, 0
    for _ in range(plan.rounds):
        for key in [k for k in workers if _in_the_race(k, best)]:
            if not plan.one_thread:
                time.sleep(0.02)  # the workers of the side before fall asleep
                noisy += not quiet(0.5)
                taken += 1
            repeats = max(1, min(plan.repeats, int(0.8 / best[key])))
            best[key] = min(best[key], _asked(workers[key], repeats, inner[key], plan))
        if time.perf_counter() > end:
            break
    row.busy = noisy / max(1, taken)
    return best


def _asked(worker: Worker, repeats: int, inner: int, plan: Plan) -> float:
    question = {"repeats": repeats, "inner": inner, "processor": plan.one_thread}
    return min(worker.ask(question).get("seconds", [float("inf")]))


def _in_the_race(key: tuple[str, str], best: dict[tuple[str, str], float]) -> bool:
    rest = [t for (side, _), t in best.items() if side == key[0]]
    return best[key] <= 1.3 * min(rest)


def whole(program: str, plan: Plan) -> Iterator[Row]:
    """Seconds of a call (or words per second) of every side."""
    name, limit = PROGRAMS[program]
    row = Row(program, name + (" (small)" if plan.smoke else ""), limit=limit)
    if program == "gpt_bf16":
        row.rivals = (TORCH, TORCH_COMPILE)
    workers = started(program, plan, row)
    try:
        times = interleaved(workers, plan, row)
    finally:
        for worker in workers.values():
            worker.close()
    words = sides.SIZES[program][plan.smoke].length if program == "decode" else 0
    row.more, row.unit = bool(words), "words/s" if words else "s"
    for side in dict.fromkeys(s for s, _ in times):
        mine = {w: t for (s, w), t in times.items() if s == side}
        way = min(mine, key=lambda w: mine[w])
        row.sides[side] = words / mine[way] if words else mine[way]
        if len(sides.ways(program, plan.smoke)[side]) > 1:
            row.ways[side] = way
    yield row


# ---- figures of fresh processes ----------------------------------------------------------------


_FIRST = {
    "cold": ("first GPT step, empty cache", 3.0),
    "warm": ("first GPT step, kernels on disk", 1.0),
    "program": ("first GPT step, program on disk", 0.5),
}
"""What each state is called, and the seconds it may take."""


def first(plan: Plan) -> Iterator[Row]:
    """Seconds of the first compiled step: with an empty cache, in a process after that which finds
    kernels, and in one that finds the program too (torch has one cache: its second process)."""
    found: dict[tuple[str, str], list[Answer]] = {}
    notes: list[str] = []
    tries = {OURS: "step"} if plan.smoke else {OURS: "step", TORCH_COMPILE: "loss, fused"}
    for _ in range(1 if plan.smoke else 3):
        for side, way in tries.items():
            if not plan.wanted(side) or (side == TORCH_COMPILE and (side, "cold") in found):
                continue
            states = ("cold", "warm", "warm", "stores", "program", "program")
            with tempfile.TemporaryDirectory() as folder:
                for state in states if side == OURS else states[:3]:
                    answer = _first_of(plan, side, way, state, folder)
                    if "error" not in answer:
                        found.setdefault((side, state), []).append(answer)
                    elif "not in Lucerne yet" not in answer["error"]:
                        notes.append(f"{side}: {answer['error'][:120]}")
    if (TORCH_COMPILE, "warm") in found:
        found[TORCH_COMPILE, "program"] = found[TORCH_COMPILE, "warm"]
    for state, (title, limit) in _FIRST.items():
        row = Row("first", title, limit_ours=limit, note=" ".join(notes[:1]))
        for (side, when), answers in found.items():
            if when == state:
                row.sides[side] = min(a["first"] for a in answers)
                row.ways[side] = f"import {min(a['import'] for a in answers):.2f} s apart"
        yield row


def _first_of(plan: Plan, side: str, way: str, state: str, folder: str) -> Answer:
    """A fresh process that takes one step, with its caches in this folder."""
    names = ("LUCERNE_CACHE_DIR", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR")
    programs = "0" if state in ("cold", "warm") else "1"
    extra = {**dict.fromkeys(names, folder), "LUCERNE_PROGRAM_CACHE": programs}
    quiet(1.0)
    with Worker(plan.job(side, way, "gpt", "first"), extra) as worker:
        return worker.first


def launch(plan: Plan) -> Iterator[Row]:
    """Processor time of a call with many tensors and hardly any work."""
    row = Row("launch", "10 arguments, 200 parameters", limit_ours=20e-6)
    tries = [OURS, OURS_EAGER] if plan.smoke else [OURS, OURS_EAGER, TORCH, TORCH_COMPILE]
    for side in filter(plan.wanted, tries):
        number = 5 if side in (OURS_EAGER, TORCH) else 200
        many = {"arguments": 10, "parameters": 200, "number": number, "repeats": 15}
        with Worker(plan.job(side, "", "", "launch", **many)) as worker:
            if worker.error is None:
                row.sides[side] = min(worker.first["seconds"])
            elif "not in Lucerne yet" not in worker.error:
                row.note += f"{side}: {worker.error[:160]} "
    yield row


def memory(plan: Plan) -> Iterator[Row]:
    """Memory that the training step added to a fresh process, at the worst moment."""
    row = Row("memory", "GPT step, peak", unit="MB", limit=0.9, rivals=(TORCH,))
    tries = [(OURS, "step"), (OURS_EAGER, "plain"), (TORCH, "plain")]
    if not plan.smoke:
        tries.append((TORCH_COMPILE, "loss, fused"))
    for side, way in tries:
        for malloc in (False, True) if side == TORCH else (False,):
            if not plan.wanted(side):
                continue
            with Worker(plan.job(side, way, "gpt", "peak", malloc=malloc)) as worker:
                if worker.error is None:
                    peak = worker.first["peak"]
                    row.sides[side] = min(peak, row.sides.get(side, peak))
                    if compiling := worker.first["compiling"]:
                        row.ways[side] = f"{compiling:.0f} MB while compiling"
                elif "not in Lucerne yet" not in worker.error:
                    row.note += f"{side}: {worker.error[:160]} "
    yield row


def determinism(plan: Plan) -> Iterator[Row]:
    """Distinct digests of losses and parameters over fresh processes with 1 and 2 threads."""
    programs = plan.programs or list(PROGRAMS)
    works = same_bits.works(programs, plan.processes, small=plan.smoke, eager=not plan.smoke)
    works = [w for w in works if plan.wanted(w.side)]
    yield from same_bits.judged(works, map(same_bits.asked, works))


Section = Callable[[Plan], Iterator[Row]]


def _program(name: str) -> Section:
    return lambda plan: whole(name, plan)


SECTIONS: dict[str, tuple[str, Section]] = {
    **{name: (f"{title}: one call", _program(name)) for name, (title, _) in PROGRAMS.items()},
    "first": ("First call of a compiled training step, in a fresh process", first),
    "launch": ("What a call of a compiled function costs", launch),
    "memory": ("Peak memory of a fresh process, less what it had before the model", memory),
    "determinism": ("The same bits with 1 and 2 threads, in fresh processes", determinism),
}
SMOKE = ("mlp", "gpt", "launch", "determinism")


def main() -> None:
    options = _options()
    began = time.perf_counter()
    plan = Plan(options)
    found: list[Row] = []
    for name in options.section or (SMOKE if plan.smoke else SECTIONS):
        title, section = SECTIONS[name]
        if plan.over:
            print(f"\n{title}: left out, no time")
            continue
        print(rows.head(title, name), flush=True)
        for row in section(plan):
            print(rows.line(row), flush=True)
            found.append(row)
    facts = {
        "how": HOW,
        "threads": plan.threads,
        "machine": _machine(),
        "seconds": time.perf_counter() - began,
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }
    print(rows.summary(found, facts))
    if options.json:
        rows.write_json(options.json, found, facts)
    if options.html:
        rows.write_html(options.html, found, facts)
    broken = [r.name for r in found if r.note.startswith("WRONG") or not _bearable(r)]
    differ = [r.name for r in found if r.section == "determinism" and not _bearable(r)]
    if (plan.smoke and broken) or differ:
        sys.exit("budget broken: " + ", ".join(broken))


def _bearable(r: Row) -> bool:
    """A smoke run fails on wrong results, on bits that differ, and on what is far too slow."""
    if r.section == "determinism":
        return r.passed is True
    if r.limit_ours is not None and r.ours is not None and OURS in r.sides:
        return r.ours <= 5 * r.limit_ours
    return r.ratio is None or r.ratio <= 5


def _machine() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            return next(x.split(":")[1].strip() for x in f if x.startswith("model name"))
    except (OSError, StopIteration):
        return "unknown processor"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compiled",
        description="Lucerne's compiler beside torch and JAX, in one interleaved run.",
    )
    add = parser.add_argument
    add("--section", action="append", choices=list(SECTIONS), help="only this (repeatable)")
    add("--side", action="append", default=[], help=f"only these: {', '.join(sides.SIDES)}")
    add("--one-thread", action="store_true", help="processor time of one thread")
    add("--smoke", action="store_true", help="quick: small sizes, one thread, loose limits")
    add("--full", action="store_true", help="20 processes where bits are compared")
    add("--processes", type=int, default=0, help="so many where bits are compared")
    add("--program", action="append", choices=[*PROGRAMS, *same_bits.STEPS], help="bits of these")
    add("--seconds", type=float, default=40.0, help="time for the rounds of one section")
    add("--json", help="write all figures here")
    add("--html", help="write one self-contained page here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
