"""Choosing who computes attention for a while."""

from __future__ import annotations

import enum
from contextlib import AbstractContextManager, ContextDecorator
from typing import Any

from lucerne._src.ir import dispatch
from lucerne._src.ops.nn.attention_choice import EVERY, choice

WARN_FOR_UNFUSED_KERNELS = False
"""Whether `sdpa_kernel` tells why a fused kernel could not be used."""


class SDPBackend(enum.Enum):
    """Kinds of attention kernels, with torch's numbers.

    On a CPU there are two: FLASH_ATTENTION (one fused kernel) and MATH (the formula, op by op).
    """

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    """What is enabled now, in order of preference if asked."""
    enabled = choice.enabled if with_priority else sorted(choice.enabled, key=_TORCH_ORDER.index)
    return [SDPBackend(n) for n in enabled]


_TORCH_ORDER = [3, 1, 2, 0, 4]


class _Chosen(ContextDecorator):
    """A choice that holds inside. (No generator: one that a trace has entered and let go would
    leave when it is collected, after the trace has put everything back.)"""

    def __init__(self, wanted: tuple[int, ...]) -> None:
        self.wanted = wanted
        self.before: list[tuple[Any, ...]] = []

    def __enter__(self) -> dict[str, Any]:
        self.before.append((choice.enabled, choice.provided, choice.warn))
        # Remembered calls of attention know nothing of this choice.
        dispatch.state.add_special(1)
        choice.set(self.wanted, choice.provided, WARN_FOR_UNFUSED_KERNELS)
        return {}

    def __exit__(self, *error: object) -> None:
        choice.set(*self.before.pop())
        dispatch.state.add_special(-1)


def sdpa_kernel(
    backends: list[SDPBackend] | SDPBackend, set_priority: bool = False
) -> AbstractContextManager[dict[str, Any]]:
    """Inside, only these kinds of kernels compute attention.

    With `set_priority` the first in the list that can is taken; without, the usual order holds.
    """
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError(
            "Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
            f"{type(backends).__name__}"
        )
    listed = [backends] if isinstance(backends, SDPBackend) else backends
    wanted = list(dict.fromkeys(b.value for b in listed if isinstance(b, SDPBackend)))
    if not set_priority:
        wanted.sort(key=lambda n: EVERY.index(n) if n in EVERY else len(EVERY))
    return _Chosen(tuple(wanted))
