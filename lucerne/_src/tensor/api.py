"""Every function and type of `lucerne.*` that works on tensors, for the layers built on tensors.

`from lucerne._src.tensor import api as lu` is to `nn`, `optim` or `distributions` what
`import lucerne as torch` is to a user: they may not import the root package, which imports them.
"""

from __future__ import annotations

import math as _math
from typing import TYPE_CHECKING, Any

from lucerne._src.base import dtype as _dtype
from lucerne._src.base.defaults import get_default_dtype as get_default_dtype
from lucerne._src.base.device import device as device
from lucerne._src.base.dtype import can_cast as can_cast
from lucerne._src.base.dtype import dtype as dtype
from lucerne._src.base.dtype import promote_types as promote_types
from lucerne._src.base.errors import AcceleratorError as AcceleratorError
from lucerne._src.base.errors import OutOfMemoryError as OutOfMemoryError
from lucerne._src.base.layout import channels_last as channels_last
from lucerne._src.base.layout import channels_last_3d as channels_last_3d
from lucerne._src.base.layout import contiguous_format as contiguous_format
from lucerne._src.base.layout import contiguous_format as legacy_contiguous_format  # noqa: F401
from lucerne._src.base.layout import jagged as jagged
from lucerne._src.base.layout import layout as layout
from lucerne._src.base.layout import memory_format as memory_format
from lucerne._src.base.layout import preserve_format as preserve_format
from lucerne._src.base.layout import sparse_bsc as sparse_bsc
from lucerne._src.base.layout import sparse_bsr as sparse_bsr
from lucerne._src.base.layout import sparse_coo as sparse_coo
from lucerne._src.base.layout import sparse_csc as sparse_csc
from lucerne._src.base.layout import sparse_csr as sparse_csr
from lucerne._src.base.layout import strided as strided
from lucerne._src.base.numeric import finfo as finfo
from lucerne._src.base.numeric import iinfo as iinfo
from lucerne._src.base.qscheme import per_channel_affine as per_channel_affine
from lucerne._src.base.qscheme import (
    per_channel_affine_float_qparams as per_channel_affine_float_qparams,
)
from lucerne._src.base.qscheme import per_channel_symmetric as per_channel_symmetric
from lucerne._src.base.qscheme import per_tensor_affine as per_tensor_affine
from lucerne._src.base.qscheme import per_tensor_symmetric as per_tensor_symmetric
from lucerne._src.base.qscheme import qscheme as qscheme
from lucerne._src.base.shape import Size as Size
from lucerne._src.tensor import foreach as _foreach
from lucerne._src.tensor import functions as _functions
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
from lucerne._src.tensor.bootstrap import fill as _fill
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
from lucerne._src.tensor.functions import asarray as asarray
from lucerne._src.tensor.functions import from_file as from_file
from lucerne._src.tensor.functions import sym_float as sym_float
from lucerne._src.tensor.functions import sym_int as sym_int
from lucerne._src.tensor.functions import sym_ite as sym_ite
from lucerne._src.tensor.functions import sym_max as sym_max
from lucerne._src.tensor.functions import sym_min as sym_min
from lucerne._src.tensor.functions import sym_not as sym_not
from lucerne._src.tensor.functions import sym_sqrt as sym_sqrt
from lucerne._src.tensor.functions import sym_sum as sym_sum
from lucerne._src.tensor.functions import to_dlpack as to_dlpack
from lucerne._src.tensor.interop.construct import as_tensor as as_tensor
from lucerne._src.tensor.interop.construct import tensor as tensor
from lucerne._src.tensor.interop.outside import UntypedStorage as UntypedStorage
from lucerne._src.tensor.interop.outside import from_dlpack as from_dlpack
from lucerne._src.tensor.interop.outside import from_numpy as from_numpy
from lucerne._src.tensor.interop.outside import frombuffer as frombuffer
from lucerne._src.tensor.interop.typed_names import STORAGE_TYPES, TENSOR_TYPES
from lucerne._src.tensor.interop.typed_names import TypedStorage as TypedStorage
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
from lucerne._src.tensor.random.api import Generator as Generator
from lucerne._src.tensor.random.api import default_generator as default_generator
from lucerne._src.tensor.random.api import get_rng_state as get_rng_state
from lucerne._src.tensor.random.api import initial_seed as initial_seed
from lucerne._src.tensor.random.api import manual_seed as manual_seed
from lucerne._src.tensor.random.api import seed as seed
from lucerne._src.tensor.random.api import set_rng_state as set_rng_state
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
from lucerne._src.tensor.sparse import convert as _sparse_convert  # noqa: F401
from lucerne._src.tensor.sparse import text as _sparse_text  # noqa: F401
from lucerne._src.tensor.sparse.create import sparse_bsc_tensor as sparse_bsc_tensor
from lucerne._src.tensor.sparse.create import sparse_bsr_tensor as sparse_bsr_tensor
from lucerne._src.tensor.sparse.create import sparse_compressed_tensor as sparse_compressed_tensor
from lucerne._src.tensor.sparse.create import sparse_coo_tensor as sparse_coo_tensor
from lucerne._src.tensor.sparse.create import sparse_csc_tensor as sparse_csc_tensor
from lucerne._src.tensor.sparse.create import sparse_csr_tensor as sparse_csr_tensor
from lucerne._src.tensor.sparse.functions import ccol_indices_copy as ccol_indices_copy
from lucerne._src.tensor.sparse.functions import col_indices_copy as col_indices_copy
from lucerne._src.tensor.sparse.functions import crow_indices_copy as crow_indices_copy
from lucerne._src.tensor.sparse.functions import hspmm as hspmm
from lucerne._src.tensor.sparse.functions import indices_copy as indices_copy
from lucerne._src.tensor.sparse.functions import resize_as_sparse_ as resize_as_sparse_
from lucerne._src.tensor.sparse.functions import row_indices_copy as row_indices_copy
from lucerne._src.tensor.sparse.functions import smm as smm
from lucerne._src.tensor.sparse.functions import sspaddmm as sspaddmm
from lucerne._src.tensor.sparse.functions import values_copy as values_copy
from lucerne._src.tensor.subclasses.quantized import dequantize as dequantize
from lucerne._src.tensor.subclasses.quantized import quantize_per_channel as quantize_per_channel
from lucerne._src.tensor.subclasses.quantized import quantize_per_tensor as quantize_per_tensor
from lucerne._src.tensor.subclasses.quantized import (
    quantize_per_tensor_dynamic as quantize_per_tensor_dynamic,
)
from lucerne._src.tensor.subclasses.torch_function import disable_all as DisableTorchFunction  # noqa: F401
from lucerne._src.tensor.subclasses.torch_function import (
    disable_overrides as DisableTorchFunctionSubclass,  # noqa: F401
)
from lucerne._src.tensor.tensor import Tensor as Tensor

_fill(globals(), "")
for _more in (
    _functions.in_place_functions(), _foreach.functions(), TENSOR_TYPES, STORAGE_TYPES,
    _functions.BUILD,
):  # fmt: skip
    globals().update({name: found for name, found in _more.items() if name not in globals()})
globals().update({t.name: t for t in _dtype.all_dtypes()})
globals().update(spmm=globals()["mm"], dsmm=globals()["mm"])  # old names, from the time of layouts
half, double, float = float16, float64, float32  # type: ignore[name-defined]  # noqa: F821
long, int, short = int64, int32, int16  # type: ignore[name-defined]  # noqa: F821
cfloat, cdouble, chalf = complex64, complex128, complex32  # type: ignore[name-defined]  # noqa: F821
bit = uint1  # type: ignore[name-defined]  # noqa: F821
Storage = FloatStorage  # type: ignore[name-defined]  # noqa: F821
pi, e, inf, nan, newaxis = _math.pi, _math.e, _math.inf, _math.nan, None

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The op table fills in the rest: a checker cannot see it."""
