"""Who computes attention: the fused kernel, the plain formula, or a kernel somebody registered.

One object for the process, read by `scaled_dot_product_attention` and changed by
`nn.attention.sdpa_kernel`, `nn.attention.activate_flash_attention_impl` and
`backends.cuda.enable_flash_sdp`. Whoever changes it must see to remembered calls
(`dispatch.state.add_special`, or forgetting them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.base.process import tables

MATH, FLASH, EFFICIENT, CUDNN, OVERRIDEABLE = range(5)
"""The numbers of torch's `SDPBackend`."""

EVERY = (FLASH, EFFICIENT, MATH, CUDNN, OVERRIDEABLE)


class Choice:
    """`enabled` in order of preference; `provided` stands in for the fused kernel when set."""

    __slots__ = ("enabled", "passes_by", "provided", "usual", "warn")

    def __init__(self) -> None:
        self.enabled: tuple[int, ...] = EVERY
        self.provided: Callable[..., Any] | None = None
        self.warn = False
        self.usual = True
        """Nothing was changed: the fused kernel wherever it can, the formula elsewhere."""
        self.passes_by = False
        """Whether `backends.cuda` has remembered calls passed by, as the choice is not usual."""

    def set(self, enabled: tuple[int, ...], provided: Any, warn: bool = False) -> None:
        self.enabled, self.provided, self.warn = enabled, provided, warn
        self.usual = enabled == EVERY and provided is None

    def candidates(self) -> list[int]:
        """Those of the enabled ones that exist here, best first; an error when there is none."""
        found = [c for c in self.enabled if c in (FLASH, MATH)]
        if not found:
            raise RuntimeError(
                "No viable backend for scaled_dot_product_attention was found. This is likely due "
                "to turning off both the math kernel and the fused kernels."
            )
        return found


choice = Choice()
tables.add_switches(choice, *Choice.__slots__)
