"""Which calls a captured function may make, and in whose words to stop where it may not."""

from __future__ import annotations

import enum
import types
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from lucerne._src.base.config import ENVIRONMENT, VARIABLE_GETTER
from lucerne._src.base.homes import own_home
from lucerne._src.base.process.source_location import Place, is_users
from lucerne._src.base.process.structure_version import CountsChanges
from lucerne._src.base.raw import is_a
from lucerne._src.capture.breaks import reasons
from lucerne._src.capture.breaks.purity import (
    apart,
    apart_in,
    foreign_in,
    handler_that_does_more,
    written_in,
)
from lucerne._src.capture.breaks.reasons import Break
from lucerne._src.capture.bytecode.frame import PythonFrame
from lucerne._src.capture.bytecode.hooks import (
    INLINE,
    NATIVE,
    Access,
    Decision,
    Stop,
    is_entered,
)
from lucerne._src.capture.bytecode.targets import find_in_class, python_function
from lucerne._src.capture.effects.arrays import ARRAYS, base_of, is_opaque, owner_of, written_by
from lucerne._src.capture.guards.reachable import is_module, is_optimizer
from lucerne._src.capture.guards.tensor_reads import REFUSED
from lucerne._src.capture.trace.fake import is_fake
from lucerne._src.ir import dispatch
from lucerne._src.tensor.autograd.modes import Switch, decorated
from lucerne._src.tensor.base import TensorBase, plain_types

_state = dispatch.state


def user_place(frames: Sequence[PythonFrame]) -> Place | None:
    """The innermost line of the user's among frames."""
    for frame in reversed(frames):
        if is_users(frame.code):
            return frame.place
    return None


def calls_user_code(module: Any) -> bool:
    """Whether a call of a module may come to code that is not ours."""
    if not own_home(type(module).__module__).startswith("lucerne."):
        return True
    own = module.__dict__
    if module._has_any_global_hook():
        return True
    if any(own.get(k) for k in own if k.endswith("hooks")):
        return True
    return any(calls_user_code(m) for m in module._modules.values() if m is not None)


def is_ours(fn: Any) -> bool:
    """Whether a callable is a function, method or class of this package."""
    target = fn.__func__ if is_a(fn, types.MethodType) else fn
    owner = getattr(fn, "__self__", None)
    if is_a(owner, TensorBase):
        return True
    home = getattr(target, "__module__", None)
    if isinstance(home, str) and is_a(target, (types.FunctionType, type)):
        return own_home(home).startswith("lucerne.")
    kind = own_home(type(fn).__module__)
    return kind == "lucerne" or kind.startswith("lucerne.")  # the native type of public functions


_LISTS_HOOKS = frozenset(("_get_backward_hooks", "_get_backward_pre_hooks", "_has_any_global_hook"))


def may_call_back(fn: Any) -> bool:
    """Whether a function of ours may call code of the user's: ops never do."""
    if getattr(fn, "__name__", "") in _LISTS_HOOKS and is_ours(fn):
        return False
    if is_a(fn, types.MethodType):
        tensors = is_a(fn.__self__, TensorBase)
        return is_ours(fn) and not (tensors and type(fn.__func__) is not types.FunctionType)
    return is_ours(fn) and (type(fn) is types.FunctionType or not callable_op(fn))


def callable_op(fn: Any) -> bool:
    """Whether it is an op as the engine makes them, or a class."""
    return own_home(type(fn).__module__) == "lucerne" or is_a(fn, type)


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
            if is_a(t, dispatch.Interpreter) or (
                is_a(t, TensorBase) and type(t) not in plain_types
            ):
                more = handler_that_does_more(type(t))
                if more is not None:
                    return more
    return None


_SETTERS = frozenset(
    (
        "set_num_threads", "set_num_interop_threads", "set_flush_denormal", "set_printoptions",
        "use_deterministic_algorithms", "set_deterministic_debug_mode", "set_warn_always",
        "set_float32_matmul_precision", "set_default_device", "set_default_tensor_type",
    )
)  # fmt: skip
"""Functions of ours that set something for the whole process."""


def native_call(fn: Any, given: Sequence[Any]) -> Decision | Stop:
    """A call of something of ours: not if user code that it calls back does more than ops."""
    if (fn is id or fn is hash) and given and is_a(given[0], TensorBase) and is_fake(given[0]):
        return stop_for(reasons.made("values", None, f"{fn.__name__}()"))
    if is_a(fn, weakref.ReferenceType):
        # (Guards would have to hold what it finds, and so keep it alive.)
        return stop_for(reasons.made("identity", None, "a weak reference"))
    name, owner = getattr(fn, "__name__", ""), getattr(fn, "__self__", None)
    if name in REFUSED and any(is_a(x, TensorBase) for x in (owner, *given[:1])):
        return stop_for(reasons.made("identity", None, f"Tensor.{name}()"))
    if name in _SETTERS and type(fn) is types.FunctionType and is_ours(fn):
        return stop_for(reasons.made("write", None, f"{fn.__name__}()"))
    more = handler_among((fn, owner, *given))
    if more is not None:
        return stop_for(reasons.made("callback", None, more))
    if apart:
        called = () if is_a(fn, types.BuiltinFunctionType) else (fn, *_owner(fn))
        for x in (*called, *given):
            name = None if is_a(x, TensorBase) else apart_in(x)
            if name is not None:
                return stop_for(reasons.made("hook", None, name))
    if may_call_back(fn):
        for x in (fn, getattr(fn, "__self__", None), *given):
            found = foreign_in(x)
            if found is not None:
                name = found.__name__ if is_a(found, types.ModuleType) else None
                kind = reasons.kind_of_home(name) if name else reasons.kind_of_call(found)
                return stop_for(reasons.made(kind, None, name or reasons.name_of(found)))
            changed = written_in(x)
            if changed is not None:
                return stop_for(reasons.made("callback", None, f"{changed}()"))
    return NATIVE


