"""All tables of cases, in the order in which they run."""

from __future__ import annotations

from tests.capture_cases import (
    rows_arguments,
    rows_callbacks,
    rows_gradients,
    rows_identity,
    rows_looked,
    rows_modules,
    rows_names,
    rows_random,
    rows_state,
    rows_training,
    rows_transforms,
    rows_values,
)
from tests.capture_cases.table import CASES as CASES

TABLES = (
    rows_names, rows_arguments, rows_modules, rows_state, rows_values, rows_training,
    rows_gradients, rows_transforms, rows_random, rows_callbacks, rows_identity, rows_looked,
)  # fmt: skip
