"""Tracer: runs a function with proxies and writes down what it does."""

from __future__ import annotations

import builtins
import functools
import inspect
import math
import sys
import types
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from lucerne._src.base.homes import own_home
from lucerne._src.tensor import api as lu
from lucerne.fx import _pytree as pytree
from lucerne.fx.graph import Graph, Wrap
from lucerne.fx.graph_module import GraphModule
from lucerne.fx.node import Argument, Node, base_types
from lucerne.fx.proxy import (
    ParameterProxy,
    Proxy,
    ProxyMode,
    Scope,
    ScopeContextManager,
    TracerBase,
)
from lucerne.fx.proxy import find_proxies as _find_proxies
from lucerne.nn.modules import Module, Sequential
from lucerne.nn.modules.module import _Slots
from lucerne.nn.parameter import Parameter

_STARRED = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class PHBase:
    """Stands in concrete_args for something that is traced after all."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


class PHWithMeta(PHBase):
    """The same with a key for whoever reads the placeholders."""

    def __init__(self, ph_key: str | None = None) -> None:
        super().__init__()
        self.ph_key = ph_key


class Tracing:
    """Whether somebody is tracing."""

    depth = 0


def is_fx_tracing() -> bool:
    return Tracing.depth > 0


class ProxyableClassMeta(type):
    """Metaclass of classes whose construction from proxies is recorded as one call."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        found = _find_proxies(args, kwargs) if is_fx_tracing() else []
        if found:
            return found[0].tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