def _owner(fn: Any) -> tuple[Any, ...]:
    return (fn.__self__,) if hasattr(fn, "__self__") else ()


def changes_owner(fn: Any) -> bool:
    """Whether it is a method of ours that changes the object it belongs to, and not in tensors: of
    a scheduler, a hook's handle, or one that registers something with a module or a tensor."""
    owner = getattr(fn, "__self__", None)
    if is_a(owner, TensorBase):
        return getattr(fn, "__name__", "") in _REGISTERS
    if owner is None or is_a(owner, (type, types.ModuleType)):
        return False
    if is_module(owner):
        return fn.__name__.startswith(("register_", "load_state_dict", "add_module"))
    if is_optimizer(owner) or not hasattr(owner, "__dict__"):
        return False
    if is_a(owner, Switch):
        return False  # what it keeps is for its own end
    if is_a(owner, CountsChanges):
        return is_a(fn, types.MethodType)  # (only what changes it is written in Python)
    return own_home(type(owner).__module__).startswith("lucerne.")


_REGISTERS = ("register_hook", "register_post_accumulate_grad_hook", "retain_grad")
"""Methods of tensors that something outlives the call by: a tensor made inside is the call's own.
"""


def decision_for(fn: Any) -> Decision:
    """Whether a call leads to user code that can be entered."""
    if is_module(fn):
        return INLINE if calls_user_code(fn) else NATIVE
    if is_a(fn, types.MethodType) and is_module(fn.__self__):
        inside = fn.__func__.__name__ in ("forward", "__call__", "_call_impl")
        if inside and calls_user_code(fn.__self__):
            return INLINE
    target = python_function(fn)
    if target is None:
        return NATIVE
    code = target.__code__
    between = code.co_qualname.startswith(_BETWEEN) and own_home(target.__module__).startswith(
        "lucerne.nn."
    )
    return INLINE if between or code is decorated or is_entered(code) else NATIVE


_BETWEEN = ("_call_with_hooks", "_Run.")
"""Functions of ours that call the hooks of modules."""


def at_hand(frame: PythonFrame) -> str:
    """What the instruction at hand is, in the user's words."""
    op = frame.decoded.ops[frame.last]
    if op.name.startswith("CALL"):
        for x in reversed(frame.stack):
            if is_a(x, (types.MethodType, types.BuiltinFunctionType)) or python_function(x):
                return reasons.name_of(x)
            if (
                own_home(type(x).__module__) == "lucerne"
                and callable(x)
                and not is_a(x, TensorBase)
            ):
                return reasons.name_of(x)
    return "this line"


_HASHES = {"BUILD_SET": 1, "BUILD_MAP": 2, "SET_ADD": 1, "MAP_ADD": 2}
"""Instructions that put keys into sets and dicts, and how many values go with each."""


def hashes_given(frame: PythonFrame, looked: Any) -> Stop | None:
    """A stop before what stands for a tensor becomes a key: two of them may be one next time."""
    op = frame.decoded.ops[frame.ip]
    width = _HASHES.get(op.name)
    if width is None:
        return None
    count = op.argument * width if op.name.startswith("BUILD") else width
    for key in frame.stack[len(frame.stack) - count :: width]:
        if is_a(key, TensorBase) and is_fake(key) and looked.is_outside(key):
            return stop_for(reasons.made("identity", None, "a tensor as a key"))
    return None


def native_owner(fn: Any) -> Any:
    """The object that a method of native code belongs to (`generator.send`); None: it is none."""
    bound = is_a(fn, (types.BuiltinFunctionType, types.MethodWrapperType))
    return fn.__self__ if bound else None


def unguarded_array(why: str) -> Stop:
    """A stop before an array is looked at that can't be compared."""
    return stop_for(reasons.made("numpy", None, why))


def refuse_hidden(container: Any, key: Any, how: Access, birth: Any) -> None:
    """Stop before something is read that no guard compares: what native code keeps in an
    exception."""
    refuse_opaque(container)
    if how is not Access.ATTRIBUTE or not is_a(container, BaseException):
        return
    if type(find_in_class(type(container), key)) in _IN_C and not birth.is_new(container):
        raise stop_for(reasons.made("object", None, f"{key} of an exception"))


