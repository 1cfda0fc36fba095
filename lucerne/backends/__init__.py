"""L3: devices.

A backend moves bytes and compiles graphs; nobody imports one, `get` loads it by name.
"""

from __future__ import annotations

from typing import Any

from lucerne.backends.bills import bill as bill
from lucerne.backends.handshake import ContractError as ContractError
from lucerne.backends.missing_rules import fallback as fallback
from lucerne.backends.missing_rules import set_fallback as set_fallback
from lucerne.backends.registry import META as META
from lucerne.backends.registry import NoBackendError as NoBackendError
from lucerne.backends.registry import fast_path as fast_path
from lucerne.backends.registry import get as get
from lucerne.backends.registry import is_known as is_known
from lucerne.backends.registry import names as names
from lucerne.backends.registry import on_host as on_host
from lucerne.backends.registry import outside as outside
from lucerne.backends.registry import register as register
from lucerne.backends.registry import write as write
from lucerne.base import forks
from lucerne.base.device import HOST as HOST

_SETTINGS = ("cuda", "cudnn", "mha", "mkl", "mkldnn", "mps", "openmp", "opt_einsum")
"""Not backends: modules that hold what programs set or ask about the libraries behind torch."""


def __getattr__(name: str) -> Any:
    if name in _SETTINGS:
        return forks.import_module(f"lucerne.backends.{name}")
    raise AttributeError(f"module 'lucerne.backends' has no attribute {name!r}")
