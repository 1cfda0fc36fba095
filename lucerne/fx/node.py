"""Node: one value of a graph and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from lucerne._src.ir.op import RANDOM, Op
from lucerne._src.tensor import api as lu
from lucerne.fx.immutable_collections import immutable_dict, immutable_list
from lucerne.fx.names import pretty_target, type_name
from lucerne.fx.operator_schemas import ArgsKwargsPair, normalize_function, normalize_module

Argument = Any
"""Nodes, numbers, strings, dtypes, devices, and tuples, lists, dicts and slices of them."""
Target = Callable[..., Any] | str
BaseArgumentTypes = str | int | float | bool | complex
base_types: tuple[type, ...] = (
    str, int, float, bool, complex, lu.dtype, lu.Tensor, lu.device, lu.memory_format, lu.layout,
)  # fmt: skip

LEGAL_OPS = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output")

_side_effects: set[Any] = set()
"""Functions that do something besides making a value, so their calls are never dead."""


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Say that calls of `fn` must stay even if nobody uses what they return (a decorator).

    >>> import lucerne as torch
    >>> @torch.fx.has_side_effect
    ... def log(x):
    ...     print(x)
    """
    _side_effects.add(fn)
    return fn


def map_aggregate(a: Argument, fn: Callable[[Argument], Argument]) -> Any:
    """The same structure with `fn` applied to each leaf; lists and dicts become immutable.

    >>> map_aggregate((1, [2, {"k": 3}]), lambda x: x * 10)
    (10, [20, {'k': 30}])
    """
    if isinstance(a, tuple):
        mapped = [map_aggregate(x, fn) for x in a]
        return type(a)(*mapped) if hasattr(a, "_fields") else tuple(mapped)
    if isinstance(a, list):
        return immutable_list(map_aggregate(x, fn) for x in a)
    if isinstance(a, dict):
        return immutable_dict((k, map_aggregate(v, fn)) for k, v in a.items())
    if isinstance(a, slice):
        ends = (a.start, a.stop, a.step)
        return slice(*(map_aggregate(x, fn) for x in ends))
    return fn(a)


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Any:
    """The same structure with `fn` applied to each Node in it.

    >>> map_arg([1, "x"], lambda node: None)
    [1, 'x']
    """
    assert callable(fn), "torch.fx.map_arg(a, fn): fn must be a callable"
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


