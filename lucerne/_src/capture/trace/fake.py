"""Fake tensors: shape, dtype, strides, device and the right aliasing, but no bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from lucerne._src.base.device import device as Device
from lucerne._src.base.unspecialized import Symbolic
from lucerne._src.ir.meta import TensorMeta, starting_at
from lucerne._src.ir.symbolic.numbers import plain
from lucerne._src.tensor.autograd.node import GradientNode
from lucerne._src.tensor.base import make_tensor
from lucerne._src.tensor.storage import Storage
from lucerne._src.tensor.tensor import Tensor


class CaptureError(Exception):
    """Something in a function that a graph can't hold; the text says what and what to do."""


class DataNeededError(CaptureError, RuntimeError):
    """The function looked at numbers, which do not exist while it is captured."""


class NotYetError(Exception):
    """The function can't be captured now, but perhaps at its next call."""


class OtherSizesError(Exception):
    """A run has found sizes that a program was not captured for. It has done nothing yet."""

    def __init__(self, found: list[int], hints: list[int]) -> None:
        super().__init__(f"sizes {found} were found in the data")
        self.found, self.hints = found, hints
        """In the order in which the function comes to them, as far as they are known; and what to
        take for them when it is captured again."""


NO_VALUES = (
    "this tensor was made while a function was captured for compiling, so it has no values. "
    "Inside the function, values can't be looked at (item(), tolist(), if on a tensor, printing); "
    "outside, use what the function returns."
)


class LeakedFakeTensor(Tensor):
    """What becomes of a fake tensor that somebody still holds after the capture: ops refuse it."""

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> NoReturn:
        raise DataNeededError(NO_VALUES)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"<a tensor without values, of shape {list(self._meta.shape)}, left by a capture>"


def expose(tensors: Iterable[Any]) -> None:
    """After a capture: fakes that are still somewhere say what they are when they are used."""
    for t in tensors:
        if is_fake(t):
            t.__class__ = LeakedFakeTensor


class NoBytes:
    """Stands where a storage has its memory; storages over one of these share it."""

    __slots__ = ("symbolic_size",)
    address = 0

    def __init__(self) -> None:
        self.symbolic_size: Any = None
        """In bytes, where that follows from symbolic sizes; None: as its storage says."""

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise DataNeededError(NO_VALUES)


def fake_storage(memory: NoBytes, nbytes: int, device: Device) -> Storage:
    """A storage whose bytes are nowhere: no backend is asked for an address."""
    made = Storage(None, nbytes, device)
    made.buffer = memory
    return made


def fake_tensor(meta: TensorMeta) -> Any:
    """A new tensor over memory of its own that does not exist."""
    nbytes = meta.span * meta.dtype.itemsize
    memory = NoBytes()
    if isinstance(nbytes, Symbolic):
        memory.symbolic_size = nbytes
    storage = fake_storage(memory, plain(nbytes), meta.device)
    return make_tensor(storage, 0, starting_at(meta, 0))


def fills_storage(t: Any) -> bool:
    """Whether a tensor is all of its storage."""
    return not t._offset and t._meta.span * t._meta.dtype.itemsize == t._storage.nbytes


def fit_storage(t: Any, meta: TensorMeta, memory: NoBytes) -> None:
    """Tell what stands for the memory of a tensor how large it is, if its meta has symbols and
    fills it."""
    if fills_storage(t) and isinstance(meta.span, Symbolic):
        memory.symbolic_size = meta.span * meta.dtype.itemsize


def is_fake(t: Any) -> bool:
    return type(t._storage.buffer) is NoBytes


class StandIn(GradientNode):
    """History of a stand-in for a tensor that somebody else computed."""

    __slots__ = ()
    is_unknown = True

    def apply(self, grads: Sequence[Any]) -> list[Any]:
        raise CaptureError(
            "the function calls backward() through a tensor that was computed outside of it"
        )
