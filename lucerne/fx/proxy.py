"""Proxy: stands for a value while a function is traced, and writes down what is done with it."""

from __future__ import annotations

import copy
import dataclasses
import enum
import operator
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from lucerne._src.ir.convert import Unknown
from lucerne._src.ir.op import Op
from lucerne._src.ir.signature import MISSING, parameters
from lucerne._src.tensor.subclasses.torch_function import FunctionMode
from lucerne.fx import caller, names
from lucerne.fx.codegen import BINARY, OPERATORS
from lucerne.fx.graph import Graph
from lucerne.fx.node import Argument, Node, Target, base_types, map_aggregate, map_arg


class TraceError(ValueError):
    """Something that can't be traced; the text names the user's line."""


class Scope:
    """Path and type of the module whose forward is running."""

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path, self.module_type = module_path, module_type


class ScopeContextManager:
    """Inside, `scope` is that of another module."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self.scope, self.before = scope, copy.copy(scope)
        scope.module_path, scope.module_type = current_scope.module_path, current_scope.module_type

    def __enter__(self) -> Scope:
        return self.scope

    def __exit__(self, *exc: object) -> None:
        self.scope.module_path = self.before.module_path
        self.scope.module_type = self.before.module_type


class TracerBase:
    """How values become nodes. Subclasses decide what a node may hold and what proxies may do."""

    graph: Graph
    record_stack_traces: bool = False
    check_mutable_operations: bool = False
    trace_asserts: bool = False
    """Record `assert` on proxies (as calls of `assert_fn`) and go on as if they held."""
    proxy_buffer_attributes: bool = False
    traced_func_name: str = "forward"

    def __init__(self) -> None:
        self.scope = Scope("", None)
        self.module_stack: OrderedDict[str, tuple[str, Any]] = OrderedDict()
        self.node_name_to_scope: dict[str, tuple[str, Any]] = {}

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Put a node into the graph. Override it to check or change what is recorded."""
        if self.check_mutable_operations and kind == "call_function":
            _refuse_writes(target, kwargs)
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        self.node_name_to_scope[node.name] = (self.scope.module_path, self.scope.module_type)
        if self.module_stack:
            node.meta["nn_module_stack"] = self.module_stack.copy()
        if self.record_stack_traces and not node.stack_trace:
            frames = [traceback.FrameSummary(*f) for f in caller.user_frames()]
            if frames:
                listed = traceback.StackSummary.from_list(frames)
                node.stack_trace = "".join(listed.format()).strip()
        return node

    def proxy(self, node: Node) -> Proxy:
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Record something, and return the proxy of its value."""
        taken, named = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, taken, named, name, type_expr)
        return self.proxy(node) if proxy_factory_fn is None else proxy_factory_fn(node)

    def create_arg(self, a: Any) -> Argument:
        """What a node holds for a value of the program. Override it for types of your own."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            items = [self.create_arg(x) for x in a]
            return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
        if isinstance(a, list):
            return [self.create_arg(x) for x in a]
        if isinstance(a, dict):
            return {self._key(k): self.create_arg(v) for k, v in a.items()}
        if isinstance(a, slice):
            return slice(*(self.create_arg(x) for x in (a.start, a.stop, a.step)))
        if isinstance(a, range):
            return range(*(self.create_arg(x) for x in (a.start, a.stop, a.step)))
        if isinstance(a, Op):
            return a
        if dataclasses.is_dataclass(a) and not isinstance(a, type):
            fields = {f.name: self.create_arg(getattr(a, f.name)) for f in dataclasses.fields(a)}
            return self.create_node("call_function", type(a), (), fields)
        if isinstance(a, (*base_types, enum.Enum)) or a is None or a is ...:
            return a
        raise NotImplementedError(
            f"argument of type: {type(a)}. A node can't hold it: pass numbers, strings, tensors or "
            "containers of them, or override Tracer.create_arg"
        )

    def _key(self, key: Any) -> Any:
        def refuse(node: Node) -> NoReturn:
            raise RuntimeError(
                f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {node}"
            )

        if not isinstance(key, str):
            key = self.create_arg(key)
            map_arg(key, refuse)
        return key

    def to_bool(self, obj: Proxy) -> bool:
        """Asked when a proxy is used as a condition."""
        raise TraceError(
            "symbolically traced variables cannot be used as inputs to control flow: the value of "
            f"{obj.node.name} is not known while tracing.\n  {caller.user_line()}\nUse torch.where "
            "or a mask, pass the condition as concrete_args, or put the line in a function marked "
            "with torch.fx.wrap"
        )

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Asked when somebody iterates over a proxy."""
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a "
            "loop or as a *args or **kwargs function argument: how many items "
            f"{obj.node.name} has is not known while tracing.\n  {caller.user_line()}\nLoop over "
            "range(n) with a number n that does not depend on the data, and index the value"
        )

    def keys(self, obj: Proxy) -> Any:
        """Asked by `**proxy`."""
        return Attribute(obj, "keys")()


def _refuse_writes(target: Any, kwargs: dict[str, Any]) -> None:
    if kwargs.get("out") is not None or names.short_name(target).endswith("_"):
        raise RuntimeError(
            f"Tried to trace mutable operation {names.qualified_name(target)}. FX only supports "
            "functional code, so operations that mutate operands in-place (e.g. via `out` "
            "arguments) are not supported"
        )


class GraphAppendingTracer(TracerBase):
    """Writes to the end of a graph: for proxies that are made from nodes by hand."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph


