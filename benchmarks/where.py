"""Where the time of a program goes, kernel by kernel: Lucerne (compiled, eager) beside torch.

    python -m benchmarks.where gpt                 by kind of kernel, both sides, one thread
    python -m benchmarks.where gpt --kernels 30    also the most expensive kernels of each side
    python -m benchmarks.where gpt --side lucerne  only Lucerne's compiled program

Lucerne's eager times are processor time of one thread, the others clock time (so the machine must
be quiet): those that compiled programs note themselves, and those of torch's profiler. What the
kernels don't explain of a plain call is the `rest`.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from benchmarks import sides
from benchmarks.worker import BEST_MALLOC

Found = dict[str, list[float]]
"""Kernel with its shapes: seconds of each call."""

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)

WORDS = 16
"""How many a call of the decoder makes here."""

KINDS = (
    ("product", ("mm", "matmul", "linear", "bmm", "dot", "mkldnn_linear", "outer")),
    ("convolution", ("conv",)),
    ("attention", ("attention", "flash")),
    ("loss", ("cross_entropy", "log_softmax", "nll", "softmax")),
    ("norm", ("norm", "moments")),
    ("optimizer", ("adam", "sgd", "foreach", "lerp", "addcdiv", "addcmul")),
    ("index", ("embedding", "index", "gather", "scatter", "argmax")),
    ("reduction", ("sum", "mean", "amax", "max", "reduce")),
    ("pointwise", ("",)),
)


def kind_of(name: str) -> str:
    low = name.split("(")[0].lower()
    return next(kind for kind, parts in KINDS if any(p in low for p in parts))


class Watch:
    """Times every kernel of Lucerne's engine in eager calls: machine code that calls one comes by
    here. Compiled programs note the times of their steps themselves (`steps`)."""

    def __init__(self) -> None:
        self.times: Found = defaultdict(list)
        self.now = threading.local()
        self.kept: list[Any] = []
        backend = importlib.import_module("lucerne.backends").get("cpu")
        kernel = importlib.import_module("lucerne._src.backends.cpu.runtime.kernel").NativeKernel
        backend.compile = self._labelled(backend.compile)
        backend.fuse = self._labelled(backend.fuse)
        kernel.__init__ = self._started(kernel.__init__)

    def _labelled(self, make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def made(graph: Any) -> Any:
            before = getattr(self.now, "label", "unnamed")
            self.now.label = _label(graph)
            try:
                return make(graph)
            finally:
                self.now.label = before

        return made

    def _started(self, start: Callable[..., None]) -> Callable[..., None]:
        def init(kernel: Any, entry: int, *args: Any, **more: Any) -> None:
            label, call = getattr(self.now, "label", "unnamed"), _ENTRY(entry)

            def timed(block: int) -> int:
                began = time.thread_time()
                status = call(block)
                self.times[label].append(time.thread_time() - began)
                return int(status)

            visit = _ENTRY(timed)
            self.kept.append(visit)
            start(kernel, ctypes.cast(visit, ctypes.c_void_p).value, *args, **more)

        return init


def ours(side: str, program: str, calls: int) -> tuple[Found, float]:
    """Seconds per kernel of one call of the program, and of the whole call as users have it."""
    importlib.import_module("lucerne").set_num_threads(1)
    way = sides.ways(program)[side][0]
    watch = Watch() if side != sides.OURS else None
    ready = sides.build(side, way, program, words=WORDS)
    if watch is None:
        found = steps(ready.call, calls)
    else:
        watch.times.clear()
        for _ in range(calls):
            ready.call()
        found = {name: _shares(times, calls) for name, times in watch.times.items()}
    command = [sys.executable, "-m", "benchmarks.where", program, "--child", f"whole {side}"]
    whole = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found, whole


def steps(call: Callable[[], Any], calls: int) -> Found:
    """Seconds of each step of the programs that a call runs, at their best over the calls."""
    measure = importlib.import_module("lucerne._src.explain.measure")
    watch = measure.Stopwatch()
    for _ in range(calls):
        with measure.watching(watch):
            call()
    found: Found = defaultdict(list)
    for program in watch.seen:
        for step, seconds in zip(program.steps, watch.best[id(program)], strict=True):
            found[_label(step.graph)].append(seconds)
    return found


def _label(graph: Any) -> str:
    """The ops of a kernel and the shapes it reads."""
    names = "+".join(dict.fromkeys(n.op.name for n in graph.nodes))
    return f"{names}({', '.join(_shape(v.meta) for v in graph.inputs)})"


def plain(side: str, program: str, calls: int) -> float:
    """Seconds of a call as users have it, with nothing timed inside."""
    importlib.import_module("lucerne").set_num_threads(1)
    way = sides.ways(program)[side][0]
    return _best(sides.build(side, way, program, words=WORDS).call, calls)


def _best(call: Callable[[], Any], calls: int) -> float:
    best = float("inf")
    for _ in range(calls):
        start = time.thread_time()
        call()
        best = min(best, time.thread_time() - start)
    return best


def _shape(meta: Any) -> str:
    """A tensor's sizes, or the type of a number."""
    return "x".join(map(str, meta.shape)) if hasattr(meta, "shape") else meta.__class__.__name__


