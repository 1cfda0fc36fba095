"""How two frameworks are compared: values, or the same refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

REFUSALS = (NotImplementedError, ValueError, TypeError, AssertionError, RuntimeError)


def array(value: Any) -> np.ndarray[Any, Any]:
    """A tensor of either framework, or a number, as an array."""
    return value.detach().numpy() if hasattr(value, "detach") else np.asarray(value)


def assert_close(ours: Any, theirs: Any, rtol: float = 1e-5, atol: float | None = None) -> None:
    """Equal in shape and dtype, close in value; nan equals nan."""
    a, b = array(ours), array(theirs)
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol if atol is None else atol)


def outcome(call: Callable[[], Any]) -> Any:
    """The result, or the type of the exception."""
    try:
        return call()
    except REFUSALS as error:
        return type(error)


def assert_same(ours: Callable[[], Any], theirs: Callable[[], Any], rtol: float = 1e-5) -> None:
    """Both calls give close values, or both refuse with the same exception type."""
    expected, found = outcome(theirs), outcome(ours)
    if isinstance(expected, type) or isinstance(found, type):
        assert found is expected
    else:
        assert_close(found, expected, rtol)


def assert_same_error(ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
    """Both calls raise the same exception with the same text."""
    with pytest.raises(REFUSALS) as expected:
        theirs()
    with pytest.raises(REFUSALS) as found:
        ours()
    assert type(found.value) is type(expected.value)
    assert str(found.value) == str(expected.value)
