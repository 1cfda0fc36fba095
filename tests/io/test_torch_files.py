"""torch writes and we read, we write and torch reads, bit for bit."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import pytest

import lucerne
from tests.io.corpus import CASES, UNSAFE_FOR_TORCH, assert_same

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "ComplexHalf")
        yield


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("how", ["stream", "path", "mmap", "legacy"])
def test_we_read_what_torch_wrote(name: str, how: str, tmp_path: Path) -> None:
    given = CASES[name](torch)
    path = tmp_path / "x.pt"
    torch.save(given, path, _use_new_zipfile_serialization=how != "legacy")
    if how == "stream":
        assert_same(lucerne.load(io.BytesIO(path.read_bytes())), given)
    else:
        assert_same(lucerne.load(path, mmap=how == "mmap", weights_only=False), given)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("how", ["stream", "path", "mmap"])
def test_torch_reads_what_we_wrote(name: str, how: str, tmp_path: Path) -> None:
    given = CASES[name](lucerne)
    safe = name not in UNSAFE_FOR_TORCH
    if how == "stream":
        stream = io.BytesIO()
        lucerne.save(given, stream)
        stream.seek(0)
        assert_same(torch.load(stream, weights_only=safe), given)
        return
    path = str(tmp_path / "x.pt")
    lucerne.save(given, path)
    assert_same(torch.load(path, weights_only=safe, mmap=how == "mmap"), given)


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_newer_pickle_protocols(protocol: int) -> None:
    for name in ("state_dict", "optimizer_state", "python_values", "views"):
        stream = io.BytesIO()
        torch.save(CASES[name](torch), stream, pickle_protocol=protocol)
        stream.seek(0)
        assert_same(lucerne.load(stream), CASES[name](torch))


def test_the_file_is_torchs_byte_for_byte(tmp_path: Path) -> None:
    """Pickle, padding, descriptors, directory and ends; except for the digest and one number."""
    given = {"a": torch.arange(5.0), "b": torch.ones(3, dtype=torch.int8)}
    ours = {"a": lucerne.arange(5.0), "b": lucerne.ones(3, dtype=lucerne.int8)}
    torch.save(given, tmp_path / "x.pt")
    theirs = (tmp_path / "x.pt").read_bytes()
    lucerne.save(ours, tmp_path / "x.pt")
    mine = (tmp_path / "x.pt").read_bytes()[:-87]
    differ = [n for n in range(len(theirs)) if mine[n] != theirs[n]]
    number = theirs.find(b"/.data/serialization_id") - 40  # torch's own hash, and what covers it
    assert len(mine) == len(theirs)
    assert all(n > number for n in differ)
    assert len(differ) <= 40 + 4 + 4 + 1  # the number, its two checksums, the comment's length


def test_computed_offsets_hold(tmp_path: Path) -> None:
    """torch can be told to compute where records are instead of looking."""
    from torch.utils.serialization import config

    path = str(tmp_path / "x.pt")
    given = CASES["many_small"](lucerne)
    lucerne.save(given, path)
    before, config.load.calculate_storage_offsets = config.load.calculate_storage_offsets, True
    try:
        assert_same(torch.load(path), given)
    finally:
        config.load.calculate_storage_offsets = before


@pytest.mark.parametrize("legacy", [False, True])
def test_what_we_do_not_read_is_said_clearly(legacy: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = [
            (torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "quantized tensor"),
            (torch.nn.Linear(2, 2), "state_dict"),
        ]
        for value, message in rows:
            stream = io.BytesIO()
            torch.save(value, stream, _use_new_zipfile_serialization=not legacy)
            stream.seek(0)
            with pytest.raises(lucerne.serialization.LoadError, match=message):
                lucerne.load(stream)


def test_conjugate_and_negative_views() -> None:
    x = torch.complex(torch.arange(3.0), torch.ones(3))
    stream = io.BytesIO()
    torch.save([x.conj(), torch._neg_view(torch.arange(3.0)), torch._neg_view(x)], stream)
    stream.seek(0)
    conj, neg, both = lucerne.load(stream)
    assert conj.tolist() == x.conj().tolist()
    assert conj.is_conj()
    assert neg.tolist() == [-0.0, -1.0, -2.0]
    assert neg.is_neg()
    assert both.tolist() == (-x).tolist()


def test_torchscript_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "x.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path)
    with pytest.raises(lucerne.serialization.UnsupportedFileError, match="TorchScript"):
        lucerne.load(path)


def test_a_checkpoint_without_checksums_loads() -> None:
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        stream = io.BytesIO()
        torch.save({"w": torch.arange(3.0)}, stream)
    finally:
        torch.serialization.set_crc32_options(before)
    stream.seek(0)
    assert lucerne.load(stream)["w"].tolist() == [0.0, 1.0, 2.0]


def test_unsafe_globals_are_listed() -> None:
    stream = io.BytesIO()
    torch.save({"m": torch.nn.Linear(2, 2), "t": torch.ones(2)}, stream)
    stream.seek(0)
    ours = lucerne.serialization.get_unsafe_globals_in_checkpoint(stream)
    assert "torch.nn.modules.linear.Linear" in ours
    assert "torch._utils._rebuild_tensor_v2" not in ours
