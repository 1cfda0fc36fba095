"""Lucerne: PyTorch's programming model in readable Python. `import lucerne as torch`."""

from __future__ import annotations

import math as _math

from lucerne.base import dtype as _dtype
from lucerne.base.defaults import get_default_dtype as get_default_dtype
from lucerne.base.device import device as device
from lucerne.base.dtype import can_cast as can_cast
from lucerne.base.dtype import dtype as dtype
from lucerne.base.dtype import promote_types as promote_types
from lucerne.base.layout import channels_last as channels_last
from lucerne.base.layout import channels_last_3d as channels_last_3d
from lucerne.base.layout import contiguous_format as contiguous_format
from lucerne.base.layout import jagged as jagged
from lucerne.base.layout import layout as layout
from lucerne.base.layout import memory_format as memory_format
from lucerne.base.layout import preserve_format as preserve_format
from lucerne.base.layout import sparse_bsc as sparse_bsc
from lucerne.base.layout import sparse_bsr as sparse_bsr
from lucerne.base.layout import sparse_coo as sparse_coo
from lucerne.base.layout import sparse_csc as sparse_csc
from lucerne.base.layout import sparse_csr as sparse_csr
from lucerne.base.layout import strided as strided
from lucerne.base.shape import Size as Size
from lucerne.ir.export import fill as _fill
from lucerne.tensor import load as _load
from lucerne.tensor.autograd.modes import enable_grad as enable_grad
from lucerne.tensor.autograd.modes import inference_mode as inference_mode
from lucerne.tensor.autograd.modes import is_grad_enabled as is_grad_enabled
from lucerne.tensor.autograd.modes import is_inference_mode_enabled as is_inference_mode_enabled
from lucerne.tensor.autograd.modes import no_grad as no_grad
from lucerne.tensor.autograd.modes import set_grad_enabled as set_grad_enabled
from lucerne.tensor.convert import as_tensor as as_tensor
from lucerne.tensor.convert import tensor as tensor
from lucerne.tensor.interop import UntypedStorage as UntypedStorage
from lucerne.tensor.interop import from_dlpack as from_dlpack
from lucerne.tensor.interop import from_numpy as from_numpy
from lucerne.tensor.tensor import Tensor as Tensor

_fill(globals(), "")
globals().update({t.name: t for t in _dtype.all_dtypes()})
half, double, float = float16, float64, float32  # type: ignore[name-defined]  # noqa: F821
long, int, short = int64, int32, int16  # type: ignore[name-defined]  # noqa: F821
cfloat, cdouble, chalf = complex64, complex128, complex32  # type: ignore[name-defined]  # noqa: F821
pi, e, inf, nan, newaxis = _math.pi, _math.e, _math.inf, _math.nan, None

from lucerne import autograd as autograd  # noqa: E402
from lucerne import fft as fft  # noqa: E402
from lucerne import linalg as linalg  # noqa: E402
from lucerne import nn as nn  # noqa: E402
from lucerne import signal as signal  # noqa: E402
from lucerne import special as special  # noqa: E402
from lucerne import masked as masked  # noqa: E402
