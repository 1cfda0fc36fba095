"""`lucerne.nested`: batches of sequences of different lengths, without padding."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base.refusals import no_pinned_memory
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.nested import ops as _ops
from lucerne._src.tensor.nested import shapes as _shapes  # noqa: F401
from lucerne._src.tensor.nested.convert import check_layout, entries_of, jagged_from, offsets_of
from lucerne._src.tensor.nested.kinds import NestedTensor, Ragged, make_jagged, make_list

_ops.install()


def nested_tensor(
    tensor_list: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Any:  # fmt: skip
    """A nested tensor with copies of the entries: a leaf, with no history.

    >>> import lucerne
    >>> a, b = lucerne.arange(3.0), lucerne.arange(2.0)
    >>> nt = lucerne.nested.nested_tensor([a, b], layout=lucerne.jagged)
    >>> nt.values(), nt.offsets()
    (tensor([0., 1., 2., 0., 1.]), tensor([0, 3, 5]))
    """
    if pin_memory:
        no_pinned_memory()
    entries = entries_of(tensor_list, "nested_tensor", dtype, device, copy=True)
    jagged = check_layout(layout) is lu.jagged
    return (jagged_from(entries) if jagged else make_list(entries)).requires_grad_(requires_grad)


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> Any:
    """A nested tensor of a list of tensors (or of a dense batch); gradients reach the entries."""
    if isinstance(ts, NestedTensor):
        return ts
    if isinstance(ts, lu.Tensor):
        if check_layout(layout) is not lu.jagged:
            return make_list(ts.unbind(0))
        lengths = lu.full((ts.shape[0],), ts.shape[1], dtype=dt.int64, device=ts.device)
        packed = ts.flatten(0, 1)
        return make_jagged(packed, Ragged(offsets_of(lengths)))
    entries = entries_of(ts, "as_nested_tensor", dtype, device, copy=False)
    return jagged_from(entries) if check_layout(layout) is lu.jagged else make_list(entries)


def nested_tensor_from_jagged(
    values: Any, offsets: Any = None, lengths: Any = None, jagged_dim: int | None = None,
    min_seqlen: int | None = None, max_seqlen: int | None = None,
) -> Any:  # fmt: skip
    """A nested tensor that reads `values` as they are: entry `i` begins at `offsets[i]`. With
    `lengths` entries may be shorter than the place they have."""
    if offsets is None and lengths is None:
        raise RuntimeError(
            "nested_tensor_from_jagged(): At least one of offsets or lengths is required."
        )
    if offsets is None:
        offsets, lengths = offsets_of(lengths), None
    _check_hints(offsets, lengths, min_seqlen, max_seqlen)
    at = 1 if jagged_dim is None else jagged_dim
    total = values.shape[at - 1]
    if int(offsets[0]) < 0 or int(offsets[-1]) > total or bool((offsets[1:] < offsets[:-1]).any()):
        raise RuntimeError(
            "nested_tensor_from_jagged(): offsets must rise from 0 to at most the size of the "
            f"ragged dimension ({total}), got {offsets.tolist()}"
        )
    return make_jagged(values, Ragged(offsets, lengths), at)


def _check_hints(offsets: Any, lengths: Any, least: int | None, most: int | None) -> None:
    """What a caller says of the lengths of entries must be so: later code relies on it."""
    if least is None and most is None:
        return
    found = offsets.diff() if lengths is None else lengths
    if found.numel() and (
        int(found.min()) < (least if least is not None else 0)
        or (most is not None and int(found.max()) > most)
    ):
        raise ValueError(
            f"nested_tensor_from_jagged(): entries have lengths from {int(found.min())} to "
            f"{int(found.max())}, which is not within min_seqlen={least} and max_seqlen={most}"
        )


def narrow(tensor: Any, dim: int, start: Any, length: Any, layout: Any = None) -> Any:
    """Of each row of a dense batch the places from `start[i]`, `length[i]` of them (dim 1)."""
    if check_layout(layout) is not lu.jagged:
        if not isinstance(start, int) or not isinstance(length, int):
            raise RuntimeError("start and length must be integers for the strided layout NT impl")
        return make_list(t.narrow(dim - 1, start, length) for t in tensor.unbind(0))
    if dim != 1:
        raise RuntimeError(f"jagged layout only supports dim=1, got {dim}")
    count, width = tensor.shape[:2]
    starts, lengths = (
        x.to(dt.int64) if isinstance(x, lu.Tensor) else lu.full((count,), x, dtype=dt.int64)
        for x in (start, length)
    )
    if starts.shape != (count,) or lengths.shape != (count,):
        raise RuntimeError(
            "When dim=1, start and length must be integers or 1D tensors of one number for each "
            f"row ({count})"
        )
    if bool(((starts < 0) | (lengths < 0) | (starts + lengths > width)).any()):
        raise RuntimeError("start + length exceeds the size of the dimension for some row")
    begins = lu.arange(0, count * width, width, device=tensor.device) + starts
    ends = begins[-1:] + lengths[-1:]
    offsets = lu.cat([begins, ends])
    return make_jagged(tensor.flatten(0, 1), Ragged(offsets, lengths))


def masked_select(tensor: Any, mask: Any) -> Any:
    """The elements of each row where `mask` is true, as a nested tensor."""
    if tensor.layout is not lu.strided or isinstance(tensor, NestedTensor):
        raise RuntimeError(
            f"torch.nested.masked_select requires a strided tensor, given {tensor.layout}"
        )
    if mask.layout is not lu.strided or isinstance(mask, NestedTensor):
        raise RuntimeError(
            f"torch.nested.masked_select requires a strided mask, given: {mask.layout}"
        )
    both = mask.expand(tensor.shape) if mask.ndim <= tensor.ndim else mask
    lengths = both.reshape(-1, both.shape[-1]).sum(-1) if both.ndim > 1 else both.sum().reshape(1)
    return make_jagged(tensor[both], Ragged(offsets_of(lengths)))


def to_padded_tensor(input: Any, padding: Any, output_size: Any = None) -> Any:
    """A dense batch: each entry filled up with `padding` to the largest size."""
    return input.to_padded_tensor(padding, output_size)
