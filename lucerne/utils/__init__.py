"""`lucerne.utils`: what is built on tensors and autograd."""

from __future__ import annotations

from typing import Any

from lucerne._src.base.process import forks as _forks
from lucerne.nn.modules.conversion import swap_tensors as swap_tensors
from lucerne.utils import checkpoint as checkpoint
from lucerne.utils import dlpack as dlpack
from lucerne.utils import hooks as hooks

# Loaded when first used: these pull in more than a program that only computes needs.
_LAZY_MODULES = frozenset(
    {
        "_contextlib",
        "_device",
        "_python_dispatch",
        "_pytree",
        "benchmark",
        "cpp_extension",
        "data",
        "flop_counter",
        "model_zoo",
        "tensorboard",
        "weak",
    }
)


def __getattr__(name: str) -> Any:
    """Load a subpackage when it is first asked for."""
    if name in _LAZY_MODULES:
        return _forks.import_module(f"lucerne.utils.{name}")
    raise AttributeError(f"module 'lucerne.utils' has no attribute {name!r}")
