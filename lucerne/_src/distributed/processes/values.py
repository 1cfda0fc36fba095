"""Tensors as flat arrays of their values, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.autograd.graph import increment_version

Array = np.ndarray[Any, Any]
_PLAIN = {
    "float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64", "bool",
}  # fmt: skip


def kind_of(dtype: dt.dtype) -> str:
    """How values of a dtype are reduced."""
    name = str(dtype).rpartition(".")[2]
    if name in _PLAIN or name in ("bfloat16", "complex64", "complex128"):
        return name
    return "opaque"


def check_tensor(name: str, tensor: Any) -> None:
    """Raise for what is no tensor of the host."""
    if not isinstance(tensor, lu.Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor but got "
            f"{type(tensor)} instead."
        )
    if tensor.device.type != "cpu":
        raise ValueError(
            f"{name} is on {tensor.device}: the groups tcp and gloo move tensors of the cpu. Move "
            "it with .cpu() first"
        )
    if tensor.layout is not lu.strided:
        raise ValueError(f"{name} is sparse: collectives take dense tensors; use .to_dense()")


class Flat:
    """The values of a tensor as a flat array in its own memory, or in a copy if they lie apart."""

    __slots__ = ("array", "copied", "tensor")

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor.detach()
        self.copied = not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg()
        plain = self.tensor.resolve_conj().resolve_neg() if self.copied else self.tensor
        plain = plain.contiguous().view(-1)
        kind = kind_of(tensor.dtype)
        if kind == "bfloat16":
            plain = plain.view(lu.uint16)
        elif kind.startswith("complex"):
            plain = lu.view_as_real(plain).view(-1)
        elif kind == "opaque":
            plain = plain.view(lu.uint8)
        self.array: Array = plain.numpy()

    def written(self) -> None:
        """The array was written: so is the tensor."""
        if self.copied:
            kind = kind_of(self.tensor.dtype)
            made = lu.from_numpy(self.array)
            if kind in ("bfloat16", "opaque"):
                made = made.view(self.tensor.dtype)
            elif kind.startswith("complex"):
                made = lu.view_as_complex(made.view(-1, 2))
            with lu.no_grad():
                self.tensor.copy_(made.view(self.tensor.shape))
        else:
            increment_version(self.tensor)


def describe(tensor: Any) -> str:
    """`float32[2, 3]`."""
    name = str(tensor.dtype).rpartition(".")[2]
    return f"{name}[{', '.join(map(str, tensor.shape))}]"
