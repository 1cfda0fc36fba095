"""Integers that change from call to call: given to one program where ops of floats take them, else
a version for each value; always the result of eager, bit for bit."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne as torch
from lucerne._src.base.unspecialized import watching
from lucerne._src.base.unspecialized_ints import GivenInt
from lucerne.nn import functional as F

GIVEN = 2
"""Versions: the first value's own and one for all others."""


def scaled(x: Any, k: int) -> Any:
    return x * k + k - 1


def reflected(x: Any, k: int) -> Any:
    return k - x + k / (x + 3) + 2 * k * x


def in_place(x: Any, k: int) -> Any:
    y = x + 0
    y *= k
    y += k
    return y


def methods(x: Any, k: int) -> Any:
    return torch.mul(x, k).add(k).sub(1) + x.div(k + 1)


def learning_rate(x: Any, k: int) -> Any:
    return x * (0.5 / (1 + k)) + x * 0.9 ** (k // 10)


def power(x: Any, k: int) -> Any:
    return (x.abs() + 1) ** k


def base(x: Any, k: int) -> Any:
    return (k + 2) ** x


def compared(x: Any, k: int) -> Any:
    return torch.where(x * 10 > k, x, -x) + (x != k)


def as_float(x: Any, k: int) -> Any:
    return x * float(k) + abs(-k)


def kind(x: Any, k: int) -> Any:
    return x * k if isinstance(k, int) and type(k) is int else x


def in_a_dict(x: Any, k: int) -> Any:
    return x * {"step": k + 1}["step"]


def through_a_function(x: Any, k: int) -> Any:
    def inner(y: Any, step: int = 0) -> Any:
        return y * step

    return inner(x, step=k) + inner(x, k)


def rest(x: Any, k: int) -> Any:
    return x * (k % 7) + x * (k // 7) - (-k)


def doubles(x: Any, k: int) -> Any:
    return x.double() * k / 3


def branch(x: Any, k: int) -> Any:
    return x * k if k > 50 else x - k


def warm_up(x: Any, k: int) -> Any:
    return x * min(1.0, (k + 1) / 50)


def truth(x: Any, k: int) -> Any:
    return x * k if k else x


ONE_PROGRAM = [
    scaled, reflected, in_place, methods, learning_rate, power, base, compared, as_float, kind,
    in_a_dict, through_a_function, rest, doubles,
]  # fmt: skip
DECIDED = [branch, warm_up, truth]
"""One more program (and the first value's own) for each side."""


@pytest.mark.parametrize("fn", [*ONE_PROGRAM, *DECIDED], ids=lambda f: f.__name__)
def test_a_hundred_values_are_a_few_programs(fn: Any) -> None:
    compiled = torch.compile(fn, mode="bitwise", fullgraph=True)
    x = torch.linspace(-1, 1, 5)
    for k in range(1, 101):
        torch.testing.assert_close(compiled(x, k), fn(x, k), rtol=0, atol=0)
    assert len(compiled.entries) <= (GIVEN if fn in ONE_PROGRAM else 2 * GIVEN)


def sliced(x: Any, k: int) -> Any:
    return x[: k % 4 + 1] * 2


def largest(x: Any, k: int) -> Any:
    return x.topk(k % 3 + 1).values


def repeated(x: Any, k: int) -> Any:
    return x.repeat(k % 3 + 1) * torch.ones(k % 3 + 1).sum()


def looped(x: Any, k: int) -> Any:
    for _ in range(k % 4):
        x = x * 2
    return x


def returned(x: Any, k: int) -> Any:
    return x * 2, k + 1, [k], {"k": k / 2}


def text(x: Any, k: int) -> Any:
    return x * len(f"{k}") + len(str(k)) + len("%s" % k)  # noqa: UP031


def rooted(x: Any, k: int) -> Any:
    return x * math.sqrt(k)


def shifted(x: Any, k: int) -> Any:
    return x * (k << 1) + (k & 3) + (1 | k)


def looked_up(x: Any, k: int) -> Any:
    return x * {1: 2.0, 2: 3.0}.get(k, 4.0) + [5, 6, 7][k % 3]


def filled(x: Any, k: int) -> Any:
    return x + torch.full((5,), k) + torch.tensor(k) + torch.arange(5) * k


def integers(x: Any, k: int) -> Any:
    return (x * 9).long() * k + k


def narrow_floats(x: Any, k: int) -> Any:
    return x.bfloat16() * k


def true_or_not(x: Any, k: int) -> Any:
    return (x > 0) * k


def complexes(x: Any, k: int) -> Any:
    return torch.view_as_real(torch.complex(x, x) * k)


def options(x: Any, k: int) -> Any:
    return x.add(x, alpha=k) + F.pad(x, [0, k % 2])[:5]


def methods_of_integers(x: Any, k: int) -> Any:
    return x * k.bit_length() + k.real


BY_VALUE = [
    sliced, largest, repeated, looped, returned, text, rooted, shifted, looked_up, filled, integers,
    narrow_floats, true_or_not, complexes, options, methods_of_integers,
]  # fmt: skip


@pytest.mark.parametrize("fn", BY_VALUE, ids=lambda f: f.__name__)
def test_an_integer_that_decides_is_part_of_the_program(fn: Any) -> None:
    compiled = torch.compile(fn, mode="bitwise")
    x = torch.linspace(-1, 1, 5)
    for k in (1, 2, 3, 5, 3, 1, 4):
        found, wanted = compiled(x, k), fn(x, k)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
        if isinstance(wanted, tuple):
            assert repr(found[1:]) == repr(wanted[1:])
            assert type(found[1]) is int
        else:
            assert found.dtype == wanted.dtype
    assert len(compiled.entries) >= 2


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32", "int64", "bool"])
@pytest.mark.parametrize("fn", [scaled, reflected, compared, rest], ids=lambda f: f.__name__)
def test_kinds_of_tensors(fn: Any, dtype: str) -> None:
    """An integer does not make an integer tensor floating, as a float would."""
    compiled = torch.compile(fn, mode="bitwise")
    x = torch.tensor([1, 0, 1]).to(getattr(torch, dtype))
    for k in (2, 3, -4, 7):
        if dtype == "bool" and fn in (reflected, compared):  # minus, which bool does not have
            with pytest.raises(RuntimeError):
                compiled(x, k)
            continue
        found, wanted = compiled(x, k), fn(x, k)
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted)


def test_numbers_of_other_kinds_are_other_versions() -> None:
    """True is not 1, 2.0 is not 2: on a tensor of integers the results have other types."""

    def fn(x: Any, k: Any) -> Any:
        return x * k

    for x in (torch.arange(3), torch.arange(3.0)):
        compiled = torch.compile(fn, mode="bitwise")
        for k in (1, 2, True, 2.0, False, 1, 2.5, -0.0):
            found, wanted = compiled(x, k), fn(x, k)
            assert found.dtype == wanted.dtype
            assert repr(found) == repr(wanted)


def test_large_integers() -> None:
    """Beyond 2**53 a float is another number than the integer."""
    compiled = torch.compile(scaled, mode="bitwise")
    x = torch.tensor([1.0, 3.0], dtype=torch.float64)
    for k in (1, 2, 2**53, 2**53 + 1, 2**60 + 1, -(2**53) - 1, 5, 2**62):
        assert torch.equal(compiled(x, k), scaled(x, k))


def test_division_by_zero_is_raised() -> None:
    def fn(x: Any, k: int) -> Any:
        return x * (1 / k)

    compiled = torch.compile(fn)
    for k in (1, 2, 3):
        assert torch.equal(compiled(torch.ones(2), k), fn(torch.ones(2), k))
    with pytest.raises(ZeroDivisionError):
        compiled(torch.ones(2), 0)
    assert torch.equal(compiled(torch.ones(2), 4), fn(torch.ones(2), 4))


def test_gradients_and_two_integers() -> None:
    def fn(x: Any, w: Any, step: int, size: int) -> Any:
        return ((x * w)[:size] * step / (step + 1)).sum()

    compiled = torch.compile(fn)
    for step in range(1, 12):
        found = []
        for run in (fn, compiled):
            w = torch.linspace(-2, 2, 3, requires_grad=True)
            run(torch.ones(3), w, step, 2).backward()
            found.append(w.grad)
        torch.testing.assert_close(*found)
    assert len(compiled.entries) == GIVEN
    assert compiled.by_value == set()
    for size in (1, 3):
        w = torch.linspace(-2, 2, 3, requires_grad=True)
        torch.testing.assert_close(
            compiled(torch.ones(3), w, 4, size), fn(torch.ones(3), w, 4, size)
        )
    assert compiled.by_value == {3}


@settings(max_examples=40)
@given(st.data())
def test_a_given_integer_computes_as_python_does(data: Any) -> None:
    """Any expression of small integers: the same value and type now and for other values later."""
    names = ("+", "-", "*", "//", "%", "/", "**")
    text = "k"
    for _ in range(data.draw(st.integers(1, 4))):
        sign, other = data.draw(st.sampled_from(names)), data.draw(st.integers(1, 4))
        swap = data.draw(st.booleans()) and sign != "**"
        text = f"({other} {sign} {text})" if swap else f"({text} {sign} {other})"
    call = {"k": data.draw(st.integers(1, 9))}
    later = data.draw(st.integers(1, 9))
    try:
        wanted = [eval(text, {"k": k}) for k in (call["k"], later)]
    except (ZeroDivisionError, OverflowError):
        return
    with watching() as uses:
        made = eval(text, {"k": GivenInt(call["k"], (call, "k"))})
    call["k"] = later
    if all(use.holds() for use in uses):
        assert repr(made.now()) == repr(wanted[1])
        assert type(made.now()) is type(wanted[1])
