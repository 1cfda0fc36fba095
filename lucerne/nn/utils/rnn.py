"""Batches of sequences with different lengths: padded, packed, and back.

A `PackedSequence` holds the valid steps only, all first steps before all second ones. Recurrent
layers take it in place of a tensor and spend no work on padding.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from lucerne._src.ops.nn.packing import pad_sequence as _pad
from lucerne._src.tensor import api as lu

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class PackedSequence_(NamedTuple):
    """The fields of a `PackedSequence`."""

    data: lu.Tensor
    batch_sizes: lu.Tensor
    sorted_indices: lu.Tensor | None
    unsorted_indices: lu.Tensor | None


def _beside(permutation: lu.Tensor | None, data: lu.Tensor) -> lu.Tensor | None:
    return None if permutation is None else permutation.to(data.device)


class PackedSequence(PackedSequence_):
    """Sequences of different lengths without padding; made by `pack_padded_sequence`.

    `batch_sizes[t]` sequences have a step t; `sorted_indices` says where each came from when they
    had to be sorted, `unsorted_indices` is its inverse.

    >>> import lucerne as torch
    >>> a, b = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0])
    >>> packed = torch.nn.utils.rnn.pack_sequence([a, b])
    >>> packed.data, packed.batch_sizes
    (tensor([1., 4., 2., 3.]), tensor([2, 1, 1]))
    """

    def __new__(
        cls,
        data: Any,
        batch_sizes: lu.Tensor | None = None,
        sorted_indices: lu.Tensor | None = None,
        unsorted_indices: lu.Tensor | None = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            if not isinstance(data, (tuple, list)) or len(data) != 2:
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        elif batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be "
                "created manually. They should be instantiated by functions like pack_sequence and "
                "pack_padded_sequences in nn.utils.rnn. "
                "https://pytorch.org/docs/stable/nn.html#torch.nn.utils.rnn.pack_sequence"
            )
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same sequences with `data.to(...)`; itself when nothing changes."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        return type(self)(
            data,
            self.batch_sizes,
            _beside(self.sorted_indices, data),
            _beside(self.unsorted_indices, data),
        )

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """On the CPU."""
        return self.to("cpu", *args, **kwargs)

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """On a CUDA device."""
        if not args and "device" not in kwargs:
            kwargs["device"] = "cuda"
        return self.to(*args, **kwargs)

    def pin_memory(self) -> PackedSequence:
        """With all tensors in page-locked memory."""
        return type(self)(*(t if t is None else t.pin_memory() for t in self))

    def double(self) -> PackedSequence:
        """As float64."""
        return self.to(lu.float64)

    def float(self) -> PackedSequence:
        """As float32."""
        return self.to(lu.float32)

    def half(self) -> PackedSequence:
        """As float16."""
        return self.to(lu.float16)

    def long(self) -> PackedSequence:
        """As int64."""
        return self.to(lu.int64)

    def int(self) -> PackedSequence:
        """As int32."""
        return self.to(lu.int32)

    def short(self) -> PackedSequence:
        """As int16."""
        return self.to(lu.int16)

    def char(self) -> PackedSequence:
        """As int8."""
        return self.to(lu.int8)

    def byte(self) -> PackedSequence:
        """As uint8."""
        return self.to(lu.uint8)

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a CUDA device."""
        return bool(self.data.is_cuda)

    def is_pinned(self) -> bool:
        """Whether the data is in page-locked memory."""
        return bool(self.data.is_pinned())


def invert_permutation(permutation: lu.Tensor | None) -> lu.Tensor | None:
    """The permutation that undoes this one."""
    if permutation is None:
        return None
    steps = lu.arange(permutation.numel(), device=permutation.device)
    inverse: lu.Tensor = lu.empty_like(permutation).scatter_(
        0, permutation, steps.to(permutation.dtype)
    )
    return inverse


def pack_padded_sequence(
    input: lu.Tensor,
    lengths: lu.Tensor | list[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """Pack a padded batch, (time, batch, ...) or (batch, time, ...) with `batch_first`.

    With `enforce_sorted=False` the sequences may come in any order and are sorted here.
    """
    lengths = lu.as_tensor(lengths, dtype=lu.int64, device="cpu")
    order = None
    if not enforce_sorted:
        lengths, order = lu.sort(lengths, descending=True)
        order = order.to(input.device)
        input = input.index_select(0 if batch_first else 1, order)
    data, batch_sizes = lu._pack_padded_sequence(input, lengths, batch_first)
    return PackedSequence(data, batch_sizes, order, None)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[lu.Tensor, lu.Tensor]:
    """The padded batch that was packed, and the lengths of its sequences."""
    longest = sequence.batch_sizes.size(0)
    if total_length is not None and total_length < longest:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, "
            f"but got total_length={total_length} and max sequence length being {longest}"
        )
    padded, lengths = lu._pad_packed_sequence(
        sequence.data, sequence.batch_sizes, batch_first, padding_value, total_length or longest
    )
    order = sequence.unsorted_indices
    if order is None:
        return padded, lengths
    return padded.index_select(0 if batch_first else 1, order), lengths[order.cpu()]


def pad_sequence(
    sequences: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> lu.Tensor:
    """Sequences of different lengths in one tensor, filled up to the longest.

    >>> import lucerne as torch
    >>> a, b = torch.tensor([1, 2, 3]), torch.tensor([4])
    >>> torch.nn.utils.rnn.pad_sequence([a, b], batch_first=True)
    tensor([[1, 2, 3],
            [4, 0, 0]])
    """
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            "pad_sequence: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences)}"
        )
    if isinstance(sequences, lu.Tensor):
        sequences = sequences.unbind(0)
    return _pad(tuple(sequences), batch_first, padding_value, padding_side)


def unpad_sequence(
    padded_sequences: lu.Tensor, lengths: lu.Tensor, batch_first: bool = False
) -> list[lu.Tensor]:
    """The sequences of a padded batch, each with its own length."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [
        row[: int(n)].clone(memory_format=lu.contiguous_format)
        for row, n in zip(rows, lengths, strict=False)
    ]


def pack_sequence(sequences: list[lu.Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack a list of sequences, longest first unless `enforce_sorted=False`."""
    lengths = lu.as_tensor([s.size(0) for s in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[lu.Tensor]:
    """The list of sequences that was packed."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
