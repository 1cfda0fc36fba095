"""Checkpoints of several ranks: saved by some, loaded by any number."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import lucerne as lu
import lucerne.distributed.checkpoint as dcp
from lucerne._src.io.errors import CorruptFileError, LoadError
from tests.processes import checkpoints, ranks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="ranks are forked here")


def _save(rank: int, size: int, place: str, folder: str, later: bool) -> Any:
    ranks.join(lu, rank, size, place)
    model = lu.nn.Linear(3, 4)
    with lu.no_grad():
        model.weight.fill_(2.0)
    state = {**checkpoints.state(3.0, rank, size), "module": model, f"own {rank}": rank}
    if later:
        done = dcp.async_save(state, checkpoint_id=folder)
        with lu.no_grad():
            model.weight.zero_()  # what is saved was copied before
        done.result(60)
    else:
        dcp.save(state, checkpoint_id=folder)
    return len(os.listdir(folder))


def _load(rank: int, size: int, place: str, folder: str) -> Any:
    ranks.join(lu, rank, size, place)
    state = {**checkpoints.state(0.0, rank, size), "module": lu.nn.Linear(3, 4), "own 1": None}
    dcp.load(state, checkpoint_id=folder)
    module: Any = state["module"]
    return checkpoints.values(state), module.weight.sum().item(), state["own 1"]


@pytest.mark.parametrize("later", [False, True])
def test_any_number_of_ranks_loads(later: bool, tmp_path: Path) -> None:
    folder = str(tmp_path / "c")
    ranks.results(3, _save, ranks.meeting(), folder, later)
    assert len(os.listdir(folder)) == 4  # a file of each rank, and the manifest
    for size in (1, 2, 4):
        assert ranks.results(size, _load, ranks.meeting(), folder) == [({3.0}, 24.0, 1)] * size


def test_what_does_not_fit_is_told_and_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="it has no manifest"):
        dcp.load({"a": 1}, checkpoint_id=tmp_path)
    dcp.save({"a": lu.ones(3), "b": lu.ones(2), "n": 1}, checkpoint_id=tmp_path)
    held = lu.zeros(3)
    for wrong, text in [
        ({"a": held, "zz": 1}, "has no zz"),
        ({"a": held, "b": lu.ones(5)}, r"is of shape \[2\]|has the shape \[2\]"),
        ({"a": held, "b": 1}, "is a tensor in the checkpoint"),
        ({"a": held, "n": lu.ones(1)}, "shape"),
    ]:
        with pytest.raises(LoadError, match=text):
            dcp.load(wrong, checkpoint_id=tmp_path)
        assert held.sum() == 0
    with pytest.raises(FileExistsError):
        dcp.save({"a": 1}, storage_writer=dcp.FileSystemWriter(tmp_path, overwrite=False))
    next(tmp_path.glob("rank-*")).unlink()
    with pytest.raises(CorruptFileError, match="is missing"):
        dcp.load({"a": held}, checkpoint_id=tmp_path)
    with pytest.raises(ValueError, match="is not inside"):
        dcp.TensorPart(lu.ones(2, 2), (2, 2), (1, 0))


def test_one_rank_that_fails_fails_all(tmp_path: Path) -> None:
    found = ranks.run(2, _half, ranks.meeting(), str(tmp_path))
    assert [word for word, _ in found] == ["CheckpointException"] * 2
    assert all("rank 1: TypeError" in text for _, text in found)
    assert not (tmp_path / "manifest.json").exists()


def _half(rank: int, size: int, place: str, folder: str) -> None:
    ranks.join(lu, rank, size, place)
    state: dict[str, Any] = {"a": lu.ones(3)}
    if rank:
        state["code"] = lambda: None
    dcp.save(state, checkpoint_id=folder)
