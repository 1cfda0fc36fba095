"""L8: from a Python function to a compiled one.

`compile` loads the compiler when it is first called: importing it would take longer than all the
rest of the package.
"""

from __future__ import annotations

import sys
from typing import Any

from lucerne._src.base.process import forks
from lucerne._src.ir import dispatch


def compile(model: Any, **options: Any) -> Any:
    """`compiled.compile`, see there."""
    return forks.import_module("lucerne._src.capture.compiled").compile(model, **options)


class Exporting:
    """How many exports are under way."""

    active = 0


def is_capturing() -> bool:
    """Whether a function is being captured now, in this thread."""
    return dispatch.capturing()


def refuse(what: str, reason: str | None = None) -> None:
    """Raise if a function is being captured, which can't hold what happens here."""
    if is_capturing():
        found = forks.import_module("lucerne._src.capture.trace.fake")
        raise found.CaptureError(what if reason is None else f"{what}: {reason}")


def stored_part(name: str) -> Any:
    """A module of `lucerne._src.capture.cache.disk`, loaded when it is first asked for."""
    return forks.import_module(f"lucerne._src.capture.cache.disk.{name}")


def reset() -> None:
    """Forget all versions of all compiled functions."""
    loaded = sys.modules.get("lucerne._src.capture.compiled")
    if loaded is None:
        return
    loaded.ledger.BOOKS.of_function.clear()
    for compiled in list(loaded.ALL):
        compiled.reset()


def mark_dynamic(t: Any, index: Any) -> None:
    """`families.mark_dynamic`, see there."""
    forks.import_module("lucerne._src.capture.symbolic.families").mark_dynamic(t, index)
