"""What programs set about CUDA, and the choice of attention kernels, which holds on a CPU too."""

from __future__ import annotations

from contextlib import AbstractContextManager, ContextDecorator
from typing import Any

from lucerne._src.ir import dispatch
from lucerne._src.ops.nn.attention_choice import CUDNN, EFFICIENT, EVERY, FLASH, MATH, choice


class _Matmul:
    """Settings of cuBLAS: kept, and without effect."""

    def __init__(self) -> None:
        self.allow_tf32 = False
        self.allow_fp16_reduced_precision_reduction = True
        self.allow_bf16_reduced_precision_reduction = True
        self.allow_fp16_accumulation = False
        self.fp32_precision = "none"


matmul = _Matmul()


def is_built() -> bool:
    return False


def is_flash_attention_available() -> bool:
    """Whether torch's CUDA kernel is there. (The CPU engine has a fused kernel of its own.)"""
    return False


def preferred_linalg_library(backend: Any = None) -> str:
    """Which library of a GPU factors matrices: there is none to choose."""
    if backend not in (None, "default", "cusolver", "magma"):
        raise RuntimeError(
            "Unknown input value. Choose from: default, cusolver, magma, or leave it out"
        )
    return "default"


# ---- attention ----------------------------------------------------------------------------------


def _enable(kind: int, on: bool) -> None:
    kinds = set(choice.enabled) | {kind} if on else set(choice.enabled) - {kind}
    choice.set(tuple(k for k in EVERY if k in kinds), choice.provided, choice.warn)
    if choice.passes_by == choice.usual:
        choice.passes_by = not choice.usual
        dispatch.state.add_special(-1 if choice.usual else 1)


def enable_flash_sdp(enabled: bool) -> None:
    """Whether attention may be one fused kernel."""
    _enable(FLASH, enabled)


def enable_math_sdp(enabled: bool) -> None:
    """Whether attention may be the formula, op by op."""
    _enable(MATH, enabled)


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """For GPUs; no such kernel here."""
    _enable(EFFICIENT, enabled)


def enable_cudnn_sdp(enabled: bool) -> None:
    """For GPUs; no such kernel here."""
    _enable(CUDNN, enabled)


def flash_sdp_enabled() -> bool:
    return FLASH in choice.enabled


def math_sdp_enabled() -> bool:
    return MATH in choice.enabled


def mem_efficient_sdp_enabled() -> bool:
    return EFFICIENT in choice.enabled


def cudnn_sdp_enabled() -> bool:
    return CUDNN in choice.enabled


class _Enabled(ContextDecorator):
    """Kinds of kernels that are on or off inside. (No generator: see `sdpa_kernel`.)"""

    def __init__(self, wanted: dict[int, bool]) -> None:
        self.wanted = wanted
        self.before: list[tuple[int, ...]] = []

    def __enter__(self) -> dict[str, Any]:
        self.before.append(choice.enabled)
        for kind, on in self.wanted.items():
            _enable(kind, on)
        return {}

    def __exit__(self, *error: object) -> None:
        before = self.before.pop()
        for kind in self.wanted:
            _enable(kind, kind in before)


def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> AbstractContextManager[dict[str, Any]]:
    """The old spelling of `nn.attention.sdpa_kernel`."""
    kinds = (FLASH, MATH, EFFICIENT, CUDNN)
    wanted = (enable_flash, enable_math, enable_mem_efficient, enable_cudnn)
    return _Enabled(dict(zip(kinds, wanted, strict=True)))
