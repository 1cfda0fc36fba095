"""The device `xla`: XLA through JAX's public API, with which it serves CPUs, GPUs and TPUs.

JAX is an engine here and nothing else: no transformation of its own, no random numbers. This folder
alone imports it, and only when somebody uses the device.
"""

from __future__ import annotations

from lucerne._src.backends.contract.backend import Backend
from lucerne._src.backends.contract.registry import NoBackendError
from lucerne._src.base.process import forks


def make() -> Backend:
    try:
        found: Backend = forks.import_module("lucerne._src.backends.xla.backend").XlaBackend()
    except ImportError as error:
        if (error.name or "").split(".")[0] not in ("jax", "jaxlib"):
            raise
        raise NoBackendError(
            f"the device 'xla' runs on XLA through jax, which can't be imported here ({error}): "
            "`pip install lucerne[xla]` brings the CPU plug-in; docs/guide/xla.md says how to get "
            "one for a GPU or a TPU"
        ) from error
    return found
