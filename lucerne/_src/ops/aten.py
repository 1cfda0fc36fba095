"""`torch.ops.aten`: ops under the names that torch's dispatcher has for them.

A name gives a packet, its attributes the overloads: `aten.add.Tensor`, `aten.mm.default`. Calling
one calls the public function of that name. `call_of` says which overload an entry of the table is:
that is what a `__torch_dispatch__` sees.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lucerne._src.ir import dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.namespaces import public_names
from lucerne._src.ir.op import Op
from lucerne._src.ir.overload import OpOverload, OpOverloadPacket, namespace
from lucerne._src.ir.schema import Argument, Schema, SchemaType, parse
from lucerne._src.ops.nn.softmax import _log_softmax_backward_data as _back_of_log_softmax
from lucerne._src.ops.nn.softmax import _softmax_backward_data as _back_of_softmax

_SPACES = ("ops.aten", "", "nn.functional", "linalg", "special", "fft")


def _whole_softmax(input: Any, dim: int, half_to_float: bool = False) -> Any:
    return op_.get("softmax").public(input, dim)


def _whole_log_softmax(input: Any, dim: int, half_to_float: bool = False) -> Any:
    return op_.get("log_softmax").public(input, dim)


def _indexed(input: Any, indices: Any) -> Any:
    """`input[i, :, j]` with None for a whole dimension, as the dispatcher spells it."""
    return input[tuple(slice(None) if i is None else i for i in indices)]


def _converted_copy(input: Any, **options: Any) -> Any:
    return input.to(copy=True, **options)


def _pinned(input: Any, device: Any = None) -> Any:
    """Refused, as the method is. (Libraries say what it does to tensors of their own.)"""
    return input.pin_memory(device)


def _sparse_product(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return op_.get("addmm").public(input, mat1, mat2, beta=beta, alpha=alpha)


def _back_of_convolution(
    grad_output: Any, input: Any, weight: Any, bias_sizes: Any, stride: Any, padding: Any,
    dilation: Any, transposed: bool, output_padding: Any, groups: int, output_mask: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Gradients of a convolution: of its input, its weight and its bias, where they are wanted."""
    if transposed:
        raise NotImplementedError("convolution_backward: transposed convolutions are not taken")
    rest = (tuple(stride), tuple(padding), tuple(dilation), groups)
    of_input, of_weight = (op_.get(f"conv_{n}").public for n in ("input", "weight"))
    sums = (0, *range(2, grad_output.ndim))
    return (
        of_input(grad_output, weight, None, tuple(input.shape[2:]), *rest)
        if output_mask[0]
        else None,
        of_weight(grad_output, input, tuple(weight.shape[2:]), *rest) if output_mask[1] else None,
        grad_output.sum(sums) if output_mask[2] else None,
    )


def _as_method(name: str) -> Callable[..., Any]:
    """An in-place name, or one that is a method only."""

    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(input, name)(*args, **kwargs)

    call.__name__ = name
    return call


_OWN: dict[str, Callable[..., Any]] = {
    "_softmax": _whole_softmax,
    "_log_softmax": _whole_log_softmax,
    "_to_copy": _converted_copy,
    "_pin_memory": _pinned,
    "_sparse_addmm": _sparse_product,
    "index": _indexed,
    "convolution_backward": _back_of_convolution,
    "_softmax_backward_data": _back_of_softmax,
    "_log_softmax_backward_data": _back_of_log_softmax,
}
_METHODS = frozenset((
    "view", "expand", "detach", "new_zeros", "new_ones", "new_empty", "new_full", "repeat", "set_",
    "copy_", "zero_", "fill_", "detach_", "uniform_", "normal_", "is_same_size",
    "new_empty_strided", "item", "alias", "masked_scatter", "to",
))  # fmt: skip


def _function(name: str) -> Callable[..., Any] | None:
    """What a name of torch's calls."""
    if name in _OWN:
        return _OWN[name]
    for space in _SPACES:
        found = public_names(space).get(name)
        if found is not None:
            return found
    for prefix, space in (("linalg_", "linalg"), ("special_", "special"), ("fft_", "fft")):
        if name.startswith(prefix):
            return public_names(space).get(name.removeprefix(prefix))
    if name in _METHODS:
        return _as_method(name)
    in_place = name.endswith("_") and not name.startswith("_")
    if in_place and name in _written() and _function(name[:-1]) is not None:
        return _as_method(name)
    return None


