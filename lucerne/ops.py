"""`lucerne.ops.mylib`: the operators of the namespace `mylib`, torch's own (`aten`) among them."""

from __future__ import annotations

from typing import Any

from lucerne._src.base.process import forks as _forks
from lucerne._src.ir.overload import known_namespace as _known_namespace
from lucerne._src.ops import aten as _aten  # noqa: F401  (enters the namespace)


class _HigherOrder:
    """`lucerne.ops.higher_order`: control flow, loaded when it is first used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_forks.import_module("lucerne.control_flow"), name)


higher_order = _HigherOrder()


def __getattr__(name: str) -> Any:
    found = _known_namespace(name)
    if found is None:
        raise AttributeError(
            f"torch.ops has no namespace {name!r}: define its operators first, with "
            f'lucerne.library.custom_op("{name}::...") or Library("{name}", "DEF")'
        )
    return found