def assert_fn(x: Any) -> None:
    """An assertion of a traced function."""
    assert x


class Proxy(Unknown):
    """Stands for the value of a node: what is done with it becomes nodes.

    Made from a node by hand, it lets a pass write ordinary expressions:

    >>> import lucerne as torch
    >>> graph = torch.fx.Graph()
    >>> x = torch.fx.Proxy(graph.placeholder("x"))
    >>> y = torch.relu(x) + 1
    >>> [n.name for n in graph.nodes]
    ['x', 'relu', 'add']
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        # No node yet: if it is called at once, it is a method call.
        return Attribute(self, k)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, d: dict[str, Any]) -> None:
        self.__dict__ = d

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        made = Proxy.__new__(type(self))
        made.__dict__.update({k: copy.deepcopy(v, memo) for k, v in self.__dict__.items()})
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        count = caller.unpacked_to(sys._getframe(1))
        if count is not None:
            return iter([self[i] for i in range(count)])  # type: ignore[index]
        return self.tracer.iter(self)

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and caller.is_assert(sys._getframe(1)):
            self.tracer.create_proxy("call_function", assert_fn, (self,), {})
            return True
        return self.tracer.to_bool(self)

    def __index__(self) -> int:
        return self._number("an index")

    def __int__(self) -> int:
        return self._number("an int")

    def __float__(self) -> float:
        return self._number("a float")

    def _number(self, wanted: str) -> NoReturn:
        raise TraceError(
            f"{self.node.name} is not known while tracing, so it can't be {wanted}.\n  "
            f"{caller.user_line()}\nPut the line in a function marked with torch.fx.wrap, or give "
            "the value as concrete_args"
        )

    def keys(self) -> Any:
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be "
            "recorded, please call torch.fx.wrap('len') at module scope\n  " + caller.user_line()
        )

    @classmethod
    def __torch_function__(
        cls,
        orig_method: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return record(orig_method, args, kwargs or {})


def find_proxies(*found: Any) -> list[Proxy]:
    """The proxies in a structure."""
    proxies: list[Proxy] = []

    def look(x: Any) -> Any:
        if isinstance(x, Proxy):
            proxies.append(x)
        return x

    map_aggregate(found, look)
    return proxies


def record(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A node for the call of a public function with proxies among its arguments."""
    tracers = {p.tracer: None for p in find_proxies(args, kwargs)}
    if len(tracers) > 1:
        raise RuntimeError(
            f"Found multiple different tracers {list(tracers)} while trying to trace operations "
            f"{function}"
        )
    tracer = next(iter(tracers))
    path = names.public_path(function) or ""
    if path.startswith("Tensor."):
        return tracer.create_proxy("call_method", path.removeprefix("Tensor."), args, kwargs)
    op = getattr(function, "op", None)
    if isinstance(op, Op):
        if op.qualified in _OPERATOR_METHODS and caller.by_operator():
            method = _OPERATOR_METHODS[op.qualified]
            return tracer.create_proxy("call_method", method, args, kwargs)
        args, kwargs = caller.spelling(op) or (args, kwargs)
    if path.startswith("nn.functional.") and path.rpartition(".")[2] not in _AS_WRITTEN:
        args, kwargs = _spelled_out(function, args, kwargs)
    name = tracer.graph._target_to_str(function)
    return tracer.create_proxy("call_function", function, args, kwargs, name=name)