def _shares(found: list[float], calls: int) -> list[float]:
    """The calls of one run, each at its best over the runs."""
    per = max(1, len(found) // calls)
    return [min(found[i::per]) for i in range(per)]


def theirs(program: str, calls: int, way: str) -> tuple[Found, float]:
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    ready = sides.build(sides.TORCH, way, program, words=WORDS)
    best = _best(ready.call, calls)
    profiler = importlib.import_module("torch.profiler")
    found: dict[str, list[list[float]]] = defaultdict(list)
    for _ in range(calls):
        with profiler.profile(activities=[profiler.ProfilerActivity.CPU], record_shapes=True) as p:
            ready.call()
        for e in p.key_averages(group_by_input_shape=True):
            shapes = ", ".join("x".join(map(str, s)) for s in e.input_shapes if s)
            found[f"{e.key}({shapes})"].append([e.self_cpu_time_total * 1e-6, e.count])
    least = {}
    for name, runs in found.items():
        seconds, count = min(runs)
        least[name] = [seconds / max(1, count)] * int(count)
    return least, best


def table(found: Found, whole: float) -> dict[str, float]:
    """Seconds by kind; what the kernels don't explain is overhead."""
    total: dict[str, float] = defaultdict(float)
    for name, times in found.items():
        total[kind_of(name)] += sum(times)
    total["rest"] = whole - sum(total.values())
    return total


def child(side: str, program: str, calls: int, kernels: int) -> None:
    """Print a side's table as text: kind and milliseconds."""
    way = sides.ways(program)[sides.TORCH][0 if program in ("decode", "bert") else 1]
    found, whole = (
        theirs(program, calls, way) if side == sides.TORCH else ours(side, program, calls)
    )
    for kind, seconds in sorted(table(found, whole).items(), key=lambda x: -x[1]):
        print(f"{kind}\t{1e3 * seconds:.3f}")
    print(f"whole\t{1e3 * whole:.3f}")
    print("---")
    for name, times in sorted(found.items(), key=lambda x: -sum(x[1]))[:kernels]:
        print(f"{1e3 * sum(times):9.3f} ms {len(times):5d} x  {name[:110]}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.where", description=__doc__)
    parser.add_argument("program", choices=list(sides.SIZES))
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--kernels", type=int, default=0)
    parser.add_argument("--side", action="append", help=f"only {', '.join(sides.SIDES[:3])}")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child and options.child.startswith("whole "):
        print(plain(options.child[len("whole ") :], options.program, options.calls))
        return
    if options.child:
        child(options.child, options.program, options.calls, options.kernels)
        return
    told: dict[str, str] = {}
    tables: dict[str, dict[str, str]] = {}
    for side in options.side or (sides.OURS, sides.OURS_EAGER, sides.TORCH):
        settings = BEST_MALLOC if side == sides.TORCH else {}
        command = [sys.executable, "-m", "benchmarks.where", *sys.argv[1:], "--child", side]
        done = subprocess.run(
            command, env={**os.environ, **settings}, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(done.stderr[-2000:])
        head, told[side] = done.stdout.split("---\n")
        tables[side] = dict(line.split("\t") for line in head.splitlines())
    heads = "".join(f"{side:>15}" for side in tables)
    print(f"{options.program}, milliseconds of one thread\n{'':<14}{heads}")
    for kind in dict.fromkeys(k for found in tables.values() for k in found):
        figures = (tables[side].get(kind, "-") for side in tables)
        print(f"{kind:<14}" + "".join(f"{f:>15}" for f in figures))
    for side, text in told.items():
        if text:
            print(f"\n{side}\n{text}", end="")


if __name__ == "__main__":
    main()
