"""Public functions that modules below them call, or that few callers need: the root, which knows
them all and loads them when they are first used, opens the doors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class LateBindings:
    """Set when `lucerne` is imported."""

    compile: Callable[..., Any]
    """`lucerne.compile`, for `Module.compile`: it knows graphs, which hold modules."""
    graph_module: Callable[..., Any]
    """`fx.from_ir`, for backends that are functions: loading `fx` takes longer than all else that
    `compile` needs."""
    process_place: Callable[[], tuple[int, int] | None] = staticmethod(lambda: None)
    """Rank and size of this process's group; None: it has none. Set by `lucerne.distributed`."""
    process_gather: Callable[[Any], list[Any]]
    """One value of each rank, on all of them; for those that `process_place` says are there."""
    sync_norm: Callable[..., Any] | None = None
    """Batch norm over the ranks of a group, set by `lucerne.distributed`."""
    out_of_memory: Callable[[int], str]
    """What the error of an allocator says: who has the memory, and what to do."""
    nested_ops: Callable[[], Any]
    """The same for nested tensors."""
    sparse_ops: Callable[[], Any]
    """Loads what sparse tensors answer: few programs make one."""
