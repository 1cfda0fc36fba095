"""`lucerne.autograd`: differentiation."""

from __future__ import annotations

import functools as _functools
from typing import Any

from lucerne._src.base.process import forks as _forks
from lucerne._src.tensor.autograd.api import backward as backward
from lucerne._src.tensor.autograd.api import grad as grad
from lucerne._src.tensor.autograd.function import Function as Function
from lucerne._src.tensor.autograd.graph import detect_anomaly as detect_anomaly
from lucerne._src.tensor.autograd.graph import set_detect_anomaly as set_detect_anomaly
from lucerne._src.tensor.autograd.mapping import Mapping as _Mapping
from lucerne._src.tensor.autograd.modes import enable_grad as enable_grad
from lucerne._src.tensor.autograd.modes import inference_mode as inference_mode
from lucerne._src.tensor.autograd.modes import no_grad as no_grad
from lucerne._src.tensor.autograd.modes import set_grad_enabled as set_grad_enabled
from lucerne.autograd import function as function
from lucerne.autograd import graph as graph
from lucerne.autograd.variable import Variable as Variable

__all__ = ["Variable", "backward", "grad"]

# Loaded when first used: most programs never need them.
_LAZY_MODULES = frozenset({"forward_ad", "functional", "profiler", "profiler_util"})

_Mapping.load = _functools.partial(_forks.import_module, "lucerne.func.vmap")


def __getattr__(name: str) -> Any:
    """Load a module, or a function of one, when it is first asked for."""
    if name in _LAZY_MODULES:
        return _forks.import_module(f"lucerne.autograd.{name}")
    if name in ("gradcheck", "gradgradcheck"):
        return getattr(_forks.import_module("lucerne._src.tensor.autograd.gradcheck"), name)
    raise AttributeError(f"module 'lucerne.autograd' has no attribute {name!r}")
