"""`lucerne.ops.mylib`: the operators of the namespace `mylib`, torch's own (`aten`) among them."""

from __future__ import annotations

from typing import Any

from lucerne._src.base.process import forks as _forks
from lucerne._src.ir.overload import namespace as _namespace
from lucerne._src.ops import aten as _aten  # noqa: F401  (enters the namespace)


class _HigherOrder:
    """`lucerne.ops.higher_order`: control flow, loaded when it is first used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_forks.import_module("lucerne.control_flow"), name)


higher_order = _HigherOrder()


def __getattr__(name: str) -> Any:
    """The namespace; one that nobody has defined is empty, and its operators raise."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _namespace(name)
