"""A compiled function with a schema: an op like any other."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from lucerne._src import backends
from lucerne._src.base.device import device as Device
from lucerne._src.base.process.profiler_hook import Watch
from lucerne._src.base.process.source_location import GENERATED
from lucerne._src.ir.meta import make_meta
from lucerne._src.ir.schema import Schema
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.base import TensorBase, new_tensor
from lucerne._src.tensor.storage import FAST
from lucerne.library.definition import CustomOpDef
from lucerne.utils.cpp_extension.ffi import ffi
from lucerne.utils.cpp_extension.functions import given, received
from lucerne.utils.cpp_extension.signature import Signature

_MOST_KNOWN = 1024
"""Kinds of calls whose results are remembered."""


class Kernel:
    """What runs the op on the host: arguments are held to the schema, results are made, machine
    code is called."""

    def __init__(self, signature: Signature, function: Any, digest: str) -> None:
        self.signature, self.function, self.digest = signature, function, digest
        self.fills = any(r is not None for r in signature.results)
        """Whether results are made here and filled there."""
        self.known: dict[Any, Any] = {}
        """For metas of arguments that need no look: metas and sizes in bytes of the results."""

    def _world_parts(self) -> list[tuple[str, Any]]:
        return [("schema", self.signature.text), ("library", self.digest)]

    def __call__(self, *args: Any, **named: Any) -> Any:
        schema = self.signature.schema
        values = [*args, *(named[a.name] for a in schema.arguments[len(args) :])]
        made = self._results(values) if self.fills else []
        passed = [self._passed(i, v) for i, v in enumerate(values)]
        if FAST is None:
            passed = [given(x) for x in passed]
        found = self.function(*passed, *(made if FAST is not None else map(given, made)))
        if self.fills:
            return made[0] if len(made) == 1 else tuple(made)
        return self._returned(received(found), values)

    def _results(self, values: list[Any]) -> list[Any]:
        """Room for the results; the kind of the call is remembered if nothing about it is odd."""
        host = Device(backends.HOST)
        metas = [make_meta(t, s, None, host) for s, t in self.signature.result_shapes(values)]
        if any(n < 0 for m in metas for n in m.shape):
            raise RuntimeError(
                f"{self.signature.qualname}: a result would have a negative size: "
                f"{[list(m.shape) for m in metas]}. Schema: {self.signature.text}"
            )
        made = [new_tensor(m) for m in metas]
        key = self._key(values)
        if key is not None:
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            sizes = [(m, m.numel * m.dtype.itemsize) for m in metas]
            self.known[key] = sizes[0] if len(sizes) == 1 else sizes
        return made

    def _key(self, values: list[Any]) -> Any:
        """What a quick call looks up (`quick_call`); None: it has to come here."""
        key: list[Any] = []
        for shaped, v in zip(self.signature.arguments, values, strict=True):
            if isinstance(v, TensorBase):
                meta = v._meta
                if shaped is not None and (not meta.contiguous or meta.flipped):
                    return None
                key.append(meta)
            elif type(v) is int:
                key.append(v)
        return tuple(key)

    def _passed(self, number: int, value: Any) -> Any:
        """An argument as machine code is given it."""
        if not isinstance(value, TensorBase):
            return value
        meta = value._meta
        x: Any = value.resolve_conj().resolve_neg() if meta.flipped else value  # type: ignore[attr-defined]
        if self.signature.arguments[number] is None or meta.contiguous:
            return x
        argument = self.signature.schema.arguments[number]
        if argument.is_write:
            raise RuntimeError(
                f"{self.signature.qualname}: argument {argument.name!r} is written to, and has to "
                f"be contiguous for that; its strides are {list(meta.strides)}"
            )
        return x.contiguous()

    def _returned(self, found: Any, values: list[Any]) -> Any:
        """What the function returned itself, if it is what the schema says."""
        returns = self.signature.schema.returns
        items = [found] if len(returns) == 1 else found
        if not returns:
            return None
        if not isinstance(items, (tuple, list)) or len(items) != len(returns):
            raise RuntimeError(
                f"{self.signature.qualname}: it returned {type(found).__name__}. Schema: "
                f"{self.signature.text}"
            )
        spans = [_span(v) for v in values if isinstance(v, TensorBase)]
        for r, x in zip(returns, items, strict=True):
            tensors = list(x) if r.type.is_list and isinstance(x, (tuple, list)) else [x]
            for t in tensors if r.type.is_tensor else ():
                if not isinstance(t, TensorBase):
                    raise RuntimeError(
                        f"{self.signature.qualname}: it returned {type(t).__name__} for a tensor. "
                        f"Schema: {self.signature.text}"
                    )
                begin, end = _span(t)
                if any(begin < e and b < end for b, e in spans):
                    raise RuntimeError(
                        f"{self.signature.qualname}: a result shares memory with an argument. "
                        "Results of an op are new tensors: return a copy, or mark the argument as "
                        "written, (a!), and return nothing"
                    )
        return list(found) if len(returns) == 1 and returns[0].type.is_list else found


def _span(t: Any) -> tuple[int, int]:
    start = t._storage.address + t._offset * t._meta.dtype.itemsize
    return start, start + t._meta.span * t._meta.dtype.itemsize


def make_op(signature: Signature, function: Any, digest: str) -> CustomOpDef:
    """The op of a compiled function, with its kernel and the shape rule of its text."""
    kernel = Kernel(signature, function, digest)
    kind = type("CppOp", (CppOp,), {"__call__": _quick_call(kernel), "__module__": __name__})
    made: CustomOpDef = kind(signature.schema)
    made.register_kernel(backends.HOST, kernel)
    if kernel.fills:
        made.register_fake(_shape_rule(signature))
    return made


class CppOp(CustomOpDef):
    """A custom op whose kernel is a compiled function.

    Calls on plain tensors that nobody watches, of a kind that was seen before, go to the function
    without a look at anything else; all others take the way of every custom op.
    """


def _shape_rule(signature: Signature) -> Callable[..., Any]:
    """The results without numbers, by the text."""

    def rule(*args: Any, **named: Any) -> Any:
        values = [*args, *(named[a.name] for a in signature.schema.arguments[len(args) :])]
        device = next((v._meta.device for v in values if isinstance(v, TensorBase)), None)
        made = [
            lu.empty(shape, dtype=dtype, device=device)
            for shape, dtype in signature.result_shapes(values)
        ]
        return made[0] if len(made) == 1 else tuple(made)

    return rule


_EXACT = {"int": "int", "float": "float", "bool": "bool", "str": "str"}
_ABSENT = object()
"""Stands for an argument that was not given by position."""


def _quick_call(kernel: Kernel) -> Callable[..., Any]:
    """`__call__` of an op: the quick way for plain calls, then everybody's."""
    schema, slow = kernel.signature.schema, CustomOpDef.__call__
    simple = kernel.fills and not schema.is_mutable and FAST is not None
    plain = all(
        not a.kwarg_only and not a.type.is_list and not a.type.optional
        and (a.type.is_tensor or a.type.name in _EXACT)
        for a in schema.arguments
    )  # fmt: skip
    if not (simple and plain and any(a.type.is_tensor for a in schema.arguments)):
        return slow
    scope: dict[str, Any] = {
        "Watch": Watch, "ready": FAST.ready, "fresh": FAST.fresh_tensor, "kernel": kernel,
        "known": kernel.known, "function": kernel.function, "slow": slow, "host": backends.HOST,
        "handle": kernel.function.__chandle__(), "call_values": _caller(),
        "absent": _ABSENT, "defaults": [a.default_value for a in schema.arguments],
    }  # fmt: skip
    text = _call_text(schema, len(kernel.signature.results))
    exec(compile(text, GENERATED, "exec", dont_inherit=True), scope)
    made: Callable[..., Any] = scope["call"]
    return made


