"""Compiled compositions of transforms give what they give uncompiled."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.func import compositions
from tests.func.compositions import TRANSFORMS, compared, pairs, single

SINGLE = [(n, f) for i, (n, f) in enumerate(single()) if i % 5 == (i // 5) % 5]
PAIRS = [(n, f) for i, (n, f) in enumerate(pairs(every=False)) if i % 6 == 0]


@pytest.mark.parametrize(("name", "f"), SINGLE + PAIRS, ids=[n for n, _ in SINGLE + PAIRS])
def test_compiled(name: str, f: Callable[[Any], Any]) -> None:
    assert compared(name, f).ok


def test_every_transform_is_among_them() -> None:
    assert {n.split("(")[0] for n, _ in SINGLE} == set(TRANSFORMS)


def test_a_difference_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compositions.lucerne, "compile", lambda f, **_: lambda x: f(x) + 1)
    assert not compared("sin", lambda x: x.sin()).ok


@pytest.mark.nightly
def test_every_pair_of_transforms_compiled() -> None:
    assert compositions.table(every=True) == 0
