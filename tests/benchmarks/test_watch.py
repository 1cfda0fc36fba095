"""`python -m benchmarks watch` runs, and watched steps stay compiled steps."""

from __future__ import annotations

import pytest

import lucerne as torch
from benchmarks import watch
from lucerne._src.base.config import config


@pytest.mark.filterwarnings("ignore")
def test_watch_measures_both_ways(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "payoff_calls", config.payoff_calls)  # (put back afterwards)
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)
    assert watch.main(["--small", "--rounds", "2", "--seconds", "0.2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["GPT,", "GPT,", "MLP,", "MLP,"]
