"""Cache keys: everything a function can see, described so that two processes can compare it.

The walk starts at the function and its arguments and goes through closures, globals, attributes,
items, classes and code, always in the same order. It writes a text of what it meets: numbers and
strings by value, code by digest, tensors by dtype, shape, strides and who shares memory with whom.
Two worlds with equal texts are built alike, so the thing that one met as number 17 is what the
other met as number 17: that is how a stored program names parameters, options and slots.

What can't be described (a file, a thread, a hook) makes the function one that is not stored;
`UnstorableError` says where it was found.
"""

from __future__ import annotations

import collections
import enum
import functools
import hashlib
import re
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base.device import device
from lucerne._src.base.homes import own_home
from lucerne._src.base.process.lazy_imports import is_lazy
from lucerne._src.base.process.structure_version import CountsChanges
from lucerne._src.base.raw import is_a, own_dict
from lucerne._src.base.shape import Size
from lucerne._src.capture.cache.disk.code_digests import facts_of, is_impure, is_standard
from lucerne._src.capture.guards.reachable import is_module, is_optimizer
from lucerne._src.capture.trace.pytree import LEAF
from lucerne._src.ir import op as op_
from lucerne._src.ir.meta_text import meta_text
from lucerne._src.ir.op import Op
from lucerne._src.ir.overload import OpOverload, OpOverloadPacket
from lucerne._src.tensor.base import Maker, TensorBase, plain_types
from lucerne._src.tensor.random.generator import Generator, default_generator

Path = tuple[Any, str] | None
"""Where something was found: the path of what holds it, and the rest of the name."""

_PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None), type(...), range))
_WORDS = (dt.dtype, device, lo.layout, lo.memory_format, np.dtype, re.Pattern)
_Pair = collections.namedtuple("_Pair", "first")
_INERT = (
    type(threading.Lock()), type(threading.RLock()), weakref.ref,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType,
    types.MethodDescriptorType, types.ClassMethodDescriptorType, types.MethodWrapperType,
    type(vars(_Pair)["first"]),
)  # fmt: skip
"""What a function can't take a value from that matters."""
_MOST_LINES = 100_000
_DEEPEST = 4
"""Of modules in modules."""
_METHODS = vars(Maker.cls)
"""Of tensors."""
_MOST_BYTES = 1 << 20
"""Of a NumPy array, which counts by its content."""
_CLASS_NOISE = frozenset(
    ("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__",
     "__annotate__", "__annotate_func__", "__annotations_cache__", "__firstlineno__",
     "__static_attributes__", "__dataclass_fields__", "__dataclass_params__", "_abc_impl",
     "__orig_bases__", "__parameters__", "__type_params__")
)  # fmt: skip
_OPTIMIZER_NOISE = frozenset(("_ready", "_known_states"))
"""What our optimizers remember of eager steps: a captured one does not look at it."""
_STATE_HOOKS = frozenset(
    (
        "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
        "_load_state_dict_post_hooks",
    )
)  # fmt: skip
"""Hooks of a module that no call runs: like anything else that it holds."""
_MODULE_NOISE = frozenset(("_backward_compile", "__annotations__"))


class UnstorableError(Exception):
    """Why a function's programs are not stored."""


class TooLargeError(UnstorableError):
    """It would take too long to look at all that a function sees: nobody tries again."""


