# Made by `python -m tools.stubs` from the op table and the signatures of the package: do not edit.
"""Lucerne: PyTorch's programming model in readable Python. `import lucerne as torch`."""

from builtins import bool as _bool
from builtins import float as _float
from builtins import int as _int
from collections.abc import Callable, Sequence
from typing import Any, overload

from lucerne import _C as _C
from lucerne import __config__ as __config__
from lucerne import __future__ as __future__
from lucerne import _higher_order_ops as _higher_order_ops
from lucerne import _ops as _ops
from lucerne import _tensor as _tensor
from lucerne import _tensor_str as _tensor_str
from lucerne import _utils as _utils
from lucerne import accelerator as accelerator
from lucerne import amp as amp
from lucerne import ao as ao
from lucerne import autograd as autograd
from lucerne import backends as backends
from lucerne import compiler as compiler
from lucerne import control_flow as control_flow
from lucerne import cpu as cpu
from lucerne import cuda as cuda
from lucerne import distributed as distributed
from lucerne import distributions as distributions
from lucerne import export as export
from lucerne import fft as fft
from lucerne import func as func
from lucerne import functional as functional
from lucerne import futures as futures
from lucerne import fx as fx
from lucerne import hub as hub
from lucerne import io as io
from lucerne import jit as jit
from lucerne import library as library
from lucerne import linalg as linalg
from lucerne import masked as masked
from lucerne import mps as mps
from lucerne import multiprocessing as multiprocessing
from lucerne import nested as nested
from lucerne import nn as nn
from lucerne import onnx as onnx
from lucerne import ops as ops
from lucerne import optim as optim
from lucerne import overrides as overrides
from lucerne import profiler as profiler
from lucerne import quantization as quantization
from lucerne import quasirandom as quasirandom
from lucerne import random as random
from lucerne import return_types as return_types
from lucerne import run_state as run_state
from lucerne import serialization as serialization
from lucerne import signal as signal
from lucerne import sparse as sparse
from lucerne import special as special
from lucerne import storage as storage
from lucerne import testing as testing
from lucerne import tiles as tiles
from lucerne import types as types
from lucerne import utils as utils
from lucerne import version as version
from lucerne import xpu as xpu
from lucerne._src.base.defaults import get_default_dtype as get_default_dtype
from lucerne._src.base.device import device as device
from lucerne._src.base.dtype import can_cast as can_cast
from lucerne._src.base.dtype import dtype as dtype
from lucerne._src.base.dtype import promote_types as promote_types
from lucerne._src.base.errors import AcceleratorError as AcceleratorError
from lucerne._src.base.errors import OutOfMemoryError as OutOfMemoryError
from lucerne._src.base.layout import layout as layout
from lucerne._src.base.layout import memory_format as memory_format
from lucerne._src.base.numeric import finfo as finfo
from lucerne._src.base.numeric import iinfo as iinfo
from lucerne._src.base.qscheme import qscheme as qscheme
from lucerne._src.base.shape import Size as Size
from lucerne._src.capture.lazy.mode import lazy as lazy
from lucerne._src.capture.lazy.mode import lazy_mode as lazy_mode
from lucerne._src.capture.lazy.mode import lazy_report as lazy_report
from lucerne._src.capture.lazy.mode import lazy_sync as lazy_sync
from lucerne._src.compiler import compile as compile
from lucerne._src.control_flow import cond as cond
from lucerne._src.control_flow import while_loop as while_loop
from lucerne._src.explain.estimate import estimate_memory as estimate_memory
from lucerne._src.explain.explanation import explain as explain
from lucerne._src.explain.summary import summary as summary
from lucerne._src.io.files import load as load
from lucerne._src.io.files import save as save
from lucerne._src.ir.symbolic.numbers import SymInt as SymInt
from lucerne._src.streams import Event as Event
from lucerne._src.streams import Stream as Stream
from lucerne._src.tensor.autograd.graph import (
    is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled,
)
from lucerne._src.tensor.autograd.graph import is_anomaly_enabled as is_anomaly_enabled
from lucerne._src.tensor.autograd.modes import enable_grad as enable_grad
from lucerne._src.tensor.autograd.modes import inference_mode as inference_mode
from lucerne._src.tensor.autograd.modes import is_grad_enabled as is_grad_enabled
from lucerne._src.tensor.autograd.modes import (
    is_inference_mode_enabled as is_inference_mode_enabled,
)
from lucerne._src.tensor.autograd.modes import no_grad as no_grad
from lucerne._src.tensor.autograd.modes import set_grad_enabled as set_grad_enabled
from lucerne._src.tensor.autograd.nonfinite import NonFiniteError as NonFiniteError
from lucerne._src.tensor.autograd.nonfinite import detect_nonfinite as detect_nonfinite
from lucerne._src.tensor.declared import Device, Number, Sizes
from lucerne._src.tensor.eager.autocast import (
    autocast_decrement_nesting as autocast_decrement_nesting,
)
from lucerne._src.tensor.eager.autocast import (
    autocast_increment_nesting as autocast_increment_nesting,
)
from lucerne._src.tensor.eager.autocast import clear_autocast_cache as clear_autocast_cache
from lucerne._src.tensor.eager.autocast import get_autocast_cpu_dtype as get_autocast_cpu_dtype
from lucerne._src.tensor.eager.autocast import get_autocast_dtype as get_autocast_dtype
from lucerne._src.tensor.eager.autocast import get_autocast_gpu_dtype as get_autocast_gpu_dtype
from lucerne._src.tensor.eager.autocast import (
    is_autocast_cache_enabled as is_autocast_cache_enabled,
)
from lucerne._src.tensor.eager.autocast import is_autocast_cpu_enabled as is_autocast_cpu_enabled
from lucerne._src.tensor.eager.autocast import is_autocast_enabled as is_autocast_enabled
from lucerne._src.tensor.eager.autocast import (
    set_autocast_cache_enabled as set_autocast_cache_enabled,
)
from lucerne._src.tensor.eager.autocast import set_autocast_cpu_dtype as set_autocast_cpu_dtype
from lucerne._src.tensor.eager.autocast import set_autocast_cpu_enabled as set_autocast_cpu_enabled
from lucerne._src.tensor.eager.autocast import set_autocast_dtype as set_autocast_dtype
from lucerne._src.tensor.eager.autocast import set_autocast_enabled as set_autocast_enabled
from lucerne._src.tensor.eager.autocast import set_autocast_gpu_dtype as set_autocast_gpu_dtype
from lucerne._src.tensor.format import set_printoptions as set_printoptions
from lucerne._src.tensor.functions import sym_float as sym_float
from lucerne._src.tensor.functions import sym_int as sym_int
from lucerne._src.tensor.functions import sym_ite as sym_ite
from lucerne._src.tensor.functions import sym_max as sym_max
from lucerne._src.tensor.functions import sym_min as sym_min
from lucerne._src.tensor.functions import sym_not as sym_not
from lucerne._src.tensor.functions import sym_sqrt as sym_sqrt
from lucerne._src.tensor.functions import sym_sum as sym_sum
from lucerne._src.tensor.functions import to_dlpack as to_dlpack
from lucerne._src.tensor.interop.typed_names import TypedStorage as TypedStorage
from lucerne._src.tensor.interop.untyped import UntypedStorage as UntypedStorage
from lucerne._src.tensor.memory import empty_cache as empty_cache
from lucerne._src.tensor.memory import max_memory_allocated as max_memory_allocated
from lucerne._src.tensor.memory import memory_allocated as memory_allocated
from lucerne._src.tensor.memory import memory_reserved as memory_reserved
from lucerne._src.tensor.memory import memory_stats as memory_stats
from lucerne._src.tensor.memory import reset_peak_memory_stats as reset_peak_memory_stats
from lucerne._src.tensor.optimizers import (
    _amp_foreach_non_finite_check_and_unscale_ as _amp_foreach_non_finite_check_and_unscale_,
)
from lucerne._src.tensor.optimizers import _amp_update_scale_ as _amp_update_scale_
from lucerne._src.tensor.optimizers import _fused_adagrad_ as _fused_adagrad_
from lucerne._src.tensor.optimizers import _fused_adam_ as _fused_adam_
from lucerne._src.tensor.optimizers import _fused_adamw_ as _fused_adamw_
from lucerne._src.tensor.optimizers import _fused_sgd_ as _fused_sgd_
from lucerne._src.tensor.queries import _assert as _assert
from lucerne._src.tensor.queries import get_device as get_device
from lucerne._src.tensor.queries import is_inference as is_inference
from lucerne._src.tensor.queries import is_nonzero as is_nonzero
from lucerne._src.tensor.queries import is_same_size as is_same_size
from lucerne._src.tensor.queries import is_signed as is_signed
from lucerne._src.tensor.queries import is_storage as is_storage
from lucerne._src.tensor.queries import is_tensor as is_tensor
from lucerne._src.tensor.queries import numel as numel
from lucerne._src.tensor.queries import typename as typename
from lucerne._src.tensor.random.api import initial_seed as initial_seed
from lucerne._src.tensor.random.api import seed as seed
from lucerne._src.tensor.random.api import set_rng_state as set_rng_state
from lucerne._src.tensor.random.generator import Generator as Generator
from lucerne._src.tensor.settings import (
    are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled,
)
from lucerne._src.tensor.settings import get_default_device as get_default_device
from lucerne._src.tensor.settings import (
    get_deterministic_debug_mode as get_deterministic_debug_mode,
)
from lucerne._src.tensor.settings import get_device_module as get_device_module
from lucerne._src.tensor.settings import (
    get_float32_matmul_precision as get_float32_matmul_precision,
)
from lucerne._src.tensor.settings import get_num_interop_threads as get_num_interop_threads
from lucerne._src.tensor.settings import get_num_threads as get_num_threads
from lucerne._src.tensor.settings import (
    is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled,
)
from lucerne._src.tensor.settings import is_warn_always_enabled as is_warn_always_enabled
from lucerne._src.tensor.settings import set_anomaly_enabled as set_anomaly_enabled
from lucerne._src.tensor.settings import set_default_device as set_default_device
from lucerne._src.tensor.settings import set_default_dtype as set_default_dtype
from lucerne._src.tensor.settings import set_default_tensor_type as set_default_tensor_type
from lucerne._src.tensor.settings import (
    set_deterministic_debug_mode as set_deterministic_debug_mode,
)
from lucerne._src.tensor.settings import (
    set_float32_matmul_precision as set_float32_matmul_precision,
)
from lucerne._src.tensor.settings import set_flush_denormal as set_flush_denormal
from lucerne._src.tensor.settings import set_num_interop_threads as set_num_interop_threads
from lucerne._src.tensor.settings import set_num_threads as set_num_threads
from lucerne._src.tensor.settings import set_warn_always as set_warn_always
from lucerne._src.tensor.settings import (
    use_deterministic_algorithms as use_deterministic_algorithms,
)
from lucerne._src.tensor.sparse.convert import resize_as_sparse_ as resize_as_sparse_
from lucerne._src.tensor.subclasses.torch_function import disable_all, disable_overrides
from lucerne._src.tensor.tensor import Tensor as Tensor
from lucerne.amp.autocast_mode import autocast as autocast
from lucerne.amp.grad_scaler import GradScaler as GradScaler
from lucerne.func.vmap import vmap as vmap