class Tracer(TracerBase):
    """Makes a graph from a module or function: `Tracer().trace(module)`.

    Override `is_leaf_module` to say which modules stay single nodes.

    >>> import lucerne as torch
    >>> class EverythingInside(torch.fx.Tracer):
    ...     def is_leaf_module(self, m, module_qualified_name):
    ...         return False
    >>> graph = EverythingInside().trace(torch.nn.ReLU())
    >>> [node.op for node in graph.nodes]
    ['placeholder', 'call_function', 'output']
    """

    def __init__(
        self,
        autowrap_modules: tuple[types.ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__()
        self._autowrap_search = list(autowrap_modules)
        self._autowrap_ids = {
            id(found)
            for module in autowrap_modules
            for name, found in vars(module).items()
            if not name.startswith("_") and callable(found)
        } | {id(f) for f in autowrap_functions}
        self.param_shapes_constant = param_shapes_constant
        self.root: Any = None
        self.submodule_paths: dict[Any, str] | None = None
        self.root_module_name = ""
        self.num_calls: dict[str, int] = {}
        self.tensor_attrs: dict[int, tuple[Any, str]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    # ---- what may be overridden ----------------------------------------------------------------

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        """Whether calls of a module are single nodes: layers of torch.nn are, yours aren't."""
        home = own_home(type(m).__module__)
        return home.startswith("lucerne.nn") and not isinstance(m, Sequential)

    def path_of_module(self, mod: Any) -> str:
        """Where a module is found below the root."""
        if self.submodule_paths:
            path = self.submodule_paths.get(mod)
            if path is not None:
                return path
        else:
            for path, found in self.root.named_modules():
                if found is mod:
                    return path
        raise NameError(
            "module is not installed as a submodule: a module called while tracing must be an "
            f"attribute of the traced one. Received: {type(mod).__name__}"
        )

    def call_module(
        self, m: Any, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call of a module: one node for a leaf, else what its forward does."""
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))):
            calls = self.num_calls.get(path, 0)
            self.num_calls[path] = calls + 1
            key = f"{path}@{calls}" if calls else path
            self.module_stack[key] = (path, type(m))
            try:
                if self.is_leaf_module(m, path):
                    return self.create_proxy("call_module", path, args, kwargs)
                return forward(*args, **kwargs)
            finally:
                self.module_stack.popitem(last=True)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """An attribute of a module while tracing: parameters are proxies."""
        if isinstance(attr_val, Parameter):
            return self._member(attr_val, self.root.named_parameters(), parameter_proxy_cache)
        if self.proxy_buffer_attributes and isinstance(attr_val, lu.Tensor):
            return self._member(attr_val, self.root.named_buffers(), parameter_proxy_cache)
        return attr_val

    def _member(self, found: Any, members: Iterable[tuple[str, Any]], cache: dict[str, Any]) -> Any:
        for name, value in members:
            if value is found:
                if name not in cache:
                    options: dict[str, Any] = {}
                    if self.param_shapes_constant:
                        options["proxy_factory_fn"] = functools.partial(
                            self._parameter_proxy, name, found
                        )
                    cache[name] = self.create_proxy("get_attr", name, (), {}, **options)
                return cache[name]
        return found

    def _parameter_proxy(self, name: str, found: Any, node: Node) -> Proxy:
        return ParameterProxy(self, node, name, found)

    def create_arg(self, a: Any) -> Argument:
        """Parameters, buffers and modules of the root are read from it; other tensors are kept."""
        if isinstance(a, Parameter):
            return self._attribute(a, self.root.named_parameters(), "parameter")
        if isinstance(a, lu.Tensor):
            for name, buffer in self.root.named_buffers():
                if buffer is a:
                    return self.create_node("get_attr", name, (), {})
            return self.create_node("get_attr", self._constant(a), (), {})
        if isinstance(a, Module):
            return self._attribute(a, self.root.named_modules(), "module")
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            items = tuple(self.create_arg(x) for x in a)
            return self.create_node("call_function", type(a), items, {})
        if isinstance(type(a), ProxyableClassMeta):
            name = self.get_fresh_qualname(f"_{type(a).__name__}_constant_")
            setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)

    def _attribute(self, a: Any, members: Iterable[tuple[str, Any]], kind: str) -> Node:
        for name, found in members:
            if found is a:
                return self.create_node("get_attr", name, (), {})
        raise NameError(
            f"{kind} is not a member of this module: make it an attribute of the traced module"
        )

    def _constant(self, a: Any) -> str:
        """Keep a tensor that the function made or closed over as an attribute of the root."""
        known = self.tensor_attrs.get(id(a))
        if known is not None:
            return known[1]
        name = self.get_fresh_qualname("_tensor_constant")
        self.tensor_attrs[id(a)] = (a, name)
        setattr(self.root, name, a)
        return name

    def get_fresh_qualname(self, prefix: str) -> str:
        """A name for an attribute that the root does not have."""
        number = 0
        while hasattr(self.root, f"{prefix}{number}"):
            number += 1
        return f"{prefix}{number}"

    # ---- parameters ----------------------------------------------------------------------------

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        """Placeholders for the parameters of the traced function, and how to call it."""
        plain: Any = inspect.unwrap(root_fn)
        code = plain.__code__
        total = code.co_argcount + code.co_kwonlyargcount
        listed = list(code.co_varnames)
        args: list[Any] = []
        if is_module:
            if not total:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            args.append(self.root)
        arg_names = listed[len(args) : total]
        starred = code.co_flags & _STARRED
        if isinstance(concrete_args, tuple):
            if concrete_args and starred and total == 1:
                args += [self._numbered(i, c) for i, c in enumerate(concrete_args)]
                return root_fn, args
            if len(concrete_args) != len(arg_names):
                raise RuntimeError(
                    f"Tracing expected {len(arg_names)} arguments but got {len(concrete_args)} "
                    "concrete arguments"
                )
            concrete_args = dict(zip(arg_names, concrete_args, strict=True))
        args += [self._placeholder(n, concrete_args, plain) for n in arg_names]
        more = iter(listed[total:])
        if code.co_flags & inspect.CO_VARARGS:
            args.append(self._placeholder("*" + next(more), concrete_args, plain))
        if code.co_flags & inspect.CO_VARKEYWORDS:
            args.append(self._placeholder("**" + next(more), concrete_args, plain))
        if code.co_kwonlyargcount or starred:
            root_fn = _with_plain_arguments(root_fn, plain)
        flat, spec = pytree.tree_flatten(tuple(args))
        if not pytree.is_flat(spec):
            return self._flattened(root_fn, flat, spec, listed[:total])
        return root_fn, args

    def _flattened(
        self, root_fn: Callable[..., Any], flat: list[Any], spec: Any, orig_args: list[str]
    ) -> tuple[Any, list[Any]]:
        """A function of the leaves of structured arguments."""
        codegen = pytree.PyTreeCodeGen(orig_args, spec)
        self.graph._codegen = codegen

        def call(*leaves: Any) -> list[Any]:
            result = root_fn(*pytree.tree_unflatten(list(leaves), spec))
            out, codegen.out_spec = pytree.tree_flatten(result)
            return out

        return call, flat

    def _numbered(self, number: int, concrete: Any) -> Any:
        made = self.create_proxy("placeholder", f"input_{number}", (), {})
        _transfer(concrete, made.node)
        return made

    def _placeholder(self, name: str, concrete_args: Any, plain: Any) -> Any:
        default: tuple[Any, ...] = ()
        if not name.startswith("*"):
            found = inspect.signature(plain).parameters[name].default
            default = () if found is inspect.Parameter.empty else (found,)
        if concrete_args is None or name not in concrete_args:
            kind = _annotation(plain, name)
            return self.create_proxy("placeholder", name, default, {}, type_expr=kind)
        numbers = iter(range(1, sys.maxsize))

        def leaf(x: Any) -> Any:
            made = self.create_proxy("placeholder", f"{name}_{next(numbers)}", default, {})
            return self._specialized(name, x, made)

        return pytree.tree_map(leaf, concrete_args[name])

    def _specialized(self, name: str, x: Any, made: Proxy) -> Any:
        """A value fixed by concrete_args: check at run time that it is the one given."""
        if isinstance(x, PHBase):
            _transfer(x, made.node)
            return made
        told = f"{name} has been specialized to have value {x} but got another value"
        if isinstance(x, base_types) and not isinstance(x, lu.Tensor):
            self.create_proxy("call_function", lu._assert, (made == x, told), {})
        elif x is None:
            self.create_proxy("call_function", _assert_is_none, (made, told), {})
        else:
            warnings.warn(
                f"Was not able to add assertion to guarantee correct input {name} to specialized "
                "function. It is up to the user to make sure that your inputs match the inputs "
                "you specialized the function with.",
                stacklevel=2,
            )
        return x

    # ---- tracing -------------------------------------------------------------------------------

    def trace(self, root: Any, concrete_args: Any = None) -> Graph:
        """The graph of a module's forward (or of the method `traced_func_name`) or a function."""
        if isinstance(root, Module):
            self.root = root
            if not hasattr(type(root), self.traced_func_name):
                raise AssertionError(
                    f"traced_func_name={self.traced_func_name} doesn't exist in "
                    f"{type(root).__name__}"
                )
            function: Any = getattr(type(root), self.traced_func_name)
            self.root_module_name = type(root).__name__
            self.submodule_paths = {m: n for n, m in root.named_modules()}
        else:
            self.root, function = Module(), root
        self.graph = Graph(tracer_cls=type(self))
        self._keep_tensor_attributes(self.root, [])
        function = _plain_function(function)
        globals_of = inspect.unwrap(function).__globals__
        run, args = self.create_args_for_root(function, isinstance(root, Module), concrete_args)
        with _Patches() as patches:
            self._patch_modules(patches)
            patches.wrap_registered()
            patches.autowrap(globals_of, self._autowrap_ids)
            for module in self._autowrap_search:
                patches.autowrap(vars(module), self._autowrap_ids)
            with ProxyMode():
                result = run(*args)
                returned = self.create_arg(result)
        kind = _annotation(inspect.unwrap(run), "return")
        self.create_node("output", "output", (returned,), {}, type_expr=kind)
        self.submodule_paths = None
        return self.graph

    def _keep_tensor_attributes(self, module: Any, path: list[str]) -> None:
        """Plain tensors that modules hold are read from where they are."""
        for name, found in vars(module).items():
            if isinstance(found, lu.Tensor):
                self.tensor_attrs[id(found)] = (found, ".".join([*path, name]))
        for name, child in module.named_children():
            self._keep_tensor_attributes(child, [*path, name])

    def _patch_modules(self, patches: _Patches) -> None:
        cache: dict[str, Any] = {}
        get, call = Module.__getattr__, Module.__call__
        own = functools.partial(patches.autowrap, ids=self._autowrap_ids)

        @functools.wraps(get)
        def getattr_(module: Any, name: str) -> Any:
            return self.getattr(name, get(module, name), cache)

        @functools.wraps(call)
        def call_(module: Any, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return call(module, *args, **kwargs)

            own(getattr(inspect.unwrap(type(module).forward), "__globals__", {}))
            return self.call_module(module, forward, args, kwargs)

        patches.replace_method(Module, "__getattr__", getattr_)
        patches.replace_method(Module, "__call__", call_)


def _annotation(function: Any, name: str) -> Any:
    """What a function says of a parameter's type; nothing where it can't be told.

    Annotations that are text (`from __future__ import annotations`) are looked up.
    """
    found = getattr(function, "__annotations__", {}).get(name)
    if isinstance(found, str):
        try:
            found = typing.get_type_hints(function).get(name)
        except Exception:  # whatever the text of an annotation does when it is evaluated
            return None
    ours = own_home(str(getattr(function, "__module__", ""))).startswith("lucerne.")
    return None if found is type(None) or (ours and found is Any) else found


def _transfer(source: Any, node: Node) -> None:
    """What a user noted on a placeholder of concrete_args goes on its node."""
    for name in dir(source):
        if not name.startswith("__") and not hasattr(node, name):
            found = getattr(source, name)
            if not callable(found):
                setattr(node, name, found)


def _assert_is_none(value: Any, msg: str) -> None:
    assert value is None, msg


def _plain_function(function: Any) -> Any:
    """Something with a signature: objects that can be called are called through a function."""
    if hasattr(inspect.unwrap(function), "__code__"):
        return function
    names = list(inspect.signature(function).parameters)
    scope: dict[str, Any] = {"function": function}
    exec(f"def called({', '.join(names)}): return function({', '.join(names)})", scope)
    return scope["called"]


def _with_plain_arguments(function: Callable[..., Any], plain: Any) -> Callable[..., Any]:
    """A function of only positional parameters: starred and keyword-only ones come last.

    Proxies of `*args` and `**kwargs` can't be unpacked, so the code runs with them as they are.
    """
    code = plain.__code__
    flags = code.co_flags & ~_STARRED
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    changed = code.replace(
        co_flags=flags, co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0
    )
    made = types.FunctionType(
        changed, plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__
    )
    return made


# ---- what is replaced while tracing -------------------------------------------------------------

_wrapped: dict[tuple[int, str], dict[str, Any]] = {}
"""Global functions that `wrap` made leaves: the namespace each lives in."""
_wrapped_methods: list[tuple[type, str]] = []


class _Patches:
    """Replacements that are undone at the end."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._seen: set[int] = set()

    def __enter__(self) -> _Patches:
        Tracing.depth += 1
        return self

    def __exit__(self, *exc: object) -> None:
        Tracing.depth -= 1
        while self._undo:
            self._undo.pop()()

    def replace(self, scope: dict[str, Any], name: str, made: Any) -> None:
        if name in scope:
            before = scope[name]
            if getattr(before, "_fx_wrapped", False):
                return
            self._undo.append(lambda: scope.__setitem__(name, before))
        else:  # a builtin, hidden while we trace
            self._undo.append(lambda: scope.__delitem__(name))
        scope[name] = made

    def replace_method(self, cls: type, name: str, made: Any) -> None:
        before = getattr(cls, name)

        def undo() -> None:
            setattr(cls, name, before)
            if _Slots.patch is not None:  # assigning to a class has put Python's slots back
                for module in _subclasses(Module):
                    _Slots.patch(module)

        self._undo.append(undo)
        setattr(cls, name, made)

    def wrap_registered(self) -> None:
        for (_, name), scope in list(_wrapped.items()):
            found = scope[name] if name in scope else getattr(builtins, name)
            self.replace(scope, name, _leaf(found))
        for cls, name in _wrapped_methods:
            self.replace_method(cls, name, _leaf_method(cls, name))

    def autowrap(self, scope: dict[str, Any], ids: set[int]) -> None:
        """Replace functions like math.sqrt wherever this namespace holds them."""
        if id(scope) in self._seen:
            return
        self._seen.add(id(scope))
        for name, found in list(scope.items()):
            if not name.startswith("_") and callable(found) and id(found) in ids:
                self.replace(scope, name, _leaf(found))


def _subclasses(cls: type) -> Iterator[type]:
    seen: set[type] = set()
    waiting = [cls]
    while waiting:
        at = waiting.pop()
        if at not in seen:
            seen.add(at)
            yield at
            waiting += at.__subclasses__()


def _leaf(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, recorded as one call when a proxy is among its arguments."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        found = _find_proxies(args, kwargs)
        if not found:
            return function(*args, **kwargs)
        made = found[0].tracer.create_proxy("call_function", function, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    wrapped._fx_wrapped = True  # type: ignore[attr-defined]
    return wrapped


def _leaf_method(cls: type, name: str) -> Callable[..., Any]:
    method = getattr(cls, name)

    @functools.wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        found = _find_proxies(args, kwargs)
        if not found:
            return method(*args, **kwargs)
        return found[0].tracer.create_proxy("call_method", name, args, kwargs)

    return wrapped


def wrap(fn_or_name: Any) -> Any:
    """Make a global function a leaf: traced calls of it are recorded, not looked into.

    Call it at module level, with the function's name or as a decorator: `torch.fx.wrap("len")`.

    >>> import lucerne as torch
    >>> torch.fx.wrap("len")
    'len'
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError(
            "wrap must be called at the top level of a module: a function is found by the name it "
            "has there"
        )
    _wrapped[(id(frame.f_globals), name)] = frame.f_globals
    return fn_or_name


Wrap.function = wrap


@contextmanager
def _wrapping_method(cls: type, name: str) -> Iterator[None]:
    """Inside, calls of a method with proxies are recorded."""
    _wrapped_methods.append((cls, name))
    try:
        yield
    finally:
        _wrapped_methods.remove((cls, name))


def symbolic_trace(root: Any, concrete_args: Any = None) -> GraphModule:
    """A GraphModule that does what a module or function does, with its graph to look at and change.

    >>> import lucerne as torch
    >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    >>> print(traced.code.strip())
    def forward(self, x):
        relu = torch.relu(x);  x = None
        add = relu + 1;  relu = None
        return add
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", "")
    return GraphModule(tracer.root, graph, name or type(root).__name__)