class CacheKey:
    """What a function with these arguments sees; `number_of` and `things` name its parts.

    >>> from lucerne._src.capture.cache.disk.key import CacheKey
    >>> def make(by):
    ...     return lambda x: x * by
    >>> one, same, other = (CacheKey(make(by), [], ".") for by in (2.0, 2.0, 3.0))
    >>> one.digest() == same.digest(), one.digest() == other.digest()
    (True, False)
    """

    def __init__(
        self,
        fn: Any,
        leaves: Sequence[Any],
        shape: Any,
        instead: Mapping[int, dict[Any, Any]] | None = None,
    ) -> None:
        """`instead`: by id of a dict, what to find in it."""
        self._instead = instead or {}
        self.things: list[Any] = []
        self.codes: dict[int, types.CodeType] = {}
        """By id: all code that the text describes."""
        self.impure: dict[int, str] = {}
        """By id of code: what it reads that the text does not describe."""
        self.attributes: dict[int, int] = {}
        """By id of the dict of an object's attributes: the number of the object."""
        self.members: dict[int, tuple[int, str]] = {}
        """By id of a dict of a module's parts: the number of the module, and the dict's name."""
        self._text: list[str] = []
        self._numbers: dict[int, int] = {}
        self._memories: dict[int, int] = {}
        self._scopes: set[int] = set()
        """Ids of globals that have been searched for hooks."""
        self.see(fn, (None, getattr(fn, "__qualname__", type(fn).__name__)))
        self._shape(shape)
        for k, leaf in enumerate(leaves):
            self.see(leaf, (None, f"argument {k}"))

    def digest(self, *more: str) -> bytes:
        """Of the text, and of what else decides."""
        text = "\n".join([*more, *self._text])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()

    @property
    def text(self) -> str:
        """For people who wonder why two processes don't agree."""
        return "\n".join(self._text)

    def number_of(self, x: Any) -> int | None:
        return self._numbers.get(id(x))

    # ---- the walk ------------------------------------------------------------------------------

    def see(self, x: Any, at: Path) -> None:
        kind = type(x)
        if kind in _PLAIN:
            self._text.append(f"{kind.__name__} {x!r}")
            return
        if kind is tuple and all(type(v) in _PLAIN for v in x):
            self._text.append("values " + ", ".join([f"{type(v).__name__} {v!r}" for v in x]))
            return
        known = self._numbers.get(id(x))
        if known is not None:
            self._text.append(f"#{known}")
            return
        if len(self._text) > _MOST_LINES:
            raise TooLargeError(
                f"it can see more than {_MOST_LINES:,} things; {name_of(at)} is one"
            )
        self._numbers[id(x)] = len(self.things)
        self.things.append(x)
        _handler(kind, x)(self, x, at)

    def _say(self, text: str) -> None:
        self._text.append(text)

    def _shape(self, shape: Any) -> None:
        """The tree of the arguments."""
        if shape is LEAF:
            self._say(LEAF)
            return
        self.see(shape[0], (None, "the type of an argument"))
        for key in shape[1] if len(shape) == 3 else ():
            self.see(key, (None, "a key of an argument"))
        self._say(f"{len(shape[-1])} items")
        for below in shape[-1]:
            self._shape(below)

    def _items(self, x: Iterable[tuple[Any, Any]], at: Path) -> None:
        for key, value in x:
            self.see(key, at)
            self.see(value, (at, f"[{key!r}]" if type(key) in _PLAIN else "[...]"))

    def _fields(self, x: Iterable[tuple[Any, Any]], at: Path) -> None:
        listed = list(x)
        self._say(f"{len(listed)} fields")
        for key, value in listed:
            self._say(repr(key))
            self.see(value, (at, f".{key}"))

    # ---- containers ----------------------------------------------------------------------------

    def _sequence(self, x: Sequence[Any], at: Path) -> None:
        self._say(f"{type(x).__name__} of {len(x)}")
        if type(x) not in _SEQUENCES:
            self.see(type(x), at)
        if len(x) > _MOST_LINES:
            raise TooLargeError(f"{name_of(at)} has {len(x):,} items")
        for k, v in enumerate(x):
            self.see(v, (at, f"[{k}]"))

    def _dict(self, x: dict[Any, Any], at: Path) -> None:
        content = self._instead.get(id(x), x)
        self._say(f"{type(x).__name__} of {len(content)}")
        if len(content) > _MOST_LINES:
            raise TooLargeError(f"{name_of(at)} has {len(content):,} items")
        if type(x) not in _DICTS:
            self.see(type(x), at)
        if isinstance(x, collections.defaultdict):
            self.see(x.default_factory, at)
        self._items(content.items(), at)

    def _set(self, x: Any, at: Path) -> None:
        if not all(type(v) in _PLAIN for v in x):
            raise UnstorableError(f"{name_of(at)} is a set of objects, whose order is not known")
        self._say(f"{type(x).__name__} {sorted(f'{type(v).__name__} {v!r}' for v in x)}")

    # ---- tensors -------------------------------------------------------------------------------

    def _tensor(self, t: Any, at: Path) -> None:
        if type(t) not in plain_types:
            raise UnstorableError(
                f"{name_of(at)} is a {type(t).__name__}, which handles ops itself"
            )
        storage, auto = t._storage, t._auto
        memory = self._memories.setdefault(id(storage.buffer), len(self._memories))
        self._say(
            f"tensor {type(t).__qualname__} {meta_text(t._meta)} {t._needs_grad} memory {memory} "
            f"from {t._offset} of {storage.nbytes} {t._view is not None} {storage.inference}"
        )
        if auto is not None:
            if auto.hooks or auto.post_hooks:
                raise UnstorableError(f"{name_of(at)} has hooks")
            self._say(f"{auto.grad_fn is not None} {auto.retains_grad} gradient")
            self.see(auto.grad, (at, ".grad"))
        own = own_dict(t)
        if own:
            self._fields(own.items(), at)

    def _generator(self, x: Any, at: Path) -> None:
        self._say("the default generator" if x is default_generator else f"generator {x.device}")

    def _array(self, x: np.ndarray[Any, Any], at: Path) -> None:
        if x.dtype.hasobject or x.nbytes > _MOST_BYTES:
            raise UnstorableError(f"{name_of(at)} is a large array, or one of objects")
        content = hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest()
        self._say(f"array {x.dtype.str} {x.shape} {x.strides} {content}")

    # ---- modules and objects -------------------------------------------------------------------

    def _module(self, m: Any, at: Path) -> None:
        self._say("module")
        self.see(type(m), at)
        self._refuse_global_hooks(getattr(type(m), "register_forward_hook", None))
        own = m.__dict__
        self.attributes[id(own)] = self._numbers[id(m)]
        for name, x in own.items():
            if name in _MODULE_NOISE:
                continue
            if name.endswith("hooks") and x and name not in _STATE_HOOKS:
                raise UnstorableError(f"{name_of(at)} has hooks ({name})")
            self._say(repr(name))
            if name in ("_parameters", "_buffers", "_modules"):
                self.members[id(x)] = self._numbers[id(m)], name
                self._fields(x.items(), at)
            elif not is_a(x, CountsChanges) or x or not self._same_table(x):
                self.see(x, (at, f".{name}"))

    def _same_table(self, x: Any) -> bool:
        """An empty table of a kind that was seen is written down at once: a module has ten."""
        kind = self._numbers.get(id(type(x)))
        if kind is None or id(x) in self._numbers or id(x) in self._instead:
            return False
        self._numbers[id(x)] = len(self.things)
        self.things.append(x)
        self._text += (f"{type(x).__name__} of 0", f"#{kind}")
        return True

    def _object(self, x: Any, at: Path) -> None:
        kind = type(x)
        own = own_dict(x)
        slots = [n for c in kind.__mro__ for n in _slots(c)]
        if not is_a(own, dict) and not slots:
            raise UnstorableError(f"{name_of(at)} is a {kind.__name__}, whose content nobody knows")
        self._say("object")
        self.see(kind, at)
        if is_a(own, dict):
            self.attributes[id(own)] = self._numbers[id(x)]
            if is_optimizer(x):
                hooks = [n for n, v in own.items() if n.endswith("hooks") and v]
                if hooks:
                    raise UnstorableError(f"{name_of(at)} has hooks ({hooks[0]})")
                self._refuse_global_hooks(getattr(kind, "register_step_pre_hook", None))
            noise = _OPTIMIZER_NOISE if is_optimizer(x) else ()
            content = self._instead.get(id(own), own)
            self._fields([(n, v) for n, v in content.items() if n not in noise], at)
        self._fields([(n, getattr(x, n)) for n in slots if hasattr(x, n)], at)

    def _refuse_global_hooks(self, register: Any) -> None:
        """Hooks for all modules, or all optimizers, are globals where `register` is defined."""
        scope = getattr(register, "__globals__", None)
        if scope is None or id(scope) in self._scopes:
            return
        self._scopes.add(id(scope))
        for name, found in scope.items():
            if name.startswith("_global_") and is_a(found, dict) and found:
                raise UnstorableError(f"there are hooks for all ({name})")

    def _enum(self, x: enum.Enum, at: Path) -> None:
        self._say(f"{type(x).__module__}.{type(x).__qualname__}.{x.name}")
        self.attributes[id(x.__dict__)] = self._numbers[id(x)]
        self.see(type(x), at)
        self.see(x.value, at)

    # ---- code ----------------------------------------------------------------------------------

    def _function(self, f: types.FunctionType, at: Path) -> None:
        standard = is_standard(f.__module__) and is_standard(f.__globals__.get("__name__"))
        self._say(f"function {f.__module__}.{f.__qualname__}")
        code = f.__code__
        found = facts_of(code)
        if not standard:
            self._say(found.digest.hex())
            self.codes.update((id(c), c) for c in found.inner)
            self._globals(f, at)
        for name, cell in zip(code.co_freevars, f.__closure__ or (), strict=True):
            self._say(name)
            try:
                self.see(cell.cell_contents, (at, f"'s {name}"))
            except ValueError:  # not filled yet
                self._say("nothing")
        self.see(f.__defaults__, (at, "'s defaults"))
        self.see(f.__kwdefaults__, (at, "'s defaults"))
        if not standard:
            self._fields(f.__dict__.items(), at)

    def _globals(self, f: types.FunctionType, at: Path) -> None:
        found, scope = facts_of(f.__code__), f.__globals__
        for name in found.reads:
            if name in scope:
                self._say(name)
                value = scope[name]
                if is_lazy(value):
                    raise UnstorableError(f"{name_of(at)} may be the first to import {name}")
                if is_a(value, types.ModuleType):
                    self._names_in(value, found.names, (None, name))
                else:
                    self.see(value, (None, name))
        for name in sorted(found.names & _METHODS.keys()):
            if _is_put_there(_METHODS[name]):
                self._say(name)
                self.see(_METHODS[name], (None, f"Tensor.{name}"))
        for c in found.inner:
            why = is_impure(c, scope)
            if why:
                self.impure[id(c)] = why
        for name in found.imports:
            if not is_standard(name):
                raise UnstorableError(f"{name_of(at)} imports {name} when it runs")

    def _names_in(
        self, m: types.ModuleType, names: frozenset[str], at: Path, depth: int = 0
    ) -> None:
        """What code may read of somebody's module: the names it has in common with the code."""
        self._say(f"module {m.__name__}")
        if depth > _DEEPEST:
            return
        if not depth and "ops" in names and m.__name__ == "lucerne":
            self._custom_ops(names, at)  # torch.ops.namespace.name
        standard = is_standard(m.__name__)
        for name in sorted(names & vars(m).keys()):
            value = vars(m)[name]
            if is_a(value, types.ModuleType):
                before = len(self._text)
                self._say(name)
                self._names_in(value, names, (at, f".{name}"), depth + 1)
                if is_standard(value.__name__) and len(self._text) == before + 2:
                    del self._text[before:]  # (`torch.func` is loaded when somebody asks for it)
            elif not standard or _is_put_there(value):
                self._say(name)
                self.see(value, (at, f".{name}"))

    def _method(self, x: types.MethodType, at: Path) -> None:
        self._say("method")
        self.see(x.__func__, at)
        self.see(x.__self__, (at, "'s object"))

    def _builtin(self, x: Any, at: Path) -> None:
        self._say(f"builtin {x.__module__}.{x.__qualname__}")
        if not is_a(x.__self__, (types.ModuleType, type(None))):
            self.see(x.__self__, at)

    def _partial(self, x: functools.partial[Any], at: Path) -> None:
        self._say("partial")
        if type(x) is not functools.partial:
            self.see(type(x), at)
        for part in (x.func, x.args, x.keywords):
            self.see(part, at)

    def _descriptor(self, x: Any, at: Path) -> None:
        self._say(type(x).__name__)
        for name in ("fget", "fset", "fdel", "__func__", "func"):
            self.see(getattr(x, name, None), at)

    def _class(self, c: type, at: Path) -> None:
        self._say(f"class {c.__module__}.{c.__qualname__}")
        if is_standard(c.__module__):
            for name, x in vars(c).items():
                if _is_put_there(x):  # another `forward` for a layer of ours
                    self._say(name)
                    self.see(x, (at, f".{name}"))
            for base in c.__bases__:  # (of a class that the library has made of the user's)
                if not is_standard(base.__module__):
                    self.see(base, at)
            return
        for base in c.__mro__[1:]:
            self.see(base, at)
        if issubclass(c, enum.Enum):
            self._say(repr([(name, m.value) for name, m in c.__members__.items()]))
            methods = (types.FunctionType, property, staticmethod, classmethod)
            self._fields([(n, x) for n, x in vars(c).items() if is_a(x, methods)], at)
            return
        for name, x in vars(c).items():
            if name not in _CLASS_NOISE:
                self._say(name)
                self.see(x, (at, f".{name}"))

    def _python_module(self, x: types.ModuleType, at: Path) -> None:
        self._say(f"module {x.__name__}")
        if not is_standard(x.__name__):
            raise UnstorableError(f"{name_of(at)} is the module {x.__name__}")

    def _described(self, x: Any, at: Path) -> None:
        """Something of ours that says itself what counts: a custom op."""
        self._say(type(x).__name__)
        for name, part in x._world_parts():
            self._say(name)
            self.see(part, (at, f"'s {name}"))

    def _overload(self, x: Any, at: Path) -> None:
        """An op as `torch.ops` has it, or all overloads of one."""
        self._say(f"{type(x).__name__} {x.__module__}.{x.__qualname__}")
        self._custom_ops(frozenset((x.__qualname__.partition(".")[0],)), at)

    def _custom_ops(self, names: frozenset[str], at: Path) -> None:
        """The ops of users that are called so."""
        for qualified, op in sorted(op_.custom_ops().items()):
            owner = getattr(op.host, "owner", None)
            if hasattr(owner, "_world_parts") and getattr(owner, "_name", None) in names:
                self._say(qualified)
                self.see(owner, (at, f"'s op {qualified}"))

    def _compiled(self, x: Any, at: Path) -> None:
        self._say("compiled")
        self.see(x.fn, at)

    def _word(self, x: Any, at: Path) -> None:
        self._say(f"{type(x).__name__} {x!r}")

    def _inert(self, x: Any, at: Path) -> None:
        self._say(type(x).__name__)


