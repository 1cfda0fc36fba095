"""Short runs of the long commands: fuzz, flips, kills, power."""

from __future__ import annotations

import pytest

from tests.io import flips, fuzz, kills, power


def test_mutated_files() -> None:
    report = fuzz.run(2100, seed=7)
    assert report["bad"] == []
    assert all(found.get("refused", 0) > 200 for found in report["counts"].values())
    assert report["counts"]["woven"]["loaded"] > 10  # the mutants are not all nonsense


def test_flipped_bits() -> None:
    report = flips.run(400, seed=7)
    assert report["missed"] == []


@pytest.mark.parametrize("kind", ["torch", "safetensors_digest"])
def test_bits_all_over_a_file(kind: str) -> None:
    assert flips.every_bit(kind, step=61) == []


def test_kill_while_saving() -> None:
    report = kills.run(30, seed=7, size=100_000)
    assert report["bad"] == []
    assert report["left_over"] == []


@pytest.mark.parametrize("kind", power.KINDS)
def test_power_loss(kind: str) -> None:
    report = power.cut_power(kind, power.Recorder())
    assert report["bad"] == []
    assert report["states"] > 15


@pytest.mark.parametrize("careless", [power.Forgetful, power.Hasty])
def test_the_model_finds_careless_saves(careless: type[power.Recorder]) -> None:
    assert power.cut_power("checkpoint", careless())["bad"]


@pytest.mark.parametrize("kind", power.KINDS)
def test_failing_disk(kind: str) -> None:
    report = power.fail_each_call(kind)
    assert report["bad"] == []
    assert report["failures"] >= 10


@pytest.mark.nightly
def test_long_runs() -> None:
    assert fuzz.run(20_000)["bad"] == []
    assert flips.run(2000)["missed"] == []
    killed = kills.run(200)
    assert killed["bad"] == []
    assert killed["left_over"] == []
