"""Mixed precision: inputs of some ops are converted before the op runs, as PyTorch's autocast does.

The state belongs to the thread. While autocast is on, `dispatch.state.cast` holds a Converter,
which the eager path asks about the ops in autocast_lists.py, before they are opened into parts and
before they are recorded: gradients pass through the conversions and arrive in the dtype of the
parameter. Ops in no list stay on the fast path. Inside a listed op nothing is converted any more.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lucerne.base import dtype as dt
from lucerne.base.device import HOST
from lucerne.ir import dispatch
from lucerne.ir import op as op_
from lucerne.ir.convert import as_dtype
from lucerne.ir.op import Op
from lucerne.tensor import autocast_lists as lists
from lucerne.tensor.base import TensorBase

_state = dispatch.state
_ORDER = (dt.bfloat16, dt.float16)
"""The dtypes autocast lowers to on the CPU; a Converter's number is the place here and one."""
_LOW = frozenset(_ORDER)
_FRONTS = {name: policy for policy, names in lists.FRONTS.items() for name in names}
DEVICES = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia", "xla", "ipu", "maia", "privateuseone")
"""The device types one may ask about; only the first is there."""


@functools.cache
def policies() -> dict[Op, Any]:
    """What becomes of the inputs of each listed op; or (that, when)."""
    found: dict[Op, Any] = {}
    known = {op.qualified: op for op in op_.table().values()}
    for policy, names in (
        ("lower", lists.LOWER),
        ("full", lists.FULL),
        ("promote", lists.PROMOTE),
        ("promote state", lists.PROMOTE_STATE),
        ("as given", lists.AS_GIVEN),
    ):
        found.update({known[name]: policy for name in names if name in known})
    found.update({known[name]: rule for name, rule in lists.SOMETIMES.items() if name in known})
    return found


