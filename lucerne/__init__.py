"""Lucerne: PyTorch's programming model in readable Python. `import lucerne as torch`."""

from __future__ import annotations

import importlib as _importlib
from typing import Any

from lucerne.tensor import api as _api
from lucerne.tensor.api import *  # noqa: F403

globals().update({name: found for name, found in vars(_api).items() if not name.startswith("__")})

# Subpackages loaded when they are first used (`lucerne.optim`), so that importing stays instant.
_LAZY_MODULES = frozenset(
    {
        "__future__",
        "amp",
        "cpu",
        "cuda",
        "distributions",
        "io",
        "multiprocessing",
        "optim",
        "run_state",
        "serialization",
    }
)
# Names of the top module that live in those subpackages.
_LAZY_NAMES = {
    "GradScaler": "amp",
    "autocast": "amp",
    "load": "serialization",
    "save": "serialization",
}


def __getattr__(name: str) -> Any:
    """Load a subpackage, or a name that lives in one, when it is first asked for."""
    if name in _LAZY_MODULES:
        return _importlib.import_module(f"lucerne.{name}")
    if name in _LAZY_NAMES:
        found = getattr(_importlib.import_module(f"lucerne.{_LAZY_NAMES[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'lucerne' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY_MODULES, *_LAZY_NAMES})


from lucerne import autograd as autograd  # noqa: E402
from lucerne import fft as fft  # noqa: E402
from lucerne import linalg as linalg  # noqa: E402
from lucerne import masked as masked  # noqa: E402
from lucerne import nn as nn  # noqa: E402
from lucerne import overrides as overrides  # noqa: E402
from lucerne import random as random  # noqa: E402
from lucerne import return_types as return_types  # noqa: E402
from lucerne import signal as signal  # noqa: E402
from lucerne import sparse as sparse  # noqa: E402
from lucerne import special as special  # noqa: E402
from lucerne import testing as testing  # noqa: E402
from lucerne import types as types  # noqa: E402
from lucerne import utils as utils  # noqa: E402
from lucerne.ops import aten as _aten  # noqa: E402, F401
