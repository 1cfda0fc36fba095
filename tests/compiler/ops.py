"""All rows of the table, by name."""

from __future__ import annotations

from tests.compiler import ops_folds, ops_moves, ops_pointwise
from tests.compiler.table import Op

TABLE: dict[str, Op] = {o.name: o for o in (*ops_pointwise.ROWS, *ops_folds.ROWS, *ops_moves.ROWS)}
INSIDE: dict[str, Op] = {o.name: o for o in ops_moves.INSIDE}
EVERY: dict[str, Op] = {**TABLE, **INSIDE}
