"""Lucerne: PyTorch's programming model in readable Python. `import lucerne as torch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lucerne.tensor import api as _api
from lucerne.tensor.api import *  # noqa: F403

globals().update({name: found for name, found in vars(_api).items() if not name.startswith("__")})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The op table fills in the rest: a checker cannot see it."""


from lucerne import autograd as autograd  # noqa: E402
from lucerne import fft as fft  # noqa: E402
from lucerne import linalg as linalg  # noqa: E402
from lucerne import masked as masked  # noqa: E402
from lucerne import nn as nn  # noqa: E402
from lucerne import overrides as overrides  # noqa: E402
from lucerne import random as random  # noqa: E402
from lucerne import return_types as return_types  # noqa: E402
from lucerne import signal as signal  # noqa: E402
from lucerne import sparse as sparse  # noqa: E402
from lucerne import special as special  # noqa: E402
from lucerne import testing as testing  # noqa: E402
from lucerne import types as types  # noqa: E402
from lucerne import utils as utils  # noqa: E402
from lucerne.ops import aten as _aten  # noqa: E402, F401