@functools.cache
def _written() -> dict[str, dict[str, str]]:
    """By name and overload: the schemas that torch has for them."""
    found: dict[str, dict[str, str]] = {}
    text = (Path(__file__).parent / "data" / "aten.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        name, _, overload = line.partition("(")[0].partition(".")
        found.setdefault(name, {})[overload or "default"] = line
    return found


def _supply(name: str) -> OpOverloadPacket | None:
    function = _function(name)
    if function is None:
        return None
    packet = OpOverloadPacket("aten", name)
    packet._call = function
    known = _written().get(name)
    if known is None:  # a name that torch has elsewhere than among these operators
        for overload in ("default", "out"):
            packet.enter(overload, _schema(name, overload, function), function)
        return packet
    for overload in sorted(known, key=lambda over: over not in _MAIN):
        schema = functools.partial(parse, f"aten::{known[overload]}")
        packet.enter(overload, schema, function)
    return packet


_MAIN = ("default", "Tensor", "Tensor_Tensor", "int", "input", "dim")
"""Overloads that calls of an op are, where nothing else is said."""


def _main(packet: OpOverloadPacket) -> OpOverload:
    named = packet.overloads()
    found: OpOverload = getattr(packet, next((m for m in _MAIN if m in named), named[0]))
    return found


def _schema(name: str, overload: str, function: Any) -> Schema:
    """What can be said of a name that torch has no schema for: the arguments of the op behind."""
    op = getattr(function, "op", None)
    over = "" if overload == "default" else overload
    arguments: tuple[Argument, ...] = (Argument("self", SchemaType("Tensor")),)
    if op is not None:
        kinds = {
            op_.TENSOR: SchemaType("Tensor"),
            op_.TENSOR_LIST: SchemaType("Tensor", is_list=True),
        }
        arguments = tuple(
            Argument(p.name, kinds.get(p.kind, SchemaType("Scalar"))) for p in op.params
        )
    return Schema(f"aten::{name}", over, arguments, (Argument("", SchemaType("Tensor")),))


SPACE = namespace("aten", _supply)


# ---- entries of the table under these names --------------------------------------------------

Call = tuple[str, str, tuple[Any, ...], dict[str, Any]]
"""Name, overload, positional and keyword arguments."""


def _is_number(x: Any) -> bool:
    return isinstance(x, (bool, int, float, complex))


def _two(name: str) -> Callable[..., Call]:
    """An op of two operands, of which the second may be a number."""

    def call(input: Any, other: Any) -> Call:
        return name, "Tensor", (input, other), {}

    return call


def _compare(name: str) -> Callable[..., Call]:
    def call(input: Any, other: Any) -> Call:
        return name, "Scalar" if _is_number(other) else "Tensor", (input, other), {}

    return call


def _pow(input: Any, exponent: Any) -> Call:
    over = "Tensor_Scalar" if _is_number(exponent) else "Tensor_Tensor"
    return "pow", "Scalar" if _is_number(input) else over, (input, exponent), {}


def _folded(name: str, over: str) -> Callable[..., Call]:
    def call(input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Call:
        more = {} if dtype is None else {"dtype": dtype}
        if dim is None:
            return name, "default", (input,), more
        dims = [dim] if isinstance(dim, int) else list(dim)
        return name, over, (input, dims, keepdim) if keepdim else (input, dims), more

    return call


def _product(input: Any, other: Any) -> Call:
    name = {2: "mm", 3: "bmm"}.get(input.ndim, "matmul")
    return (name if other.ndim == input.ndim else "matmul"), "default", (input, other), {}


def _filled(size: Any, value: Any, dtype: Any, device: Any, strides: Any = None) -> Call:
    return "full", "default", (list(size), value), {"dtype": dtype, "device": device}


def _uninitialized(size: Any, dtype: Any, device: Any, strides: Any = None) -> Call:
    return "empty", "memory_format", (list(size),), {"dtype": dtype, "device": device}


def _counted(start: Any, step: Any, length: int, dtype: Any, device: Any) -> Call:
    ends = (start, start + step * length, step)
    return "arange", "start_step", ends, {"dtype": dtype, "device": device}


def _softmax_call(name: str) -> Callable[..., Call]:
    def call(input: Any, dim: Any, dtype: Any = None) -> Call:
        return name, "default", (input, dim, False), {}

    return call


def _conv(input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
          groups: int) -> Call:  # fmt: skip
    given = (list(stride), list(padding), list(dilation), False, [0] * len(stride), groups)
    return "convolution", "default", (input, weight, bias, *given), {}


def _same(name: str, overload: str = "default") -> Callable[..., Call]:
    def call(*args: Any) -> Call:
        return name, overload, args, {}

    return call


_CALLS: dict[str, Callable[..., Call]] = {
    "add2": _two("add"), "sub2": _two("sub"), "mul": _two("mul"), "true_divide": _two("div"),
    "eq": _compare("eq"), "ne": _compare("ne"), "lt": _compare("lt"), "le": _compare("le"),
    "gt": _compare("gt"), "ge": _compare("ge"), "pow2": _pow, "sum": _folded("sum", "dim_IntList"),
    "mean": _folded("mean", "dim"),
    "amax": lambda x, d, k: ("amax", "default", (x, list(d or ()), k), {}),
    "amin": lambda x, d, k: ("amin", "default", (x, list(d or ()), k), {}),
    "batch_matmul": _product, "filled": _filled, "uninitialized": _uninitialized,
    "counted": _counted, "softmax": _softmax_call("_softmax"),
    "log_softmax": _softmax_call("_log_softmax"),
    "cast": lambda x, d: ("_to_copy", "default", (x,), {"dtype": d}),
    "clone_as": lambda x, m: ("clone", "default", (x,), {}),
    "choose": _same("where", "self"), "silu_op": _same("silu"),
    "clamp_between": lambda x, a, b: ("clamp", "default", (x, a, b), {}),
    "nn.functional.gelu": lambda x, a: (
        "gelu", "default", (x,), {} if a == "none" else {"approximate": a}),
    "nn.functional.linear": lambda x, w, b: (
        "linear", "default", (x, w) if b is None else (x, w, b), {}),
    "embedding": lambda w, i, *rest: ("embedding", "default", (w, i), {}),
    "view": lambda x, s: ("view", "default", (x, list(s)), {}),
    "expand": lambda x, s: ("expand", "default", (x, list(s)), {}),
    "permute": lambda x, d: ("permute", "default", (x, list(d)), {}),
    "transpose": _same("transpose", "int"), "select": _same("select", "int"),
    "ops.aten.slice": _same("slice", "Tensor"), "t": _same("t"),
    "squeeze": lambda x, d=None: (
        ("squeeze", "default", (x,), {}) if d is None else ("squeeze", "dim", (x, d), {})),
    "unsqueeze": _same("unsqueeze"), "unbind": _same("unbind", "int"),
    "cat": lambda ts, d: ("cat", "default", (list(ts), d) if d else (list(ts),), {}),
    "gather": lambda x, d, i, sparse=False: ("gather", "default", (x, d, i), {}),
    "index": lambda x, i, wrap=True: ("index", "Tensor", (x, list(i)), {}),
    "conv": _conv,
    "alias": lambda x: ("detach", "default", (x,), {}),
    "strided_view": lambda x, s, st, o: ("as_strided", "default", (x, list(s), list(st), o), {}),
}  # fmt: skip
WHOLE = frozenset((
    "softmax", "log_softmax", "nn.functional.linear", "embedding", "mean",
))  # fmt: skip
"""Composites that torch's dispatcher sees as one op."""


def call_of(op: Op, args: tuple[Any, ...], out: Any) -> tuple[OpOverload, tuple[Any, ...], Any]:
    """A call of an entry of the table as the call of an overload: function, arguments, keywords."""
    if op.host is not None:
        entry: Any = op.host
        return entry.owner.overload, args, {}
    if type(out) is dispatch.InPlace:
        return SPACE.copy_.default, (out.target, args[1]), {}
    make = _CALLS.get(op.qualified)
    if make is not None:
        name, overload, given, named = make(*args)
        return getattr(getattr(SPACE, name), overload), given, named
    packet = None if op.internal else _space_or_none(op.name)
    if packet is not None:
        return _main(packet), _shortened(op, args), {}
    return _internal(op), args, {}


_OTHERWISE: dict[str, tuple[str, ...]] = {
    "add2": ("add",), "sub2": ("sub",), "true_divide": ("div",), "pow2": ("pow",),
    "batch_matmul": ("mm", "bmm", "matmul"), "filled": ("full",), "uninitialized": ("empty",),
    "counted": ("arange",), "softmax": ("_softmax",), "log_softmax": ("_log_softmax",),
    "cast": ("_to_copy",), "clone_as": ("clone",), "choose": ("where",), "silu_op": ("silu",),
    "clamp_between": ("clamp",), "conv": ("convolution",), "alias": ("detach",),
}  # fmt: skip
"""Entries of `_CALLS` that have other names there."""


def overloads_of(op: Op) -> list[OpOverload]:
    """Every overload that a call of an entry of the table may be (`call_of`)."""
    if op.host is not None:
        return [call_of(op, (), None)[0]]
    if op.qualified in _CALLS:
        packets = [getattr(SPACE, name) for name in _OTHERWISE.get(op.name, (op.name,))]
        return [getattr(p, over) for p in packets for over in p.overloads() if "out" not in over]
    packet = None if op.internal else _space_or_none(op.name)
    return [_internal(op) if packet is None else _main(packet)]


def _space_or_none(name: str) -> Any:
    try:
        return getattr(SPACE, name)
    except AttributeError:
        return None


def _shortened(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments without defaults at the end."""
    given = list(args)
    for p in reversed(op.params):
        if given[-1] is not p.default:
            break
        given.pop()
    return tuple(given)


def _building_block(name: str) -> OpOverloadPacket | None:
    """A primitive that torch has no name for: `torch.ops.lucerne.scan`."""
    op = next((op for op in op_.table().values() if op.name == name), None)
    if op is None:
        return None
    packet = OpOverloadPacket("lucerne", name)
    packet._call = op.public
    return packet


_own_space = namespace("lucerne", _building_block)


def _internal(op: Op) -> OpOverload:
    # the packet that users get, so that it takes keywords and defaults whoever asked first
    packet: OpOverloadPacket = getattr(_own_space, op.name, None) or _own_space.packet(op.name)
    if "default" not in packet.overloads():
        packet.enter("default", None, lambda *args: dispatch.entry.run(op, args), op)
    found: OpOverload = packet.default
    return found
