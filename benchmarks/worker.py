"""One side of a comparison in a process of its own, and the handle by which it is driven.

Sides don't share a process: each gets the malloc settings and the threads that suit it, and idle
workers of one cannot spin beside another for longer than a pause. They still run interleaved: the
parent asks one after the other, round by round.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks import kernel_calls, programs, sides, small_calls

ROOT = Path(__file__).resolve().parent.parent
LARGE = str(1 << 34)
BEST_MALLOC = {"MALLOC_TRIM_THRESHOLD_": LARGE, "MALLOC_MMAP_THRESHOLD_": LARGE}
"""torch page-faults its large temporaries anew on every call with glibc's defaults."""

Answer = dict[str, Any]


def environment(side: str, extra: dict[str, str], malloc: bool = True) -> dict[str, str]:
    """What the process of a side gets: the better malloc for torch, no accelerator for JAX."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    found = {**os.environ, "PYTHONPATH": path, "LUCERNE_HOST_BACKEND": "cpu"}
    found["LUCERNE_PROGRAM_CACHE"] = "0"  # what is measured is compiled here,
    found["LUCERNE_PAYOFF_CALLS"] = "0"  # and stays so
    if side.startswith("lucerne"):  # as installed: rivals come with their bytecode too
        found["PYTHONPYCACHEPREFIX"] = str(Path(tempfile.gettempdir()) / "lucerne-bytecode")
        found.pop("PYTHONDONTWRITEBYTECODE", None)
    if side in (sides.TORCH, sides.TORCH_COMPILE) and malloc:
        found |= BEST_MALLOC
    if side == sides.JAX:
        found["JAX_PLATFORMS"] = "cpu"
    return {**found, **extra}


class Worker:
    """A child process that was told what to build, and answers questions one at a time."""

    def __init__(
        self, job: Answer, extra: dict[str, str] | None = None, place: Path = ROOT
    ) -> None:
        """`place`: the folder it runs in; packages that it finds there come first."""
        self.job = job
        self._noise = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in `close`)
        malloc = bool(job.get("malloc", True))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            text=True,
            env=environment(job["side"], extra or {}, malloc),
            cwd=place,
        )
        self.first = self.ask(job)

    @property
    def error(self) -> str | None:
        return self.first.get("error")

    def ask(self, question: Answer) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            return {"error": f"the process ended: {self._told()[-300:]}"}
        return dict(json.loads(line))

    def _told(self) -> str:
        self._process.wait()
        self._noise.seek(0)
        return self._noise.read()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._noise.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- the child ---------------------------------------------------------------------------------


def _status(name: str) -> float:
    """A line of the kernel's account of this process, in megabytes."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(name + ":")[1].split()[0]) / 1024


def _import(job: Answer) -> float:
    """Import the side's module with so many threads; seconds."""
    start = time.perf_counter()
    if job["side"] == sides.JAX:
        if job["threads"] == 1:  # its pool has as many threads as the process may use cores
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        importlib.import_module("jax.numpy")
        return time.perf_counter() - start
    name = "lucerne" if job["side"].startswith("lucerne") else "torch"
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # no engine but NumPy: nothing to measure
        module = importlib.import_module(name)
    took = time.perf_counter() - start
    module.set_num_threads(job["threads"])
    return took


def _times(ready: sides.Ready, question: Answer) -> Answer:
    """Seconds of each repetition: of the clock, or processor time of all threads."""
    clock = time.process_time if question["processor"] else time.perf_counter
    found = []
    for _ in range(question["repeats"]):
        start = clock()
        for _ in range(question["inner"]):
            ready.call()
        found.append((clock() - start) / question["inner"])
    return {"seconds": found}


def _first_call(job: Answer) -> Answer:
    """Seconds from before `compile` to the end of the first step; the model is there already."""
    torch = importlib.import_module("lucerne" if job["side"] == sides.OURS else "torch")
    size = sides.SIZES[job["program"]][job["small"]]
    made = sides.training(torch, job["way"], job["program"], size)
    start = time.perf_counter()
    step = sides.step_of(torch, job["way"], made, compiled=True)
    value = float(step(*made.batch).detach())
    first = time.perf_counter() - start
    start = time.perf_counter()
    step(*made.batch)
    second = time.perf_counter() - start
    return {"first": first, "second": second, "values": [value]}


def _peak(job: Answer) -> Answer:
    """Megabytes that building and training a model added to the process, at the worst moment."""
    Path("/proc/self/clear_refs").write_text("5")  # the highest mark starts again from here
    before = _status("VmRSS")
    ready = sides.build(job["side"], job["way"], job["program"], job["small"])
    if job["way"].startswith(("step", "loss")):  # what compiling itself needed is told apart
        with_compiling = _status("VmHWM") - before
        Path("/proc/self/clear_refs").write_text("5")
    else:
        with_compiling = 0.0
    for _ in range(3):
        ready.call()
    return {"peak": _status("VmHWM") - before, "compiling": with_compiling}


def _launch(job: Answer) -> Answer:
    """Seconds of one call of a function with many tensors and hardly any work."""
    torch = importlib.import_module("lucerne" if job["side"].startswith("lucerne") else "torch")
    model, xs = programs.many(torch, job["arguments"], job["parameters"])
    call = torch.compile(model) if job["side"] in (sides.OURS, sides.TORCH_COMPILE) else model
    times, number = [], job["number"]
    with torch.no_grad():
        value = float(call(*xs).sum())
        call(*xs)
        for _ in range(job["repeats"]):
            start = time.process_time()
            for _ in range(number):
                call(*xs)
            times.append((time.process_time() - start) / number)
    return {"seconds": times, "values": [value]}


def _digests(job: Answer) -> Answer:
    """Digests of what each program computed: losses and parameters after the first steps."""
    found = {}
    for program in job["programs"]:
        way = sides.ways(program)[job["side"]][0]
        ready = sides.build(job["side"], way, program, job["small"])
        for _ in range(job["steps"].get(program, sides.CHECKED) - sides.CHECKED):
            ready.values.append(float(ready.call().detach()))
        found[program] = ready.digest()
    return {"digests": found}


def _small_call(job: Answer) -> sides.Ready:
    """A call with hardly any work (`small_calls`): what it costs is overhead."""
    torch = importlib.import_module("lucerne")
    call = {**small_calls.CALLS, **kernel_calls.CALLS}[job["call"]](torch)
    for _ in range(3):
        call()
    return sides.Ready(call, [])


SPECIAL = {"first": _first_call, "peak": _peak, "launch": _launch, "digests": _digests}


def answers(job: Answer) -> tuple[Answer, sides.Ready | None]:
    """The answer to the first question, and what was built to answer more."""
    took = _import(job)
    if job["kind"] in SPECIAL:
        return {"import": took, **SPECIAL[job["kind"]](job)}, None
    if job["kind"] == "call":
        return {"import": took}, _small_call(job)
    ready = sides.build(job["side"], job["way"], job["program"], job["small"])
    return {"import": took, "values": ready.values}, ready


def main() -> None:
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing that a library prints may be taken for an answer
    job = json.loads(sys.stdin.readline())
    try:
        answer, ready = answers(job)
    except Exception as e:  # whatever stops a rival is told in the table, not by a traceback
        answer, ready = {"error": f"{type(e).__name__}: {str(e)[:200]}"}, None
    print(json.dumps(answer), file=out, flush=True)
    for line in sys.stdin:
        assert ready is not None, "nothing was built"
        print(json.dumps(_times(ready, json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
