"""Tensors that read their memory flipped: as conjugates, or as negatives where it is real.

Torch's conj and neg bits. The bit is a field of the meta, so a plan of a call with such a tensor is
a plan of its own, and no other call pays for it. View ops pass the bit on; any other op works on
values that are computed first, and a write goes to the memory flipped. Interpreters below autograd
never meet the bit in a call: they see memory as it is, and the ops that flip it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir import dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.dispatch import Proceed
from lucerne._src.ir.meta import Flips, with_flip
from lucerne._src.ir.op import Op
from lucerne._src.ops.copy.cast import copy
from lucerne._src.ops.pointwise.arithmetic import neg
from lucerne._src.ops.pointwise.complexes import conjugate, flip_view
from lucerne._src.tensor.base import Plans, TensorBase, make_tensor

_state = dispatch.state
_copy: Op = copy.op  # type: ignore[attr-defined]
_flip: Op = flip_view.op  # type: ignore[attr-defined]
_conjugate: Op = conjugate.op  # type: ignore[attr-defined]
_neg: Op = neg.op  # type: ignore[attr-defined]


def among(args: tuple[Any, ...]) -> bool:
    """Whether a tensor of a call reads its memory flipped."""
    return Flips.met and any(t._meta.flipped for t in _tensors(args))


def concern(op: Op, args: tuple[Any, ...]) -> bool:
    """Whether a call is one that interpreters do not see as it is."""
    return op is _flip or among(args)


def _tensors(args: tuple[Any, ...]) -> Iterator[Any]:
    for a in args:
        if isinstance(a, TensorBase):
            yield a
        elif type(a) is tuple:
            yield from _tensors(a)


def alias(t: Any, flipped: bool) -> Any:
    """Another tensor over the elements of memory of `t`, without history."""
    return _known(make_tensor(t._storage, t._offset, with_flip(t._meta, flipped)), t)


def computed(x: Any) -> Any:
    """An argument (or a tuple of them) whose memory has its values as they are."""
    if type(x) is tuple:
        return tuple(map(computed, x))
    if not isinstance(x, TensorBase) or not x._meta.flipped:
        return x
    return _flipped(alias(x, False))


def to_copy(target: Any, source: Any) -> tuple[Any, Any]:
    """Target and source of a copy between memories that does what `target.copy_(source)` would."""
    if not among((target, source)):
        return target, source
    source = computed(source)
    if not target._meta.flipped:
        return target, source
    place = alias(target, False)
    return place, _flipped(_now(_copy, (place, source)))  # (of the target's type: no `-True`)


def seen(op: Op, args: tuple[Any, ...], end: Proceed) -> Any:
    """A call that concerns flips, with interpreters below autograd."""
    if op.kind != op_.VIEW:
        return dispatch.through(_state.kernel_level, op, computed(args), None, end)
    if op is not _flip:  # the same view of memory as it is: from now on they know that place
        bare = (alias(args[0], False), *args[1:])
        dispatch.through(_state.kernel_level, op, bare, None, end)
    result = Plans.get(op, args).run(args)
    several = isinstance(result, tuple)
    found = tuple(_known(r, args[0]) for r in (result if several else (result,)))
    return found if several else found[0]


def _known(made: Any, source: Any) -> Any:
    stack = _state.kernel_level
    return stack[-1].aliased(made, source, False) if stack else made


def _flipped(t: Any) -> Any:
    return _now(_conjugate if t._meta.dtype.category == dt.COMPLEX else _neg, (t,))


def _now(op: Op, args: tuple[Any, ...]) -> Any:
    """An op below autograd."""
    if _state.kernel_level:
        return dispatch.through(_state.kernel_level, op, args, None, _bottom)
    return _bottom(op, args)


def _bottom(op: Op, args: tuple[Any, ...], out: Any = None) -> Any:
    return Plans.get(op, args).run(args)