__version__: str
bfloat16: dtype
bit: dtype
bits16: dtype
bits1x8: dtype
bits2x4: dtype
bits4x2: dtype
bits8: dtype
bool: dtype
cdouble: dtype
cfloat: dtype
chalf: dtype
channels_last: memory_format
channels_last_3d: memory_format
complex128: dtype
complex32: dtype
complex64: dtype
contiguous_format: memory_format
default_generator: Generator
double: dtype
e: _float
float: dtype
float16: dtype
float32: dtype
float4_e2m1fn_x2: dtype
float64: dtype
float8_e4m3fn: dtype
float8_e4m3fnuz: dtype
float8_e5m2: dtype
float8_e5m2fnuz: dtype
float8_e8m0fnu: dtype
half: dtype
has_lapack: _bool
has_mkl: _bool
has_openmp: _bool
has_spectral: _bool
inf: _float
int: dtype
int1: dtype
int16: dtype
int2: dtype
int3: dtype
int32: dtype
int4: dtype
int5: dtype
int6: dtype
int64: dtype
int7: dtype
int8: dtype
jagged: layout
legacy_contiguous_format: memory_format
long: dtype
nan: _float
newaxis: None
per_channel_affine: qscheme
per_channel_affine_float_qparams: qscheme
per_channel_symmetric: qscheme
per_tensor_affine: qscheme
per_tensor_symmetric: qscheme
pi: _float
preserve_format: memory_format
qint32: dtype
qint8: dtype
quint2x4: dtype
quint4x2: dtype
quint8: dtype
short: dtype
sparse_bsc: layout
sparse_bsr: layout
sparse_coo: layout
sparse_csc: layout
sparse_csr: layout
strided: layout
uint1: dtype
uint16: dtype
uint2: dtype
uint3: dtype
uint32: dtype
uint4: dtype
uint5: dtype
uint6: dtype
uint64: dtype
uint7: dtype
uint8: dtype
DisableTorchFunction = disable_all
DisableTorchFunctionSubclass = disable_overrides

class BFloat16Storage(TypedStorage): ...
class BFloat16Tensor(Tensor): ...
class BoolStorage(TypedStorage): ...
class BoolTensor(Tensor): ...
class ByteStorage(TypedStorage): ...
class ByteTensor(Tensor): ...
class CharStorage(TypedStorage): ...
class CharTensor(Tensor): ...
class ComplexDoubleStorage(TypedStorage): ...
class ComplexFloatStorage(TypedStorage): ...
class DoubleStorage(TypedStorage): ...
class DoubleTensor(Tensor): ...
class FloatStorage(TypedStorage): ...
class FloatTensor(Tensor): ...
class HalfStorage(TypedStorage): ...
class HalfTensor(Tensor): ...
class IntStorage(TypedStorage): ...
class IntTensor(Tensor): ...
class LongStorage(TypedStorage): ...
class LongTensor(Tensor): ...
class ShortStorage(TypedStorage): ...
class ShortTensor(Tensor): ...
class Storage(TypedStorage): ...

