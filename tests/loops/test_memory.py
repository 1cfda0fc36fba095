"""The arena: what is taken at the same time never overlaps, and what is free is used again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucerne._src.loops.memory import Arena

ORDERS = st.lists(
    st.one_of(st.integers(0, 5000), st.sampled_from(["free first", "free last", "free middle"])),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(orders=ORDERS)
def test_never_two_in_one_place(orders: list[int | str]) -> None:
    arena = Arena()
    held: list[tuple[int, int]] = []
    peak = 0
    for order in orders:
        if isinstance(order, str):
            if held:
                k = {"free first": 0, "free last": -1, "free middle": len(held) // 2}[order]
                arena.free(held.pop(k)[0])
            continue
        at = arena.take(order)
        assert at % 64 == 0
        assert at + order <= arena.size
        need = max(64, -(-order // 64) * 64)
        for other, size in held:
            assert at + need <= other or other + size <= at
        held.append((at, need))
        peak = max(peak, sum(size for _, size in held))
    assert arena.size >= peak
    for at, _ in held:
        arena.free(at)
    size = arena.size
    if size:  # all of it is one free piece again
        assert arena.take(size) == 0
        assert arena.size == size


def test_freed_room_is_used_again() -> None:
    arena = Arena()
    a, b, c = arena.take(100), arena.take(300), arena.take(100)
    arena.free(b)
    assert arena.take(200) == b
    arena.free(a)
    assert arena.take(128) == a
    assert arena.size == c + 128


def test_the_tightest_fit_is_taken() -> None:
    arena = Arena()
    places = [arena.take(n) for n in (640, 64, 128, 64)]
    arena.free(places[0])
    arena.free(places[2])
    assert arena.take(128) == places[2]


def test_it_grows_from_the_free_room_at_its_end() -> None:
    arena = Arena()
    arena.take(64)
    b = arena.take(64)
    arena.free(b)
    assert arena.take(640) == b
    assert arena.size == 64 + 640


def test_nothing_is_freed_twice() -> None:
    arena = Arena()
    arena.free(arena.take(8))
    with pytest.raises(KeyError):
        arena.free(0)
