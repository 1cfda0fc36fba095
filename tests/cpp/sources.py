"""What the tests of compiled functions are compiled from, and whether it can be here."""

import importlib.util
import shutil
from typing import Any

import pytest

from lucerne.utils import cpp_extension

needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("tvm_ffi") is None
    or not (shutil.which("c++") or importlib.util.find_spec("ziglang")),
    reason="compiled functions need apache-tvm-ffi (the extra cpp) and a C++ compiler",
)

SOURCE = r"""
namespace ffi = tvm::ffi;

template <typename T>
void scaled_sum(const T* x, const T* y, T k, T* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] + k * y[i];
}

void scale_add(ffi::TensorView x, ffi::TensorView y, double k, ffi::TensorView out) {
  if (x.dtype().bits == 32)
    scaled_sum((const float*)x.data_ptr(), (const float*)y.data_ptr(), (float)k,
               (float*)out.data_ptr(), x.numel());
  else
    scaled_sum((const double*)x.data_ptr(), (const double*)y.data_ptr(), k,
               (double*)out.data_ptr(), x.numel());
}

// valid windows of a row: sums of `width` neighbours, and how many rows there are
void windows(ffi::TensorView x, int64_t width, ffi::TensorView sums, ffi::TensorView count) {
  int64_t rows = x.size(0), n = x.size(1), m = n - width + 1;
  auto* from = (const float*)x.data_ptr();
  auto* to = (float*)sums.data_ptr();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < m; ++i) {
      float s = 0;
      for (int64_t j = 0; j < width; ++j) s += from[r * n + i + j];
      to[r * m + i] = s;
    }
  *(int64_t*)count.data_ptr() = rows;
}

void increase(ffi::TensorView x, double by) {
  for (int64_t i = 0; i < x.numel(); ++i) ((float*)x.data_ptr())[i] += (float)by;
}

ffi::Tensor doubled(ffi::TensorView x) {
  auto y = ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, x.shape(), x.dtype(), x.device());
  for (int64_t i = 0; i < x.numel(); ++i)
    ((float*)y.data_ptr())[i] = 2 * ((const float*)x.data_ptr())[i];
  return y;
}

// all kinds of numbers and text; fails where there is nothing to do
void mixed(ffi::TensorView x, int64_t n, bool twice, double by, ffi::String how,
           ffi::TensorView out) {
  if (n == 0) TVM_FFI_THROW(ValueError) << "n is 0";
  double k = by * (twice ? 2 : 1) * (how == "plus" ? 1 : -1) * (double)n;
  for (int64_t i = 0; i < x.numel(); ++i)
    ((float*)out.data_ptr())[i] = ((const float*)x.data_ptr())[i] + (float)k;
}
// asks for memory of its own, and takes a tensor that it could keep
void through(ffi::Tensor x, ffi::TensorView out) {
  auto y = ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, x.shape(), x.dtype(), x.device());
  for (int64_t i = 0; i < x.numel(); ++i)
    ((float*)y.data_ptr())[i] = 1 + ((const float*)x.data_ptr())[i];
  for (int64_t i = 0; i < x.numel(); ++i)
    ((float*)out.data_ptr())[i] = ((const float*)y.data_ptr())[i];
}

ffi::Tensor itself(ffi::Tensor x) { return x; }
int64_t stride(ffi::TensorView x, int64_t dim) { return x.stride(dim); }
double first(ffi::TensorView x) {
  if (x.numel() == 0) TVM_FFI_THROW(ValueError) << "there is no first element";
  return ((const float*)x.data_ptr())[0];
}
int64_t sizes(ffi::Array<ffi::Tensor> xs) {
  int64_t n = 0;
  for (auto x : xs) n += x.numel();
  return n;
}
ffi::String greet(ffi::String who) { return ffi::String("hello ") + who; }
"""
FUNCTIONS = ["itself", "stride", "first", "sizes", "greet", "doubled"]
SCHEMAS = {
    "scale_add": "(T[...] x, T[...] y, float k=2.0) -> T[...] for T in float32, float64",
    "windows": "(float32[r, n] x, int width) -> (float32[r, n - width + 1], int64[])",
    "mixed": "(float32[n] x, int times, bool twice, float by=1.0, str how='plus') -> float32[n]",
    "through": "(float32[n] x) -> float32[n]",
    "increase": "(float32(a!)[...] x, float by) -> ()",
}


def extension() -> Any:
    """The library, compiled when a test first asks for it; kept on disk after that."""
    found = cpp_extension.load_inline("lucerne_tests", SOURCE, functions=FUNCTIONS, schemas=SCHEMAS)
    op = found.scale_add
    if op.backward is None:
        op.register_autograd(_backward, setup_context=_keep)
    return found


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.k = inputs[2]


def _backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
    return grad, grad * ctx.k, None


TINY = r"""
#include <tvm/ffi/c_api.h>
#ifdef WITH_HEADER
#include "number.h"
#else
#define NUMBER 1
#endif
extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_number(
    void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  result->type_index = kTVMFFIInt;
  result->v_int64 = NUMBER;
  return 0;
}
"""
"""A function by TVM-FFI's C functions alone: compiled at once."""
