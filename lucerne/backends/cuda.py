"""What programs set about CUDA, and the choice of attention kernels, which holds on a CPU too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lucerne.ir import dispatch
from lucerne.ops.attention_choice import CUDNN, EFFICIENT, EVERY, FLASH, MATH, choice


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


class _Remembered:
    """Whether remembered calls are being passed by, because the choice is not the usual one."""

    passed_by = False


def _enable(kind: int, on: bool) -> None:
    kinds = set(choice.enabled) | {kind} if on else set(choice.enabled) - {kind}
    choice.set(tuple(k for k in EVERY if k in kinds), choice.provided, choice.warn)
    if _Remembered.passed_by == choice.usual:
        _Remembered.passed_by = not choice.usual
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


@contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[dict[str, Any]]:
    """The old spelling of `nn.attention.sdpa_kernel`."""
    before = choice.enabled
    wanted = {
        FLASH: enable_flash,
        MATH: enable_math,
        EFFICIENT: enable_mem_efficient,
        CUDNN: enable_cudnn,
    }
    for kind, on in wanted.items():
        _enable(kind, on)
    try:
        yield {}
    finally:
        for kind in wanted:
            _enable(kind, kind in before)
