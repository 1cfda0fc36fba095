"""Sequences of different lengths, one after the other: what packed recurrent input is made of.

A padded batch is (time, batch, ...). Packed, it is its valid rows in that order: all first
steps, then the second steps of the sequences that have one, and so on. Sequences are sorted by
length, so the `batch_sizes[t]` that still run at time t are the first ones.
"""

from __future__ import annotations

import itertools
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import front
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy.join import cat, stack
from lucerne._src.ops.creation.ranges import arange

KINDS = {
    dt.int64: "Long", dt.int32: "Int", dt.int16: "Short", dt.int8: "Char", dt.uint8: "Byte",
    dt.float32: "Float", dt.float64: "Double", dt.bool_: "Bool",
}  # fmt: skip


def _check_lengths(lengths: Tensor) -> None:
    if lengths.ndim != 1 or lengths.dtype is not dt.int64 or lengths.device.type != "cpu":
        kind = KINDS.get(lengths.dtype, lengths.dtype.name)
        raise RuntimeError(
            "'lengths' argument should be a 1D CPU int64 tensor, but got "
            f"{lengths.ndim}D {lengths.device.type} {kind} tensor"
        )


def _check_packable(x: Tensor, lengths: Tensor) -> list[int]:
    """Lengths as numbers, known to fit `x` (time, batch, ...)."""
    _check_lengths(lengths)
    time, batch = x.size(0), x.size(1)
    if not x.numel():
        raise RuntimeError("Cannot pack empty tensors.")
    if lengths.shape[0] != batch:
        raise RuntimeError(
            "Expected `len(lengths)` to be equal to batch_size, but got "
            f"{lengths.shape[0]} (batch_size={batch})"
        )
    found: list[int] = lengths.tolist()
    if min(found) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )
    if any(a < b for a, b in itertools.pairwise(found)):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. "
            "You can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement if you do not need ONNX exportability."
        )
    if found[0] > time:
        raise RuntimeError(
            f"pack_padded_sequence: a length of {found[0]} is longer than the padded input, which "
            f"has {time} steps; is batch_first right?"
        )
    return found


def _valid_rows(valid: Tensor) -> Tensor:
    """Positions of the True entries of a (time, batch) mask, in memory order."""
    rows: Tensor = valid.flatten().nonzero().squeeze(1)
    return rows


@front()
def _pack_padded_sequence(
    input: Tensor, lengths: Tensor, batch_first: bool = False
) -> tuple[Tensor, Tensor]:
    """The valid rows of a padded batch, and how many there are at each time."""
    x = input.transpose(0, 1) if batch_first else input
    longest = _check_packable(x, lengths)[0]
    valid = arange(longest).unsqueeze(1) < lengths
    packed = x[:longest].flatten(0, 1)
    if int(lengths[-1]) != longest:
        packed = packed.index_select(0, _valid_rows(valid).to(x.device))
    return packed.contiguous(), valid.sum(1)


@front()
def _pad_packed_sequence(
    data: Tensor,
    batch_sizes: Tensor,
    batch_first: bool,
    padding_value: Any = 0.0,
    total_length: int = -1,
) -> tuple[Tensor, Tensor]:
    """The padded batch of packed rows, and the length of each sequence."""
    _check_lengths(batch_sizes)
    steps, batch = batch_sizes.shape[0], int(batch_sizes[0])
    if total_length > 0 and total_length < steps:
        raise RuntimeError(
            "Expected total_length to be at least the length of the longest sequence in input, "
            f"but got total_length={total_length} and max sequence length being {steps}"
        )
    time = max(total_length, steps)
    valid = arange(batch) < batch_sizes.unsqueeze(1)
    rows = _valid_rows(valid)
    rest = tuple(data.shape[1:])
    padded = data.new_full((time * batch, *rest), padding_value)
    padded = padded.index_copy(0, rows.to(data.device), data[: rows.shape[0]])
    padded = padded.unflatten(0, (time, batch))
    return padded.transpose(0, 1) if batch_first else padded, valid.sum(0)


def _fitting(sequences: list[Tensor]) -> list[Tensor]:
    """All as the first one is: its dtype, and its shape but for the time."""
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    first = sequences[0]
    for s in sequences:
        if s.ndim == 0:
            raise RuntimeError("pad_sequence: a sequence without dimensions has no length")
        if s.shape[1:] != first.shape[1:]:
            raise RuntimeError(
                f"pad_sequence: sequences may differ in their length only, but one of shape "
                f"{list(s.shape)} came with one of shape {list(first.shape)}"
            )
    return [s if s.dtype is first.dtype else s.to(first.dtype) for s in sequences]


@front(namespace="ops.aten")
def pad_sequence(
    sequences: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences of different lengths side by side, filled up to the longest."""
    if padding_side not in ("left", "right"):
        raise RuntimeError(
            f"Expected padding_side to be one of left or right, but got {padding_side}."
        )
    sequences = _fitting(list(sequences))
    device, lengths = sequences[0].device, [s.shape[0] for s in sequences]
    batch, longest = len(lengths), max(lengths)
    if min(lengths) == longest:
        return stack(sequences, 0 if batch_first else 1)
    at = [(longest - n if padding_side == "left" else 0) for n in lengths]
    # Where each row goes: row b of a batch-first result begins at b * longest.
    apart, step = (longest, 1) if batch_first else (1, batch)
    rows = cat(
        [
            arange(n, device=device) * step + (b * apart + at[b] * step)
            for b, n in enumerate(lengths)
        ]
    )
    joined = cat(sequences)
    padded = joined.new_full((batch * longest, *joined.shape[1:]), padding_value)
    shape = (batch, longest) if batch_first else (longest, batch)
    result: Tensor = padded.index_copy(0, rows, joined).unflatten(0, shape)
    return result