class Converter:
    """Runs listed ops on converted inputs; keeps the converted parameters until told otherwise."""

    def __init__(self, lower: dt.dtype) -> None:
        self.lower = lower
        self.number = _ORDER.index(lower) + 1
        self.ops = policies()
        self.kept: dict[tuple[int, bool], tuple[Any, int, Any]] = {}

    def run(self, op: Op, args: tuple[Any, ...]) -> Any:
        policy = self.ops[op]
        if type(policy) is tuple:
            policy, applies = policy
            if not applies(args):
                return NotImplemented
        if policy == "lower":
            given = self._converted(args, self.lower)
        elif policy == "full":
            given = self._converted(args, dt.float32)
        elif policy == "promote":
            given = self._converted(args, _widest(args))
        elif policy == "promote state":
            given = self._converted(args, _widest(args[:2]))
        else:
            given = args
        unchanged = all(a is b for a, b in zip(given, args, strict=True))
        if unchanged and op.kind != op_.COMPOSITE:
            return NotImplemented
        _state.set_cast(None)
        try:
            return dispatch.entry.run(op, given)
        finally:
            _state.set_cast(self)

    def front(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        policy = _FRONTS.get(function.__name__)
        if policy is None:
            return args, kwargs
        names, values = tuple(kwargs), tuple(kwargs.values())
        dtype = self.lower if policy == "lower" else dt.float32
        converted = self._converted((*args, *values), dtype)
        return converted[: len(args)], dict(zip(names, converted[len(args) :], strict=True))

    def _converted(self, args: tuple[Any, ...], dtype: dt.dtype) -> tuple[Any, ...]:
        return tuple(
            self._one(a, dtype)
            if isinstance(a, TensorBase)
            else tuple(self._one(x, dtype) for x in a)
            if type(a) is tuple and a and isinstance(a[0], TensorBase)
            else a
            for a in args
        )

    def _one(self, x: Any, dtype: dt.dtype) -> Any:
        if not _is_eligible(x) or x._meta.dtype is dtype:
            return x
        auto = x._auto
        keeps = (
            dtype is self.lower
            and x._meta.dtype is dt.float32
            and Thread.now.cache
            and auto is not None
            and auto.requires_grad
            and auto.grad_fn is None
            and x._view is None
        )
        return self._kept(x) if keeps else x.to(dtype)

    def _kept(self, x: Any) -> Any:
        """The converted form of a parameter, made once for all its uses."""
        key = (id(x), _state.grad_enabled)
        found = self.kept.get(key)
        version = x._storage.version
        if found is None or found[0] is not x or found[1] != version:
            found = self.kept[key] = (x, version, x.to(self.lower))
        return found[2]


def _is_eligible(x: Any) -> bool:
    if not isinstance(x, TensorBase):
        return False
    meta = x._meta
    wanted = meta.dtype.category == dt.FLOAT and meta.dtype is not dt.float64
    return wanted and meta.device.type == HOST


def _widest(args: tuple[Any, ...]) -> dt.dtype:
    """The dtype of a call that promotes: float32 if one input has it."""
    found: dt.dtype | None = None
    for a in args:
        for x in a if type(a) is tuple else (a,):
            if not _is_eligible(x):
                continue
            kind = x._meta.dtype
            found = kind if found is None or found is kind else dt.float32
    return found or dt.float32


# ---- the state of the thread ------------------------------------------------------------------


class Thread(threading.local):
    """What is switched on in this thread, by device type; how deep contexts are nested."""

    now: Thread

    def __init__(self) -> None:
        self.enabled: dict[str, bool] = {}
        self.dtypes: dict[str, dt.dtype] = {}
        self.cache = True
        self.nesting = 0
        self.converters: dict[dt.dtype, Converter] = {}

    def apply(self) -> None:
        """Make the dispatch follow."""
        lower = get_autocast_dtype("cpu")
        cast = None
        if self.enabled.get("cpu") and lower in _LOW:
            if lower not in self.converters:
                self.converters[lower] = Converter(lower)
            cast = self.converters[lower]
        if cast is not _state.cast:
            _state.set_cast(cast)


Thread.now = Thread()


def _checked(device_type: str) -> str:
    if device_type not in DEVICES:
        raise RuntimeError(
            f"Expected one of {', '.join(DEVICES)} device type at start of device string: "
            f"{device_type}"
        )
    return device_type


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    return Thread.now.enabled.get(_checked(device_type), False)


def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """Switch autocast on or off for a device type; with one argument for "cuda", as in PyTorch."""
    if enabled is None:
        device_type, enabled = "cuda", device_type
    Thread.now.enabled[_checked(device_type)] = bool(enabled)
    Thread.now.apply()


def get_autocast_dtype(device_type: str) -> dt.dtype:
    """What autocast lowers to."""
    known = Thread.now.dtypes.get(_checked(device_type))
    return known or (dt.bfloat16 if device_type in ("cpu", "xla", "hpu") else dt.float16)


def set_autocast_dtype(device_type: str, dtype: Any) -> None:
    Thread.now.dtypes[_checked(device_type)] = as_dtype(dtype)
    Thread.now.apply()


def is_autocast_cache_enabled() -> bool:
    return Thread.now.cache


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Whether the converted form of a parameter is kept for its next use."""
    Thread.now.cache = bool(enabled)


def clear_autocast_cache() -> None:
    """Forget the converted parameters."""
    for converter in Thread.now.converters.values():
        converter.kept.clear()


def autocast_increment_nesting() -> int:
    Thread.now.nesting += 1
    return Thread.now.nesting


def autocast_decrement_nesting() -> int:
    Thread.now.nesting -= 1
    return Thread.now.nesting


def snapshot() -> tuple[bool, dt.dtype, bool]:
    """How autocast is set on the CPU, to be set so again (`restored`)."""
    return is_autocast_enabled("cpu"), get_autocast_dtype("cpu"), Thread.now.cache


@contextmanager
def restored(state: tuple[bool, dt.dtype, bool]) -> Iterator[None]:
    """Autocast as it was, for what is computed again in a backward pass."""
    before = snapshot()
    _set(state)
    autocast_increment_nesting()
    try:
        yield
    finally:
        if autocast_decrement_nesting() == 0:
            clear_autocast_cache()
        _set(before)


def _set(state: tuple[bool, dt.dtype, bool]) -> None:
    Thread.now.enabled["cpu"], Thread.now.dtypes["cpu"], Thread.now.cache = state
    Thread.now.apply()


def is_autocast_cpu_enabled() -> bool:
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype() -> dt.dtype:
    return get_autocast_dtype("cpu")


def set_autocast_cpu_dtype(dtype: Any) -> None:
    set_autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype() -> dt.dtype:
    return get_autocast_dtype("cuda")


def set_autocast_gpu_dtype(dtype: Any) -> None:
    set_autocast_dtype("cuda", dtype)
