"""Mixed precision: inputs of some ops are converted before the op runs, as PyTorch's autocast does.

The state belongs to the thread. While autocast is on, `dispatch.state.cast` holds a Converter,
which the eager path asks about the ops whose entries name a precision, before they are opened
into parts and before they are recorded: gradients pass through the conversions and arrive in the
dtype of the parameter. Other ops stay on the fast path. Inside of such an op nothing is converted
any more.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base.device import HOST, is_known_type
from lucerne._src.ir import dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.convert import as_dtype
from lucerne._src.ir.define import fronts
from lucerne._src.ir.op import Op
from lucerne._src.tensor.base import TensorBase

_state = dispatch.state
_LOW = (dt.bfloat16, dt.float16)
"""The dtypes autocast lowers to; a Converter's number is the host's place here and one."""
DEVICES = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia", "xla", "ipu", "maia", "privateuseone")
"""torch's device types, which one may ask about whether they are there or not."""

Setting = tuple[tuple[str, dt.dtype], ...]
"""Device types for which autocast is on, and what each lowers to."""
Snapshot = tuple[dict[str, bool], dict[str, dt.dtype], bool]


@functools.cache
def policies() -> dict[Op, Any]:
    """What becomes of the inputs of each listed op; or (that, when)."""
    return {op: op.autocast for op in op_.table().values() if op.autocast}


@functools.cache
def _policies_of_fronts() -> dict[str, str]:
    """Public functions that are no ops, or look at dtypes before an op sees them."""
    return {f.name: f.autocast for f in fronts().values() if f.autocast}


class Converter:
    """Runs listed ops on converted inputs; keeps the converted parameters until told otherwise."""

    def __init__(self, lower: Setting) -> None:
        self.setting = tuple([(kind, dtype.name) for kind, dtype in lower])
        self.lower = dict(lower)
        # Machine code remembers calls on the host alone: other devices are nothing to it.
        self.number = _LOW.index(self.lower[HOST]) + 1 if HOST in self.lower else 0
        self.ops = policies()
        self.kept: dict[tuple[int, bool], tuple[Any, int, Any]] = {}

    def run(self, op: Op, args: tuple[Any, ...]) -> Any:
        policy = self.ops[op]
        if type(policy) is tuple:
            policy, applies = policy
            if not applies(args):
                return NotImplemented
        if policy == "lower":
            given = self._converted(args, None)
        elif policy == "full":
            given = self._converted(args, dt.float32)
        elif policy == "promote":
            given = self._converted(args, self._widest(args))
        elif policy == "promote state":
            given = self._converted(args, self._widest(args[:2]))
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
        policy = _policies_of_fronts().get(function.__name__)
        if policy is None:
            return args, kwargs
        names, values = tuple(kwargs), tuple(kwargs.values())
        dtype = None if policy == "lower" else dt.float32
        converted = self._converted((*args, *values), dtype)
        return converted[: len(args)], dict(zip(names, converted[len(args) :], strict=True))

    def _converted(self, args: tuple[Any, ...], dtype: dt.dtype | None) -> tuple[Any, ...]:
        """The arguments in a dtype; None: in the one that their device lowers to."""
        return tuple(
            self._one(a, dtype)
            if isinstance(a, TensorBase)
            else tuple(self._one(x, dtype) for x in a)
            if type(a) is tuple and a and isinstance(a[0], TensorBase)
            else a
            for a in args
        )

    def _one(self, x: Any, dtype: dt.dtype | None) -> Any:
        if not self._is_eligible(x):
            return x
        lower = self.lower[x._meta.device.type]
        dtype = dtype or lower
        if x._meta.dtype is dtype:
            return x
        auto = x._auto
        keeps = (
            dtype is lower
            and x._meta.dtype is dt.float32
            and Thread.now.cache
            and auto is not None
            and auto.requires_grad
            and auto.grad_fn is None
            and x._view is None
        )
        return self._kept(x, lower) if keeps else x.to(dtype)

    def _kept(self, x: Any, lower: dt.dtype) -> Any:
        """The converted form of a parameter, made once for all its uses."""
        key = (id(x), _state.grad_enabled)
        found = self.kept.get(key)
        version = x._storage.version
        if found is None or found[0] is not x or found[1] != version:
            found = self.kept[key] = (x, version, x.to(lower))
        return found[2]

    def _is_eligible(self, x: Any) -> bool:
        if not isinstance(x, TensorBase):
            return False
        meta = x._meta
        wanted = meta.dtype.category == dt.FLOAT and meta.dtype is not dt.float64
        return wanted and meta.device.type in self.lower

    def _widest(self, args: tuple[Any, ...]) -> dt.dtype:
        """The dtype of a call that promotes: float32 if one input has it."""
        found: dt.dtype | None = None
        for a in args:
            for x in a if type(a) is tuple else (a,):
                if not self._is_eligible(x):
                    continue
                kind = x._meta.dtype
                found = kind if found is None or found is kind else dt.float32
        return found or dt.float32


# ---- the state of the thread ------------------------------------------------------------------


class Thread(threading.local):
    """What is switched on in this thread, by device type; how deep contexts are nested.

    What was switched off again, or is set to what it is without setting, is not in the tables: two
    states that do the same are equal, and a trace that entered a context has changed nothing.
    """

    now: Thread

    def __init__(self) -> None:
        self.enabled: dict[str, bool] = {}
        self.dtypes: dict[str, dt.dtype] = {}
        self.cache = True
        self.nesting = 0
        self.converters: dict[Setting, Converter] = {}

    def apply(self) -> None:
        """Make the dispatch follow."""
        found = [(k, get_autocast_dtype(k)) for k in sorted(self.enabled) if is_there(k)]
        lower = tuple([(kind, dtype) for kind, dtype in found if dtype in _LOW])
        cast = None
        if lower:
            if lower not in self.converters:
                self.converters[lower] = Converter(lower)
            cast = self.converters[lower]
        if cast is not _state.cast:
            _state.set_cast(cast)


Thread.now = Thread()


def is_there(device_type: str) -> bool:
    """Whether such a device is the host or has a backend: others convert nothing."""
    return device_type == HOST or is_known_type(device_type)


def _checked(device_type: str) -> str:
    if device_type not in DEVICES and not is_there(device_type):
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
    if enabled:
        Thread.now.enabled[_checked(device_type)] = True
    else:
        Thread.now.enabled.pop(_checked(device_type), None)
    Thread.now.apply()


def get_autocast_dtype(device_type: str) -> dt.dtype:
    """What autocast lowers to."""
    return Thread.now.dtypes.get(_checked(device_type)) or _lowers_to(device_type)


def _lowers_to(device_type: str) -> dt.dtype:
    """What autocast lowers to if nobody says otherwise."""
    return dt.bfloat16 if device_type in ("cpu", "xla", "hpu") else dt.float16


def set_autocast_dtype(device_type: str, dtype: Any) -> None:
    dtype, kind = as_dtype(dtype), _checked(device_type)
    if dtype is _lowers_to(kind):
        Thread.now.dtypes.pop(kind, None)
    else:
        Thread.now.dtypes[kind] = dtype
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


def snapshot() -> Snapshot:
    """How autocast is set, to be set so again (`restored`)."""
    now = Thread.now
    return dict(now.enabled), dict(now.dtypes), now.cache


@contextmanager
def restored(state: Snapshot) -> Iterator[None]:
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


def _set(state: Snapshot) -> None:
    now = Thread.now
    enabled, dtypes, now.cache = state
    now.enabled, now.dtypes = dict(enabled), dict(dtypes)
    now.apply()


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
