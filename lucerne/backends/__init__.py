"""`lucerne.backends`: devices, and torch's settings of the libraries behind it.

A backend moves bytes and compiles graphs; nobody imports one, `get` loads it by name. What a chip
is written against is in `lucerne.backends.api` and `lucerne.backends.formulas`.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.backends import HOST as HOST
from lucerne._src.backends import META as META
from lucerne._src.backends import ContractError as ContractError
from lucerne._src.backends import NoBackendError as NoBackendError
from lucerne._src.backends import bill as bill
from lucerne._src.backends import fallback as fallback
from lucerne._src.backends import fast_path as fast_path
from lucerne._src.backends import get as get
from lucerne._src.backends import is_known as is_known
from lucerne._src.backends import names as names
from lucerne._src.backends import on_host as on_host
from lucerne._src.backends import outside as outside
from lucerne._src.backends import register as register
from lucerne._src.backends import set_fallback as set_fallback
from lucerne._src.base.process import forks as _forks

_SETTINGS = ("cuda", "cudnn", "mha", "mkl", "mkldnn", "mps", "openmp", "opt_einsum")
"""Not backends: modules that hold what programs set or ask about the libraries behind torch."""


def __getattr__(name: str) -> Any:
    if name in _SETTINGS:
        return _forks.import_module(f"lucerne.backends.{name}")
    raise AttributeError(f"module 'lucerne.backends' has no attribute {name!r}")
