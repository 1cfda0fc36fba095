"""How long it takes to write the IR of one kernel: by our builder, and by llvmlite.ir.

The kernel is a loop over vectors of 16 floats with a polynomial of the given degree in its body.
Run it alone: `python benchmarks/ir_builder.py`. See docs/decisions/0009-ir-text-builder.md.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

from llvmlite import ir

from lucerne._src.backends.cpu.emit.builder import F32, I64, PTR, Module
from lucerne._src.backends.cpu.runtime.llvm import llvm

LANES = 16


def ours(degree: int) -> str:
    m = Module()
    vector = F32.vector(LANES)
    with m.function("f", [("x", PTR), ("n", I64)]) as f:
        x, n = f.args
        with f.loop(0, n, LANES) as loop:
            place = f.at(x, loop.index, F32)
            value = f.load(vector, place)
            total = f.constant(1.0, vector)
            for k in range(degree):
                total = total * value + float(k)
            f.store(total, place)
    return m.text()


def llvmlites(degree: int) -> str:
    single, wide, long = ir.FloatType(), ir.VectorType(ir.FloatType(), LANES), ir.IntType(64)
    module = ir.Module()
    signature = ir.FunctionType(ir.VoidType(), [single.as_pointer(), long])
    function = ir.Function(module, signature, name="f")
    x, n = function.args
    entry, body, done = (function.append_basic_block(name) for name in ("entry", "body", "done"))
    at = ir.IRBuilder(entry)
    at.cbranch(at.icmp_signed("<", long(0), n), body, done)
    at.position_at_end(body)
    index = at.phi(long)
    place = at.bitcast(at.gep(x, [index]), wide.as_pointer())
    value = at.load(place, align=4)
    total = ir.Constant(wide, [1.0] * LANES)
    for k in range(degree):
        total = at.fadd(at.fmul(total, value), ir.Constant(wide, [float(k)] * LANES))
    at.store(total, place, align=4)
    following = at.add(index, long(LANES))
    index.add_incoming(long(0), entry)
    index.add_incoming(following, body)
    at.cbranch(at.icmp_signed("<", following, n), body, done)
    at.position_at_end(done)
    at.ret_void()
    return str(module)


def best(write: Callable[[int], str], degree: int) -> float:
    """Milliseconds, the least of many runs."""
    times = []
    for _ in range(30):
        start = time.thread_time()
        write(degree)
        times.append(time.thread_time() - start)
    return 1e3 * min(times)


def import_time(module: str) -> float:
    text = (
        "import time, ctypes; s = time.perf_counter(); "
        f"import {module}; print(time.perf_counter() - s)"
    )
    runs = [
        float(subprocess.run([sys.executable, "-c", text], capture_output=True, check=True).stdout)
        for _ in range(5)
    ]
    return 1e3 * min(runs)


def main() -> None:
    for degree in (10, 100, 1000):
        for name, write in (("ours", ours), ("llvmlite.ir", llvmlites)):
            text = write(degree)
            llvm().emit_object(text)
            print(f"degree {degree:5} {name:12} {best(write, degree):8.3f} ms {len(text):8} bytes")
    print(f"import llvmlite.ir {import_time('llvmlite.ir'):.1f} ms")
    print(f"import llvmlite.binding {import_time('llvmlite.binding'):.1f} ms")


if __name__ == "__main__":
    main()
