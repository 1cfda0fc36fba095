"""Guards as code: one Python function for each version, that says whether its surroundings are as
they were.

The tensors among the arguments are compared in machine code (`Entry.launch`); this is the rest:
switches such as grad mode, variables that the function finds by name, containers it has read. The
text is kept (`Guards.source`), so that it can be shown.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CellType
from typing import Any

from lucerne.base import defaults
from lucerne.base.changes import Changes
from lucerne.capture.places import content
from lucerne.capture.reach import Reach
from lucerne.capture.slots import MISSING, Variable, alike
from lucerne.ir import dispatch


def written(
    reach: Reach, uses: list[Any], circumstances: tuple[Any, ...]
) -> tuple[str, Callable[[], bool]]:
    """The text of the check, and the function made from it."""
    scope: dict[str, Any] = {
        "state": dispatch.state, "changes": Changes, "reach": reach,
        "default_dtype": defaults.get_default_dtype, "missing": MISSING, "alike": alike,
        "content": content,
    }  # fmt: skip
    lines = _switches(circumstances, scope)
    watched = {id(look) for look, _ in reach.watched}
    for k, (table, look, found) in enumerate(reach.links):
        if id(look) not in watched:
            continue
        scope[f"v{k}"], name = found, table.name
        store = table.store
        if isinstance(store, CellType):
            scope[f"c{k}"] = store
            lines.append(f"if c{k}.cell_contents is not v{k}: return False  # {name}")
        elif isinstance(store, Variable):
            scope[f"g{k}"] = store.scope
            lines.append(f"if g{k}.get({store.name!r}) is not v{k}: return False")
        else:
            scope[f"look{k}"] = look
            lines.append(f"if look{k}() is not v{k}: return False  # {name}")
    lines += [place.line(k, scope) for k, place in enumerate(reach.numbers)]
    for k, use in enumerate(uses):
        scope[f"use{k}"] = use.check
        lines.append(f"if not use{k}(): return False  # {use.text}")
    for k, (table, loose) in enumerate(reach.watched_tables):
        scope[f"t{k}"], scope[f"free{k}"] = table.is_same, loose
        lines.append(f"if not t{k}(free{k}): return False  # {table.name}")
    lines += [place.line(k, scope) for k, place in enumerate(reach.places)]
    for k, expected in enumerate(reach.expected):
        scope[f"kept{k}"] = expected.holds
        names = ", ".join(map(str, expected.slots))
        lines.append(f"if not kept{k}(): return False  # {names}")
    body = "".join(f"    {line}\n" for line in map(_one_line, lines))
    source = f"def unchanged():\n{body}    return True\n"
    exec(compile(source, "<guards>", "exec"), scope)
    return source, scope["unchanged"]


def _switches(circumstances: tuple[Any, ...], scope: dict[str, Any]) -> list[str]:
    grad, inference, cast, dtype = circumstances
    scope["dtype"] = dtype
    cast_is = (
        "state.cast is not None"
        if cast is None
        else (f"state.cast is None or state.cast.number != {cast!r}")
    )
    return [
        "if changes.count != reach.seen_changes: return False",
        f"if state._grad_enabled is not {grad!r} or state.inference is not {inference!r}: "
        "return False",
        f"if {cast_is}: return False",
        "if default_dtype() is not dtype: return False",
    ]


def _one_line(text: str) -> str:
    return " ".join(text.split())