_IN_C = (types.GetSetDescriptorType, types.MemberDescriptorType)


def refuse_opaque(x: Any) -> None:
    """Stop before something is looked at, or written to, that can't be compared at all."""
    if is_opaque(x):
        kind = "numpy" if is_a(x, _OF_NUMPY) else "library"
        raise stop_for(reasons.made(kind, None, f"a {type(x).__name__}"))


_OF_NUMPY = (np.ndarray, np.void, np.flatiter, np.nditer, np.poly1d)


_MACHINERY = frozenset(("__class__", "__bases__", "__code__", "__defaults__", "__kwdefaults__"))


def refuse_machinery(container: Any, key: Any, how: Access) -> None:
    """Stop before a write that decides how attributes and calls work: what was read of an object
    under its old class says nothing about the new one."""
    if reasons.is_foreign_object(container):
        raise foreign_item(container, key)
    if how is not Access.ATTRIBUTE:
        return
    if key in _MACHINERY or is_a(container, (enum.Enum, BaseException)):
        raise stop_for(reasons.made("write", None, f"{key} of a {type(container).__name__}"))


def refuse_memory(container: Any, birth: Any) -> None:
    """Stop before memory is written to that was there before, if only by a view that is new."""
    refuse_opaque(container)
    if not is_a(container, ARRAYS):
        return
    owner = owner_of(container)
    if is_a(owner, (*ARRAYS, bytearray)) and birth.is_new(container) and birth.is_new(owner):
        return
    raise stop_for(reasons.made("write", None, "an array"))


def writes_array(fn: Any, args: Any, kwargs: Any, birth: Any) -> Stop | None:
    """A stop before a native call that writes to an array which was there before."""
    for x in written_by(fn, args, kwargs):
        if not birth.is_new(x) or not birth.is_new(base_of(x)):
            return stop_for(reasons.made("write", None, f"{reasons.name_of(fn)} of an array"))
    return None


def array_in_place(frame: PythonFrame, birth: Any) -> Stop | None:
    """A stop before `a += 1` of an array that was there before."""
    op = frame.decoded.ops[frame.ip]
    if op.name != "BINARY_OP" or not str(op.argument).endswith("="):
        return None
    left = frame.stack[-2]
    refuse_memory(left, birth)
    return None


USES_UP = frozenset(
    ("UNPACK_SEQUENCE", "UNPACK_EX", "LIST_EXTEND", "SET_UPDATE", "CALL_FUNCTION_EX", "CONTAINS_OP")
)
"""Instructions that take everything from an iterator on the stack."""


def taken_from(stack: Sequence[Any], op: Any) -> Any:
    """What such an instruction takes from."""
    return stack[-2 if op.name == "CALL_FUNCTION_EX" and op.argument & 1 else -1]


def tensor_key(key: Any, container: Any, birth: Any) -> Stop | None:
    """A stop before a stand-in for a tensor is looked up among real ones, by its hash."""
    if not is_a(key, TensorBase) or not is_a(container, (dict, set, frozenset)):
        return None
    if not is_fake(key):
        return None
    if birth.is_new(container) and not any(
        is_a(k, TensorBase) and not is_fake(k) for k in container
    ):
        return None  # (next time it may be one of those)
    return stop_for(reasons.made("identity", None, "a tensor as a key"))


def variable_read(fn: Any, args: Sequence[Any]) -> tuple[Any, Any] | None:
    """The dict and the key behind `os.environ.get("NAME")` or `os.getenv("NAME")`: of the
    environment Python keeps a copy, which is all that anybody asks. None: it is no such call."""
    if not args:
        return None
    reads = getattr(fn, "__name__", "") in _READS_VARIABLE
    if fn is VARIABLE_GETTER:
        return variable_item(ENVIRONMENT, args[0])
    return variable_item(getattr(fn, "__self__", None), args[0]) if reads else None


_READS_VARIABLE = ("get", "__getitem__", "__contains__")


def variable_item(container: Any, key: Any) -> tuple[Any, Any] | None:
    """The same for `os.environ["NAME"]`."""
    if container is not ENVIRONMENT or type(key) is not str:
        return None
    return ENVIRONMENT._data, ENVIRONMENT.encodekey(key)


def foreign_item(container: Any, key: Any) -> Stop:
    """A stop before something foreign is asked by `[]`."""
    kind = reasons.kind_of_home(own_home(type(container).__module__).partition(".")[0])
    return stop_for(reasons.made(kind, None, f"{type(container).__name__.strip('_')}[{key!r}]"))


def is_fuel(stop: Stop) -> bool:
    """Whether a machine stopped because it did as many instructions as it was asked for."""
    return stop.detail is None and stop.reason.startswith("as many instructions")


def stop_for(found: Break) -> Stop:
    """A stop that tells of a break."""
    return Stop(found.kind, found)


def stop_with(error: BaseException) -> Stop:
    """A stop that carries an error out of the machine."""
    return Stop("again", error)
