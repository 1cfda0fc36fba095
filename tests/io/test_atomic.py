"""Temporary files, locks and modes of atomic writes."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from lucerne._src.io import atomic


def write(content: bytes) -> Any:
    return lambda put: put(content)


def test_a_failing_producer_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old")

    def produce(put: Any) -> None:
        put(b"new")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic.write_atomic(tmp_path / "x", produce)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"old"


def test_stale_files_go_and_locked_ones_stay(tmp_path: Path) -> None:
    stale = tmp_path / f".x.aaaa{atomic.SUFFIX}"
    busy = tmp_path / f".x.bbbb{atomic.SUFFIX}"
    other = tmp_path / f".y.cccc{atomic.SUFFIX}"
    for path in (stale, busy, other):
        path.write_bytes(b"half")
    with open(busy, "rb+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        atomic.write_atomic(tmp_path / "x", write(b"new"))
    assert not stale.exists()
    assert busy.exists()
    assert other.exists()
    assert atomic.remove_stale_in(str(tmp_path))
    assert not other.exists()


def test_temporary_files_are_private_while_written(tmp_path: Path) -> None:
    seen = []

    def produce(put: Any) -> None:
        (temporary,) = tmp_path.iterdir()
        seen.append(temporary.stat().st_mode & 0o777)
        put(b"secret")

    atomic.write_atomic(tmp_path / "x", produce)
    assert seen == [0o600]


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"keep")
    (tmp_path / f".x.000000000000{atomic.SUFFIX}").symlink_to(victim)
    names = iter(["000000000000", "111111111111"])
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda n: next(names))
    atomic.write_atomic(tmp_path / "x", write(b"new"))
    assert victim.read_bytes() == b"keep"
    assert (tmp_path / "x").read_bytes() == b"new"


def test_large_and_small_pieces_keep_their_order(tmp_path: Path) -> None:
    pieces = [b"a" * 10, b"b" * (atomic.SMALL + 1), b"c", b"", b"d" * atomic.SMALL, b"e" * 5]

    def produce(put: Any) -> None:
        for piece in pieces:
            put(piece)

    atomic.write_atomic(tmp_path / "x", produce)
    assert (tmp_path / "x").read_bytes() == b"".join(pieces)


def test_long_names_and_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "n" * 240
    atomic.write_atomic(name, write(b"x"))
    assert os.listdir(".") == [name]
