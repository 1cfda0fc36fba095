"""The examples' models compiled: the same losses, bit for bit."""

from __future__ import annotations

import pytest

from tests.examples.curves import APART, NEEDS, apart, both_ways, compilable


def check(name: str, how: str, steps: int) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"examples/{name} reads data from that package")
    plain, compiled = both_ways(name, how, steps)
    assert apart(compiled, plain) <= APART.get(name, 0.0)
    assert len(plain["losses"]) == steps


def test_an_example_as_one_graph() -> None:
    check("vae", "whole", 3)


@pytest.mark.nightly
@pytest.mark.parametrize("name", compilable())
def test_examples_as_one_graph(name: str) -> None:
    check(name, "whole", 5)


@pytest.mark.nightly
def test_an_example_in_parts() -> None:
    check("lstm_tagging", "parts", 5)
