"""Who computes `scaled_dot_product_attention`, and attention with masks and scores of your own.

>>> import lucerne as torch
>>> from lucerne.nn.attention import SDPBackend, sdpa_kernel
>>> q = torch.ones(1, 1, 2, 4)
>>> with sdpa_kernel(SDPBackend.MATH):
...     torch.nn.functional.scaled_dot_product_attention(q, q, q).shape
torch.Size([1, 1, 2, 4])
"""

from __future__ import annotations

from lucerne.nn.attention.backends import WARN_FOR_UNFUSED_KERNELS as WARN_FOR_UNFUSED_KERNELS
from lucerne.nn.attention.backends import SDPBackend as SDPBackend
from lucerne.nn.attention.backends import _cur_sdpa_kernel_backends as _cur_sdpa_kernel_backends
from lucerne.nn.attention.backends import sdpa_kernel as sdpa_kernel
from lucerne.nn.attention.registry import (
    activate_flash_attention_impl as activate_flash_attention_impl,
)
from lucerne.nn.attention.registry import (
    current_flash_attention_impl as current_flash_attention_impl,
)
from lucerne.nn.attention.registry import list_flash_attention_impls as list_flash_attention_impls
from lucerne.nn.attention.registry import (
    register_flash_attention_impl as register_flash_attention_impl,
)
from lucerne.nn.attention.registry import (
    restore_flash_attention_impl as restore_flash_attention_impl,
)

__all__ = [
    "WARN_FOR_UNFUSED_KERNELS",
    "SDPBackend",
    "activate_flash_attention_impl",
    "current_flash_attention_impl",
    "list_flash_attention_impls",
    "register_flash_attention_impl",
    "restore_flash_attention_impl",
    "sdpa_kernel",
]
