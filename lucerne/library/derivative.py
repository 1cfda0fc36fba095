"""The derivative of a custom op: an `autograd.Function` around everything below."""

from __future__ import annotations

from typing import Any

from lucerne._src.ir.dispatch import call_back
from lucerne._src.ir.schema import Schema
from lucerne._src.tensor.autograd.function import Function
from lucerne.library.binding import split


class _Spread:
    """Arguments or results with lists in them as a flat tuple, and back."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.counts = [len(v) if isinstance(v, (tuple, list)) else None for v in values]
        self.flat = tuple(x for v in values for x in (v if isinstance(v, (tuple, list)) else (v,)))

    def grouped(self, flat: tuple[Any, ...], kind: Any = tuple) -> list[Any]:
        left = iter(flat)
        return [
            next(left) if n is None else kind(next(left) for _ in range(n)) for n in self.counts
        ]

    def spread(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Gradients by argument as a flat tuple; None for a list means none of its entries."""
        flat: list[Any] = []
        for n, g in zip(self.counts, grads, strict=True):
            flat += [g] if n is None else [None] * n if g is None else list(g)
        return tuple(flat)


def make_function(owner: Any) -> type[Function]:
    """The Function of a custom op."""
    schema: Schema = owner.schema
    label = schema.name.replace("::", "_")

    def forward(ctx: Any, spread: _Spread, *flat: Any) -> Any:
        values = tuple(spread.grouped(flat))
        result = owner.below(values)
        ctx._spread = spread
        ctx.needs_input_grad = _grouped_needs(ctx.needs_input_grad[1:], spread)
        if owner.setup_context is not None:
            given, named = split(schema, values)
            extra = {"keyword_only_inputs": named} if named else {}
            call_back(owner.setup_context, ctx=ctx, inputs=tuple(given), output=result, **extra)
        results = _Spread(result if isinstance(result, tuple) else (result,))
        ctx._results = results
        ctx._single = not isinstance(result, (tuple, list))
        return results.flat[0] if ctx._single else results.flat

    def backward(ctx: Any, *grads: Any) -> Any:
        if owner.backward is None:
            raise RuntimeError(
                f"Trying to backward through {owner.spelling} but no autograd formula was "
                "registered. Please use register_autograd to add one."
            )
        found = call_back(owner.backward, ctx, *ctx._results.grouped(grads, list))
        answers = found if isinstance(found, tuple) else (found,)
        wanted = len(schema.arguments)
        positional = sum(not a.kwarg_only for a in schema.arguments)
        if len(answers) not in (wanted, positional):
            raise RuntimeError(
                f"Expected the backward of {owner.spelling} to return {positional} gradients (one "
                f"for each of its inputs, None where there is none), got {len(answers)}"
            )
        answers = (*answers, *[None] * (wanted - len(answers)))
        return (None, *ctx._spread.spread(answers))

    kind: Any = type(Function)
    made: type[Function] = kind(
        f"GeneratedBackwardFor_{label}_{owner.overload_name}",
        (Function,),
        {"forward": staticmethod(forward), "backward": staticmethod(backward)},
    )
    return made


def _grouped_needs(needs: tuple[bool, ...], spread: _Spread) -> tuple[Any, ...]:
    return tuple(spread.grouped(needs, list))


def apply(function: type[Function], values: tuple[Any, ...]) -> Any:
    """Call it on bound values; the result is grouped as the op returned it."""
    spread = _Spread(values)
    return function.apply(spread, *spread.flat)