_OPERATOR_METHODS = {
    "add2": "add", "sub2": "sub", "mul": "mul", "true_divide": "div", "pow2": "pow",
    "floor_divide": "__floordiv__", "remainder": "remainder", "matmul": "matmul",
    "eq": "eq", "ne": "ne", "lt": "lt", "gt": "gt", "le": "le", "ge": "ge",
    "bitwise_and": "__and__", "bitwise_or": "__or__", "bitwise_xor": "__xor__",
    "bitwise_left_shift": "__lshift__", "bitwise_right_shift": "__rshift__",
}  # fmt: skip
"""Ops behind the operators of tensors, and the method torch records for `tensor + proxy`."""

_AS_WRITTEN = frozenset(
    {
        "adaptive_avg_pool1d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "bilinear",
        "channel_shuffle", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
        "conv_transpose2d", "conv_transpose3d", "cosine_similarity", "gelu", "hardshrink",
        "linear", "logsigmoid", "one_hot", "pairwise_distance", "pdist", "pixel_shuffle",
        "pixel_unshuffle", "prelu", "scaled_dot_product_attention", "softplus", "softshrink",
    }
)  # fmt: skip
"""Functions of nn.functional that torch records as they are called; the rest is spelled out."""


def _spelled_out(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call as torch records functions written in Python.

    Parameters without a default are positional, all others are named.
    """
    plain = function
    while hasattr(plain, "__wrapped__"):
        plain = plain.__wrapped__
    listed = [p for p in parameters(plain) if p.name != "out"]
    if len(args) > len(listed):
        return args, kwargs
    given = {p.name: a for p, a in zip(listed, args, strict=False)} | kwargs
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for p in listed:
        if p.name not in given and p.default is MISSING:
            return args, kwargs
        value = given.pop(p.name, p.default)
        if p.default is MISSING and not named:
            positional.append(value)
        else:
            named[p.name] = value
    return tuple(positional), named | given


class ProxyMode(FunctionMode):
    """Sees calls with a proxy where no tensor is expected: `torch.zeros(3, x.size(0))`."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if find_proxies(args, kwargs):
            return record(func, args, kwargs)
        return func(*args, **kwargs)


class Attribute(Proxy):
    """`proxy.name`: a node only when it is used as a value, a method call when it is called."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:
            made = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {})
            self._node = made.node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """The proxy of a parameter whose shape is known (`Tracer(param_shapes_constant=True)`)."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.name, self.param = name, param

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        return self.param.shape

    def size(self, *dim: int) -> Any:
        return self.param.size(*dim)

    def dim(self) -> int:
        return self.param.dim()

    @property
    def ndim(self) -> int:
        return self.param.ndim

    def numel(self) -> int:
        return self.param.numel()

    def nelement(self) -> int:
        return self.param.nelement()


def _operator(name: str, reflected: bool) -> Any:
    target = getattr(operator, name)

    def apply(self: Proxy, *others: Any) -> Proxy:
        args = (others[0], self) if reflected else (self, *others)
        return self.tracer.create_proxy("call_function", target, args, {})

    apply.__name__ = f"__{'r' if reflected else ''}{name.strip('_')}__"
    return apply


for _name in OPERATORS:
    setattr(Proxy, f"__{_name.strip('_')}__", _operator(_name, False))
for _name in BINARY:
    setattr(Proxy, f"__r{_name.strip('_')}__", _operator(_name, True))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]
