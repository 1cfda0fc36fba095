"""L2: the op table. One entry per op; importing a family enters it.

As in torch, `lucerne.ops.mylib` is also where the custom ops of the namespace `mylib` are found.
"""

from __future__ import annotations

from typing import Any

from lucerne.ir.overload import known_namespace


def __getattr__(name: str) -> Any:
    found = known_namespace(name)
    if found is None:
        raise AttributeError(
            f"torch.ops has no namespace {name!r}: define its operators first, with "
            f'lucerne.library.custom_op("{name}::...") or Library("{name}", "DEF")'
        )
    return found
