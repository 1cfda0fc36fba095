"""How a custom op runs under `vmap`, when it was told how (`register_vmap`)."""

from __future__ import annotations

from typing import Any, NamedTuple

from lucerne._src.ir.schema import Schema
from lucerne.func.batching.level import RULES, Call
from lucerne.library.binding import split
from lucerne.library.entry import flat_tensors


class VmapInfo(NamedTuple):
    """What the function is told about the vmap it runs in."""

    batch_size: int
    randomness: str


def enter_rule(owner: Any) -> None:
    """Make the registered function the batch rule of the entry of the op."""
    schema: Schema = owner.schema
    if schema.is_mutable:
        raise NotImplementedError(
            f"register_vmap: {schema.name} writes to its arguments, and only operators that do not "
            "can have a rule here"
        )

    def rule(call: Call) -> Any:
        dims = tuple(
            [0 if b else None for b in flags] if type(flags) is tuple else 0 if flags else None
            for flags in call.batched
        )
        given, named = split(schema, call.values)
        info = VmapInfo(call.size, call.level.randomness)
        in_dims = dims[: len(given)]
        output, out_dims = owner.vmap_function(info, in_dims, *given, **named)
        flat = flat_tensors(schema, output, [])
        where = _flat_dims(out_dims, len(flat))
        made = tuple(
            call.level.full(t) if d is None else t.movedim(d, 0)
            for t, d in zip(flat, where, strict=True)
        )
        return made[0] if len(made) == 1 else made

    RULES[owner.entry.op.qualified] = rule


def _flat_dims(out_dims: Any, count: int) -> list[Any]:
    """One dim for each result: one number may stand for all."""
    if out_dims is None or isinstance(out_dims, int):
        return [out_dims] * count
    flat = [d for x in out_dims for d in (x if isinstance(x, (tuple, list)) else (x,))]
    if len(flat) != count:
        raise RuntimeError(
            f"register_vmap: the function returned {count} results, but out_dims for {len(flat)}"
        )
    return flat