def name_of(at: Path) -> str:
    """`step's model.layers[0].weight`."""
    parts: list[str] = []
    while at is not None:
        parts.append(at[1])
        at = at[0]
    return "".join(reversed(parts))


def _is_put_there(x: Any) -> bool:
    """Whether something found in a module of ours or Python's is a function of somebody else."""
    return is_a(x, types.FunctionType) and not is_standard(x.__module__)


def _slots(c: type) -> tuple[str, ...]:
    found = vars(c).get("__slots__", ())
    names = (found,) if is_a(found, str) else tuple(found)
    return tuple(n for n in names if n not in ("__weakref__", "__dict__"))


_SEQUENCES = frozenset((list, tuple, Size, collections.deque))
_DICTS = frozenset((dict, collections.OrderedDict, collections.defaultdict, collections.Counter))

Handler = Callable[[CacheKey, Any, Path], None]
_BY_TYPE: tuple[tuple[Any, Handler], ...] = (
    (TensorBase, CacheKey._tensor),
    (enum.Enum, CacheKey._enum),
    (type, CacheKey._class),
    (dict, CacheKey._dict),
    ((list, tuple, collections.deque), CacheKey._sequence),
    ((set, frozenset), CacheKey._set),
    (types.FunctionType, CacheKey._function),
    (types.MethodType, CacheKey._method),
    (types.BuiltinFunctionType, CacheKey._builtin),
    (functools.partial, CacheKey._partial),
    ((property, staticmethod, classmethod, functools.cached_property), CacheKey._descriptor),
    (types.ModuleType, CacheKey._python_module),
    (Generator, CacheKey._generator),
    (np.ndarray, CacheKey._array),
    ((OpOverload, OpOverloadPacket), CacheKey._overload),
    (
        (*_WORDS, np.generic, np.ufunc, slice, types.GenericAlias, types.UnionType, Op),
        CacheKey._word,
    ),
    (_INERT, CacheKey._inert),
)
_KNOWN: dict[type, Handler] = {}


def _handler(kind: type, x: Any) -> Handler:
    found = _KNOWN.get(kind)
    if found is None:
        if is_module(x):
            return CacheKey._module
        found = next((h for types_, h in _BY_TYPE if issubclass(kind, types_)), None)
        if found is None and kind.__module__ == "typing":
            found = CacheKey._word
        if found is None and any(c.__module__ == "logging" for c in kind.__mro__):
            found = CacheKey._inert  # a logger; by name, as few programs need the module
        if found is None and own_home(kind.__module__) == "lucerne._src.capture.compiled":
            found = CacheKey._compiled
        if found is None and hasattr(kind, "_world_parts"):
            found = CacheKey._described
        if found is None:
            return CacheKey._object
        _KNOWN[kind] = found
    return found
