"""`lucerne.types`: names for annotations."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import IO

from lucerne._src.base.device import device
from lucerne._src.base.shape import Size
from lucerne._src.tensor.interop.outside import UntypedStorage
from lucerne._src.tensor.interop.typed_names import TypedStorage
from lucerne._src.tensor.random.generator import Generator as Generator
from lucerne._src.tensor.tensor import Tensor

Number = builtins.int | builtins.float | builtins.bool
"""A Python number that may stand for a tensor."""
Device = device | str | int | None
FileLike = str | os.PathLike[str] | IO[bytes]
Storage = TypedStorage | UntypedStorage

_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
_size = Size | list[int] | tuple[int, ...]
_TensorOrTensors = Tensor | Sequence[Tensor]

__all__ = ["Device", "FileLike", "Number", "Storage"]
