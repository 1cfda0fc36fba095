"""Which calls a captured function may make, and in whose words to stop where it may not."""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from typing import Any

from lucerne.base import defaults
from lucerne.base.where import Place, is_users
from lucerne.capture import breaks
from lucerne.capture.breaks import Break
from lucerne.capture.bytecode.frame import Frame
from lucerne.capture.bytecode.hooks import INLINE, NATIVE, Decision, Stop, is_entered
from lucerne.capture.bytecode.targets import python_function
from lucerne.capture.entry import circumstances
from lucerne.capture.fake import is_fake
from lucerne.capture.reach import is_module, is_optimizer
from lucerne.capture.watch import foreign_in, handler_that_does_more, written_in
from lucerne.ir import dispatch
from lucerne.tensor.autograd.modes import Switch
from lucerne.tensor.base import TensorBase, plain_types

_state = dispatch.state


def user_place(frames: Sequence[Frame]) -> Place | None:
    """The innermost line of the user's among frames."""
    for frame in reversed(frames):
        if is_users(frame.code):
            return frame.place
    return None


def calls_user_code(module: Any) -> bool:
    """Whether a call of a module may come to code that is not ours."""
    if not type(module).__module__.startswith("lucerne."):
        return True
    own = module.__dict__
    if any(own.get(k) for k in own if k.endswith("hooks")):
        return True
    return any(calls_user_code(m) for m in module._modules.values() if m is not None)


def is_ours(fn: Any) -> bool:
    """Whether a callable is a function, method or class of this package."""
    target = fn.__func__ if isinstance(fn, types.MethodType) else fn
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, TensorBase):
        return True
    home = getattr(target, "__module__", None)
    if isinstance(home, str) and isinstance(target, (types.FunctionType, type)):
        return home.startswith("lucerne.")
    kind = type(fn).__module__
    return kind == "lucerne" or kind.startswith("lucerne.")  # the native type of public functions


def may_call_back(fn: Any) -> bool:
    """Whether a function of ours may call code of the user's: ops never do."""
    if isinstance(fn, types.MethodType):
        tensors = isinstance(fn.__self__, TensorBase)
        return is_ours(fn) and not (tensors and type(fn.__func__) is not types.FunctionType)
    return is_ours(fn) and (type(fn) is types.FunctionType or not callable_op(fn))


def callable_op(fn: Any) -> bool:
    """Whether it is an op as the engine makes them, or a class."""
    return type(fn).__module__ == "lucerne" or isinstance(fn, type)


def is_known(t: Any) -> bool:
    """Whether the values of a tensor are the same at every call."""
    found: list[Any] = [x for x in _state.kernel_level if getattr(x, "captures", False)]
    return bool(found) and found[-1].known_tensor(t) is not None


def handler_among(given: Iterable[Any]) -> str | None:
    """What ops call of a tensor given here (or of a module's, or of a mode that is entered), if it
    does more than compute."""
    for x in given:
        tensors = x.parameters() if is_module(x) else (x,)
        for t in tensors:
            if isinstance(t, dispatch.Interpreter) or (
                isinstance(t, TensorBase) and type(t) not in plain_types
            ):
                more = handler_that_does_more(type(t))
                if more is not None:
                    return more
    return None


def native_call(fn: Any, given: Sequence[Any]) -> Decision | Stop:
    """A call of something of ours: not if user code that it calls back does more than ops."""
    if fn is id and given and isinstance(given[0], TensorBase) and is_fake(given[0]):
        return stop_for(breaks.made("values", None, "id()"))
    more = handler_among((fn, getattr(fn, "__self__", None), *given))
    if more is not None:
        return stop_for(breaks.made("callback", None, more))
    if may_call_back(fn):
        for x in (fn, getattr(fn, "__self__", None), *given):
            found = foreign_in(x)
            if found is not None:
                name = found.__name__ if isinstance(found, types.ModuleType) else None
                kind = breaks.kind_of_home(name) if name else breaks.kind_of_call(found)
                return stop_for(breaks.made(kind, None, name or breaks.name_of(found)))
            changed = written_in(x)
            if changed is not None:
                return stop_for(breaks.made("callback", None, f"{changed}()"))
    return NATIVE


def changes_owner(fn: Any) -> bool:
    """Whether it is a method of ours that changes the object it belongs to, and not in tensors: of
    a scheduler, a hook's handle, or one that registers something with a module."""
    owner = getattr(fn, "__self__", None)
    if owner is None or isinstance(owner, (TensorBase, type, types.ModuleType)):
        return False
    if is_module(owner):
        return fn.__name__.startswith(("register_", "load_state_dict", "add_module"))
    if is_optimizer(owner) or not hasattr(owner, "__dict__"):
        return False
    if isinstance(owner, Switch):
        return False  # what it keeps is for its own end
    return type(owner).__module__.startswith("lucerne.")


def decision_for(fn: Any) -> Decision:
    """Whether a call leads to user code that can be entered."""
    if is_module(fn):
        return INLINE if calls_user_code(fn) else NATIVE
    if isinstance(fn, types.MethodType) and is_module(fn.__self__):
        inside = fn.__func__.__name__ in ("forward", "__call__", "_call_impl")
        if inside and calls_user_code(fn.__self__):
            return INLINE
    target = python_function(fn)
    if target is None:
        return NATIVE
    code = target.__code__
    between = code.co_qualname.startswith(_BETWEEN) and target.__module__.startswith("lucerne.nn.")
    return INLINE if between or is_entered(code) else NATIVE


_BETWEEN = ("_call_with_hooks", "_Run.")
"""Functions of ours that call the hooks of modules."""


def at_hand(frame: Frame) -> str:
    """What the instruction at hand is, in the user's words."""
    op = frame.decoded.ops[frame.last]
    if op.name.startswith("CALL"):
        for x in reversed(frame.stack):
            if isinstance(x, (types.MethodType, types.BuiltinFunctionType)) or python_function(x):
                return breaks.name_of(x)
            if type(x).__module__ == "lucerne" and callable(x) and not isinstance(x, TensorBase):
                return breaks.name_of(x)
    return "this line"


def foreign_item(container: Any, key: Any) -> Stop:
    """A stop before something foreign is asked by `[]`."""
    kind = breaks.kind_of_home(type(container).__module__.partition(".")[0])
    return stop_for(breaks.made(kind, None, f"{type(container).__name__.strip('_')}[{key!r}]"))


def is_fuel(stop: Stop) -> bool:
    """Whether a machine stopped because it did as many instructions as it was asked for."""
    return stop.detail is None and stop.reason.startswith("as many instructions")


def stop_for(found: Break) -> Stop:
    """A stop that tells of a break."""
    return Stop(found.kind, found)


def stop_with(error: BaseException) -> Stop:
    """A stop that carries an error out of the machine."""
    return Stop("again", error)


class Switches:
    """Grad mode, autocast and the like, as they are now."""

    def __init__(self) -> None:
        self.grad, self.inference, self.cast = (
            _state.grad_enabled, _state.inference, _state.cast,
        )  # fmt: skip
        self.dtype = defaults.get_default_dtype()
        self.now = circumstances()

    def restore(self) -> None:
        """Set them as they were."""
        _state.inference, _state.cast = self.inference, self.cast
        _state.grad_enabled = self.grad
        defaults.set_default_dtype(self.dtype)
        _state.refresh()
