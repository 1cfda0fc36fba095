"""Nested tensors in checkpoints, as torch spells them: their dense parts, by name."""

from __future__ import annotations

import itertools
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.io.errors import CorruptFileError
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.nested.kinds import JaggedTensor, NestedList, NestedTensor, Ragged
from lucerne._src.tensor.nested.kinds import make_jagged as _make_jagged
from lucerne._src.tensor.nested.kinds import make_list as _make_list

HOME = "torch.nested._internal.nested_tensor"
REBUILD, KIND = "_rebuild_njt", "NestedTensor"
DIM_RANGE = ("torch._dynamo.decorators", "_DimRange")
"""A note of torch's compiler that it leaves on tensors inside."""
NOTE = "a note of torch's compiler"
"""Stands for one."""

__all__ = [
    "DIM_RANGE",
    "HOME",
    "KIND",
    "NOTE",
    "REBUILD",
    "JaggedTensor",
    "NestedList",
    "NestedTensor",
    "jagged",
    "jagged_parts",
    "listed",
    "listed_parts",
]  # fmt: skip


def jagged_parts(t: Any) -> dict[str, Any]:
    """What torch's constructor takes."""
    return {
        "values": t._packed.detach(), "offsets": t._ragged.offsets, "lengths": t._ragged.lengths,
        "_ragged_idx": t._at, "_metadata_cache": {}, "requires_grad": t.requires_grad,
    }  # fmt: skip


def listed_parts(t: Any) -> tuple[Any, ...]:
    """All elements, then sizes, strides and first places of the entries."""
    entries = [e.detach().contiguous() for e in t.unbind()]
    starts, at = [], 0
    for e in entries:
        starts.append(at)
        at += e.numel()
    flat = lu.cat([e.reshape(-1) for e in entries]) if entries else lu.zeros(0)
    rows = [[list(e.shape) for e in entries], [list(e.stride()) for e in entries], starts]
    return flat, *(lu.tensor(r, dtype=dt.int64) for r in rows)


def _bad(what: str) -> CorruptFileError:
    return CorruptFileError(f"a nested tensor is damaged: {what}")


def _numbers(t: Any, ndim: int, what: str) -> Any:
    if type(t) is not lu.Tensor or t.dtype not in (dt.int64, dt.int32) or t.ndim != ndim:
        raise _bad(f"{what} are no integers of {ndim} dimensions")
    return t.tolist()


def jagged(args: tuple[Any, ...]) -> Any:
    """From the dict of parts. Offsets are checked: nothing may be read past the values."""
    if len(args) != 1 or type(args[0]) is not dict:
        raise _bad("it has other parts")
    given = args[0]
    values, offsets, lengths = (given.get(k) for k in ("values", "offsets", "lengths"))
    at, grad = given.get("_ragged_idx", 1), given.get("requires_grad", False)
    if not isinstance(values, lu.Tensor) or type(at) is not int or not 1 <= at <= values.ndim:
        raise _bad("it has no values, or no ragged dimension")
    places = _numbers(offsets, 1, "offsets")
    steps = [b - a for a, b in itertools.pairwise(places)]
    if (
        not places
        or places[0] < 0
        or min(steps, default=0) < 0
        or places[-1] > values.shape[at - 1]
    ):
        raise _bad("its offsets don't fit its values")
    if lengths is not None:
        found = _numbers(lengths, 1, "lengths")
        rooms = zip(found, places, strict=False)
        if len(found) != len(steps) or any(n < 0 or s + n > values.shape[at - 1] for n, s in rooms):
            raise _bad("its lengths don't fit its offsets")
    made = _make_jagged(values, Ragged(offsets, lengths), at)
    return made.requires_grad_() if grad is True else made


def listed(args: tuple[Any, ...]) -> Any:
    """From the elements, sizes, strides and first places of the entries."""
    if len(args) != 4 or type(args[0]) is not lu.Tensor or args[0].ndim != 1:
        raise _bad("it has other parts")
    flat, sizes, strides, starts = args
    rows = zip(
        _numbers(sizes, 2, "sizes"), _numbers(strides, 2, "strides"),
        _numbers(starts, 1, "offsets"), strict=False,
    )  # fmt: skip
    entries = []
    for size, stride, start in rows:
        last = start + sum((n - 1) * s for n, s in zip(size, stride, strict=True) if n > 0)
        empty = any(n == 0 for n in size)
        if min([*size, *stride, start], default=0) < 0 or (not empty and last >= flat.shape[0]):
            raise _bad("an entry lies outside of its values")
        entries.append(flat[:0].reshape(size) if empty else flat.as_strided(size, stride, start))
    return _make_list(entries)
