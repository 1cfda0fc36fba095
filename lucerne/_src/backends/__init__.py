"""L3: devices.

A backend moves bytes and compiles graphs; nobody imports one, `get` loads it by name.
"""

from __future__ import annotations

from lucerne._src.backends.contract.fallback import fallback as fallback
from lucerne._src.backends.contract.fallback import set_fallback as set_fallback
from lucerne._src.backends.contract.fallback_report import bill as bill
from lucerne._src.backends.contract.handshake import ContractError as ContractError
from lucerne._src.backends.contract.registry import META as META
from lucerne._src.backends.contract.registry import NoBackendError as NoBackendError
from lucerne._src.backends.contract.registry import fast_path as fast_path
from lucerne._src.backends.contract.registry import get as get
from lucerne._src.backends.contract.registry import is_known as is_known
from lucerne._src.backends.contract.registry import names as names
from lucerne._src.backends.contract.registry import on_host as on_host
from lucerne._src.backends.contract.registry import outside as outside
from lucerne._src.backends.contract.registry import register as register
from lucerne._src.backends.contract.registry import takes_graphs as takes_graphs
from lucerne._src.base.device import HOST as HOST
