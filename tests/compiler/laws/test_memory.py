"""Who reads and writes what memory when: programs in which one step too early or late shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch

SIZE = 64


def askew(x: Any, y: Any) -> Any:
    x.copy_(x.mT + y)
    return x * 1


def from_behind(x: Any, y: Any) -> Any:
    x.copy_(torch.flip(x, (0,)) + y)
    return x * 1


def region_of_a_value_still_needed(x: Any, y: Any) -> Any:
    a = x @ y
    b = a.clone()
    b[0] = 5.0
    return b @ y + a @ x


def change_places(x: Any, y: Any) -> Any:
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)
    return x.sum()


def change_places_in_a_circle(x: Any, y: Any) -> Any:
    a, b = x[: SIZE // 2], x[SIZE // 2 :]
    kept = a.clone()
    a.copy_(b)
    b.copy_(y[: SIZE // 2])
    y[: SIZE // 2].copy_(kept)
    return x + y


def read_by_the_step_that_makes_the_result(x: Any, y: Any) -> Any:
    return torch.relu(x + y) @ y


def read_by_the_step_that_makes_a_larger_result(x: Any, y: Any) -> Any:
    wide = torch.cat([y] * 8, 1)
    return torch.softmax(x, 1) @ wide


def chain_of_products(x: Any, y: Any) -> Any:
    for _ in range(4):
        x = torch.tanh(x @ y / SIZE) @ x / SIZE
    return x


def sums_one_way_then_the_other(x: Any, y: Any) -> Any:
    return (x - x.sum(0)) * y, (x - x.sum(1, keepdim=True)) * y, x.sum(0) + y.sum(1)


FUNCTIONS = [
    askew,
    from_behind,
    region_of_a_value_still_needed,
    change_places,
    change_places_in_a_circle,
    read_by_the_step_that_makes_the_result,
    read_by_the_step_that_makes_a_larger_result,
    chain_of_products,
    sums_one_way_then_the_other,
]


def operands() -> tuple[Any, Any]:
    x = torch.linspace(-1, 1, SIZE * SIZE).reshape(SIZE, SIZE)
    return x, torch.cos(7 * x)


def assert_alike(fn: Callable[..., Any], make: Any = torch.compile) -> None:
    """The same results, and the same left in the arguments, at the first call and the second."""
    made = make(fn)
    for _ in range(2):
        mine, theirs = operands(), operands()
        want, got = fn(*mine), made(*theirs)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(theirs, mine)


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_memory(fn: Callable[..., Any]) -> None:
    assert_alike(fn)


def test_the_comparison_fails() -> None:
    with pytest.raises(AssertionError):
        assert_alike(change_places, lambda _: change_places_in_a_circle)
    with pytest.raises(AssertionError):
        assert_alike(change_places, lambda _: lambda x, y: x.sum())


# ---- what else a compiled version must look at before it is used


def test_arguments_in_one_memory_are_another_case() -> None:
    def fn(x: Any, y: Any) -> Any:
        x.add_(1)
        return y * 2

    compiled = torch.compile(fn)
    assert compiled(torch.ones(3), torch.ones(3)).tolist() == [2, 2, 2]
    x = torch.ones(3)
    assert compiled(x, x).tolist() == [4, 4, 4]
    assert compiled(torch.ones(3), torch.ones(3)).tolist() == [2, 2, 2]


def test_an_argument_that_needs_a_gradient_is_another_case() -> None:
    compiled = torch.compile(lambda x: x * 3)
    for needs in (False, True, False):
        x = torch.ones(2, requires_grad=needs)
        y = compiled(x)
        assert y.requires_grad == needs
        if needs:
            y.sum().backward()
            assert x.grad.tolist() == [3, 3]


def test_grad_mode_is_another_case() -> None:
    compiled = torch.compile(lambda x: x * 3)
    x = torch.ones(2, requires_grad=True)
    assert compiled(x).requires_grad
    with torch.no_grad():
        assert not compiled(x).requires_grad


def test_a_gradient_that_is_there_already_is_added_to() -> None:
    w = torch.ones(3, requires_grad=True)

    @torch.compile
    def fn(x: Any) -> Any:
        (w * x).sum().backward()
        return w.grad * 1

    for expected in (2, 4, 6):
        assert fn(torch.full((3,), 2.0)).tolist() == [expected] * 3
    w.grad = None
    assert fn(torch.full((3,), 2.0)).tolist() == [2] * 3


@pytest.mark.parametrize("rate", [0.5, 0.9])
def test_the_backward_pass_draws_what_the_call_drew(rate: float) -> None:
    """The key of the random numbers stands behind tensors that never change."""

    @torch.compile
    def fn(x: Any) -> Any:
        scale = torch.tensor([1.0, 2.0, 3.0, 4.0])
        return torch.nn.functional.dropout(x * scale * x, rate)

    x = torch.ones(64, 4, requires_grad=True)
    y = fn(x)
    y.sum().backward()
    assert torch.equal(x.grad != 0, y != 0)
    assert 0 < (y != 0).sum().item() < y.numel()


def test_parts_of_a_tensor_that_never_changes() -> None:
    def fn(x: Any) -> Any:
        table = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        return x * table[1], x @ table[1:], table[2:].mT @ x

    x = torch.tensor([[1.0, 2.0]])
    for got, want in zip(torch.compile(fn)(x), fn(x), strict=True):
        assert torch.equal(got, want)
