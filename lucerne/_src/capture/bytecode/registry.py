"""The instruction tables that exist, by version of Python, and the one in use."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from contextlib import contextmanager

from lucerne._src.capture.bytecode.decode import MAGIC, InstructionTable

TABLES: dict[str, InstructionTable] = {}


class _Choice:
    table: InstructionTable | None = None


def register(table: InstructionTable) -> InstructionTable:
    """Enter a table under its version."""
    TABLES[table.version] = table
    if table.magic == MAGIC:
        _Choice.table = table
    return table


def current_table() -> InstructionTable | None:
    """The table of the running Python; None: there is none, and nothing can be interpreted."""
    return _Choice.table


@contextmanager
def using(table: InstructionTable | None) -> Iterator[None]:
    """Use another table for a while (None: as in a Python that came after us)."""
    before, _Choice.table = _Choice.table, table
    try:
        yield
    finally:
        _Choice.table = before


@contextmanager
def with_instructions_removed(share: float, seed: int) -> Iterator[frozenset[str]]:
    """Forget a share of the instructions for a while, chosen by a seed: for tests of what happens
    with instructions nobody has met. Gives the names of those forgotten."""
    table = _Choice.table
    names = sorted(table.rules) if table is not None else []
    gone = frozenset(random.Random(seed).sample(names, round(len(names) * share)))
    if table is None:
        yield gone
        return
    rules = {name: rule for name, rule in table.rules.items() if name not in gone}
    with using(dataclasses.replace(table, rules=rules)):
        yield gone
