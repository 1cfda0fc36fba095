"""`lucerne.nn`: modules, parameters, layers and their functional half."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucerne.nn import attention as attention
from lucerne.nn import common_types as common_types
from lucerne.nn import functional as functional
from lucerne.nn import grad as grad
from lucerne.nn import init as init
from lucerne.nn import modules as modules
from lucerne.nn import parallel as parallel
from lucerne.nn import parameter as parameter
from lucerne.nn import utils as utils
from lucerne.nn.parallel import DataParallel as DataParallel
from lucerne.nn.parameter import Buffer as Buffer
from lucerne.nn.parameter import Parameter as Parameter
from lucerne.nn.parameter import UninitializedBuffer as UninitializedBuffer
from lucerne.nn.parameter import UninitializedParameter as UninitializedParameter

if TYPE_CHECKING:
    from lucerne.nn.modules import *  # noqa: F403

# Every layer is a class in `modules`, and a name here.
globals().update({name: found for name, found in vars(modules).items() if isinstance(found, type)})
