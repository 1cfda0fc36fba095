"""`__torch_dispatch__`: types and modes that take over what is really executed, below autograd.

A class of tensors with this method sees every op that is about to run on one of its tensors, as an
overload of `torch.ops` with arguments; what it returns is the result. `DispatchMode` sees all ops
while it is entered. Both stand where kernel-level interpreters stand: below autograd, so backward
passes come by as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from lucerne._src.base.defaults import get_default_dtype
from lucerne._src.base.device import HOST, device
from lucerne._src.base.refusals import no_pinned_memory
from lucerne._src.ir import dispatch
from lucerne._src.ir.dispatch import InPlace, Proceed
from lucerne._src.ir.meta import make_meta
from lucerne._src.ir.op import Op
from lucerne._src.ops import aten
from lucerne._src.tensor.autograd.modes import no_grad
from lucerne._src.tensor.autograd.state import AutogradState
from lucerne._src.tensor.base import TensorBase, make_tensor
from lucerne._src.tensor.storage import Storage
from lucerne._src.tensor.subclasses.torch_function import Mode, dispatching, one_of_each, unchanged

_state = dispatch.state


class NoData:
    """Stands where a wrapper has its memory: what it wraps has the numbers."""

    __slots__ = ()
    address = 0

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(
            "this tensor wraps others and has no numbers of its own: its __torch_dispatch__ did "
            "not answer the op that asked for them"
        )


def make_wrapper(
    cls: type,
    size: Any,
    strides: Any = None,
    storage_offset: int | None = None,
    memory_format: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device_: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Any:
    """A tensor of a class with `__torch_dispatch__`: it has a shape and a dtype, but no bytes."""
    if pin_memory:
        no_pinned_memory()
    if not any("__torch_dispatch__" in k.__dict__ for k in cls.__mro__):
        raise RuntimeError(
            f"{cls.__name__} must define __torch_dispatch__ to be used with _make_wrapper_subclass"
        )
    where = device(device_) if device_ is not None else device(HOST)
    meta = make_meta(dtype or get_default_dtype(), tuple(size),
                     None if strides is None else tuple(strides), where)  # fmt: skip
    storage = Storage(None, meta.span * meta.dtype.itemsize, where)
    storage.buffer = NoData()
    made = make_tensor(storage, storage_offset or 0, meta).as_subclass(cls)
    if requires_grad:
        made._auto = AutogradState(requires_grad=True)
    return made


def has_data(t: Any) -> bool:
    return type(t._storage.buffer) is not NoData


# ---- subclasses ------------------------------------------------------------------------------


def _flat(args: Any) -> Iterator[Any]:
    for a in args:
        if isinstance(a, (tuple, list)):
            yield from _flat(a)
        else:
            yield a


def wanted(args: tuple[Any, ...]) -> bool:
    """Whether an argument's class has a `__torch_dispatch__`."""
    return any(type(a) in dispatching for a in _flat(args))


def _asking(args: Any) -> list[Any]:
    """One argument of each such class, subclasses before their bases."""
    return one_of_each(_flat(args), lambda a: type(a) in dispatching)


def ask(op: Op, args: tuple[Any, ...], out: Any) -> Any:
    """The answer of the classes of the arguments."""
    func, given, named = aten.call_of(op, args, out)
    found = _asking((*given, *named.values()))
    types = tuple(type(f) for f in found)
    registered = _registered(op)
    with below_modes():
        for cls in types:
            handler = registered.get(cls)
            if handler is not None:
                result = handler(cls, func, types, given, named)
            else:
                result = cls.__torch_dispatch__(func, types, given, named)
            if result is not NotImplemented:
                return _as_results(result)
    raise TypeError(
        f"no implementation found for 'torch.ops.{func}' on types that implement "
        f"__torch_dispatch__: {list(types)}"
    )


def _in_place_call(
    op: Op, args: tuple[Any, ...], target: Any
) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
    """A call whose result lands in its first argument: `aten.add_.Tensor(target, other)`. None: it
    has no such form."""
    func, given, named = aten.call_of(op, args, None)
    packet = getattr(aten.SPACE, f"{func.overloadpacket.__name__}_", None)
    if packet is None or not given or given[0] is not target:
        return None
    over = func._overloadname
    written = getattr(packet, over if over in packet.overloads() else packet.overloads()[0])
    return written, given, named


