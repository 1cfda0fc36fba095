"""Which local variables can still be read after an instruction.

A program that ends in the middle of a function hands over the variables of its frames. Those that
nobody reads any more need not be kept: each would be one more result in memory.
"""

from __future__ import annotations

import weakref
from typing import Any

from lucerne._src.base.raw import is_a
from lucerne._src.capture.bytecode.decode import Decoded

_ENDS = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT")
_ALWAYS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP")
_LOOKING = frozenset(("locals", "vars", "eval", "exec", "dir", "super"))
"""A function that names one of these may read any variable."""

_known: dict[int, tuple[Any, list[frozenset[str]] | None]] = {}


def live_names(decoded: Decoded, at: int) -> frozenset[str] | None:
    """The names of local variables that are read at an instruction or after it; None: all.

    A frame that waits for a call stands behind it already: what the call raises is still handled
    where the call is.
    """
    code = decoded.code()
    key = id(code)
    found = _known.get(key)
    if found is None:
        reference = weakref.ref(code, lambda _: _known.pop(key, None))
        found = _known[key] = reference, _lives(decoded, code)
    lives = found[1]
    if lives is None or at >= len(lives):
        return None
    handlers = [r.target for r in decoded.regions if r.start <= at - 1 < r.end]
    return lives[at].union(*(lives[k] for k in handlers if k < len(lives)))


def _lives(decoded: Decoded, code: Any) -> list[frozenset[str]] | None:
    if _LOOKING & set(code.co_names):
        return None
    names = decoded.slot_names
    uses = [_uses(op.name, op.argument, names) for op in decoded.ops]
    if any(u is None for u in uses):
        return None
    after = [_successors(decoded, k) for k in range(len(decoded.ops))]
    lives: list[frozenset[str]] = [frozenset()] * len(decoded.ops)
    changed = True
    while changed:
        changed = False
        for k in range(len(lives) - 1, -1, -1):
            reads, kills = uses[k]  # type: ignore[misc]
            out = frozenset().union(*(lives[j] for j in after[k] if j < len(lives)))
            new = (out - kills) | reads
            if new != lives[k]:
                lives[k], changed = new, True
    return lives


def slots_of(name: str, argument: Any) -> tuple[int, ...]:
    """The numbers of the variables that an instruction names."""
    if not is_a(argument, int):
        return ()
    if name.count("_FAST") == 2:  # two in one number, of four bits each
        return argument >> 4, argument & 15
    return (argument,) if "_FAST" in name or "DEREF" in name or name == "LOAD_CLOSURE" else ()


def _uses(
    name: str, argument: Any, names: tuple[str, ...]
) -> tuple[frozenset[str], frozenset[str]] | None:
    """(names that an instruction reads, names that it sets without reading); None: not known."""
    if "_FAST" not in name:
        return frozenset(), frozenset()
    numbers = slots_of(name, argument)
    if not numbers or max(numbers) >= len(names):
        return None
    known = frozenset(names[k] for k in numbers)
    return (frozenset(), known) if name == "STORE_FAST" else (known, frozenset())


def _successors(decoded: Decoded, k: int) -> list[int]:
    op = decoded.ops[k]
    found = []
    if op.name not in _ENDS and op.name not in _ALWAYS:
        found.append(k + 1)
    if ("JUMP" in op.name or op.name in ("FOR_ITER", "SEND")) and is_a(op.argument, int):
        # The end of a loop is passed over by some versions: both places count.
        found += [op.argument, op.argument + decoded.table.after_loop]
    found += [r.target for r in decoded.regions if r.start <= k < r.end]
    return found
