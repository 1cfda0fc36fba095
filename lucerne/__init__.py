"""Lucerne: PyTorch's programming model in readable Python. `import lucerne as torch`."""

from __future__ import annotations

import sys as _sys
from typing import Any

from lucerne._src.base.process import forks as _forks
from lucerne._src.base.process.garbage import Unhurried as _Unhurried
from lucerne._src.base.process.late_bindings import LateBindings as _Doors

with _Unhurried():
    from lucerne._src.tensor import api as _api
    from lucerne._src.tensor.api import *  # noqa: F403

globals().update({name: found for name, found in vars(_api).items() if not name.startswith("__")})

# Subpackages loaded when they are first used (`lucerne.optim`), so that importing stays instant.
_LAZY_MODULES = frozenset(
    {
        "_C",
        "__config__",
        "__future__",
        "_higher_order_ops",
        "_ops",
        "_tensor",
        "_tensor_str",
        "_utils",
        "accelerator",
        "amp",
        "ao",
        "backends",
        "compiler",
        "control_flow",
        "cpu",
        "cuda",
        "distributed",
        "distributions",
        "export",
        "func",
        "functional",
        "futures",
        "fx",
        "hub",
        "io",
        "jit",
        "library",
        "mps",
        "multiprocessing",
        "nested",
        "onnx",
        "optim",
        "profiler",
        "quantization",
        "quasirandom",
        "run_state",
        "serialization",
        "sparse",
        "storage",
        "tiles",
        "version",
        "xpu",
    }
)
# Names of the top module that live in those subpackages.
_LAZY_NAMES = {
    "Event": "_src.streams",
    "GradScaler": "amp",
    "NonFiniteError": "_src.tensor.autograd.nonfinite",
    "Stream": "_src.streams",
    "SymInt": "_src.ir.symbolic.numbers",
    "__version__": "version",
    "autocast": "amp",
    "compile": "compiler",
    "lazy": "_src.capture.lazy.mode",
    "lazy_mode": "_src.capture.lazy.mode",
    "lazy_report": "_src.capture.lazy.mode",
    "lazy_sync": "_src.capture.lazy.mode",
    "cond": "control_flow",
    "detect_nonfinite": "_src.tensor.autograd.nonfinite",
    "estimate_memory": "_src.explain.estimate",
    "explain": "_src.explain",
    "load": "serialization",
    "save": "serialization",
    "summary": "_src.explain.summary",
    "vmap": "func",
    "while_loop": "control_flow",
}


def __getattr__(name: str) -> Any:
    """Load a subpackage, or a name that lives in one, when it is first asked for."""
    if name in _LAZY_MODULES:
        return _forks.import_module(f"lucerne.{name}")
    if name in _LAZY_NAMES:
        found = getattr(_forks.import_module(f"lucerne.{_LAZY_NAMES[name]}"), name)
        globals()[name] = found
        return found
    # `name` and `obj` let Python's traceback say which name is near: "Did you mean: 'arange'?"
    here = _sys.modules[__name__]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=here)


_Doors.compile = lambda *args, **kwargs: __getattr__("compile")(*args, **kwargs)
_Doors.nested_ops = lambda: _forks.import_module("lucerne.nested")
_Doors.sparse_ops = lambda: _forks.import_module("lucerne._src.tensor.sparse.ops")
_Doors.out_of_memory = lambda nbytes: _forks.import_module(
    "lucerne._src.explain.out_of_memory"
).note(nbytes)
_Doors.graph_module = lambda *args: __getattr__("fx").from_ir(*args)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY_MODULES, *_LAZY_NAMES})


with _Unhurried():
    from lucerne import autograd as autograd
    from lucerne import backends as backends
    from lucerne import fft as fft
    from lucerne import linalg as linalg
    from lucerne import masked as masked
    from lucerne import nn as nn
    from lucerne import ops as ops
    from lucerne import overrides as overrides
    from lucerne import random as random
    from lucerne import return_types as return_types
    from lucerne import signal as signal
    from lucerne import special as special
    from lucerne import testing as testing
    from lucerne import types as types
    from lucerne import utils as utils
