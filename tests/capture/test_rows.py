"""Every row, as it is and compiled."""

from __future__ import annotations

import pytest

from tests.capture import rows_training, rows_values
from tests.capture.scene import Row, check

ROWS = [*rows_values.ROWS, *rows_training.ROWS]


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.__name__)
def test_compiled_does_the_same(row: Row) -> None:
    assert check(row) == []
