"""Rows: gradients, modules, optimizers."""

from __future__ import annotations

from tests.capture import rows_gradients, rows_modules, rows_optimizers

ROWS = [*rows_gradients.ROWS, *rows_modules.ROWS, *rows_optimizers.ROWS]
