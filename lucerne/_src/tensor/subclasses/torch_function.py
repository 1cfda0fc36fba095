"""Types that take op calls over: `__torch_function__`, as in torch."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from lucerne._src.base.process.source_location import any_line
from lucerne._src.ir import argument_errors, dispatch
from lucerne._src.ir.dispatch import InPlace
from lucerne._src.ir.meta import NUMBER_METAS
from lucerne._src.ir.op import Op
from lucerne._src.tensor.base import Maker, TensorBase, plain_types

_state = dispatch.state
dispatching: set[type] = set()
"""Subclasses with a `__torch_dispatch__` (see `tensor/subclasses/torch_dispatch.py`)."""


def disabled_torch_function(
    cls: type,
    func: Any,
    types: Any,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """Assign as `__torch_function__` to make a subclass behave as a plain tensor."""
    return NotImplemented


def is_override(x: Any) -> bool:
    """Whether this object's type wants to see op calls."""
    cls = type(x)
    if cls in plain_types or x is None:
        return False
    return (
        getattr(cls, "__torch_function__", disabled_torch_function) is not disabled_torch_function
    )


def one_of_each(candidates: Iterable[Any], wanted: Callable[[Any], bool]) -> list[Any]:
    """One wanted argument of each type, subclasses before their bases."""
    found: list[Any] = []
    for a in candidates:
        if wanted(a) and type(a) not in [type(f) for f in found]:
            at = next((i for i, f in enumerate(found) if issubclass(type(a), type(f))), len(found))
            found.insert(at, a)
    return found


def overriding(candidates: Iterable[Any]) -> list[Any]:
    """One argument of each overriding type, subclasses before their bases."""
    return one_of_each(candidates, is_override)


def ask(
    found: Sequence[Any], func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str = ""
) -> Any:
    """The answer of the first overriding argument that has one."""
    types = tuple(type(f) for f in found)
    line = any_line()
    try:
        for f in found:
            result = f.__torch_function__(func, types, args, kwargs)
            if result is not NotImplemented:
                return result
    finally:
        any_line(line)
    listed = "".join(f"\n  - tensor subclass {t}" for t in types)
    raise TypeError(
        f"Multiple dispatch failed for '{name or resolve_name(func)}'; all __torch_function__ "
        f"handlers returned NotImplemented:\n{listed}"
    )


def resolve_name(func: Any) -> str:
    """How a user would spell a function of an op."""
    op = getattr(func, "op", None)
    if op is not None:
        return f"torch.{op.qualified}"
    return f"torch.{getattr(func, '__qualname__', None) or getattr(func, '__name__', func)}"


def _candidates(op: Op, args: tuple[Any, ...]) -> Iterator[Any]:
    for kind, a in zip(op.kinds, args, strict=True):
        if kind == "l" and isinstance(a, tuple):
            yield from a
        else:
            yield a


_NUMBERS = frozenset({int, float, bool, str, tuple, type(None)})
"""Types of arguments that never want to see a call."""


def any_override(op: Op, args: tuple[Any, ...]) -> bool:
    if not _state.overrides_enabled:
        return False
    for kind, a in zip(op.kinds, args, strict=True):
        if kind == "l" and isinstance(a, tuple):
            if any(is_override(x) for x in a):
                return True
        elif type(a) not in plain_types and type(a) not in _NUMBERS and is_override(a):
            return True
    return False


def offer(op: Op, args: tuple[Any, ...], out: Any) -> tuple[bool, Any]:
    """Let overriding arguments answer the call, subclasses before their bases."""
    if not _state.overrides_enabled:
        return False, None
    outs = out if isinstance(out, (tuple, list)) else (out,)
    found = overriding((*_candidates(op, args), *outs))
    if not found:
        return False, None
    func, positional, named = as_call(op, args, out)
    return True, ask(found, func, positional, named)


_SPOKEN = {
    "add2": ("add", ""), "sub2": ("sub", ""), "pow2": ("pow", ""), "true_divide": ("div", ""),
    "add_scaled": ("add", "alpha"),
}  # fmt: skip
"""Ops that no user calls by name: the method of Tensor that is theirs, and the keyword of the last
argument."""


def _written(name: str, value: Any) -> Any:
    """An argument as users write it: one dimension as a number, which ops take as a tuple."""
    single = name == "dim" and type(value) is tuple and len(value) == 1
    return value[0] if single else value


