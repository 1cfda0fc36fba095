"""Small records and switches of torch's process layer."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from lucerne._src.base.config import launch_variable
from lucerne._src.distributed.processes.reduction import RedOpType, ReduceOp
from lucerne._src.distributed.processes.world import default_pg_timeout
from lucerne.profiler import record_function


class DebugLevel(enum.Enum):
    """How much a program asks to be told."""

    OFF = 0
    INFO = 1
    DETAIL = 2


class _Switches:
    debug: DebugLevel | None = None


def get_debug_level() -> DebugLevel:
    """What `TORCH_DISTRIBUTED_DEBUG` or `set_debug_level` says. Calls are compared at any level."""
    if _Switches.debug is None:
        set_debug_level_from_env()
    assert _Switches.debug is not None
    return _Switches.debug


def set_debug_level(level: DebugLevel) -> None:
    """How much is told about collectives."""
    _Switches.debug = DebugLevel(level)


def set_debug_level_from_env() -> None:
    """The level that `TORCH_DISTRIBUTED_DEBUG` says."""
    word = (launch_variable("TORCH_DISTRIBUTED_DEBUG") or "OFF").upper()
    if word not in DebugLevel.__members__:
        raise RuntimeError(
            f"The value of TORCH_DISTRIBUTED_DEBUG must be one of OFF, INFO, DETAIL, got {word!r}"
        )
    _Switches.debug = DebugLevel[word]


class CollectiveOptions:
    """What the methods of a group in C++ take; here a record."""

    def __init__(self) -> None:
        self.timeout = default_pg_timeout
        self.asyncOp = True


class BroadcastOptions(CollectiveOptions):
    """Options of a broadcast."""

    def __init__(self) -> None:
        super().__init__()
        self.rootRank, self.rootTensor = 0, 0


class AllreduceOptions(CollectiveOptions):
    """Options of an all-reduce."""

    def __init__(self) -> None:
        super().__init__()
        self.reduceOp: Any = ReduceOp.SUM


class AllreduceCoalescedOptions(AllreduceOptions):
    """Options of an all-reduce of several tensors."""


class ReduceOptions(AllreduceOptions):
    """Options of a reduce."""

    def __init__(self) -> None:
        super().__init__()
        self.rootRank, self.rootTensor = 0, 0


class ReduceScatterOptions(AllreduceOptions):
    """Options of a reduce-scatter."""


class GatherOptions(CollectiveOptions):
    """Options of a gather."""

    def __init__(self) -> None:
        super().__init__()
        self.rootRank = 0


class ScatterOptions(GatherOptions):
    """Options of a scatter."""


class AllToAllOptions(CollectiveOptions):
    """Options of an all-to-all."""


class BarrierOptions(CollectiveOptions):
    """Options of a barrier."""

    def __init__(self) -> None:
        super().__init__()
        self.device_ids: list[int] = []


class reduce_op:
    """The old name of `ReduceOp`."""

    SUM, PRODUCT, MIN, MAX = RedOpType.SUM, RedOpType.PRODUCT, RedOpType.MIN, RedOpType.MAX


def supports_complex(reduceOp: Any) -> bool:
    """Whether complex values can be reduced so."""
    kind = reduceOp.op if isinstance(reduceOp, ReduceOp) else RedOpType(reduceOp)
    return kind in (RedOpType.SUM, RedOpType.AVG, RedOpType.PREMUL_SUM)


class record_comm:
    """A context, or a decorator, under whose name a profile shows what is inside."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._range: Any = None

    def __enter__(self) -> record_comm:
        self._range = record_function(self.name)
        self._range.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._range.__exit__(*exc)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with record_comm(self.name):
                return function(*args, **kwargs)

        return run