@functools.cache
def _caller() -> Any:
    """What calls a function without objects for its arguments."""
    library = ffi().LIB
    places = (ctypes.cast(f, ctypes.c_void_p).value or 0
              for f in (library.TVMFFIFunctionCall, library.TVMFFIObjectDecRef))  # fmt: skip
    FAST.call_by(*places)
    return FAST.call_values


def _call_text(schema: Schema, count: int) -> str:
    """The code of `__call__`: what a call is held to before it may go the quick way."""
    arguments = [(f"a{i}", a) for i, a in enumerate(schema.arguments)]
    names = [name for name, _ in arguments]
    tensors = [name for name, a in arguments if a.type.is_tensor]
    filled = [f"d{n} = defaults[{i}] if {n} is absent else {n}"
              for i, (n, a) in enumerate(arguments) if a.has_default_value()]  # fmt: skip
    passed = [f"d{n}" if a.has_default_value() else n for n, a in arguments]
    kinds = zip(passed, schema.arguments, strict=True)
    exact = [f"type({p}) is {_EXACT[a.type.name]}" for p, a in kinds if not a.type.is_tensor]
    conditions = [*exact, f"ready({', '.join(tensors)})", "me.kernels.get(host) is kernel",
                  "me.autograd_kernel is None", "not me.disabled"]  # fmt: skip
    key = [f"{n}._meta" if a.type.is_tensor else p
           for p, (n, a) in zip(passed, arguments, strict=True)
           if a.type.is_tensor or a.type.name == "int"]  # fmt: skip
    outs = [f"y{k}" for k in range(count)]
    rooms = ["fresh(*found)"] if count == 1 else [f"fresh(*found[{k}])" for k in range(count)]
    given = ", ".join(f"{n}=absent" for n in names)
    return f"""
def call(me, {given}, /, *more, **named):
    if Watch.current is None and not named and not more:
        {"; ".join(filled) or "pass"}
        if {" and ".join(conditions)}:
            found = known.get(({", ".join(key)},))
            if found is not None:
                {"; ".join(f"{o} = {r}" for o, r in zip(outs, rooms, strict=True))}
                if not call_values(handle, {", ".join([*passed, *outs])}):
                    function({", ".join([*passed, *outs])})
                return {", ".join(outs)}
    given = [a for a in ({", ".join(names)},) if a is not absent]
    return slow(me, *given, *more, **named)
"""
