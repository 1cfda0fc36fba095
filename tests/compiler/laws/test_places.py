"""Tensors that become others without an op: `t_`, `set_`, `.data = ` and the like."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch


def turned(x: Any) -> Any:
    y = x.detach()
    y.t_()
    return y * 1


def swapped(x: Any) -> Any:
    return x.data.swapaxes_(0, 1) * 1


def restrided(x: Any) -> Any:
    y = x.detach()
    y.as_strided_((2, 2), (4, 1), 9)
    return y * 1


def unsqueezed(x: Any) -> Any:
    y = x.detach()
    y.unsqueeze_(0)
    return y[:, 1:] * 1


def resized(x: Any) -> Any:
    return x.detach().resize_(2, 2) * 1


def set_to(x: Any) -> Any:
    y = torch.empty(0)
    y.set_(x[1:])
    return y * 1


def given_data(x: Any) -> Any:
    y = torch.ones(4, 4)
    before = y * 2
    y.data = x[1:]
    return before, y * 1


def written_through(x: Any) -> Any:
    y = x.detach()
    y.t_()
    y[0] = 5.0
    return y + 1


def the_argument_itself(x: Any) -> Any:
    x.t_()
    return x * 1


WEIGHT = torch.ones(4, 4)


def a_tensor_from_around(x: Any) -> Any:
    WEIGHT.data = WEIGHT.data + x
    return WEIGHT * 2


FUNCTIONS = [
    turned, swapped, restrided, unsqueezed, resized, set_to, given_data, written_through,
    the_argument_itself, a_tensor_from_around,
]  # fmt: skip


def called(fn: Callable[..., Any]) -> list[Any]:
    """Results of three calls with what they leave behind; the argument begins inside its memory."""
    found: list[Any] = []
    WEIGHT.data = torch.ones(4, 4)
    for _ in range(3):
        memory = torch.arange(40.0).reshape(10, 4)
        x = memory[2:6]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found += [fn(x), x, memory, WEIGHT.clone()]
    return found


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_places(fn: Callable[..., Any]) -> None:
    torch.testing.assert_close(called(torch.compile(fn)), called(fn))


def test_the_comparison_fails() -> None:
    with pytest.raises(AssertionError):
        torch.testing.assert_close(called(lambda x: x.t() * 1), called(the_argument_itself))
