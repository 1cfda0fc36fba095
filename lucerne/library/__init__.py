"""`lucerne.library`: operators of your own, known to autograd, vmap, compile and the profiler."""

from __future__ import annotations

from lucerne.library.check import OpCheckError as OpCheckError
from lucerne.library.check import opcheck as opcheck
from lucerne.library.definition import CustomOpDef as CustomOpDef
from lucerne.library.definition import custom_op as custom_op
from lucerne.library.fake import get_ctx as get_ctx
from lucerne.library.infer import infer_schema as infer_schema
from lucerne.library.registry import Library as Library
from lucerne.library.registry import _scoped_library as _scoped_library
from lucerne.library.registry import define as define
from lucerne.library.registry import fallthrough_kernel as fallthrough_kernel
from lucerne.library.registry import get_kernel as get_kernel
from lucerne.library.registry import impl as impl
from lucerne.library.registry import impl_abstract as impl_abstract
from lucerne.library.registry import register_autocast as register_autocast
from lucerne.library.registry import register_autograd as register_autograd
from lucerne.library.registry import register_fake as register_fake
from lucerne.library.registry import register_kernel as register_kernel
from lucerne.library.registry import register_torch_dispatch as register_torch_dispatch
from lucerne.library.registry import register_vmap as register_vmap
from lucerne.library.registry import triton_op as triton_op
from lucerne.library.registry import wrap_triton as wrap_triton
