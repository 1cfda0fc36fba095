"""A user's own autograd.Function inside vmap: by its `vmap` method, or by mapping its methods.

Where nothing outside of the vmap differentiates, `forward` simply runs on tensors of the level.
Where something does, the gradient must be that of the user's `backward`, also for the whole batch:
a Function is made whose `forward` and `backward` are those of the user, mapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lucerne._src.ir.dispatch import state
from lucerne._src.tensor.autograd.function import Function
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.layers.layer import outside
from lucerne.func.batching.level import Batch, BatchLevel, own_functions
from lucerne.func.batching.quick import QuickLevel


class VmapInfo(NamedTuple):
    """What a Function's `vmap` method is told."""

    batch_size: int
    randomness: str


def call(
    level: BatchLevel, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], recorded: bool
) -> Any:
    """The result of a Function's `forward`; NotImplemented: it runs as it is."""
    pairs = [level.batch_of(a) if isinstance(a, TensorBase) else Batch(a, False) for a in args]
    if recorded:
        _check_once([p.value for p in pairs])
        return NotImplemented
    has_rule = function.vmap is not Function.vmap
    if has_rule and function.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {function.__name__}, but it has both generate_vmap_rule=True "
            "and an overridden vmap staticmethod. Please set generate_vmap_rule=False or delete "
            "the overridden vmap staticmethod to avoid ambiguity. For more details, please see "
            "https://pytorch.org/docs/main/notes/extending.func.html"
        )
    many = any(p.batched for p in pairs)
    with level.aside():
        values = [p.value for p in pairs]
        if not many:
            found = function.apply(*values, **kwargs)
            return _wrapped(level, found, None)
        if has_rule:
            dims = tuple(0 if p.batched else None for p in pairs)
            info = VmapInfo(level.size, level.randomness)
            found, out_dims = function.vmap(info, dims, *values, **kwargs)
            return _wrapped(level, found, out_dims)
        if not _differentiated(values) and not _has_tangents(level, values):
            return NotImplemented
        flags = tuple(p.batched for p in pairs)
        found = _Mapped.apply(level, function, flags, kwargs, *values)
        return _wrapped(level, found, 0)


own_functions.append(call)


def _differentiated(values: Sequence[Any]) -> bool:
    """Whether somebody outside records what is done with these."""
    recorded = any(isinstance(v, TensorBase) and v._needs_grad for v in values)
    return state.grad_enabled and recorded


def _has_tangents(level: BatchLevel, values: Sequence[Any]) -> bool:
    """Whether somebody outside differentiates these forward."""
    outer = [f for f in state.forward if f.under(level.depth)]
    return any(f.tangent(v) is not None for f in outer for v in values if isinstance(v, TensorBase))


def _check_once(values: Sequence[Any]) -> None:
    """A forward that keeps what backward needs can't do so for those inside and outside at once."""
    with outside():
        if _differentiated(values):
            raise RuntimeError(
                "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, "
                "jacrev, ...), it must override the setup_context staticmethod. For more details, "
                "please see https://pytorch.org/docs/main/notes/extending.func.html"
            )


def _wrapped(level: BatchLevel, found: Any, dims: Any) -> Any:
    if not isinstance(found, (tuple, list)):
        return _one(level, found, dims)
    each = dims if isinstance(dims, (tuple, list)) else [dims] * len(found)
    return tuple(_one(level, f, d) for f, d in zip(found, each, strict=True))


def _one(level: BatchLevel, found: Any, dim: int | None) -> Any:
    if not isinstance(found, TensorBase):
        return found
    if dim is None:
        return level.wrap(Batch(found, False), found._meta)
    return level.batched(found.movedim(dim, 0) if dim else found)  # type: ignore[attr-defined]


class _Mapped(Function):
    """The user's Function for a whole batch."""

    @staticmethod
    def forward(
        ctx: Any, outer: BatchLevel, function: Any, flags: Any, kwargs: Any, *values: Any
    ) -> Any:
        ctx.inner = inner = function._node(tuple(None for _ in values))
        ctx.level, ctx.flags, ctx.user = outer, flags, function
        needs = ctx.needs_input_grad[4:]
        inner.needs_input_grad = tuple(needs)
        level = QuickLevel(outer.size, outer.randomness)
        with level:
            args = [_given(level, v, b) for v, b in zip(values, flags, strict=True)]
            if function.setup_context is not Function.setup_context:
                result = function.forward(*args, **kwargs)
                function.setup_context(inner, tuple(args), result)
            else:
                result = function.forward(inner, *args, **kwargs)
            ctx.kept = [_payload(level, t) for t in inner._to_save]
            ahead = inner._saved_for_forward
            ctx.ahead = None if ahead is None else [_payload(level, t) for t in ahead]
            inner._to_save, inner._saved_for_forward = (), None
            several = isinstance(result, (tuple, list))
            outs = [_full(level, r) for r in (result if several else (result,))]
        ctx.save_for_backward(*(k.value for k in ctx.kept if isinstance(k, Batch)))
        return tuple(outs) if several else outs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        saved = iter(ctx.saved_tensors)
        level = QuickLevel(ctx.level.size, ctx.level.randomness)
        inner = ctx.inner
        with level:
            inner._to_save = tuple(
                _given(level, next(saved), k.batched) if isinstance(k, Batch) else k
                for k in ctx.kept
            )
            given = [g if g is None else _given(level, g, True) for g in grads]
            found = ctx.user.backward(inner, *given)
            results = found if isinstance(found, (tuple, list)) else (found,)
            parts = [_gradient(level, r, b) for r, b in zip(results, ctx.flags, strict=False)]
        return (None, None, None, None, *parts)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        level = QuickLevel(ctx.level.size, ctx.level.randomness)
        inner = ctx.inner
        with level:
            inner._to_save = tuple(_back(level, k) for k in ctx.kept)
            if ctx.ahead is not None:
                inner._saved_for_forward = tuple(_back(level, k) for k in ctx.ahead)
            inner._inside_jvp = True
            pairs = zip(tangents[4:], ctx.flags, strict=True)
            found = ctx.user.jvp(inner, *(_given(level, t, b) for t, b in pairs))
            several = isinstance(found, (tuple, list))
            parts = [_full(level, r) for r in (found if several else (found,))]
            inner._to_save, inner._saved_for_forward, inner._inside_jvp = (), None, False
        return tuple(parts) if several else parts[0]


def _back(level: BatchLevel, kept: Any) -> Any:
    """What was kept, as a tensor of another level."""
    return _given(level, kept.value, kept.batched) if isinstance(kept, Batch) else kept


def _given(level: BatchLevel, value: Any, batched: bool) -> Any:
    if not isinstance(value, TensorBase):
        return value
    return level.batched(value, own=False) if batched else level.lift(value)


def _payload(level: BatchLevel, t: Any) -> Any:
    return level.batch_of(t) if isinstance(t, TensorBase) else t


def _full(level: BatchLevel, result: Any) -> Any:
    """A result with the batch dimension."""
    if not isinstance(result, TensorBase):
        return result
    value, batched = level.batch_of(result)
    with level.aside():
        return value if batched else level.full(value)


def _gradient(level: BatchLevel, g: Any, batched: bool) -> Any:
    """The gradient of an input: one without a batch has the sum of all."""
    if g is None:
        return None
    full = _full(level, g)
    with level.aside():
        return full if batched else full.sum(0)
