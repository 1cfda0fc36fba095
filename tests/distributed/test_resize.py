"""A run goes on with another number of ranks; see `tests.processes.resize`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import lucerne as lu
from lucerne.run_state import RunState
from tests.processes import ranks, resize

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="ranks are forked here")


@pytest.mark.nightly
def test_4_then_2_then_3_ranks() -> None:
    for number in range(3):
        assert resize.problems(number)[0] == []


def _draws(rank: int, size: int, place: str, folder: str, seeds: int, save: bool) -> Any:
    """What a rank draws next, after a save or from the saved state."""
    ranks.join(lu, rank, size, place)
    lu.manual_seed(rank % seeds)
    state = RunState(model=lu.nn.Linear(2, 2))
    state.save(folder) if save else state.restore(folder)
    return len(os.listdir(folder)), lu.rand(3).tolist()


@pytest.mark.parametrize("seeds", [1, 9])
def test_each_rank_draws_on_and_new_ones_draw_their_own(seeds: int, tmp_path: Path) -> None:
    saved = ranks.results(2, _draws, ranks.meeting(), str(tmp_path), seeds, True)
    found = ranks.results(3, _draws, ranks.meeting(), str(tmp_path), seeds, False)
    assert found[:2] == saved
    assert {files for files, _ in found} == {1}  # one checkpoint of all ranks
    assert len({tuple(drawn) for _, drawn in found}) == (1 if seeds == 1 else 3)


def test_a_save_that_fails_fails_on_all_ranks(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, no folder")
    found = ranks.run(2, _draws, ranks.meeting(), str(tmp_path / "taken"), 1, True)
    assert [word for word, _ in found] == ["SaveError"] * 2
    assert all("rank 0 could not write" in text for _, text in found)