def as_call(op: Op, args: tuple[Any, ...], out: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A call of an op as a user would write it: function, arguments without defaults, keywords."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    pending: list[Any] = []
    for p, a in zip(op.params, args, strict=True):
        if p.keyword_only:
            if a is not p.default:
                named[p.name] = a
        elif a is p.default:
            pending.append(a)
        else:
            positional += [*pending, _written(p.name, a)]
            pending = []
    name, keyword = _SPOKEN.get(op.name, (op.name, ""))
    func: Any = op.public if name == op.name else getattr(Maker.cls, name)
    if keyword:
        named[keyword] = positional.pop()
    if type(out) is InPlace:
        over = getattr(Maker.cls, f"{name}_", None)
        if over is None:
            named["out"] = out
        else:
            func = over
    elif out is not None:
        named["out"] = out
    return func, tuple(positional), named


# ---- fronts: public functions that choose among ops -------------------------------------------


def _nested(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    for a in (*args, *kwargs.values()):
        if isinstance(a, (tuple, list)):
            yield from a
        else:
            yield a


def call_front(public: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Offer the call of a front to the innermost function mode, then to overriding arguments."""
    stack = _state.call_level
    if stack and isinstance(stack[-1], FunctionMode):
        mode: Any = stack.pop()
        _state.refresh()
        try:
            types = tuple(type(f) for f in overriding(_nested(args, kwargs)))
            return mode.__torch_function__(public, types, args, kwargs)
        finally:
            stack.append(mode)
            _state.refresh()
    if _state.overrides_enabled:
        found = overriding(_nested(args, kwargs))
        if found:
            return ask(found, public, args, kwargs)
        if args and not isinstance(args[0], (tuple, list)):
            dispatch.familiar.add(type(args[0]))
    if _state.cast is not None:
        args, kwargs = _state.cast.front(function, args, kwargs)
    if _state.kernel_level:
        return _state.kernel_level[-1].front(function, args, kwargs)
    return function(*args, **kwargs)


dispatch.entry.front = call_front


class Mode(dispatch.Interpreter):
    """What function modes and dispatch modes have in common."""

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """The old spelling of `with Mode(...)`."""
        return cls(*args, **kwargs)


def unchanged(
    self: Any, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
) -> Any:
    """The handler of a mode that changes nothing."""
    return func(*args, **(kwargs or {}))


class FunctionMode(Mode):
    """While entered, sees every op call of the thread in its `__torch_function__`.

    >>> import lucerne
    >>> class Log(lucerne.overrides.TorchFunctionMode):
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         print(lucerne.overrides.resolve_name(func))
    ...         return func(*args, **(kwargs or {}))
    >>> with Log():
    ...     x = lucerne.exp(lucerne.zeros(2))
    torch.zeros
    torch.exp
    """

    level = "call"

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        raise NotImplementedError(f"{type(self).__name__} defines no __torch_function__")

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: dispatch.Proceed) -> Any:
        func, positional, named = as_call(op, args, out)
        types = tuple(type(f) for f in overriding(_candidates(op, args)))
        return self.__torch_function__(func, types, positional, named)


class BaseFunctionMode(FunctionMode):
    """A mode that changes nothing."""

    __torch_function__ = unchanged


def current_mode() -> FunctionMode | None:
    """The innermost function mode that is entered."""
    return next((m for m in reversed(_state.call_level) if isinstance(m, FunctionMode)), None)


class disable_all:
    """Inside, neither subclasses nor function modes see calls (torch: DisableTorchFunction)."""

    def __enter__(self) -> None:
        self._before = _state.overrides_enabled
        self._modes = list(_state.call_level)
        _state.overrides_enabled = False
        _state.call_level[:] = [m for m in self._modes if not isinstance(m, FunctionMode)]
        _state.refresh()

    def __exit__(self, *exc: object) -> None:
        _state.overrides_enabled = self._before
        _state.call_level[:] = self._modes
        _state.refresh()


# ---- members of subclasses --------------------------------------------------------------------

_UNWATCHED = frozenset((
    "__new__", "__init__", "__init_subclass__", "__torch_function__", "__hash__", "__dir__",
    "__deepcopy__", "__reduce_ex__", "__reduce__", "__module__", "__doc__", "__dict__",
    "__weakref__", "__array_priority__", "as_subclass",
))  # fmt: skip


def watch_members(cls: type, base: type) -> None:
    """Make the members of `base` that are no ops visible to the `__torch_function__` of `cls`.

    Called when a subclass is made. Only the subclass pays: plain tensors keep their direct members.
    """
    handler = getattr(cls, "__torch_function__", disabled_torch_function)
    if any("__torch_dispatch__" in k.__dict__ for k in cls.__mro__[: cls.__mro__.index(base)]):
        dispatching.add(cls)
    if handler is disabled_torch_function:
        if cls not in dispatching:
            plain_types.add(cls)
        return
    inherits = getattr(handler, "__func__", None) is base.__torch_function__.__func__  # type: ignore[attr-defined]
    between = cls.__mro__[: cls.__mro__.index(base)]
    for name, member in list(base.__dict__.items()):
        if name in _UNWATCHED or any(name in k.__dict__ for k in between) or hasattr(member, "op"):
            continue
        if inherits and not name.startswith("new_"):
            continue  # the default handler only retypes results, which ops do by themselves
        if isinstance(member, property):
            setattr(cls, name, _watched_property(member))
        elif callable(member) and not isinstance(member, type):
            setattr(cls, name, _watched_method(getattr(member, "stands_for", member)))


def _watched_method(fn: Any) -> Any:
    @functools.wraps(fn)
    def method(*args: Any, **kwargs: Any) -> Any:
        if not _state.overrides_enabled:
            return fn(*args, **kwargs)
        found = overriding(_nested(args, kwargs))
        return ask(found, fn, args, kwargs) if found else fn(*args, **kwargs)

    return method


def _watched_property(member: property) -> property:
    def get(self: Any) -> Any:
        if not _state.overrides_enabled:
            return member.__get__(self)
        return ask([self], member.__get__, (self,), {})

    def put(self: Any, value: Any) -> Any:
        if not _state.overrides_enabled:
            return member.__set__(self, value)
        return ask([self], member.__set__, (self, value), {})

    return property(get, None if member.fset is None else put, member.fdel, member.__doc__)


def plain_arguments(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with NumPy scalars as Python numbers; what else is no tensor is an error."""
    found: list[Any] = []
    for i, (p, a) in enumerate(zip(op.params, args, strict=True)):
        if p.kind == "t":
            a = _plain(op, i, a)
        elif p.kind == "l":
            a = tuple(_plain(op, i, x) for x in a)
        found.append(a)
    return tuple(found)


def _plain(op: Op, position: int, a: Any) -> Any:
    if a is None or isinstance(a, TensorBase) or type(a) in NUMBER_METAS:
        return a
    if isinstance(a, np.generic) or (isinstance(a, np.ndarray) and a.ndim == 0):
        return a.item()
    if isinstance(a, numbers.Integral):
        return int(a)
    if isinstance(a, numbers.Number):
        real = isinstance(a, numbers.Real) or not isinstance(a, numbers.Complex)
        return float(a) if real else complex(a)  # type: ignore[arg-type, call-overload]
    raise argument_errors.not_a_tensor(op.name, op.params[position], position, a)


class disable_overrides:
    """Inside, subclasses are treated as plain tensors (torch: DisableTorchFunctionSubclass)."""

    def __enter__(self) -> None:
        self._before = _state.overrides_enabled
        _state.overrides_enabled = False

    def __exit__(self, *exc: object) -> None:
        _state.overrides_enabled = self._before


def default_torch_function(
    cls: type, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run `func` as if on plain tensors; results become `cls` (shapes, numbers stay)."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with disable_overrides():
        result = func(*args, **kwargs)
    return result if func in nowrap_functions() else _retype(result, cls)


@functools.cache
def nowrap_functions() -> frozenset[Any]:
    """Members whose results keep their own type: a gradient is whatever was stored."""
    cls: Any = Maker.cls
    return frozenset((cls._base.__get__, cls.grad.__get__))


def _retype(result: Any, cls: type) -> Any:
    if isinstance(result, TensorBase) and not isinstance(result, cls):
        return result.as_subclass(cls)  # type: ignore[attr-defined]
    if isinstance(result, (tuple, list)):
        parts = [_retype(r, cls) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result
