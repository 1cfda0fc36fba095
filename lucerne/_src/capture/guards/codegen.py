"""Guards as code: one Python function for each version, that says whether its surroundings are as
they were.

The tensors among the arguments are compared in machine code (`Entry.launch`); this is the rest:
switches such as grad mode, variables that the function finds by name, containers it has read. The
text is kept (`Guards.source`), so that it can be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CellType
from typing import Any

from lucerne._src.base import defaults
from lucerne._src.base.device import HOST, entered
from lucerne._src.base.process.structure_version import StructureVersion
from lucerne._src.base.raw import is_a, raw_attribute
from lucerne._src.capture.effects.stores import MISSING, ClosureVariable, alike
from lucerne._src.capture.guards.class_state import by_class
from lucerne._src.capture.guards.reachable import ReachableState
from lucerne._src.capture.guards.sources import Source, content
from lucerne._src.capture.guards.tensor_reads import GRADIENT_IS, LAYOUT, Fact
from lucerne._src.ir import dispatch


def written(
    reach: ReachableState, uses: list[Any], circumstances: tuple[Any, ...], facts: Sequence[Any]
) -> tuple[str, Callable[[], bool]]:
    """The text of the check, and the function made from it."""
    scope: dict[str, Any] = {
        "state": dispatch.state, "changes": StructureVersion, "reach": reach,
        "defaults": defaults.DEFAULTS, "devices": defaults.DefaultDevice,
        "entered": entered, "missing": MISSING, "alike": alike,
        "content": content, "raw_attribute": raw_attribute,
    }  # fmt: skip
    lines = _switches(circumstances, scope)
    watched = {id(look) for look, _ in reach.watched}
    for k, (table, look, found) in enumerate(reach.links):
        if id(look) not in watched:
            continue
        scope[f"v{k}"], name = found, table.name
        store = table.store
        if is_a(store, CellType):
            scope[f"c{k}"] = store
            lines.append(f"if c{k}.cell_contents is not v{k}: return False  # {name}")
        elif is_a(store, ClosureVariable):
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
    block, rest = _places(reach.places, len(reach.numbers), scope)
    lines += rest
    for k, expected in enumerate(reach.expected):
        scope[f"kept{k}"] = expected.holds
        names = ", ".join(map(str, expected.slots))
        lines.append(f"if not kept{k}(): return False  # {names}")
    for k, fact in enumerate(facts):
        if fact.is_fixed:
            lines.append(_fact(fact, k, scope))
    return _made(lines, block, scope)


def check_of(places: Sequence[Source]) -> Callable[[], bool]:
    """A function that says whether some places hold what they held."""
    scope: dict[str, Any] = {
        "missing": MISSING, "alike": alike, "content": content, "raw_attribute": raw_attribute,
    }  # fmt: skip
    block, lines = _places(places, 0, scope)
    return _made(lines, block, scope)[1]


def _made(
    lines: Sequence[str], block: str, scope: dict[str, Any]
) -> tuple[str, Callable[[], bool]]:
    body = "".join(f"    {line}\n" for line in map(_one_line, lines))
    source = f"def unchanged():\n{body}{block}    return True\n"
    exec(compile(source, "<guards>", "exec"), scope)
    return source, scope["unchanged"]


def _switches(circumstances: tuple[Any, ...], scope: dict[str, Any]) -> list[str]:
    grad, inference, cast, dtype, device = circumstances
    scope["dtype"], scope["device"], scope["setting"] = dtype, device, cast
    scope["chosen"] = None if device.type == HOST and device.index is None else device
    cast_is = (
        "switches['cast'] is not None"
        if cast is None
        else "(cast := switches['cast']) is None or cast.setting != setting"
    )
    return [
        "if changes.count != reach.seen_changes and not reach.is_structure_same(): return False",
        "switches = state.__dict__",  # of this thread: asked for once
        f"if switches['_grad_enabled'] is not {grad!r}: return False",
        f"if switches['inference'] is not {inference!r}: return False",
        f"if {cast_is}: return False",
        "if defaults.floating is not dtype: return False",
        "if (entered or devices.value is not chosen) and devices.get() != device: return False",
    ]


def _places(places: Sequence[Source], first: int, scope: dict[str, Any]) -> tuple[str, list[str]]:
    """Most places are compared by identity, all in one expression; only if that fails is it asked
    whether an equal value is there. The text of that, and lines for the others."""
    quick: list[str] = []
    classes, others = by_class(places)
    lines, asked = [state.line(k, scope) for k, state in enumerate(classes)], []
    for k, place in enumerate(others, first):
        found = place.quick(k, scope)
        if found is None:
            lines.append(place.line(k, scope))
        else:
            quick.append(found)
            asked.append(place)
    if not quick:
        return "", lines
    scope["equal"] = lambda: all(p.holds() for p in asked)
    told = "".join(f"        # {_one_line(str(p))}\n" for p in asked)
    compared = "\n            and ".join(quick)
    return (
        f"    try:\n{told}        same = (\n            {compared}\n        )\n"
        "    except (LookupError, AttributeError):\n        same = False\n"
        "    if not same and not equal(): return False\n"
    ), lines


def _fact(fact: Fact, k: int, scope: dict[str, Any]) -> str:
    scope[f"h{k}"] = fact.source.thing
    if fact.kind == LAYOUT:
        scope[f"m{k}"], start, needs = fact.value
        text = f"h{k}._meta is m{k} and h{k}._offset == {start} and h{k}._needs_grad is {needs}"
    elif fact.kind == GRADIENT_IS and fact.value is None:
        text = f"h{k}.grad is None"
    else:
        scope[f"fact{k}"] = fact.holds
        text = f"fact{k}(())"
    return f"if not ({text}): return False  # {fact}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
