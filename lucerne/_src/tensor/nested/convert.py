"""Making nested tensors, and turning them into dense ones and back."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.ir.convert import as_optional_device, as_optional_dtype
from lucerne._src.ops.copy.join import cat
from lucerne._src.ops.creation.ranges import arange
from lucerne._src.tensor.interop.construct import as_tensor, build
from lucerne._src.tensor.nested.kinds import (
    JaggedTensor,
    NestedList,
    NestedTensor,
    Ragged,
    make_jagged,
    make_list,
)
from lucerne._src.tensor.tensor import Tensor


def offsets_of(lengths: Any) -> Any:
    """Where entries of these lengths begin, and where the last one ends."""
    made = lengths.new_zeros((lengths.shape[0] + 1,))
    made[1:] = lengths.cumsum(0)
    return made


def check_layout(layout: Any) -> Any:
    if layout not in (None, lo.strided, lo.jagged):
        raise RuntimeError(
            f"Specified layout is unsupported for nested tensors: {layout}. Hint: torch.jagged or "
            "torch.strided"
        )
    return layout


def entries_of(tensor_list: Any, name: str, dtype: Any, device: Any, copy: bool) -> list[Any]:
    """The entries as tensors; lists of numbers are converted."""
    if not isinstance(tensor_list, (list, tuple)):
        raise TypeError(
            f"Only lists (List[Tensor] and List[List...[Scalar]]) are accepted in {name}"
        )
    kind, place = as_optional_dtype(dtype), as_optional_device(device)
    found = []
    for t in tensor_list:
        if isinstance(t, Tensor):
            moved = t.to(place or t.device, kind or t.dtype)
            found.append(moved.detach().clone() if copy else moved)
        else:
            found.append(build(t, kind, place) if copy else as_tensor(t, kind, place))
    for i, t in enumerate(found):
        if t.ndim != found[0].ndim:
            raise RuntimeError(
                f"All Tensors given to {name} must have the same dimension. Found dimension "
                f"{t.ndim} for Tensor at index {i} and dimension {found[0].ndim} for Tensor at "
                "index 0."
            )
    return found


def jagged_from(entries: list[Any]) -> Any:
    """Entries packed along the one dimension in which they differ (the first, if in none)."""
    if not entries:
        raise RuntimeError("Cannot construct a nested tensor from an empty list")
    if not entries[0].ndim:
        raise RuntimeError("Cannot construct a nested tensor of the jagged layout from scalars")
    shapes = [t.shape for t in entries]
    ragged = [d for d in range(entries[0].ndim) if len({s[d] for s in shapes}) > 1] or [0]
    if len(ragged) > 1:
        raise RuntimeError(
            "Cannot represent given tensor list as a nested tensor with the jagged layout. Note "
            "that the jagged layout only represents shapes of the form (B, *_0, D_0, D_1, ..., "
            "D_N), with only * allowed to be ragged. Hint: layout=torch.strided"
        )
    [at] = ragged
    first = entries[0]
    lengths = build([s[at] for s in shapes], dt.int64, first.device)
    packed = cat([t.to(first.dtype) for t in entries], at)
    return make_jagged(packed, Ragged(offsets_of(lengths)), at + 1)


def contiguous(t: Any) -> Any:
    """The same entries without gaps between them, the ragged dimension first."""
    if isinstance(t, NestedList):
        return make_list(e.contiguous() for e in t.unbind())
    if t._ragged.whole:
        return t if t._packed.is_contiguous() else t.like([t._packed.contiguous()])
    packed = cat(list(t.unbind()), t._at - 1)
    return make_jagged(packed, Ragged(offsets_of(t._ragged.lengths)), t._at)


# ---- padding ----------------------------------------------------------------------------------


def to_padded_tensor(self: Any, padding: Any = 0.0, output_size: Any = None) -> Any:
    """A dense batch: each entry filled up with `padding` to the largest size.

    >>> import lucerne
    >>> nt = lucerne.nested.nested_tensor([[1, 2], [3]], layout=lucerne.jagged)
    >>> nt.to_padded_tensor(0)
    tensor([[1, 2],
            [3, 0]])
    """
    if isinstance(self, JaggedTensor):
        return _padded_jagged(contiguous(self), padding, output_size)
    entries = self.unbind()
    if not entries:
        raise RuntimeError("to_padded_tensor() cannot be called on an empty nested tensor")
    sizes = [max(t.shape[d] for t in entries) for d in range(entries[0].ndim)]
    sizes = _checked([len(entries), *sizes], output_size)[1:]
    rows = []
    for t in entries:
        rows.append(_filled(t, sizes, padding).unsqueeze(0))
    return cat(rows)


def _filled(t: Any, sizes: list[int], padding: Any) -> Any:
    made = t.new_full(sizes, padding)
    grid = tuple(
        arange(n, device=t.device).reshape([-1 if i == d else 1 for i in range(t.ndim)])
        for d, n in enumerate(t.shape)
    )
    return made.index_put(grid, t) if grid else t


def _checked(sizes: list[int], wanted: Any) -> list[int]:
    if wanted is None:
        return sizes
    asked = [int(n) for n in wanted]
    if len(asked) != len(sizes) or any(a < b for a, b in zip(asked, sizes, strict=True)):
        raise RuntimeError(
            "Value in output_size is less than NestedTensor padded size. Truncation is not "
            f"supported. (asked {asked}, needed {sizes})"
        )
    return asked


def padded_places(ragged: Ragged, width: int) -> Any:
    """Where each place of the packed tensor stands in a batch of rows of `width` places."""
    entries = ragged.entries()
    inside = arange(entries.shape[0], device=entries.device) - ragged.offsets[entries]
    return entries * width + inside


def _padded_jagged(t: Any, padding: Any, output_size: Any) -> Any:
    along, ragged = t._at - 1, t._ragged
    rows = t._packed.movedim(along, 0)
    width = ragged.longest()
    if output_size is not None:
        whole = [ragged.count, *t._packed.shape]
        whole[t._at] = width
        width = _checked(whole, output_size)[t._at]
    blank = rows.new_full((ragged.count * width, *rows.shape[1:]), padding)
    filled = blank.index_put((padded_places(ragged, width),), rows)
    batch = filled.reshape(ragged.count, width, *rows.shape[1:])
    return batch.movedim(1, t._at)


def from_padded(padded: Any, ragged: Ragged, at: int = 1) -> Any:
    """The opposite of `to_padded_tensor`: what stands at places of entries, packed."""
    rows = padded.movedim(at, 1)
    width = rows.shape[1]
    flat = rows.reshape(rows.shape[0] * width, *rows.shape[2:])
    packed = flat[padded_places(ragged, width)]
    return make_jagged(packed.movedim(0, at - 1), ragged, at)


_methods: Any = NestedTensor
_methods.to_padded_tensor = to_padded_tensor
