"""The slow way for what has no rule: one call for each of the batch. Every use is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.base.tree import tree_leaves, tree_map
from lucerne._src.ir import op as op_
from lucerne._src.ir.define import fronts
from lucerne._src.ops.copy.join import stack
from lucerne._src.tensor.base import TensorBase
from lucerne.func.batching.level import FRONTS, KINDS, BatchLevel, Call, whole

_used: Counter[str] = Counter()

LOOPED = (
    "bincount", "histogram", "histogramdd", "linspace", "logspace", "nn.functional.ctc_loss",
    "nn.functional.embedding_bag", "_segment_reduce",
)  # fmt: skip
"""Public functions whose work depends on values of some of their arguments."""


def loop(call: Call) -> Any:
    """One call of the op for each of the batch, and the results stacked."""
    _used[call.op.qualified] += 1
    return joined([call.run(*_slice(call, i)) for i in range(call.size)])


def joined(found: Sequence[Any]) -> Any:
    """The results of several calls, stacked."""
    if not isinstance(found[0], tuple):
        return stack(list(found))
    parts = [stack(list(p)) for p in zip(*found, strict=True)]
    kind = type(found[0])
    return kind(*parts) if hasattr(found[0], "_fields") else tuple(parts)


def _slice(call: Call, i: int) -> list[Any]:
    values: list[Any] = []
    for value, batched in zip(call.values, call.batched, strict=True):
        if type(batched) is tuple:
            pairs = zip(value, batched, strict=True)
            values.append(tuple(v.select(0, i) if b else v for v, b in pairs))
        else:
            values.append(value.select(0, i) if batched else value)
    return values


@whole("argwhere", "histc", "nonzero_static", when=lambda call: True)
def by_values(call: Call) -> Any:
    """What these give depends on values: the results must happen to have one shape."""
    return loop(call)


def loop_front(
    level: BatchLevel, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The same for a public function. NotImplemented: gradients are recorded inside of the level,
    which would not see the calls."""
    leaves = [x for x in tree_leaves((args, kwargs)) if isinstance(x, TensorBase)]
    if any(x._needs_grad for x in leaves):
        return NotImplemented
    _used[function.__name__] += 1
    with level.aside():
        found = []
        for i in range(level.size):
            given, named = tree_map(lambda x: _part(level, x, i), (args, kwargs))  # noqa: B023
            found.append(function(*given, **named))
        made = joined(found)
    if not isinstance(made, tuple):
        return level.batched(made)
    parts = [level.batched(m) for m in made]
    return type(made)(*parts) if hasattr(made, "_fields") else tuple(parts)


def _part(level: BatchLevel, x: Any, i: int) -> Any:
    if not isinstance(x, TensorBase):
        return x
    value, batched = level.batch_of(x)
    return value.select(0, i) if batched else value


def vmap_fallbacks(reset: bool = False) -> dict[str, int]:
    """Ops for which vmap had to call once for each of the batch, and how often that was.

    >>> import lucerne as torch
    >>> torch.func.vmap(torch.sin)(torch.ones(2, 3)).shape
    torch.Size([2, 3])
    >>> "sin" in torch.func.vmap_fallbacks()
    False
    """
    found = dict(_used)
    if reset:
        _used.clear()
    return found


KINDS[op_.STRUCTURAL] = loop
KINDS[op_.COMPOSITE] = loop
for _name in LOOPED:
    FRONTS[fronts()[_name].function] = loop_front