def ask_in_place(op: Op, args: tuple[Any, ...], target: Any) -> Any:
    """An in-place method of such a tensor."""
    call = _in_place_call(op, args, target)
    if call is None:
        raise TypeError(f"{op.name}: {type(target).__name__} has no in-place form of it")
    written, given, named = call
    found = _asking((*given, *named.values(), target))
    types = tuple(type(f) for f in found)
    with below_modes():
        for cls in types:
            result = cls.__torch_dispatch__(written, types, (target, *given[1:]), named)
            if result is not NotImplemented:
                return target
    raise TypeError(f"no implementation found for 'torch.ops.{written}' on types {list(types)}")


def _registered(op: Op) -> dict[Any, Any]:
    """What `register_torch_dispatch` gave for a custom op."""
    owner = getattr(op.host, "owner", None)
    found: dict[Any, Any] = getattr(owner, "torch_dispatch", {})
    return found


def _as_results(result: Any) -> Any:
    return tuple(result) if isinstance(result, list) else result


@contextmanager
def below_modes() -> Iterator[None]:
    """Inside, ops are neither recorded nor seen by who stands above autograd."""
    before = _state.call_level
    _state.call_level = []
    _state.refresh()
    try:
        with no_grad():
            yield
    finally:
        _state.call_level = before
        _state.refresh()


# ---- modes -----------------------------------------------------------------------------------


class DispatchMode(Mode):
    """While entered, sees every op of the thread in its `__torch_dispatch__`.

    >>> import lucerne as torch
    >>> from lucerne.utils._python_dispatch import TorchDispatchMode
    >>> class Log(TorchDispatchMode):
    ...     def __torch_dispatch__(self, func, types, args=(), kwargs=None):
    ...         print(func)
    ...         return func(*args, **(kwargs or {}))
    >>> x = torch.ones(2, 2, requires_grad=True)
    >>> with Log():
    ...     y = (x @ x).exp()
    aten.mm.default
    aten.exp.default
    """

    level = "kernel"

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        raise NotImplementedError(f"{type(self).__name__} defines no __torch_dispatch__")

    def takes(self, op: Op, args: tuple[Any, ...]) -> bool:
        return op.qualified in aten.WHOLE

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Proceed) -> Any:
        func, given, named = aten.call_of(op, args, out)
        types = tuple(type(a) for a in _asking((*given, *named.values())))
        handler = _registered(op).get(type(self))
        with below_modes():
            if handler is not None:
                result = handler(self, func, types, given, named)
            else:
                result = self.__torch_dispatch__(func, types, given, named)
        if result is NotImplemented:
            return proceed(op, args, out)
        return None if type(out) is InPlace else _as_results(result)

    def writes_over(self, op: Op, args: tuple[Any, ...], target: Any) -> bool:
        """An in-place call is about to run: whether it was taken care of."""
        call = _in_place_call(op, args, target)
        if call is None:
            return False
        written, given, named = call
        types = tuple(type(a) for a in _asking((*given, *named.values())))
        _state.kernel_level.pop()
        try:
            with below_modes():
                found = self.__torch_dispatch__(written, types, given, named)
        finally:
            _state.kernel_level.append(self)
            _state.refresh()
        return found is not NotImplemented


class BaseDispatchMode(DispatchMode):
    """A mode that changes nothing."""

    __torch_dispatch__ = unchanged


def mode_stack() -> list[DispatchMode]:
    """The modes that are entered, the innermost last."""
    return [i for i in _state.kernel_level if isinstance(i, DispatchMode)]


@contextmanager
def disable_modes() -> Iterator[list[DispatchMode]]:
    """Inside, no dispatch mode sees anything."""
    before = list(_state.kernel_level)
    _state.kernel_level[:] = [i for i in before if not isinstance(i, DispatchMode)]
    _state.refresh()
    try:
        yield [i for i in before if isinstance(i, DispatchMode)]
    finally:
        _state.kernel_level[:] = before
        _state.refresh()


def is_wrapper(x: Any) -> bool:
    return isinstance(x, TensorBase) and not has_data(x)


def ask_detach(t: Any) -> Any:
    """`t.detach()` of such a tensor."""
    cls = type(t)
    with below_modes():
        found = cls.__torch_dispatch__(aten.SPACE.detach.default, (cls,), (t,), {})
    if found is NotImplemented:
        raise TypeError(
            f"no implementation found for 'torch.ops.aten.detach.default' on {cls}: its "
            "__torch_dispatch__ should return a new tensor that wraps the same"
        )
    return found
