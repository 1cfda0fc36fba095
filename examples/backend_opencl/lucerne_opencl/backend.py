"""A backend for OpenCL devices: memory of their own, and kernels made of formulas.

What the device computes is said by `lucerne.backends.formulas`; this file says how OpenCL C writes
it down (`KernelText`) and how OpenCL moves bytes and runs kernels (`OpenCL`).
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading

import numpy as np
import pyopencl as cl

from lucerne.backends import formulas
from lucerne.backends.api import Backend, device
from lucerne.backends.api import dtype as dt

# ---- a kernel as text ----------------------------------------------------------------------------

TYPES = {
    dt.bool_: "uchar", dt.uint8: "uchar", dt.int8: "char", dt.int16: "short", dt.uint16: "ushort",
    dt.int32: "int", dt.uint32: "uint", dt.int64: "long", dt.uint64: "ulong",
    dt.float32: "float", dt.float64: "double", dt.float16: "ushort", dt.bfloat16: "ushort",
}  # fmt: skip
INSTRUCTIONS = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "neg": "-{}",
    "quotient": "{} / {}", "rest": "{} % {}", "abs": "fabs({})", "round": "rint({})",
    "lt": "{} < {}", "le": "{} <= {}", "eq": "{} == {}", "where": "{} ? {} : {}",
    "bit_and": "{} & {}", "bit_or": "{} | {}", "bit_xor": "{} ^ {}", "bit_not": "~{}",
    "shift_left": "{} << {}", "shift_right": "{} >> {}", "lgamma": "log_gamma({})",
}  # fmt: skip
COMPARISONS = ("lt", "le", "eq")
FUNCTIONS = frozenset((
    "floor", "ceil", "trunc", "sqrt", "exp", "log", "sin", "cos", "tan", "atan", "atan2", "tanh",
    "erf", "nextafter", "pow", "fmod", "expm1", "log1p", "log2", "log10", "exp2", "asin", "acos",
    "sinh", "cosh", "asinh", "acosh", "atanh", "hypot", "copysign", "erfc",
))  # fmt: skip
FEW = 100
"""So many numbers are passed to a kernel by value, more in memory."""
NARROW = {dt.float16: "half", dt.bfloat16: "bfloat"}
PRELUDE = """
#pragma OPENCL FP_CONTRACT OFF
float from_half(ushort bits) { return vload_half(0, (const half *)&bits); }
ushort to_half(float x) { ushort bits; vstore_half_rte(x, 0, (half *)&bits); return bits; }
float from_bfloat(ushort bits) { return as_float((uint)bits << 16); }
ushort to_bfloat(float x) {
    uint bits = as_uint(x);
    return isnan(x) ? 0x7FC0 : (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
}
long power(long base, long exponent) {
    ulong found = 1, factor = base;
    for (; exponent > 0; exponent >>= 1, factor *= factor)
        if (exponent & 1) found *= factor;
    return found;
}
#define log_gamma(x) (isinf(x) ? INFINITY : lgamma(x))
"""


class KernelText(formulas.Writer):
    """OpenCL C: each value is the name of a variable."""

    def __init__(self, queue):
        super().__init__()
        self.queue, self.lines, self.names = queue, [], 0

    def name(self, text, dtype, const="const "):
        self.names += 1
        self.lines.append(f"{const}{TYPES[dtype]} v{self.names} = {text};")
        return f"v{self.names}"

    # instructions

    def has(self, name):
        return name in INSTRUCTIONS or name in FUNCTIONS

    def emit(self, name, dtype, *operands):
        if name == "bit_not" and dtype is dt.bool_:
            return self.name(f"!{operands[0]}", dtype)
        if name == "pow" and dtype.category == dt.INTEGER:
            return self.name(f"power({operands[0]}, {operands[1]})", dtype)
        if name in FUNCTIONS:
            return self.name(f"{name}({', '.join(operands)})", dtype)
        text = INSTRUCTIONS[name].format(*operands)
        return self.name(text, dt.bool_ if name in COMPARISONS else dtype)

    def constant(self, value, dtype):
        if dtype.category == dt.FLOAT:
            if not math.isfinite(value):
                text = "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
                return f"({TYPES[dtype]}){text}"
            return value.hex() + ("f" if dtype is dt.float32 else "")
        if value == -(1 << 63):
            return "LONG_MIN"
        return f"(({TYPES[dtype]}){int(value)}{'' if dtype.is_signed else 'u'}L)"

    def convert(self, value, source, target):
        through = "(long)" if source.category == dt.FLOAT and target.itemsize < 4 else ""
        return self.name(f"({TYPES[target]}){through}{value}", target)

    def widen(self, stored, dtype):
        if dtype not in NARROW:
            return super().widen(stored, dtype)
        return self.name(f"from_{NARROW[dtype]}({stored})", dt.float32)

    def narrow(self, value, dtype):
        if dtype not in NARROW:
            return super().narrow(value, dtype)
        return self.name(f"to_{NARROW[dtype]}({value})", dtype)

    # memory and loops

    def item(self):
        return self.name("get_global_id(0)", dt.int64)

    def parameter(self, k, dtype):
        return f"p.v[{k}]" if dtype is dt.int64 else f"as_double(p.v[{k}])"

    def load(self, buffer, at, dtype):
        return self.name(f"((global {TYPES[dtype]} *)b{buffer})[{at}]", dtype)

    def store(self, buffer, at, value, dtype):
        self.lines.append(f"((global {TYPES[dtype]} *)b{buffer})[{at}] = {value};")

    @contextlib.contextmanager
    def loop(self, count):
        self.names += 1
        i = f"v{self.names}"
        self.lines.append(f"for (long {i} = 0; {i} < {count}; {i}++) {{")
        yield i
        self.lines.append("}")

    @contextlib.contextmanager
    def when(self, condition):
        self.lines.append(f"if ({condition}) {{")
        yield
        self.lines.append("}")

    def variable(self, value, dtype):
        return self.name(value, dtype, const="")

    def assign(self, variable, value):
        self.lines.append(f"{variable} = {value};")

    def fail_unless(self, condition, number):
        self.lines.append(f"if (!{condition}) *failed = {number};")

    def finish(self, buffers, parameters, items):
        arguments = "".join(f", global uchar *b{k}" for k in range(buffers))
        arguments += ", global int *failed" if self.requirements else ""
        body = "\n".join(self.lines)
        given = "const Numbers p" if parameters < FEW else "constant Numbers *many"
        text = (
            f"{PRELUDE}typedef struct {{ long v[{parameters + 1}]; }} Numbers;\n"
            f"{'' if parameters < FEW else '#define p (*many)' + chr(10)}"
            f"kernel void run({given}{arguments}) {{\n"
            f"if (get_global_id(0) >= p.v[{parameters}]) return;\n{body}\n}}\n"
        )
        return self.queue.launcher(text, items, bool(self.requirements))


# ---- a device ------------------------------------------------------------------------------------


class Queue:
    """The device, its memory, and kernels that run one after the other."""

    def __init__(self):
        found = [d for p in cl.get_platforms() for d in p.get_devices()]
        if not found:
            raise RuntimeError("no OpenCL device: pip install pocl-binary-distribution gives one")
        self.context = cl.Context(found[:1])
        self.queue = cl.CommandQueue(self.context)
        self.lock = threading.RLock()
        self.failed = self.buffer(4)
        self.kernel = functools.cache(self.build)

    def buffer(self, nbytes):
        return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, max(nbytes, 1))

    def read(self, buffer):
        found = np.empty(buffer.size, np.uint8)
        cl.enqueue_copy(self.queue, found, buffer)
        return found

    def write(self, buffer, start, data):
        if data.nbytes:
            cl.enqueue_copy(self.queue, buffer, data, dst_offset=start)

    def build(self, text, name="run"):
        return cl.Kernel(cl.Program(self.context, text).build(["-cl-std=CL1.2", "-w"]), name)

    def launch(self, kernel, items, given):
        """Run a kernel for each item (and for a few more, which it must leave alone)."""
        if items:
            group = min(items, 64)
            with self.lock:
                kernel.set_args(*given)
                work = (-(-items // group) * group,), (group,)
                cl.enqueue_nd_range_kernel(self.queue, kernel, *work)

    def launcher(self, text, items, may_fail):
        kernel = self.kernel(text)

        def launch(buffers, parameters):
            numbers = np.append(parameters, items)
            if len(parameters) >= FEW:
                data, numbers = numbers.view(np.uint8), self.buffer(numbers.nbytes)
                self.write(numbers, 0, data)
            given = [numbers, *buffers]
            with self.lock:
                if may_fail:
                    self.write(self.failed, 0, np.zeros(1, np.int32))
                    given.append(self.failed)
                self.launch(kernel, items, given)
                return int(self.read(self.failed).view(np.int32)[0]) if may_fail else 0

        return launch


class OpenCL(Backend):
    """The contract: bytes, and graphs of one op."""

    contract_version = 5
    own_memory = True

    def __init__(self):
        self.queue = Queue()

    def devices(self):
        return [device("opencl")]

    def allocate(self, nbytes):
        return self.queue.buffer(nbytes)

    def from_host(self, data):
        made = self.queue.buffer(data.nbytes)
        self.queue.write(made, 0, np.ascontiguousarray(data).reshape(-1).view(np.uint8))
        return made

    def to_host(self, buffer):
        return self.queue.read(buffer)

    def write(self, buffer, start, data):
        self.queue.write(buffer, start, data)

    def address(self, buffer):
        return buffer.int_ptr

    def synchronize(self):
        self.queue.queue.finish()

    def writer(self):
        return KernelText(self.queue)

    def supports(self, op):
        return formulas.has(op)

    def compile(self, graph):
        return formulas.executable(graph, self)
