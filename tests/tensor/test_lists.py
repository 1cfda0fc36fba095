"""Tensors out of lists: the short way for plain numbers gives what the long way gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne as lu
from lucerne._src.base import dtype as dt
from lucerne._src.tensor.interop import construct

DTYPES = [None, dt.int64, dt.int32, dt.uint8, dt.float32, dt.float64, dt.bfloat16, dt.bool_]
NUMBERS = [
    st.integers(-(2**70), 2**70),
    st.integers(0, 255),
    st.floats(width=32),
    st.booleans(),
    st.one_of(st.integers(0, 9), st.floats(-9, 9), st.booleans()),
]
ROWS = st.one_of(
    [st.lists(x, max_size=6) for x in NUMBERS]
    + [st.lists(st.lists(x, min_size=2, max_size=2), max_size=4) for x in NUMBERS]
    + [st.lists(st.lists(x, max_size=3), max_size=3).map(tuple) for x in NUMBERS]
)


def _made(way: Any, data: Any, dtype: Any) -> Any:
    """Array, dtype and shape, or the error's type and text."""
    try:
        array, inferred = way(data, dtype)
    except (RuntimeError, TypeError, ValueError) as error:
        return type(error), str(error)
    return array.tobytes(), array.dtype, array.shape, inferred


@settings(max_examples=300, deadline=None, derandomize=True)
@given(ROWS, st.sampled_from(DTYPES))
def test_plain_lists_are_read_as_all_lists_are(data: Any, dtype: Any) -> None:
    assert _made(construct._array_of, data, dtype) == _made(construct._sequence_array, data, dtype)


@pytest.mark.parametrize(
    ("data", "is_plain"),
    [
        ([1, 2], True),
        ([1.5, 2.0], True),
        ([[True], [False]], True),
        (((1, 2), [3, 4]), True),
        ([1, 2.0], False),
        ([[1], [2, 3]], False),
        ([1, "a"], False),
        ([[], []], False),
        ([2**63], False),
        ([1j], False),
    ],
    ids=repr,
)
def test_which_lists_are_plain(data: Any, is_plain: bool) -> None:
    assert (construct._plain_array(data, None) is not None) is is_plain


def test_numbers_too_large_for_the_type_are_refused() -> None:
    with pytest.raises(RuntimeError, match="without overflow"):
        lu.tensor([1, 300], dtype=lu.uint8)
    with pytest.raises(ValueError, match="Overflow"):
        lu.tensor([1, 2**63])
