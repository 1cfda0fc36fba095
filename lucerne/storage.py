"""`lucerne.storage`: the memory of tensors, as an object."""

from __future__ import annotations

from lucerne._src.tensor.interop.outside import UntypedStorage as UntypedStorage
from lucerne._src.tensor.interop.typed_names import TypedStorage as TypedStorage

_StorageBase = UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
