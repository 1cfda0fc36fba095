"""The order of groups depends on the graph alone, never on where objects lie in memory."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from lucerne._src.loops.group import Group, _sorted
from lucerne._src.loops.updates import COUNTS


def test_groups_with_the_same_turn_keep_the_order_of_their_nodes() -> None:
    """All groups that count steps have the same turn."""
    node: Any = SimpleNamespace(op=SimpleNamespace(qualified=COUNTS))
    rng = random.Random(0)
    for _ in range(3):
        numbers = rng.sample(range(100), 30)
        groups = [Group(at, node) for at in numbers]
        order = _sorted(groups, {id(g): set() for g in groups})
        assert order == [[at] for at in sorted(numbers)]
