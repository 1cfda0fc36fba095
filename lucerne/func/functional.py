"""`functionalize`: a function without writes into tensors that it made itself.

A call-level interpreter keeps, for each memory that was written to, the value it has now. A write
becomes an ordinary op whose result is the new value; tensors read later are read from it. Only
what came from outside is written to, once, at the end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lucerne._src.ir import dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.dispatch import InPlace, Interpreter, Proceed, call_inside
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.ops.control import put_in
from lucerne._src.ops.copy.cast import copy, put_region
from lucerne._src.ops.pointwise.complexes import (
    flip_view,
    resolve_conj,
    view_as_complex,
    view_as_real,
)
from lucerne._src.tensor.base import TensorBase, offset_of
from lucerne._src.tensor.eager.composite import body_of
from lucerne._src.tensor.eager.inplace import check_fits
from lucerne.func.arguments import map_tensors

_state = dispatch.state
_copy: Op = copy.op  # type: ignore[attr-defined]

_REMOVABLE = ("mutations", "mutations_and_views")


class _Memory:
    """A memory that was written to: the tensor that has all of it, and its value now."""

    __slots__ = ("base", "value")

    def __init__(self, base: Any) -> None:
        self.base = self.value = base


class Functionalizing(Interpreter):
    """Turns writes into values while it is entered."""

    level = "call"

    def __init__(self, without_views: bool) -> None:
        self.without_views = without_views
        self._memories: dict[int, _Memory] = {}
        self._made: dict[int, Any] = {}
        """Storages that came to be inside, by id (held, so that no id is used twice)."""

    def value(self, t: Any) -> Any:
        """What a tensor holds now."""
        memory = self._memories.get(id(t._storage))
        if memory is None:
            return t
        if _place(t) == _place(memory.base):
            return memory.value
        return self._replayed(t, memory.value)

    def _replayed(self, t: Any, x: Any) -> Any:
        """The view that `t` is, of another value of its base."""
        for op, args, index in t._view.steps:
            if self.without_views and f"{op.qualified}_copy" in op_.table():
                op = op_.get(f"{op.qualified}_copy")
            x = dispatch.entry.run(op, (x, *args))
            x = x if index is None else x[index]
        return x

    def made(self, tensor: Any) -> None:
        """A tensor came to be inside: nobody outside sees its memory."""
        self._made[id(tensor._storage)] = tensor._storage

    def finish(self) -> None:
        """Write to what came from outside, as the function did."""
        for key, memory in self._memories.items():
            if key not in self._made:
                memory.base.copy_(memory.value)

    # ---- calls ---------------------------------------------------------------------------------

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Proceed) -> Any:
        if op.kind == op_.VIEW and id(args[0]._storage) not in self._memories:
            return self._viewed(op, args, proceed)
        given = tuple(
            tuple(self._now(x) for x in a) if type(a) is tuple else self._now(a) for a in args
        )
        if type(out) is InPlace:
            self._write(op, out.target, self._result(op, given, proceed))
            return out.target
        if out is not None:
            result = self._result(op, given, proceed)
            outs = out if isinstance(out, (tuple, list)) else (out,)
            for o, r in zip(outs, result if isinstance(result, tuple) else (result,), strict=True):
                self._write(op, o, r)
            return out
        if op.kind == op_.VIEW:  # of a memory that was written to: the view goes with the base
            return proceed(op, args, out)
        return self._result(op, given, proceed)

    def _now(self, a: Any) -> Any:
        return self.value(a) if isinstance(a, TensorBase) else a

    def _viewed(self, op: Op, args: tuple[Any, ...], proceed: Proceed) -> Any:
        return proceed(op, args, None)

    def _result(self, op: Op, args: tuple[Any, ...], proceed: Proceed) -> Any:
        if op.kind == op_.COMPOSITE and not op.explicit:
            _state.call_level.append(self)  # see what it is made of
            _state.refresh()
            try:
                found = body_of(op, args)
            finally:
                _state.call_level.pop()
                _state.refresh()
            return map_tensors(self.value, found)
        found = proceed(op, args, None)
        for r in found if isinstance(found, tuple) else (found,):
            if op.kind != op_.VIEW and isinstance(r, TensorBase):
                self.made(r)
        return found

    def _write(self, op: Op, target: Any, result: Any) -> None:
        """The elements of `target` have another value from now on."""
        check_fits(op, result._meta, target._meta)
        now = self.value(target)
        if result._meta is not target._meta:
            result = dispatch.entry.run(_copy, (now, result))
        base = target if target._view is None else target._view.base
        memory = self._memories.get(id(base._storage))
        if memory is None:
            memory = self._memories[id(base._storage)] = _Memory(base)
        if _place(target) == _place(memory.base):
            memory.value = result
            return
        whole, part = memory.base._meta, target._meta
        offset = offset_of(target) - offset_of(memory.base)
        if part.dtype is whole.dtype:
            if part.flipped is not whole.flipped:  # (it is written as it lies there)
                result = flip_view(result)
            memory.value = _put(memory.value, result, part, offset)
            return
        if part.dtype is not whole.dtype.to_real():
            raise NotImplementedError(
                f"functionalize: {op.name} writes through a {part.dtype} view of a {whole.dtype} "
                "tensor. Write to the tensor itself, or to its .real or .imag"
            )
        offset = offset_of(target) - 2 * offset_of(memory.base)
        if offset % 2 and part.flipped is not whole.flipped:  # (real parts are never flipped)
            result = -result
        parts = view_as_real(resolve_conj(memory.value))
        memory.value = view_as_complex(_put(parts, result, part, offset))


def _put(value: Any, result: Any, part: TensorMeta, offset: int) -> Any:
    """A value with other elements where a view has its own."""
    recorded = _state.grad_enabled and (value.requires_grad or result.requires_grad)
    put = put_in if recorded else put_region
    return put(value, result, tuple(part.shape), part.strides, offset)


def _place(t: Any) -> tuple[int, Any]:
    return t._offset, t._meta


class _Readings(Interpreter):
    """Stands at the bottom: who looks at a tensor sees its value of now."""

    level = "kernel"

    def __init__(self, owner: Functionalizing) -> None:
        self.owner = owner

    def made(self, tensor: Any) -> None:
        self.owner.made(tensor)
        below = _below(self)
        if below is not None:
            below.made(tensor)

    def reads(self, tensor: Any) -> Any:
        found = self.owner.value(tensor)
        below = _below(self)
        other = None if below is None else below.reads(found)
        return found if other is None else other


def _below(interpreter: Interpreter) -> Any:
    stack = _state.kernel_level
    at = stack.index(interpreter) if interpreter in stack else len(stack)
    return stack[at - 1] if at else None


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """`func` without writes into tensors it made; its arguments are written to as by `func`.

    >>> import lucerne as torch
    >>> def f(x):
    ...     y = x.clone()
    ...     y[0].add_(10)
    ...     return y
    >>> torch.func.functionalize(f)(torch.zeros(2))
    tensor([10.,  0.])
    """
    if remove not in _REMOVABLE:
        raise RuntimeError(
            f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}."
            " Valid options are:\n     remove='mutations': all inplace and out= operators will be "
            "removed from the program, and replaced with their out-of-place equivalents.\n     "
            "remove='mutations_and_views': In addition to the above, all aliasing operators {view} "
            "will be replaced with their non-aliasing counterparts, {view}_copy.\n"
        )

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        level = Functionalizing(remove == "mutations_and_views")
        with _Readings(level), level:
            result = call_inside(func, *args, **kwargs)
        found = map_tensors(level.value, result)
        level.finish()
        return found

    return wrapped
