"""Whether a backend and this Lucerne understand each other: asked once, when it is registered."""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.contract.adapter import LAST_PLAIN, AdaptedBackend
from lucerne._src.backends.contract.backend import (
    CHANGES,
    CONTRACT_VERSION,
    OLDEST_CONTRACT,
    Backend,
)

METHODS = ("devices", "allocate", "to_host", "from_host", "address", "compile", "supports")
"""What every backend has."""


class ContractError(RuntimeError):
    """A backend was written for another contract, or for none."""


def taken(name: str, backend: Any, source: str = "") -> Backend:
    """A backend as this contract has it; one that does not fit is refused, with what to do."""
    version = getattr(backend, "contract_version", None)
    who = f"the backend {name!r}" + (f" ({source})" if source else "")
    known = f"{OLDEST_CONTRACT} to {CONTRACT_VERSION}"
    if not isinstance(version, int) or isinstance(version, bool):
        told = "does not say" if version is None else f"says {version!r}, which is no number,"
        raise ContractError(
            f"{who} {told} which version of the contract it was written for. Set "
            f"`contract_version = {CONTRACT_VERSION}` in {type(backend).__name__} if it follows "
            "lucerne/backends/api.py as it is here: a number, not an import of "
            "CONTRACT_VERSION, which would always agree."
        )
    if version > CONTRACT_VERSION:
        raise ContractError(
            f"{who} was written for contract {version}; this Lucerne knows {known}. Install a "
            "newer Lucerne (pip install --upgrade lucerne) or an older release of the backend."
        )
    if version < OLDEST_CONTRACT:
        changes = "\n".join(
            f"  {v}: {CHANGES[v]}" for v in range(version + 1, CONTRACT_VERSION + 1) if v in CHANGES
        )
        raise ContractError(
            f"{who} was written for contract {version}; this Lucerne knows {known}. Install a "
            "newer release of the backend, or bring it up to date. What changed since:\n"
            f"{changes}"
        )
    missing = [m for m in METHODS if not callable(getattr(backend, m, None))]
    if missing:
        raise ContractError(
            f"{who} has no {', '.join(missing)}: lucerne/backends/api.py (class Backend) says "
            "what a backend must have"
        )
    if isinstance(backend, Backend):
        return backend
    if version > LAST_PLAIN:
        raise ContractError(
            f"{who} was written for contract {version}, under which a backend derives from "
            f"lucerne.backends.api.Backend; {type(backend).__name__} does not. What changed: "
            f"{CHANGES[version]}"
        )
    return AdaptedBackend(backend)