class Node:
    """One value: `op` says what kind it is, `target` what is called, `args` with what.

    | op | target | args |
    |---|---|---|
    | placeholder | name of the parameter | its default, if it has one |
    | get_attr | path of a parameter, buffer or module | |
    | call_function | the function | its arguments |
    | call_method | the name of the method | self and its arguments |
    | call_module | path of the module | its arguments |
    | output | "output" | what is returned |

    >>> import lucerne as torch
    >>> graph = torch.fx.Graph()
    >>> x = graph.placeholder("x")
    >>> y = graph.call_function(torch.relu, (x,))
    >>> y.name, y.args, list(x.users)
    ('relu', (x,), [relu])
    """

    def __init__(
        self,
        graph: Any,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        return_type: Any = None,
    ) -> None:
        if op not in LEGAL_OPS:
            raise AssertionError(f"{op!r} is no kind of node: expected one of {LEGAL_OPS}")
        wanted = "Callable" if op == "call_function" else "str"
        if not (callable(target) if op == "call_function" else isinstance(target, str)):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                f"{lu.typename(target)} but a {wanted} is expected"
            )
        self.graph = graph
        self.name = name
        self.op = op
        self.target: Any = target
        self.type = return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = immutable_dict()
        self._inputs: dict[Node, None] = {}
        self._prev: Node = self
        self._next: Node = self
        self._erased = False
        self._set_arguments(args, kwargs)

    # ---- arguments -----------------------------------------------------------------------------

    @property
    def args(self) -> tuple[Argument, ...]:
        """Positional arguments. Assign a new tuple to change them."""
        return self._args

    @args.setter
    def args(self, a: Iterable[Argument]) -> None:
        self._set_arguments(tuple(a), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """Keyword arguments. Assign a new dict to change them."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: dict[str, Argument]) -> None:
        self._set_arguments(self._args, k)

    def _set_arguments(self, args: tuple[Argument, ...], kwargs: dict[str, Argument]) -> None:
        """Take new arguments, and keep the account of users on both sides."""
        for old in self._inputs:
            old.users.pop(self, None)
        self._inputs = {}

        def use(a: Argument) -> Argument:
            if isinstance(a, Node):
                self._inputs.setdefault(a)
                a.users.setdefault(self)
            return a

        self._args = map_aggregate(tuple(args), use)
        self._kwargs = map_aggregate(dict(kwargs), use)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once."""
        return list(self._inputs)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replace one positional argument."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Put a positional argument before the one at `idx`."""
        if not 0 <= idx <= len(self._args):
            raise AssertionError(
                f"insert_args index must be between 0 and len(self.args), got {idx}"
            )
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Set one keyword argument."""
        self.kwargs = {**self._kwargs, key: arg}

    # ---- uses ----------------------------------------------------------------------------------

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] | None = None,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Let every user of this node use another one; returns the users that changed.

        `delete_user_cb(user)` may say no. `propagate_meta` hands this node's meta on.
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but "
                    "replace_with already has .meta keys"
                )
            replace_with.meta.update(self.meta)
        changed = [u for u in self.users if delete_user_cb is None or delete_user_cb(u)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use `new_input` wherever `old_input` stands among the arguments."""

        def swap(node: Node) -> Node:
            return new_input if node is old_input else node

        self._set_arguments(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    # ---- place in the graph --------------------------------------------------------------------

    @property
    def next(self) -> Node:
        return self._next

    @property
    def prev(self) -> Node:
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move `x`, a node of the same graph, to just before this one."""
        if x.graph is not self.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if x is self:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x
        self.graph._moved()

    def append(self, x: Node) -> None:
        """Move `x`, a node of the same graph, to just after this one."""
        if x is not self:
            self._next.prepend(x)

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev
        self._prev = self._next = self

    def _order(self) -> int:
        return self.graph._positions()[self]

    def __lt__(self, other: Node) -> bool:
        return self._order() < other._order()

    def __gt__(self, other: Node) -> bool:
        return self._order() > other._order()

    def __le__(self, other: Node) -> bool:
        return self is other or self < other

    def __ge__(self, other: Node) -> bool:
        return self is other or self > other

    def _rename(self, candidate: str) -> None:
        """Take a name like `candidate` that is free."""
        if candidate != self.name:
            self.name = self.graph._graph_namespace.create_name(candidate, None)
            self.graph._graph_namespace.rename(self, self.name)

    # ---- meaning -------------------------------------------------------------------------------

    @property
    def stack_trace(self) -> str | None:
        """Where the call was written, if the tracer noted that (`record_stack_traces`)."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node must stay though nobody uses its value.

        Unlike in PyTorch that holds of in-place methods (`x.add_(1)`) as well.
        """
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_module":
            owner = self.graph.owning_module
            if owner is None:
                raise AssertionError("self.graph.owning_module not set for purity check")
            return getattr(owner.get_submodule(self.target), "_is_impure", False)
        if self.op == "call_method":
            return _writes(self.target)
        if self.op == "call_function":
            op = self.target if isinstance(self.target, Op) else getattr(self.target, "op", None)
            drawn = impure_random and isinstance(op, Op) and op.kind == RANDOM
            name = getattr(self.target, "__name__", "")
            return (
                drawn
                or self.target in _side_effects
                or self.kwargs.get("out") is not None
                or (_writes(name) and getattr(self.target, "__module__", "") != "_operator")
                or name in _WRITING_OPERATORS
            )
        return False

    def normalized_arguments(
        self,
        root: Any,
        arg_types: Any = None,
        kwarg_types: Any = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> ArgsKwargsPair | None:
        """Arguments with the defaults filled in; None if the signature isn't known."""
        only = normalize_to_only_use_kwargs
        if self.op == "call_function":
            return normalize_function(
                self.target, self._args, self._kwargs, normalize_to_only_use_kwargs=only
            )
        if self.op == "call_module":
            return normalize_module(
                root, self.target, self._args, self._kwargs, normalize_to_only_use_kwargs=only
            )
        return None

    # ---- text ----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return self.name

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """One line about the node, as printed graphs have it."""
        kind = f"{type_name(self.type)} " if self.type else ""
        head = f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}"
        if self.op == "placeholder":
            if placeholder_names:
                placeholder_names.append(self.target + (f": {kind.strip()}" if kind else ""))
                return None
            default = f"(default={self._args[0]})" if self._args else ""
            return f"{head}[target={self.target}]{default}"
        if self.op == "output":
            if self.type and maybe_return_typename:
                maybe_return_typename[0] = f" -> {type_name(self.type)}"
            return f"return {self._args[0]}"
        if include_tensor_metadata and (noted := self._tensor_note()):
            head = f"%{self.name} : {noted}[num_users={len(self.users)}] = {self.op}"
        head += f"[target={pretty_target(self.target)}]"
        if self.op == "get_attr":
            return head
        return f"{head}(args = {_text(self._args)}, kwargs = {_text(self._kwargs)})"

    def _tensor_note(self) -> str:
        found = value_of(self)
        if not isinstance(found, lu.Tensor):
            return ""
        short = short_dtype(found.dtype)
        return f'Tensor "{short}{list(found.shape)}{list(found.stride())}{found.device}"'


_WRITING_OPERATORS = frozenset(
    {
        "setitem", "delitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow",
        "iand", "ior", "ixor", "ilshift", "irshift", "imatmul",
    }
)  # fmt: skip


def _writes(name: str) -> bool:
    """Whether a method of this name changes its tensor."""
    return name in ("__setitem__", "set_", "setitem") or (
        name.endswith("_") and not name.endswith("__")
    )


def value_of(node: Node) -> Any:
    """What is known of a node's value: a tensor, a meta, or something ShapeProp found."""
    return node.meta.get("val", node.meta.get("tensor_meta", node.meta.get("example_value")))


_SHORT = {
    "bool": "b8", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "complex32": "c32", "complex64": "c64", "complex128": "c128",
    "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2", "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz", "float8_e8m0fnu": "f8e8m0fnu",
}  # fmt: skip


def short_dtype(dtype: Any) -> str:
    """`f32` for float32."""
    return _SHORT.get(dtype.name, dtype.name)


def _text(a: Argument) -> str:
    """An argument as printed graphs have it: nodes with a percent sign, strings bare."""
    if isinstance(a, list):
        return f"[{', '.join(map(_text, a))}]"
    if isinstance(a, tuple):
        return f"({', '.join(map(_text, a))}{',' if len(a) == 1 else ''})"
    if isinstance(a, dict):
        return "{" + ", ".join(f"{k}: {_text(v)}" for k, v in a.items()) + "}"
    return f"%{a}" if isinstance(a, Node) else str(a)


class TensorMetadata(NamedTuple):
    """What is known of a tensor besides its bytes (see `passes.shape_prop`)."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool = False
    qparams: dict[str, Any] = {}  # noqa: RUF012 - a field of a named tuple
