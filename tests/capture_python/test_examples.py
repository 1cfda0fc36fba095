"""The examples' models compiled: the same losses, bit for bit."""

from __future__ import annotations

import pytest

from tests.examples.curves import OPTIONS, run

WHOLE = ["vae", "char_gpt", "resnet18_cifar"]
PARTS = ["lstm_tagging"]
"""It packs sequences by their lengths, which are values: a break."""


def check(name: str, how: str, steps: int) -> None:
    options = OPTIONS.get(name, [])
    plain = run(name, "lucerne", steps, options)
    compiled = run(name, "lucerne", steps, [*options, "--compile", how])
    assert compiled["losses"] == plain["losses"]
    assert len(plain["losses"]) == steps


def test_an_example_as_one_graph() -> None:
    check("vae", "whole", 3)


@pytest.mark.nightly
@pytest.mark.parametrize("name", WHOLE)
def test_examples_as_one_graph(name: str) -> None:
    check(name, "whole", 5)


@pytest.mark.nightly
@pytest.mark.parametrize("name", PARTS)
def test_examples_in_parts(name: str) -> None:
    check(name, "parts", 5)
