"""`lucerne._ops`: the classes of `torch.ops`, for `isinstance`."""

from __future__ import annotations

from lucerne._src.ir.overload import OpNamespace as _OpNamespace
from lucerne._src.ir.overload import OpOverload as OpOverload
from lucerne._src.ir.overload import OpOverloadPacket as OpOverloadPacket

__all__ = ["OpOverload", "OpOverloadPacket", "_OpNamespace"]
