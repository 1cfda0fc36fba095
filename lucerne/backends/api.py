"""`lucerne.backends.api`: what a backend for a new chip is written against."""

from __future__ import annotations

from lucerne._src.backends.contract.backend import CHANGES as CHANGES
from lucerne._src.backends.contract.backend import CONTRACT_VERSION as CONTRACT_VERSION
from lucerne._src.backends.contract.backend import OLDEST_CONTRACT as OLDEST_CONTRACT
from lucerne._src.backends.contract.backend import Backend as Backend
from lucerne._src.backends.contract.backend import Buffer as Buffer
from lucerne._src.backends.contract.backend import Executable as Executable
from lucerne._src.backends.contract.backend import Runner as Runner
from lucerne._src.backends.contract.backend import TensorState as TensorState
from lucerne._src.backends.contract.tensor_view import Room as Room
from lucerne._src.base import dtype as dtype
from lucerne._src.base.device import device as device
from lucerne._src.ir import op as op
from lucerne._src.ir.graph import Graph as Graph
from lucerne._src.ir.graph import Node as Node
from lucerne._src.ir.graph import verify as verify
from lucerne._src.ir.meta import TensorMeta as TensorMeta
from lucerne._src.ir.op import Op as Op
from lucerne._src.ir.scalar.protocol import REQUIRED as REQUIRED
from lucerne._src.ir.scalar.protocol import Scalar as Scalar
from lucerne._src.ir.scalar.protocol import ScalarValue as Value  # noqa: F401
from lucerne._src.ir.scalar.typed import INSTRUCTIONS as INSTRUCTIONS
