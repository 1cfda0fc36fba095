"""`lucerne._ops`: the classes of `torch.ops`, for `isinstance`."""

from __future__ import annotations

from lucerne.ir.overload import OpNamespace as _OpNamespace
from lucerne.ir.overload import OpOverload as OpOverload
from lucerne.ir.overload import OpOverloadPacket as OpOverloadPacket

__all__ = ["OpOverload", "OpOverloadPacket", "_OpNamespace"]