def _chunk_cat(
    tensors: Sequence[Tensor], dim: _int, num_chunks: _int, *, out: Tensor | None = None
) -> Tensor: ...
def _dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor: ...
def _foreach_abs(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_abs_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_acos(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_acos_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_add(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_add_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_addcdiv(
    self: Sequence[Tensor], tensor1: Any, tensor2: Any, value: Any = 1, scalars: Any = None
) -> tuple[Tensor, ...]: ...
def _foreach_addcdiv_(
    self: Sequence[Tensor], tensor1: Any, tensor2: Any, value: Any = 1, scalars: Any = None
) -> tuple[Tensor, ...]: ...
def _foreach_addcmul(
    self: Sequence[Tensor], tensor1: Any, tensor2: Any, value: Any = 1, scalars: Any = None
) -> tuple[Tensor, ...]: ...
def _foreach_addcmul_(
    self: Sequence[Tensor], tensor1: Any, tensor2: Any, value: Any = 1, scalars: Any = None
) -> tuple[Tensor, ...]: ...
def _foreach_asin(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_asin_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_atan(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_atan_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_ceil(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_ceil_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_clamp_max(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_clamp_max_(
    self: Sequence[Tensor], *args: Any, **kwargs: Any
) -> tuple[Tensor, ...]: ...
def _foreach_clamp_min(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_clamp_min_(
    self: Sequence[Tensor], *args: Any, **kwargs: Any
) -> tuple[Tensor, ...]: ...
def _foreach_clone(
    self: Sequence[Tensor], *, memory_format: memory_format | None = None
) -> tuple[Tensor, ...]: ...
def _foreach_copy_(
    self: Sequence[Tensor], src: Any, non_blocking: _bool = False
) -> tuple[Tensor, ...]: ...
def _foreach_cos(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_cos_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_cosh(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_cosh_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_div(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_div_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_erf(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_erf_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_erfc(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_erfc_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_exp(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_exp_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_expm1(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_expm1_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_floor(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_floor_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_frac(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_frac_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_lerp(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_lerp_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_lgamma(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_lgamma_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_log(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_log10(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_log10_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_log1p(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_log1p_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_log2(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_log2_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_log_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_max(self: Sequence[Tensor]) -> tuple[Tensor, ...]: ...
def _foreach_maximum(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_maximum_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_minimum(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_minimum_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_mm(self: Sequence[Tensor], mat2: Any) -> tuple[Tensor, ...]: ...
def _foreach_mul(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_mul_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_neg(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_neg_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_norm(
    self: Sequence[Tensor], ord: _float = 2, dtype: dtype | None = None
) -> tuple[Tensor, ...]: ...
def _foreach_pow(self: Sequence[Tensor], exponent: Any) -> tuple[Tensor, ...]: ...
def _foreach_pow_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_powsum(
    self: Sequence[Tensor], ord: _float = 2, dtype: dtype | None = None
) -> tuple[Tensor, ...]: ...
def _foreach_reciprocal(
    self: Sequence[Tensor], *args: Any, **kwargs: Any
) -> tuple[Tensor, ...]: ...
def _foreach_reciprocal_(
    self: Sequence[Tensor], *args: Any, **kwargs: Any
) -> tuple[Tensor, ...]: ...
def _foreach_round(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_round_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_rsqrt(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_rsqrt_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_sigmoid(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_sigmoid_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_sign(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_sign_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_sin(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_sin_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_sinh(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_sinh_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_sqrt(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_sqrt_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_sub(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_sub_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_tan(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_tan_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_tanh(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_tanh_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_trunc(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_trunc_(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
def _foreach_zero_(self: Sequence[Tensor]) -> tuple[Tensor, ...]: ...
def _log_softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: _int, input_dtype: dtype
) -> Tensor: ...
def _native_batch_norm_legit(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *rest: Any,
    out: Sequence[Tensor] | None = None,
    **named: Any,
) -> tuple[Tensor, Tensor, Tensor]: ...
def _pack_padded_sequence(
    input: Tensor, lengths: Tensor, batch_first: _bool = False
) -> tuple[Tensor, Tensor]: ...
def _pad_packed_sequence(
    data: Tensor,
    batch_sizes: Tensor,
    batch_first: _bool,
    padding_value: Number = 0.0,
    total_length: _int = -1,
) -> tuple[Tensor, Tensor]: ...
def _safe_softmax(input: Tensor, dim: _int, dtype: dtype | None = None) -> Tensor: ...
def _sample_dirichlet(input: Tensor, generator: Generator | None = None) -> Tensor: ...
def _segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Any = None,
    indices: Any = None,
    offsets: Any = None,
    axis: _int = 0,
    unsafe: _bool = False,
    initial: Any = None,
) -> Tensor: ...
def _softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: _int, input_dtype: dtype
) -> Tensor: ...
def _standard_gamma(input: Tensor, generator: Generator | None = None) -> Tensor: ...
def _standard_gamma_grad(input: Tensor, output: Tensor) -> Tensor: ...
def _unsafe_masked_index(
    input: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: Number
) -> Tensor: ...
def _unsafe_masked_index_put_accumulate(
    input: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> Tensor: ...
def abs(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def abs_(input: Tensor) -> Tensor: ...
def absolute(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def acos(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def acos_(input: Tensor) -> Tensor: ...
def acosh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def acosh_(input: Tensor) -> Tensor: ...
def adaptive_avg_pool1d(input: Tensor, output_size: Sizes) -> Tensor: ...
def adaptive_max_pool1d(input: Tensor, output_size: Sizes) -> tuple[Tensor, Tensor]: ...
def add(
    input: Tensor, other: Tensor | Number, *, alpha: Number = 1, out: Tensor | None = None
) -> Tensor: ...
def addbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *,
    beta: Number = 1,
    alpha: Number = 1,
    out: Tensor | None = None,
) -> Tensor: ...
def addcdiv(
    input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1, out: Tensor | None = None
) -> Tensor: ...
def addcmul(
    input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1, out: Tensor | None = None
) -> Tensor: ...
def addmm(
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: Number = 1,
    alpha: Number = 1,
    out: Tensor | None = None,
) -> Tensor: ...
def addmv(
    input: Tensor,
    mat: Tensor,
    vec: Tensor,
    *,
    beta: Number = 1,
    alpha: Number = 1,
    out: Tensor | None = None,
) -> Tensor: ...
def addmv_(
    input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor: ...
def addr(
    input: Tensor,
    vec1: Tensor,
    vec2: Tensor,
    *,
    beta: Number = 1,
    alpha: Number = 1,
    out: Tensor | None = None,
) -> Tensor: ...
def adjoint(input: Tensor) -> Tensor: ...
def affine_grid_generator(theta: Tensor, size: Sequence[_int], align_corners: _bool) -> Tensor: ...
def alias_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def all(
    input: Tensor,
    dim: _int | Sequence[_int] | None = None,
    keepdim: _bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def allclose(
    input: Tensor,
    other: Tensor,
    rtol: _float = 1e-05,
    atol: _float = 1e-08,
    equal_nan: _bool = False,
) -> _bool: ...
def alpha_dropout(input: Tensor, p: _float, train: _bool) -> Tensor: ...
def alpha_dropout_(input: Tensor, p: _float, train: _bool) -> Tensor: ...
def amax(
    input: Tensor, dim: Sizes = (), keepdim: _bool = False, *, out: Tensor | None = None
) -> Tensor: ...
def amin(
    input: Tensor, dim: Sizes = (), keepdim: _bool = False, *, out: Tensor | None = None
) -> Tensor: ...
def aminmax(
    input: Tensor,
    *,
    dim: _int | None = None,
    keepdim: _bool = False,
    out: Sequence[Tensor] | None = None,
) -> return_types.aminmax: ...
def angle(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def any(
    input: Tensor,
    dim: _int | Sequence[_int] | None = None,
    keepdim: _bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def apply_(input: Tensor, callable: Callable[[Any], Any]) -> Tensor: ...
def arange(
    *args: Any,
    start: Number | None = None,
    end: Number | None = None,
    step: Number | None = None,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def arccos(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def arccos_(input: Tensor) -> Tensor: ...
def arccosh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def arccosh_(input: Tensor) -> Tensor: ...
def arcsin(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def arcsin_(input: Tensor) -> Tensor: ...
def arcsinh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def arcsinh_(input: Tensor) -> Tensor: ...
def arctan(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def arctan2(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def arctan_(input: Tensor) -> Tensor: ...
def arctanh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def arctanh_(input: Tensor) -> Tensor: ...
def argmax(
    input: Tensor, dim: _int | None = None, keepdim: _bool = False, *, out: Tensor | None = None
) -> Tensor: ...
def argmin(
    input: Tensor, dim: _int | None = None, keepdim: _bool = False, *, out: Tensor | None = None
) -> Tensor: ...
def argsort(
    input: Tensor,
    dim: _int = -1,
    descending: _bool = False,
    *,
    stable: _bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
def argwhere(input: Tensor) -> Tensor: ...
def as_strided(
    input: Tensor, size: Sequence[_int], stride: Sequence[_int], storage_offset: _int | None = None
) -> Tensor: ...
def as_strided_(input: Tensor, *args: Any, **kw: Any) -> Tensor: ...
def as_strided_copy(
    input: Tensor,
    size: Sequence[_int],
    stride: Sequence[_int],
    storage_offset: _int | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def as_strided_scatter(
    input: Tensor,
    src: Tensor,
    size: Sequence[_int],
    stride: Sequence[_int],
    storage_offset: _int | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def as_tensor(data: Any, dtype: dtype | None = None, device: Device | None = None) -> Tensor: ...
def asarray(
    obj: Any,
    *,
    dtype: dtype | None = None,
    device: Device | None = None,
    copy: _bool | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
def asin(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def asin_(input: Tensor) -> Tensor: ...
def asinh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def asinh_(input: Tensor) -> Tensor: ...
def atan(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def atan2(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def atan_(input: Tensor) -> Tensor: ...
def atanh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def atanh_(input: Tensor) -> Tensor: ...
@overload
def atleast_1d(input: Tensor) -> Tensor: ...
@overload
def atleast_1d(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]: ...
@overload
def atleast_2d(input: Tensor) -> Tensor: ...
@overload
def atleast_2d(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]: ...
@overload
def atleast_3d(input: Tensor) -> Tensor: ...
@overload
def atleast_3d(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]: ...
def avg_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: _bool = False,
    count_include_pad: _bool = True,
) -> Tensor: ...
def baddbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *,
    beta: Number = 1,
    alpha: Number = 1,
    out: Tensor | None = None,
) -> Tensor: ...
def bartlett_window(
    window_length: _int,
    periodic: _bool = True,
    *,
    dtype: dtype | None = None,
    layout: layout | None = ...,
    device: Device | None = None,
    pin_memory: _bool | None = False,
    requires_grad: _bool = False,
) -> Tensor: ...
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: _bool,
    momentum: _float,
    eps: _float,
    cudnn_enabled: _bool,
) -> Tensor: ...
def bernoulli(
    input: Tensor,
    p: Tensor | _float | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def bilinear(
    input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor: ...
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: _int = 1,
) -> Tensor: ...
def bincount(input: Tensor, weights: Tensor | None = None, minlength: _int = 0) -> Tensor: ...
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor: ...
def bitwise_and(
    input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None
) -> Tensor: ...
def bitwise_left_shift(
    input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None
) -> Tensor: ...
def bitwise_not(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def bitwise_or(
    input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None
) -> Tensor: ...
def bitwise_right_shift(
    input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None
) -> Tensor: ...
def bitwise_xor(
    input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None
) -> Tensor: ...
def blackman_window(
    window_length: _int,
    periodic: _bool = True,
    *,
    dtype: dtype | None = None,
    layout: layout | None = ...,
    device: Device | None = None,
    pin_memory: _bool | None = False,
    requires_grad: _bool = False,
) -> Tensor: ...
def block_diag(*tensors: Any) -> Tensor: ...
def bmm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def broadcast_shapes(*shapes: Any) -> Size: ...
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]: ...
def broadcast_to(input: Tensor, *args: Any, size: Sequence[_int] | None = None) -> Tensor: ...
def bucketize(
    input: Tensor | Number,
    boundaries: Tensor,
    *,
    out_int32: _bool = False,
    right: _bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
def cartesian_prod(*tensors: Any) -> Tensor: ...
def cat(
    tensors: Sequence[Tensor], dim: _int = 0, *, axis: Any = None, out: Tensor | None = None
) -> Tensor: ...
def ccol_indices_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def cdist(
    x1: Tensor,
    x2: Tensor,
    p: _float = 2.0,
    compute_mode: str | _int | None = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor: ...
def ceil(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def ceil_(input: Tensor) -> Tensor: ...
def celu(input: Tensor, alpha: Number = 1.0, inplace: _bool = False) -> Tensor: ...
def celu_(input: Tensor, *args: Any, **options: Any) -> Tensor: ...
def chain_matmul(*matrices: Any, out: Tensor | None = None) -> Tensor: ...
def channel_shuffle(input: Tensor, groups: _int) -> Tensor: ...
def cholesky(input: Tensor, upper: _bool = False, *, out: Tensor | None = None) -> Tensor: ...
def cholesky_inverse(L: Tensor, upper: _bool = False, *, out: Tensor | None = None) -> Tensor: ...
def cholesky_solve(
    B: Tensor, L: Tensor, upper: _bool = False, *, out: Tensor | None = None
) -> Tensor: ...
def chunk(input: Tensor, chunks: _int, dim: _int = 0) -> tuple[Tensor, ...]: ...
def clamp(
    input: Tensor,
    min: Number | Tensor | None = None,
    max: Number | Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def clamp_(
    input: Tensor, min: Number | Tensor | None = None, max: Number | Tensor | None = None
) -> Tensor: ...
def clamp_max(input: Tensor, max: Tensor | Number, *, out: Tensor | None = None) -> Tensor: ...
def clamp_max_(input: Tensor, max: Tensor | Number) -> Tensor: ...
def clamp_min(input: Tensor, min: Tensor | Number, *, out: Tensor | None = None) -> Tensor: ...
def clamp_min_(input: Tensor, min: Tensor | Number) -> Tensor: ...
def clip(
    input: Tensor,
    min: Number | Tensor | None = None,
    max: Number | Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def clip_(
    input: Tensor, min: Number | Tensor | None = None, max: Number | Tensor | None = None
) -> Tensor: ...
def clone(input: Tensor, *, memory_format: memory_format | None = ...) -> Tensor: ...
def col_indices_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor: ...
def combinations(input: Tensor, r: _int = 2, with_replacement: _bool = False) -> Tensor: ...
def complex(real: Tensor, imag: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def concat(
    tensors: Sequence[Tensor], dim: _int = 0, *, axis: Any = None, out: Tensor | None = None
) -> Tensor: ...
def concatenate(
    tensors: Sequence[Tensor], dim: _int = 0, *, axis: Any = None, out: Tensor | None = None
) -> Tensor: ...
def conj(input: Tensor) -> Tensor: ...
def conj_physical(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def conj_physical_(input: Tensor) -> Tensor: ...
def constant_pad_nd(input: Tensor, pad: Sizes, value: Number = 0) -> Tensor: ...
def contiguous(input: Tensor, memory_format: memory_format = ...) -> Tensor: ...
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: _int = 1,
) -> Tensor: ...
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: _int = 1,
) -> Tensor: ...
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: _int = 1,
) -> Tensor: ...
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: _int = 0) -> Tensor: ...
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: _int = 1,
    dilation: Sizes = 1,
) -> Tensor: ...
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: _int = 1,
    dilation: Sizes = 1,
) -> Tensor: ...
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: _int = 1,
    dilation: Sizes = 1,
) -> Tensor: ...
def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[_int],
    padding: Sequence[_int],
    dilation: Sequence[_int],
    transposed: _bool,
    output_padding: Sequence[_int],
    groups: _int,
) -> Tensor: ...
def copysign(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor: ...
def corrcoef(input: Tensor) -> Tensor: ...
def cos(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def cos_(input: Tensor) -> Tensor: ...
def cosh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def cosh_(input: Tensor) -> Tensor: ...
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: _float = 0.0, reduction: _int = 1
) -> Tensor: ...
def cosine_similarity(x1: Tensor, x2: Tensor, dim: _int = 1, eps: _float = 1e-08) -> Tensor: ...
def count_nonzero(input: Tensor, dim: Sizes | None = None) -> Tensor: ...
def cov(
    input: Tensor,
    *,
    correction: _float | _int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor: ...
def cross(
    input: Tensor, other: Tensor, dim: _int | None = None, *, out: Tensor | None = None
) -> Tensor: ...
def crow_indices_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[_int],
    target_lengths: Tensor | Sequence[_int],
    blank: _int = 0,
    reduction: _int = 1,
    zero_infinity: _bool = False,
) -> Tensor: ...
def cummax(
    input: Tensor, dim: _int, *, out: Sequence[Tensor] | None = None
) -> return_types.cummax: ...
def cummin(
    input: Tensor, dim: _int, *, out: Sequence[Tensor] | None = None
) -> return_types.cummin: ...
def cumprod(
    input: Tensor, dim: _int, *, dtype: dtype | None = None, out: Tensor | None = None
) -> Tensor: ...
def cumsum(
    input: Tensor, dim: _int, *, dtype: dtype | None = None, out: Tensor | None = None
) -> Tensor: ...
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Number | None = None, dim: _int = -1
) -> Tensor: ...
def deg2rad(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def deg2rad_(input: Tensor) -> Tensor: ...
def dequantize(*tensors: Any, **named: Any) -> Tensor: ...
def det(input: Tensor) -> Tensor: ...
def detach(input: Tensor) -> Tensor: ...
def detach_(input: Tensor) -> Tensor: ...
def detach_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def diag(input: Tensor, diagonal: _int = 0, *, out: Tensor | None = None) -> Tensor: ...
def diag_embed(input: Tensor, offset: _int = 0, dim1: _int = -2, dim2: _int = -1) -> Tensor: ...
def diagflat(input: Tensor, offset: _int = 0) -> Tensor: ...
def diagonal(input: Tensor, offset: _int = 0, dim1: _int = 0, dim2: _int = 1) -> Tensor: ...
def diagonal_copy(
    input: Tensor, offset: _int = 0, dim1: _int = 0, dim2: _int = 1, *, out: Tensor | None = None
) -> Tensor: ...
def diagonal_scatter(
    input: Tensor,
    src: Tensor,
    offset: _int = 0,
    dim1: _int = 0,
    dim2: _int = 1,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def diff(
    input: Tensor,
    n: _int = 1,
    dim: _int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def digamma(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def dist(input: Tensor, other: Tensor, p: Number = 2) -> Tensor: ...
def div(
    input: Tensor,
    other: Tensor | Number,
    *,
    rounding_mode: str | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def divide(
    input: Tensor,
    other: Tensor | Number,
    *,
    rounding_mode: str | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def dot(input: Tensor, tensor: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def dropout(input: Tensor, p: _float, train: _bool) -> Tensor: ...
def dropout_(input: Tensor, p: _float, train: _bool) -> Tensor: ...
def dsmm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def dsplit(
    input: Tensor, *args: Any, indices: Sequence[_int] | None = None, sections: _int | None = None
) -> tuple[Tensor, ...]: ...
def dstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor: ...
def einsum(*args: Any) -> Tensor: ...
def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: _int = -1,
    scale_grad_by_freq: _bool = False,
    sparse: _bool = False,
) -> Tensor: ...
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: _bool = False,
    mode: _int = 0,
    sparse: _bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: _bool = False,
    padding_idx: _int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
def embedding_renorm_(
    weight: Tensor, indices: Tensor, max_norm: _float, norm_type: _float
) -> Tensor: ...
def empty(
    *args: Any,
    size: Sequence[_int] | None = None,
    out: Tensor | None = None,
    memory_format: memory_format | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def empty_like(
    input: Tensor,
    *,
    memory_format: memory_format | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def empty_permuted(
    size: Sequence[_int],
    physical_layout: Sequence[_int],
    *,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def empty_strided(
    size: Sequence[_int],
    stride: Sequence[_int],
    *,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def eq(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor: ...
def equal(input: Tensor, other: Tensor) -> _bool: ...
def erf(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def erf_(input: Tensor) -> Tensor: ...
def erfc(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def erfc_(input: Tensor) -> Tensor: ...
def erfinv(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def exp(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def exp2(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def exp2_(input: Tensor) -> Tensor: ...
def exp_(input: Tensor) -> Tensor: ...
def expand_copy(
    input: Tensor, size: Sizes, *, implicit: _bool = False, out: Tensor | None = None
) -> Tensor: ...
def expm1(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def expm1_(input: Tensor) -> Tensor: ...
def eye(
    n: _int,
    m: _int | None = None,
    *,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: _int, quant_min: _int, quant_max: _int
) -> Tensor: ...
def fake_quantize_per_tensor_affine(
    input: Tensor,
    scale: Tensor | _float,
    zero_point: Tensor | _int,
    quant_min: _int,
    quant_max: _int,
) -> Tensor: ...
def feature_alpha_dropout(input: Tensor, p: _float, train: _bool) -> Tensor: ...
def feature_alpha_dropout_(input: Tensor, p: _float, train: _bool) -> Tensor: ...
def feature_dropout(input: Tensor, p: _float, train: _bool) -> Tensor: ...
def feature_dropout_(input: Tensor, p: _float, train: _bool) -> Tensor: ...
def fill(input: Tensor, value: Tensor | Number) -> Tensor: ...
def fill_(input: Tensor, value: Tensor | Number) -> Tensor: ...
def fill_diagonal_(input: Tensor, fill_value: Number, wrap: _bool = False) -> Tensor: ...
def fix(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def fix_(input: Tensor) -> Tensor: ...
def flatten(input: Tensor, start_dim: _int = 0, end_dim: _int = -1) -> Tensor: ...
def flip(input: Tensor, *args: Any, dims: Sequence[_int] | None = None) -> Tensor: ...
def fliplr(input: Tensor) -> Tensor: ...
def flipud(input: Tensor) -> Tensor: ...
def float_power(
    input: Tensor | Number, exponent: Tensor | Number, *, out: Tensor | None = None
) -> Tensor: ...
def floor(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def floor_(input: Tensor) -> Tensor: ...
def floor_divide(
    input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None
) -> Tensor: ...
def fmax(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def fmin(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def fmod(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor: ...
def frac(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def frac_(input: Tensor) -> Tensor: ...
def frexp(input: Tensor, *, out: Sequence[Tensor] | None = None) -> return_types.frexp: ...
def frobenius_norm(
    input: Tensor, dim: Sizes, keepdim: _bool = False, *, out: Tensor | None = None
) -> Tensor: ...
def from_dlpack(
    ext_tensor: Any, *, device: Device | None = None, copy: _bool | None = None
) -> Tensor: ...
def from_file(
    filename: str,
    shared: _bool | None = None,
    size: _int = 0,
    *,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    pin_memory: _bool = False,
    requires_grad: _bool = False,
) -> Tensor: ...
def from_numpy(array: Any) -> Tensor: ...
def frombuffer(
    buffer: Any,
    *,
    dtype: dtype | None,
    count: _int = -1,
    offset: _int = 0,
    requires_grad: _bool = False,
) -> Tensor: ...
def full(
    size: Sequence[_int],
    fill_value: Number,
    *,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def full_like(
    input: Tensor,
    fill_value: Number,
    *,
    memory_format: memory_format | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def gather(
    input: Tensor,
    dim: _int,
    index: Tensor,
    *,
    sparse_grad: _bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
def gcd(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def gcd_(input: Tensor, other: Tensor) -> Tensor: ...
def ge(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor: ...
def geqrf(input: Tensor, *, out: Sequence[Tensor] | None = None) -> return_types.geqrf: ...
def ger(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def get_rng_state() -> Tensor: ...
def gradient(
    input: Tensor,
    *,
    spacing: Number | Sequence[Number] | Sequence[Tensor] | None = None,
    dim: Sequence[_int] | _int | None = None,
    edge_order: _int = 1,
) -> tuple[Tensor, ...]: ...
def greater(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor: ...
def greater_equal(
    input: Tensor, other: Tensor | Number, *, out: Tensor | None = None
) -> Tensor: ...
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: _int, padding_mode: _int, align_corners: _bool
) -> Tensor: ...
def grid_sampler_2d(
    input: Tensor, grid: Tensor, interpolation_mode: _int, padding_mode: _int, align_corners: _bool
) -> Tensor: ...
def grid_sampler_3d(
    input: Tensor, grid: Tensor, interpolation_mode: _int, padding_mode: _int, align_corners: _bool
) -> Tensor: ...
def group_norm(
    input: Tensor,
    num_groups: _int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: _float = 1e-05,
    cudnn_enabled: _bool = True,
) -> Tensor: ...
def gru(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]: ...
def gru_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor: ...
def gt(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor: ...
def hamming_window(
    window_length: _int,
    periodic: _bool = True,
    alpha: _float = 0.54,
    beta: _float = 0.46,
    *,
    dtype: dtype | None = None,
    layout: layout | None = ...,
    device: Device | None = None,
    pin_memory: _bool | None = False,
    requires_grad: _bool = False,
) -> Tensor: ...
def hann_window(
    window_length: _int,
    periodic: _bool = True,
    *,
    dtype: dtype | None = None,
    layout: layout | None = ...,
    device: Device | None = None,
    pin_memory: _bool | None = False,
    requires_grad: _bool = False,
) -> Tensor: ...
def hardshrink(input: Tensor, lambd: Number = 0.5, *, out: Tensor | None = None) -> Tensor: ...
def hash_tensor(
    input: Tensor,
    dim: Sizes = (),
    *,
    keepdim: _bool = False,
    mode: _int = 0,
    out: Tensor | None = None,
) -> Tensor: ...
def heaviside(input: Tensor, values: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: _float = 1.0, reduction: _int = 1
) -> Tensor: ...
def histc(
    input: Tensor, bins: _int = 100, min: Number = 0, max: Number = 0, *, out: Tensor | None = None
) -> Tensor: ...
def histogram(
    input: Tensor,
    bins: _int | Tensor,
    *,
    range: Sequence[_float] | None = None,
    weight: Tensor | None = None,
    density: _bool = False,
    out: Sequence[Tensor] | None = None,
) -> return_types.histogram: ...
def histogramdd(
    input: Tensor,
    bins: Sequence[_int] | Sequence[Tensor] | _int,
    range: Sequence[_float] | None = None,
    weight: Tensor | None = None,
    density: _bool = False,
) -> return_types.histogramdd: ...
def hsplit(
    input: Tensor, *args: Any, indices: Sequence[_int] | None = None, sections: _int | None = None
) -> tuple[Tensor, ...]: ...
def hspmm(*args: Any, **kwargs: Any) -> Tensor: ...
def hstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor: ...
def hypot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def i0(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def i0_(input: Tensor) -> Tensor: ...
def igamma(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def igammac(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def imag(input: Tensor) -> Tensor: ...
def index_add(
    input: Tensor,
    dim: _int,
    index: Tensor,
    source: Tensor,
    *,
    alpha: Number = 1,
    out: Tensor | None = None,
) -> Tensor: ...
def index_copy(
    input: Tensor, dim: _int, index: Tensor, source: Tensor, *, out: Tensor | None = None
) -> Tensor: ...
def index_fill(
    input: Tensor, dim: _int, index: Tensor, value: Tensor | Number, *, out: Tensor | None = None
) -> Tensor: ...
def index_put(
    input: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    accumulate: _bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def index_put_(
    input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: _bool = False
) -> Tensor: ...
def index_reduce(
    input: Tensor,
    dim: _int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: _bool = True,
    out: Tensor | None = None,
) -> Tensor: ...
def index_select(
    input: Tensor, dim: _int, index: Tensor, *, out: Tensor | None = None
) -> Tensor: ...
def indices_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def inner(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: _bool,
    momentum: _float,
    eps: _float,
    cudnn_enabled: _bool,
) -> Tensor: ...
def inverse(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def is_complex(input: Tensor) -> _bool: ...
def is_conj(input: Tensor) -> _bool: ...
def is_floating_point(input: Tensor) -> _bool: ...
def is_neg(input: Tensor) -> _bool: ...
def isclose(
    input: Tensor,
    other: Tensor,
    rtol: _float = 1e-05,
    atol: _float = 1e-08,
    equal_nan: _bool = False,
) -> Tensor: ...
def isfinite(input: Tensor) -> Tensor: ...
def isin(
    elements: Tensor | Number,
    test_elements: Tensor | Number,
    *,
    assume_unique: _bool = False,
    invert: _bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
def isinf(input: Tensor) -> Tensor: ...
def isnan(input: Tensor) -> Tensor: ...
def isneginf(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def isposinf(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def isreal(input: Tensor) -> Tensor: ...
def istft(
    input: Tensor,
    n_fft: _int,
    hop_length: _int | None = None,
    win_length: _int | None = None,
    window: Tensor | None = None,
    center: _bool = True,
    normalized: _bool = False,
    onesided: _bool | None = None,
    length: _int | None = None,
    return_complex: _bool = False,
) -> Tensor: ...
def kaiser_window(
    window_length: _int,
    periodic: _bool = True,
    beta: _float = 12.0,
    *,
    dtype: dtype | None = None,
    layout: layout | None = ...,
    device: Device | None = None,
    pin_memory: _bool | None = False,
    requires_grad: _bool = False,
) -> Tensor: ...
def kl_div(
    input: Tensor, target: Tensor, reduction: _int = 1, *, log_target: _bool = False
) -> Tensor: ...
def kron(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def kthvalue(
    input: Tensor,
    k: _int,
    dim: _int = -1,
    keepdim: _bool = False,
    *,
    out: Sequence[Tensor] | None = None,
) -> return_types.kthvalue: ...
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[_int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: _float = 1e-05,
    cudnn_enable: _bool = True,
) -> Tensor: ...
def lcm(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def lcm_(input: Tensor, other: Tensor) -> Tensor: ...
def ldexp(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def ldexp_(input: Tensor, other: Tensor) -> Tensor: ...
def le(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor: ...
def lerp(
    input: Tensor, end: Tensor, weight: Tensor | Number, *, out: Tensor | None = None
) -> Tensor: ...
def less(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor: ...
def less_equal(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor: ...
def lgamma(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def linspace(
    start: Number | Tensor,
    end: Number | Tensor,
    steps: _int,
    *,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def log(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def log10(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def log10_(input: Tensor) -> Tensor: ...
def log1p(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def log1p_(input: Tensor) -> Tensor: ...
def log2(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def log2_(input: Tensor) -> Tensor: ...
def log_(input: Tensor) -> Tensor: ...
def log_softmax(
    input: Tensor, dim: _int, dtype: dtype | None = None, *, out: Tensor | None = None
) -> Tensor: ...
def logaddexp(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def logaddexp2(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def logcumsumexp(input: Tensor, dim: _int, *, out: Tensor | None = None) -> Tensor: ...
def logdet(input: Tensor) -> Tensor: ...
def logical_and(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def logical_not(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def logical_or(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def logical_xor(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def logit(input: Tensor, eps: _float | None = None, *, out: Tensor | None = None) -> Tensor: ...
def logit_(input: Tensor, eps: _float | None = None) -> Tensor: ...
def logspace(
    start: Number | Tensor,
    end: Number | Tensor,
    steps: _int,
    base: _float = 10.0,
    *,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def logsumexp(
    input: Tensor, dim: Sizes, keepdim: _bool = False, *, out: Tensor | None = None
) -> Tensor: ...
def lstm(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor]: ...
def lstm_cell(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]: ...
def lt(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor: ...
def lu(
    A: Tensor, pivot: _bool = True, get_infos: _bool = False, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...]: ...
def lu_solve(
    b: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None
) -> Tensor: ...
def lu_unpack(
    LU_data: Tensor,
    LU_pivots: Tensor,
    unpack_data: _bool = True,
    unpack_pivots: _bool = True,
    *,
    out: Sequence[Tensor] | None = None,
) -> return_types.lu_unpack: ...
def manual_seed(seed: _int) -> Generator: ...
def map_(input: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor: ...
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: _float = 0.0, reduction: _int = 1
) -> Tensor: ...
def masked_fill(
    input: Tensor, mask: Tensor, value: Tensor | Number, *, out: Tensor | None = None
) -> Tensor: ...
def masked_scatter(
    input: Tensor, mask: Tensor, source: Tensor, *, out: Tensor | None = None
) -> Tensor: ...
def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def matrix_exp(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def matrix_power(input: Tensor, n: _int, *, out: Tensor | None = None) -> Tensor: ...
@overload
def max(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def max(
    input: Tensor, dim: _int, keepdim: _bool = False, *, out: Sequence[Tensor] | None = None
) -> return_types.max: ...
@overload
def max(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def max_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: _bool = False,
    return_indices: _bool = False,
) -> Tensor: ...
def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: _bool = False,
    return_indices: _bool = False,
) -> tuple[Tensor, Tensor]: ...
def max_pool2d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: _bool = False,
    return_indices: _bool = False,
) -> Tensor: ...
def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: _bool = False,
    return_indices: _bool = False,
) -> tuple[Tensor, Tensor]: ...
def max_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: _bool = False,
    return_indices: _bool = False,
) -> Tensor: ...
def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: _bool = False,
    return_indices: _bool = False,
) -> tuple[Tensor, Tensor]: ...
def maximum(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def mean(
    input: Tensor,
    dim: Sizes | None = None,
    keepdim: _bool = False,
    *,
    dtype: dtype | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
@overload
def median(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def median(
    input: Tensor, dim: _int, keepdim: _bool = False, *, out: Sequence[Tensor] | None = None
) -> return_types.median: ...
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]: ...
@overload
def min(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def min(
    input: Tensor, dim: _int, keepdim: _bool = False, *, out: Sequence[Tensor] | None = None
) -> return_types.min: ...
@overload
def min(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def minimum(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def mode(
    input: Tensor, dim: _int = -1, keepdim: _bool = False, *, out: Sequence[Tensor] | None = None
) -> return_types.mode: ...
def moveaxis(
    input: Tensor, source: _int | Sequence[_int], destination: _int | Sequence[_int]
) -> Tensor: ...
def movedim(
    input: Tensor, source: _int | Sequence[_int], destination: _int | Sequence[_int]
) -> Tensor: ...
def msort(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def mul(input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor: ...
def multinomial(
    input: Tensor,
    num_samples: _int,
    replacement: _bool = False,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def multiply(
    input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None
) -> Tensor: ...
def mv(input: Tensor, vec: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def mvlgamma(input: Tensor, p: _int, *, out: Tensor | None = None) -> Tensor: ...
def nan_to_num(
    input: Tensor,
    nan: _float | None = None,
    posinf: _float | None = None,
    neginf: _float | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def nan_to_num_(
    input: Tensor,
    nan: _float | None = None,
    posinf: _float | None = None,
    neginf: _float | None = None,
) -> Tensor: ...
def nanmean(
    input: Tensor,
    dim: Sizes | None = None,
    keepdim: _bool = False,
    *,
    dtype: dtype | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
@overload
def nanmedian(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def nanmedian(
    input: Tensor, dim: _int, keepdim: _bool = False, *, out: Sequence[Tensor] | None = None
) -> return_types.nanmedian: ...
def nanquantile(
    input: Tensor,
    q: Tensor | _float,
    dim: _int | None = None,
    keepdim: _bool = False,
    *,
    interpolation: str = "linear",
    out: Tensor | None = None,
) -> Tensor: ...
def nansum(
    input: Tensor,
    dim: Sizes | None = None,
    keepdim: _bool = False,
    *,
    dtype: dtype | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def narrow(input: Tensor, dim: _int, start: _int | Tensor, length: _int) -> Tensor: ...
def narrow_copy(
    input: Tensor, dim: _int, start: _int, length: _int, *, out: Tensor | None = None
) -> Tensor: ...
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: _bool,
    momentum: _float,
    eps: _float,
    *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]: ...
def native_dropout(input: Tensor, p: _float, train: _bool | None) -> tuple[Tensor, Tensor]: ...
def native_group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: _int,
    C: _int,
    HxW: _int,
    group: _int,
    eps: _float,
) -> tuple[Tensor, Tensor, Tensor]: ...
def native_layer_norm(
    input: Tensor, normalized_shape: Sizes, weight: Tensor | None, bias: Tensor | None, eps: _float
) -> tuple[Tensor, Tensor, Tensor]: ...
def ne(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor: ...
def neg(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def neg_(input: Tensor) -> Tensor: ...
def negative(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def negative_(input: Tensor) -> Tensor: ...
def nextafter(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def nonzero(input: Tensor, *, as_tuple: _bool = False, out: Tensor | None = None) -> Tensor: ...
def nonzero_static(
    input: Tensor, *, size: _int, fill_value: _int = -1, out: Tensor | None = None
) -> Tensor: ...
def norm(
    input: Tensor,
    p: Number | str | None = "fro",
    dim: Sizes | None = None,
    keepdim: _bool = False,
    out: Tensor | None = None,
    dtype: dtype | None = None,
) -> Tensor: ...
def normal(
    mean: Tensor | _float = 0.0,
    std: Tensor | _float = 1.0,
    size: Sequence[_int] | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def not_equal(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor: ...
def nuclear_norm(
    input: Tensor, dim: Sizes = (-2, -1), keepdim: _bool = False, *, out: Tensor | None = None
) -> Tensor: ...
def ones(
    *args: Any,
    size: Sequence[_int] | None = None,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def ones_like(
    input: Tensor,
    *,
    memory_format: memory_format | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def orgqr(input: Tensor, input2: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def ormqr(
    input: Tensor,
    tau: Tensor,
    other: Tensor,
    left: _bool = True,
    transpose: _bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def outer(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: _float = 2.0, eps: _float = 1e-06, keepdim: _bool = False
) -> Tensor: ...
def pca_lowrank(
    A: Tensor, q: _int | None = None, center: _bool = True, niter: _int = 2
) -> tuple[Tensor, Tensor, Tensor]: ...
def pdist(input: Tensor, p: _float = 2.0) -> Tensor: ...
def permute(input: Tensor, *args: Any, dims: Sequence[_int] | None = None) -> Tensor: ...
def permute_copy(input: Tensor, dims: Sizes, *, out: Tensor | None = None) -> Tensor: ...
def pinverse(input: Tensor, rcond: _float = 1e-15) -> Tensor: ...
def pixel_shuffle(input: Tensor, upscale_factor: _int) -> Tensor: ...
def pixel_unshuffle(input: Tensor, downscale_factor: _int) -> Tensor: ...
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor: ...
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: _bool, full: _bool, eps: _float, reduction: _int
) -> Tensor: ...
def polar(abs: Tensor, angle: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def polygamma(n: _int, input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def positive(input: Tensor) -> Tensor: ...
def pow(
    input: Tensor | Number, exponent: Tensor | Number, *, out: Tensor | None = None
) -> Tensor: ...
def prelu(input: Tensor, weight: Tensor) -> Tensor: ...
def prod(
    input: Tensor,
    dim: _int | None = None,
    keepdim: _bool = False,
    *,
    dtype: dtype | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def put(
    input: Tensor,
    index: Tensor,
    source: Tensor,
    accumulate: _bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def qr(
    input: Tensor, some: _bool = True, *, out: Sequence[Tensor] | None = None
) -> return_types.qr: ...
def quantile(
    input: Tensor,
    q: Tensor | _float,
    dim: _int | None = None,
    keepdim: _bool = False,
    *,
    interpolation: str = "linear",
    out: Tensor | None = None,
) -> Tensor: ...
def quantize_per_channel(
    input: Tensor, scales: Any, zero_points: Any, axis: _int, dtype: dtype | None
) -> Tensor: ...
def quantize_per_tensor(
    input: Tensor, scale: Any, zero_point: Any, dtype: dtype | None
) -> Tensor: ...
def quantize_per_tensor_dynamic(
    input: Tensor, dtype: dtype | None, reduce_range: _bool
) -> Tensor: ...
def rad2deg(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def rad2deg_(input: Tensor) -> Tensor: ...
def rand(
    *args: Any,
    size: Sequence[_int] | None = None,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def rand_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    memory_format: memory_format | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def randint(
    *bounds_and_size: Any,
    generator: Generator | None = None,
    out: Tensor | None = None,
    low: _int | None = None,
    high: _int | None = None,
    size: Sequence[_int] | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def randint_like(
    input: Tensor,
    low: _int | None = None,
    high: _int | Tensor | None = None,
    *,
    generator: Generator | None = None,
    memory_format: memory_format | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def randn(
    *args: Any,
    size: Sequence[_int] | None = None,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def randn_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    memory_format: memory_format | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def randperm(
    n: _int,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: dtype | None = ...,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def range(
    start: Number = 0,
    end: Number | None = None,
    step: Number = 1,
    *,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
def ravel(input: Tensor) -> Tensor: ...
def real(input: Tensor) -> Tensor: ...
def reciprocal(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def reciprocal_(input: Tensor) -> Tensor: ...
def relu(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def relu_(input: Tensor) -> Tensor: ...
def remainder(
    input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None
) -> Tensor: ...
def renorm(
    input: Tensor, p: Number, dim: _int, maxnorm: Number, *, out: Tensor | None = None
) -> Tensor: ...
def repeat_interleave(
    input: Tensor,
    repeats: Tensor | _int | None = None,
    dim: _int | None = None,
    *,
    output_size: _int | None = None,
) -> Tensor: ...
def reshape(input: Tensor, *args: Any, shape: Sequence[_int] | None = None) -> Tensor: ...
def resize_as_(
    input: Tensor, other: Any, *, memory_format: memory_format | None = None
) -> Tensor: ...
def resolve_conj(input: Tensor) -> Tensor: ...
def resolve_neg(input: Tensor) -> Tensor: ...
def result_type(tensor1: Any, tensor2: Any) -> dtype: ...
def rms_norm(
    input: Tensor, normalized_shape: Sizes, weight: Tensor | None = None, eps: _float | None = None
) -> Tensor: ...
def rnn_relu(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]: ...
def rnn_relu_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor: ...
def rnn_tanh(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]: ...
def rnn_tanh_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor: ...
def roll(input: Tensor, shifts: Sizes, dims: Sizes = ()) -> Tensor: ...
def rot90(input: Tensor, k: _int = 1, dims: Sequence[_int] = (0, 1)) -> Tensor: ...
def round(input: Tensor, *, decimals: _int = 0, out: Tensor | None = None) -> Tensor: ...
def round_(input: Tensor, *, decimals: _int = 0) -> Tensor: ...
def row_indices_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def row_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor: ...
def rrelu(
    input: Tensor,
    lower: Number = 0.125,
    upper: Number = 0.3333333333333333,
    training: _bool = False,
    generator: Generator | None = None,
) -> Tensor: ...
def rsqrt(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def rsqrt_(input: Tensor) -> Tensor: ...
def rsub(input: Tensor, other: Tensor | Number, *, alpha: Number = 1) -> Tensor: ...
def scalar_tensor(
    s: Number,
    *,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def scatter(
    input: Tensor,
    dim: _int,
    index: Tensor,
    src: Tensor | Number = ...,
    *,
    value: Number = ...,
    reduce: str | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def scatter_add(
    input: Tensor, dim: _int, index: Tensor, src: Tensor, *, out: Tensor | None = None
) -> Tensor: ...
def scatter_reduce(
    input: Tensor,
    dim: _int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: _bool = True,
    out: Tensor | None = None,
) -> Tensor: ...
def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor | Number,
    *,
    out_int32: _bool = False,
    right: _bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: _int = 0,
    unsafe: _bool = False,
    initial: Number | None = None,
) -> Tensor: ...
def select(input: Tensor, dim: _int, index: _int) -> Tensor: ...
def select_copy(input: Tensor, dim: _int, index: _int, *, out: Tensor | None = None) -> Tensor: ...
def select_scatter(
    input: Tensor, src: Tensor, dim: _int, index: _int, *, out: Tensor | None = None
) -> Tensor: ...
def selu(input: Tensor, inplace: _bool = False) -> Tensor: ...
def selu_(input: Tensor, *args: Any, **options: Any) -> Tensor: ...
def sgn(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def sigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def sigmoid_(input: Tensor) -> Tensor: ...
def sign(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def signbit(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def sin(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def sin_(input: Tensor) -> Tensor: ...
def sinc(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def sinc_(input: Tensor) -> Tensor: ...
def sinh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def sinh_(input: Tensor) -> Tensor: ...
def slice_copy(
    input: Tensor,
    dim: _int = 0,
    start: _int | None = None,
    end: _int | None = None,
    step: _int = 1,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def slice_scatter(
    input: Tensor,
    src: Tensor,
    dim: _int = 0,
    start: _int | None = None,
    end: _int | None = None,
    step: _int = 1,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def slogdet(input: Tensor, *, out: Sequence[Tensor] | None = None) -> return_types.slogdet: ...
def smm(input: Tensor, *args: Any, **kwargs: Any) -> Tensor: ...
def softmax(
    input: Tensor, dim: _int, dtype: dtype | None = None, *, out: Tensor | None = None
) -> Tensor: ...
def sort(
    input: Tensor,
    dim: _int = -1,
    descending: _bool = False,
    *,
    stable: _bool | None = False,
    out: Sequence[Tensor] | None = None,
) -> return_types.sort: ...
def sparse_bsc_tensor(
    compressed: Any = None,
    plain: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: dtype | None = None,
    device: Device | None = None,
    pin_memory: _bool = False,
    requires_grad: _bool = False,
    check_invariants: _bool | None = None,
    **named: Any,
) -> Tensor: ...
def sparse_bsr_tensor(
    compressed: Any = None,
    plain: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: dtype | None = None,
    device: Device | None = None,
    pin_memory: _bool = False,
    requires_grad: _bool = False,
    check_invariants: _bool | None = None,
    **named: Any,
) -> Tensor: ...
def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    pin_memory: _bool = False,
    requires_grad: _bool = False,
    check_invariants: _bool | None = None,
) -> Tensor: ...
def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: dtype | None = None,
    device: Device | None = None,
    pin_memory: _bool = False,
    requires_grad: _bool = False,
    check_invariants: _bool | None = None,
    is_coalesced: _bool | None = None,
) -> Tensor: ...
def sparse_csc_tensor(
    compressed: Any = None,
    plain: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: dtype | None = None,
    device: Device | None = None,
    pin_memory: _bool = False,
    requires_grad: _bool = False,
    check_invariants: _bool | None = None,
    **named: Any,
) -> Tensor: ...
def sparse_csr_tensor(
    compressed: Any = None,
    plain: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: dtype | None = None,
    device: Device | None = None,
    pin_memory: _bool = False,
    requires_grad: _bool = False,
    check_invariants: _bool | None = None,
    **named: Any,
) -> Tensor: ...
def split(
    tensor: Tensor,
    split_size_or_sections: Any = None,
    dim: _int = 0,
    *,
    split_size: _int | Sequence[_int] | None = None,
) -> tuple[Tensor, ...]: ...
def split_copy(
    input: Tensor, split_size: _int, dim: _int = 0, *, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...]: ...
def split_with_sizes(input: Tensor, split_sizes: Sizes, dim: _int = 0) -> tuple[Tensor, ...]: ...
def split_with_sizes_copy(
    input: Tensor,
    split_sizes: Sequence[_int],
    dim: _int = 0,
    *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]: ...
def spmm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def sqrt(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def sqrt_(input: Tensor) -> Tensor: ...
def square(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def square_(input: Tensor) -> Tensor: ...
def squeeze(input: Tensor, dim: _int | Sequence[_int] | None = None) -> Tensor: ...
def squeeze_copy(
    input: Tensor, dim: Sizes | None = None, *, out: Tensor | None = None
) -> Tensor: ...
def sspaddmm(input: Tensor, *args: Any, **kwargs: Any) -> Tensor: ...
def stack(tensors: Sequence[Tensor], dim: _int = 0, *, out: Tensor | None = None) -> Tensor: ...
def std(
    input: Tensor,
    dim: Sizes | None = None,
    unbiased: _bool | None = None,
    keepdim: _bool = False,
    *,
    correction: Number | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def std_mean(
    input: Tensor,
    dim: Sizes | None = None,
    unbiased: _bool | None = None,
    keepdim: _bool = False,
    *,
    correction: Number | None = None,
) -> tuple[Tensor, Tensor]: ...
def stft(
    input: Tensor,
    n_fft: _int,
    hop_length: _int | None = None,
    win_length: _int | None = None,
    window: Tensor | None = None,
    center: _bool = True,
    pad_mode: str = "reflect",
    normalized: _bool = False,
    onesided: _bool | None = None,
    return_complex: _bool | None = None,
    align_to_window: _bool | None = None,
) -> Tensor: ...
def sub(
    input: Tensor, other: Tensor | Number, *, alpha: Number = 1, out: Tensor | None = None
) -> Tensor: ...
def subtract(
    input: Tensor, other: Tensor | Number, *, alpha: Number = 1, out: Tensor | None = None
) -> Tensor: ...
def sum(
    input: Tensor,
    dim: Sizes | None = None,
    keepdim: _bool = False,
    *,
    dtype: dtype | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def svd(
    input: Tensor,
    some: _bool = True,
    compute_uv: _bool = True,
    *,
    out: Sequence[Tensor] | None = None,
) -> return_types.svd: ...
def svd_lowrank(
    A: Tensor, q: _int | None = 6, niter: _int | None = 2, M: Any = None
) -> tuple[Tensor, Tensor, Tensor]: ...
def swapaxes(input: Tensor, dim0: _int, dim1: _int) -> Tensor: ...
def swapdims(input: Tensor, dim0: _int, dim1: _int) -> Tensor: ...
def t(input: Tensor) -> Tensor: ...
def t_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def take(input: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def take_along_dim(
    input: Tensor, indices: Tensor, dim: _int | None = None, *, out: Tensor | None = None
) -> Tensor: ...
def tan(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def tan_(input: Tensor) -> Tensor: ...
def tanh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def tanh_(input: Tensor) -> Tensor: ...
def tensor(
    data: Any,
    *,
    dtype: dtype | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool = False,
) -> Tensor: ...
def tensor_split(
    input: Tensor,
    indices_or_sections: Any = None,
    dim: _int = 0,
    *,
    indices: Sequence[_int] | None = None,
    sections: _int | None = None,
    tensor_indices_or_sections: Tensor | None = None,
) -> tuple[Tensor, ...]: ...
def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Tensor | None = None) -> Tensor: ...
def threshold(
    input: Tensor, threshold: Number, value: Number, inplace: _bool = False
) -> Tensor: ...
def threshold_(input: Tensor, *args: Any, **options: Any) -> Tensor: ...
def tile(input: Tensor, *args: Any, dims: Sequence[_int] | None = None) -> Tensor: ...
def to(input: Tensor, *args: Any, **kwargs: Any) -> Tensor: ...
def topk(
    input: Tensor,
    k: _int,
    dim: _int = -1,
    largest: _bool = True,
    sorted: _bool = True,
    *,
    out: Sequence[Tensor] | None = None,
) -> return_types.topk: ...
def trace(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def transpose(input: Tensor, dim0: _int, dim1: _int) -> Tensor: ...
def transpose_copy(
    input: Tensor, dim0: _int, dim1: _int, *, out: Tensor | None = None
) -> Tensor: ...
def trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Number | None = None, dim: _int = -1
) -> Tensor: ...
def trapz(
    y: Tensor, x: Tensor | None = None, *, dx: _float | None = None, dim: _int = -1
) -> Tensor: ...
def triangular_solve(
    b: Tensor,
    A: Tensor,
    upper: _bool = True,
    transpose: _bool = False,
    unitriangular: _bool = False,
    *,
    out: Sequence[Tensor] | None = None,
) -> return_types.triangular_solve: ...
def tril(input: Tensor, diagonal: _int = 0, *, out: Tensor | None = None) -> Tensor: ...
def tril_indices(
    row: _int,
    col: _int,
    offset: _int = 0,
    *,
    dtype: dtype | None = None,
    device: Device | None = None,
    layout: layout | None = None,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: _float = 1.0,
    p: _float = 2.0,
    eps: _float = 1e-06,
    swap: _bool = False,
    reduction: _int = 1,
) -> Tensor: ...
def triu(input: Tensor, diagonal: _int = 0, *, out: Tensor | None = None) -> Tensor: ...
def triu_indices(
    row: _int,
    col: _int,
    offset: _int = 0,
    *,
    dtype: dtype | None = None,
    device: Device | None = None,
    layout: layout | None = None,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def true_divide(
    input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None
) -> Tensor: ...
def trunc(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def trunc_(input: Tensor) -> Tensor: ...
def unbind(input: Tensor, dim: _int = 0) -> tuple[Tensor, ...]: ...
def unbind_copy(
    input: Tensor, dim: _int = 0, *, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...]: ...
def unflatten(input: Tensor, dim: _int, sizes: Sequence[_int]) -> Tensor: ...
def unfold_copy(
    input: Tensor, dimension: _int, size: _int, step: _int, *, out: Tensor | None = None
) -> Tensor: ...
def unique(
    input: Tensor,
    sorted: _bool = True,
    return_inverse: _bool = False,
    return_counts: _bool = False,
    dim: _int | None = None,
) -> Tensor: ...
def unique_consecutive(
    input: Tensor,
    return_inverse: _bool = False,
    return_counts: _bool = False,
    dim: _int | None = None,
) -> Tensor: ...
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]: ...
def unsafe_chunk(input: Tensor, chunks: _int, dim: _int = 0) -> tuple[Tensor, ...]: ...
def unsafe_split(
    tensor: Tensor,
    split_size_or_sections: Any = None,
    dim: _int = 0,
    *,
    split_size: _int | None = None,
) -> tuple[Tensor, ...]: ...
def unsafe_split_with_sizes(
    input: Tensor, split_sizes: Sizes, dim: _int = 0
) -> tuple[Tensor, ...]: ...
def unsqueeze(input: Tensor, dim: _int) -> Tensor: ...
def unsqueeze_copy(input: Tensor, dim: _int, *, out: Tensor | None = None) -> Tensor: ...
def values_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def vander(x: Tensor, N: _int | None = None, increasing: _bool = False) -> Tensor: ...
def var(
    input: Tensor,
    dim: Sizes | None = None,
    unbiased: _bool | None = None,
    keepdim: _bool = False,
    *,
    correction: Number | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def var_mean(
    input: Tensor,
    dim: Sizes | None = None,
    unbiased: _bool | None = None,
    keepdim: _bool = False,
    *,
    correction: Number | None = None,
) -> tuple[Tensor, Tensor]: ...
def vdot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def view_as_complex(input: Tensor) -> Tensor: ...
def view_as_complex_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def view_as_real(input: Tensor) -> Tensor: ...
def view_as_real_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def view_copy(
    input: Tensor,
    size: Sequence[_int] | dtype | None = None,
    *,
    dtype: dtype | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def vsplit(
    input: Tensor, *args: Any, indices: Sequence[_int] | None = None, sections: _int | None = None
) -> tuple[Tensor, ...]: ...
def vstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor: ...
@overload
def where(condition: Tensor, *, out: Sequence[Tensor] | None = None) -> tuple[Tensor, ...]: ...
@overload
def where(
    condition: Tensor, input: Number, other: Number, *, out: Tensor | None = None
) -> Tensor: ...
@overload
def where(
    condition: Tensor, input: Tensor, other: Number, *, out: Tensor | None = None
) -> Tensor: ...
@overload
def where(
    condition: Tensor, input: Number, other: Tensor, *, out: Tensor | None = None
) -> Tensor: ...
@overload
def where(
    condition: Tensor, input: Tensor, other: Tensor, *, out: Tensor | None = None
) -> Tensor: ...
def xlogy(
    input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None
) -> Tensor: ...
def xlogy_(input: Tensor, other: Tensor | Number) -> Tensor: ...
def zero_(input: Tensor) -> Tensor: ...
def zeros(
    *args: Any,
    size: Sequence[_int] | None = None,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def zeros_like(
    input: Tensor,
    *,
    memory_format: memory_format | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
