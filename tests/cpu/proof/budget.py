"""What a user waits for: `import lucerne`, and the first call of an op in a later process.

Each figure is the smallest of several fresh processes, as time on the clock and as processor time
of the thread (which says more on a busy machine). The disk cache is warm: the first process of each
kind is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

IMPORT_SECONDS, IMPORT_MEGABYTES, FIRST_MILLISECONDS = 0.3, 80.0, 2.0
RUNS = 7

_IMPORT = """
import json, time
clock, cpu = time.perf_counter(), time.thread_time()
import lucerne
clock, cpu = time.perf_counter() - clock, time.thread_time() - cpu
import sys
peak = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
print(json.dumps([clock, cpu, int(peak) / 1024, len(sys.modules)]))
"""

_FIRST = """
import json, time
import lucerne as torch
F = torch.nn.functional
x, w, v, k = torch.ones(8, 16), torch.ones(16, 16), torch.ones(1, 3, 16, 16), torch.ones(8, 3, 3, 3)
index = torch.tensor([1, 2])
clock, cpu = time.perf_counter(), time.thread_time()
{call}
print(json.dumps([time.perf_counter() - clock, time.thread_time() - cpu]))
"""

COMMON = {
    "exp": "torch.exp(x)",
    "add": "x + x",
    "sum": "x.sum(1)",
    "softmax": "x.softmax(-1)",
    "matmul": "x @ w",
    "linear": "F.linear(x, w)",
    "gelu": "F.gelu(x)",
    "layer_norm": "F.layer_norm(x, (16,))",
    "to": "x.to(torch.bfloat16)",
    "clone": "x.t().clone()",
}
"""Ops that must keep the limit: their families are loaded with the package."""
OTHERS = {
    "cat": "torch.cat([x, x])",
    "index": "x[index]",
    "sort": "x.sort()",
    "cumsum": "x.cumsum(0)",
    "randn": "torch.randn(4096)",
    "cross_entropy": "F.cross_entropy(x[:2], index)",
    "conv2d": "F.conv2d(v, k)",
    "max_pool2d": "F.max_pool2d(v, 2)",
    "attention": "F.scaled_dot_product_attention(x, x, x)",
}
"""Ops whose first call also imports the rules of their family."""


def _smallest(code: str, runs: int) -> list[float]:
    """The smallest of each number that fresh processes print; the first is not counted."""
    rows = [_process(code) for _ in range(runs + 1)][1:]
    return [min(column) for column in zip(*rows, strict=True)]


def _process(code: str) -> list[float]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    found: list[float] = json.loads(done.stdout)
    return found


def measure_import(runs: int = RUNS) -> dict[str, float]:
    """Seconds on the clock and of the processor, peak megabytes, modules."""
    names = ("seconds", "cpu_seconds", "megabytes", "modules")
    return dict(zip(names, _smallest(_IMPORT, runs), strict=True))


def measure_first(call: str, runs: int = RUNS) -> tuple[float, float]:
    """Milliseconds of the first call, on the clock and of the processor."""
    clock, cpu = _smallest(_FIRST.format(call=call), runs)
    return clock * 1e3, cpu * 1e3


def main(options: argparse.Namespace) -> int:
    found: dict[str, Any] = measure_import()
    print(
        f"import lucerne: {found['seconds']:.3f} s (processor {found['cpu_seconds']:.3f} s), "
        f"{found['megabytes']:.0f} MB, {found['modules']:.0f} modules; "
        f"limits {IMPORT_SECONDS} s, {IMPORT_MEGABYTES:.0f} MB"
    )
    ok = found["seconds"] <= IMPORT_SECONDS and found["megabytes"] <= IMPORT_MEGABYTES
    print(f"first call in a later process (limit {FIRST_MILLISECONDS} ms for the first group):")
    for group in (COMMON, OTHERS):
        for name, call in group.items():
            clock, cpu = measure_first(call)
            ok = ok and (group is OTHERS or clock <= FIRST_MILLISECONDS)
            print(f"  {name:<16}{clock:8.2f} ms (processor {cpu:.2f})")
    return 0 if ok else 1
