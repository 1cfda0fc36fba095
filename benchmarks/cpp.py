"""What a call of a compiled C++ function costs above the function itself.

    python -m benchmarks cpp                  four floats, time in nanoseconds, all in turn
    python -m benchmarks cpp --seconds 60     longer, for a machine that others use

The kernel is `out = x + k * y` on four floats, so that a call is the way to it. *C call* is the
kernel called by C through a pointer, a million times in a row. *Operator* is `ext.scale_add(x, y,
2.0)`, which makes its result; *function* is the same without a schema, into a result that is there;
*returned* lets C++ ask for the result's memory; the last three have the same kernel called by
others: through `__dlpack__` (what TVM-FFI does for tensors without C functions), as a custom op of
Python, and by torch's own extension on torch's tensors where `--torch` is given (it compiles for a
minute). Exit status 1 if the operator is more than 2 us above the C call.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import lucerne
from benchmarks.timing import Effort, best_times
from lucerne.utils.cpp_extension import load_inline

MOST = 2e-6
"""Seconds that a call of an operator may take above the C call."""
REPEATS = 1_000_000
SOURCE = r"""
namespace ffi = tvm::ffi;

static void kernel(const float* x, const float* y, float k, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] + k * y[i];
}
static void (*volatile pointer)(const float*, const float*, float, float*, int64_t) = kernel;

void scale_add(ffi::TensorView x, ffi::TensorView y, double k, ffi::TensorView out) {
  kernel((const float*)x.data_ptr(), (const float*)y.data_ptr(), k, (float*)out.data_ptr(),
         x.numel());
}
void into(ffi::TensorView x, ffi::TensorView y, double k, ffi::TensorView out) {
  scale_add(x, y, k, out);
}
void repeated(ffi::TensorView x, ffi::TensorView y, double k, ffi::TensorView out, int64_t times) {
  for (int64_t i = 0; i < times; ++i)
    pointer((const float*)x.data_ptr(), (const float*)y.data_ptr(), k, (float*)out.data_ptr(),
            x.numel());
}
ffi::Tensor returned(ffi::TensorView x, ffi::TensorView y, double k) {
  auto out = ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, x.shape(), x.dtype(), x.device());
  scale_add(x, y, k, out);
  return out;
}
void nothing() {}
"""
TORCH_SOURCE = r"""
torch::Tensor scale_add(torch::Tensor x, torch::Tensor y, double k) {
  auto out = torch::empty_like(x);
  const float *a = x.data_ptr<float>(), *b = y.data_ptr<float>();
  float* c = out.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) c[i] = a[i] + (float)k * b[i];
  return out;
}
"""
Call = Callable[[], Any]


class _OnlyDLPack:
    """A tensor as one whose type has no C functions."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def _calls() -> dict[str, Call]:
    made = load_inline(
        "benchmark", SOURCE, functions=["into", "repeated", "returned", "nothing"],
        schemas={"scale_add": "(float32[n] x, float32[n] y, float k) -> float32[n]"},
    )  # fmt: skip
    x, y, out = lucerne.ones(4), lucerne.ones(4), lucerne.ones(4)
    array = np.ones(4, np.float32)
    plain = [_OnlyDLPack(t) for t in (x, y, out)]

    def scaled(x: lucerne.Tensor, y: lucerne.Tensor, k: float) -> lucerne.Tensor:
        out = lucerne.empty_like(x)
        made.into(x, y, k, out)
        return out

    array = np.ones(4, np.float32)
    python_op: Any = lucerne.library.custom_op("benchmark::scaled", scaled, mutates_args=())
    return {
        "C call": lambda: made.repeated(x, y, 2.0, out, REPEATS),
        "operator": lambda: made.scale_add(x, y, 2.0),
        "function": lambda: made.into(x, y, 2.0, out),
        "returned": lambda: made.returned(x, y, 2.0),
        "function of nothing": made.nothing,
        "function, by __dlpack__": lambda: made.into(plain[0], plain[1], 2.0, plain[2]),
        "custom op of Python": lambda: python_op(x, y, 2.0),
        "x + y": lambda: x + y,
        "np.add": lambda: np.add(array, array),
    }


def _rival() -> dict[str, Call]:
    torch = importlib.import_module("torch")
    extension = importlib.import_module("torch.utils.cpp_extension")
    made = extension.load_inline("rival", TORCH_SOURCE, functions=["scale_add"])
    x, y = torch.ones(4), torch.ones(4)
    return {"torch's extension": lambda: made.scale_add(x, y, 2.0)}


def measured(seconds: float, rival: bool = False) -> dict[str, float]:
    """Seconds of one call of each."""
    calls = _calls() | (_rival() if rival else {})
    effort = Effort(rounds=10_000, repeats=3, pause=0.0, seconds=seconds)
    effort.one_thread = True
    found = best_times(calls, effort)
    found["C call"] /= REPEATS
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--torch", action="store_true", help="torch's own extension as well")
    asked = parser.parse_args()
    found = measured(asked.seconds, asked.torch)
    print(f"{'call':<26}{'ns':>9}{'above C':>9}")
    for name, taken in found.items():
        print(f"{name:<26}{taken * 1e9:>9.0f}{(taken - found['C call']) * 1e9:>9.0f}")
    above = found["operator"] - found["C call"]
    print(f"operator above C: {above * 1e6:.2f} us, at most {MOST * 1e6:.0f}")
    return int(above > MOST)


if __name__ == "__main__":
    sys.exit(main())
