"""Saving and loading without torch: frozen files of torch, our own files, options, refusals."""

from __future__ import annotations

import argparse
import collections
import io
import os
import pickle
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucerne
from lucerne import serialization as s
from lucerne._src.io import archive
from tests.io.corpus import CASES, assert_same
from tests.io.freeze import DATA, KEPT, LEGACY


def again(value: Any, **options: Any) -> Any:
    """What is left of a value after saving and loading."""
    stream = io.BytesIO()
    lucerne.save(value, stream)
    stream.seek(0)
    return lucerne.load(stream, **options)


@pytest.mark.parametrize("name", [*KEPT, *(f"{name}.legacy" for name in LEGACY)])
def test_frozen_files_of_torch(name: str) -> None:
    want = CASES[name.removesuffix(".legacy")](lucerne)
    assert_same(lucerne.load(DATA / f"{name}.pt"), want)
    if "legacy" not in name:
        assert_same(lucerne.load(DATA / f"{name}.pt", mmap=True), want)


@pytest.mark.parametrize("name", CASES)
def test_round_trip(name: str, tmp_path: Path) -> None:
    want = CASES[name](lucerne)
    assert_same(again(want), want)
    lucerne.save(want, tmp_path / "x.pt")
    assert_same(lucerne.load(tmp_path / "x.pt", mmap=True), want)


def test_saving_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.pt", "b.pt"):
        lucerne.save(CASES["state_dict"](lucerne), tmp_path / name)
    a, b = (tmp_path / "a.pt").read_bytes(), (tmp_path / "b.pt").read_bytes()
    assert len(a) == len(b)
    lucerne.save(CASES["state_dict"](lucerne), tmp_path / "a.pt")
    assert (tmp_path / "a.pt").read_bytes() == a


def test_one_storage_read_as_two_types() -> None:
    x = lucerne.arange(4.0)
    got = again([x, x.view(lucerne.int32), x.untyped_storage()])
    got[0][1] = 0
    assert got[1].tolist()[1] == 0
    assert got[2].data_ptr() == got[0].data_ptr()


def test_tied_weights_stay_tied() -> None:
    model = lucerne.nn.Sequential(lucerne.nn.Linear(3, 3), lucerne.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    got = again(model.state_dict())
    got["0.weight"].fill_(7)
    assert got["1.weight"].tolist() == [[7.0] * 3] * 3


def test_non_leaf_and_grads_are_not_saved() -> None:
    x = lucerne.ones(2, requires_grad=True)
    y = x * 2
    y.sum().backward()
    got = again([x, y])
    assert got[0].grad is None
    assert got[1].grad_fn is None
    assert got[1].requires_grad


# ---- where to ---------------------------------------------------------------------------------


def test_map_location_forms() -> None:
    x = {"w": lucerne.ones(2)}
    seen = []

    def place(storage: Any, location: str) -> Any:
        seen.append((type(storage).__name__, location, len(storage)))
        return None

    for form in ("cpu", lucerne.device("cpu"), {"cuda:0": "cpu"}, {}, place, None):
        assert again(x, map_location=form)["w"].tolist() == [1.0, 1.0]
    assert seen == [("UntypedStorage", "cpu", 8)]
    assert again(x, map_location="meta")["w"].device.type == "meta"
    assert again(x, map_location={"cpu": "meta"})["w"].device.type == "meta"
    assert again(x, map_location=lambda st, loc: st.clone())["w"].tolist() == [1.0, 1.0]
    assert again(x, map_location="reference")["w"].device.type == "reference"
    with pytest.raises(TypeError, match="map_location"):
        again(x, map_location=3)
    with pytest.raises(TypeError, match="storage of 8 bytes"):
        again(x, map_location=lambda st, loc: 3)
    with pytest.raises(ZeroDivisionError):
        again(x, map_location=lambda st, loc: 1 // 0)


def test_cuda_tensors_need_a_place() -> None:
    raw = (DATA / "state_dict.pt").read_bytes()
    assert raw.count(b"X\x03\x00\x00\x00cpu") == 1
    from tests.io.craft import rezip

    moved = rezip(raw, {"data.pkl": lambda p: p.replace(b"\x03\0\0\0cpu", b"\x06\0\0\0cuda:0")})
    with pytest.raises(RuntimeError, match=r"torch\.cuda\.is_available"):
        lucerne.load(io.BytesIO(moved))
    want = CASES["state_dict"](lucerne)
    assert_same(lucerne.load(io.BytesIO(moved), map_location="cpu"), want)
    assert_same(lucerne.load(io.BytesIO(moved), map_location={"cuda:0": "cpu"}), want)


def test_mapped_memory_is_private(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    lucerne.save({"w": lucerne.zeros(4)}, path)
    before = path.read_bytes()
    got = lucerne.load(path, mmap=True)["w"]
    got += 1
    assert got.tolist() == [1.0] * 4
    assert path.read_bytes() == before
    lucerne.save({"w": lucerne.ones(4)}, path)  # the old file stays mapped, the new has its place
    assert got.tolist() == [1.0] * 4
    with pytest.raises(ValueError, match="mmap"):
        lucerne.load(io.BytesIO(before), mmap=True)


def test_other_byte_order() -> None:
    from tests.io.craft import rezip

    stream = io.BytesIO()
    want = {
        "f": lucerne.arange(3.0),
        "i": lucerne.arange(3),
        "u": lucerne.arange(3).to(lucerne.uint16),
        "c": lucerne.complex(lucerne.arange(2.0), lucerne.ones(2)),
        "b": lucerne.ones(3, dtype=lucerne.bool),
    }
    lucerne.save(want, stream)
    widths = [4, 8, 2, 4, 1]
    swap = {
        f"data/{n}": (lambda w: lambda raw: np.frombuffer(raw, f"u{w}").byteswap().tobytes())(width)
        for n, width in enumerate(widths)
    }
    raw = rezip(stream.getvalue(), {"byteorder": lambda _: b"big", **swap})
    assert_same(lucerne.load(io.BytesIO(raw)), want)
    unsaid = rezip(raw, {"byteorder": None})
    s.set_default_load_endianness(s.LoadEndianness.BIG)
    try:
        assert_same(lucerne.load(io.BytesIO(unsaid)), want)
    finally:
        s.set_default_load_endianness(None)
    assert lucerne.load(io.BytesIO(unsaid))["f"].tolist() != [0.0, 1.0, 2.0]


# ---- files ------------------------------------------------------------------------------------


def test_permissions_follow_umask_and_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    before = os.umask(0o027)
    try:
        lucerne.save(1, path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        lucerne.save(2, path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    finally:
        os.umask(before)


def test_links_and_devices(tmp_path: Path) -> None:
    real, link = tmp_path / "real.pt", tmp_path / "link.pt"
    lucerne.save(1, real)
    link.symlink_to(real)
    lucerne.save(2, link)
    assert link.is_symlink()
    assert lucerne.load(real) == 2
    lucerne.save(3, os.devnull)
    with pytest.raises(RuntimeError, match="Parent directory"):
        lucerne.save(1, tmp_path / "no" / "x.pt")
    with pytest.raises(FileNotFoundError):
        lucerne.load(tmp_path / "nothing.pt")
    with pytest.raises(s.UnsupportedFileError, match="regular"):
        lucerne.load(tmp_path)


def test_several_legacy_checkpoints_in_one_stream() -> None:
    raw = (DATA / "tied.legacy.pt").read_bytes()
    stream = io.BytesIO(raw + raw)
    assert_same(lucerne.load(stream), CASES["tied"](lucerne))
    assert_same(lucerne.load(stream), CASES["tied"](lucerne))


def test_a_path_with_bytes_behind_is_refused(tmp_path: Path) -> None:
    for name in ("tied.legacy.pt", "tied.pt"):
        (tmp_path / name).write_bytes((DATA / name).read_bytes() + b"\0")
        with pytest.raises(s.CorruptFileError):
            lucerne.load(tmp_path / name)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "empty"),
        (b"hello world", "neither a checkpoint"),
        (pickle.dumps([1]), "bare pickle"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(40), "7z"),
        (b"\x1f\x8b" + bytes(40), "gzip"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (bytes(257) + b"ustar" + bytes(300), "tar archive"),
        (b"PK\x03\x04" + bytes(100), "no end record"),
    ],
)
def test_other_files_are_named(raw: bytes, message: str) -> None:
    with pytest.raises(s.LoadError, match=message):
        lucerne.load(io.BytesIO(raw))


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="pickle_module"):
        lucerne.load(io.BytesIO(), pickle_module=object())
    with pytest.raises(TypeError, match="encoding"):
        lucerne.load(io.BytesIO(), fix_imports=True)
    with pytest.raises(AttributeError, match="seekable"):
        lucerne.load(3)
    with pytest.raises(AttributeError, match="write"):
        lucerne.save(1, 3)
    with pytest.raises(ValueError, match="before 1"):
        lucerne.save(1, io.BytesIO(), _use_new_zipfile_serialization=False)
    with pytest.raises(s.UnsupportedFileError, match="seekable"):
        lucerne.load(Pipe())


class Pipe:
    """Reads but can't seek."""

    def read(self, n: int = -1) -> bytes:
        return b""

    def tell(self) -> int:
        raise OSError("a pipe")

    seek = tell


# ---- classes ----------------------------------------------------------------------------------


class Config:
    """A plain class of a user."""

    def __init__(self, width: int) -> None:
        self.width = width


class Slotted:
    __slots__ = ("a",)


def test_classes_must_be_vouched_for() -> None:
    with pytest.raises(s.SaveError, match=r"add_safe_globals\(\[Config\]\)"):
        again(Config(3))
    with s.safe_globals([Config, argparse.Namespace, Slotted]):
        stream = io.BytesIO()
        slotted = Slotted()
        slotted.a = lucerne.ones(1)
        lucerne.save([Config(3), argparse.Namespace(lr=0.1), slotted], stream)
        stream.seek(0)
        got = lucerne.load(stream)
        assert got[0].width == 3
        assert got[1].lr == 0.1
        assert got[2].a.tolist() == [1.0]
    stream.seek(0)
    assert s.get_unsafe_globals_in_checkpoint(stream)[0].endswith("Config")
    stream.seek(0)
    with pytest.raises(s.UnsafeFileError, match=r"GLOBAL .*Config was not an allowed global"):
        lucerne.load(stream, weights_only=False)
    stream.seek(0)
    other = (argparse.Namespace, f"{Config.__module__}.Config")
    with s.safe_globals([other, argparse.Namespace, Slotted]):
        assert isinstance(lucerne.load(stream)[0], argparse.Namespace)
    assert s.get_safe_globals() == []


class Marked(lucerne.Tensor):
    """A subclass, which torch's format has no words for that are safe."""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lucerne.nn.Linear(2, 2), "state_dict"),
        (lambda: 1, "code"),
        (int, "code"),
        (collections.defaultdict(lambda: 1), "factory"),
        (lucerne.ones(1).as_subclass(Marked), "what it wraps"),
        (np.array([None]), "dtype object"),
        (1 << 5000, "too large"),
    ],
    ids=lambda v: v if isinstance(v, str) else type(v).__name__,
)
def test_what_is_not_saved(value: Any, message: str) -> None:
    with pytest.raises(s.SaveError, match=message):
        again([value])


def test_too_deep_to_save() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(s.SaveError, match="deep"):
        again(deep)


def test_errors_are_runtime_and_unpickling_errors() -> None:
    assert issubclass(s.LoadError, RuntimeError)
    assert issubclass(s.LoadError, pickle.UnpicklingError)
    for kind in (s.UnsafeFileError, s.CorruptFileError, s.UnsupportedFileError):
        assert issubclass(kind, s.LoadError)


# ---- torch.serialization ----------------------------------------------------------------------


def test_the_rest_of_the_namespace() -> None:
    x = lucerne.ones(2)
    assert s.location_tag(x.untyped_storage()) == s.location_tag(x.storage()) == "cpu"
    with pytest.raises(RuntimeError, match="location"):
        s.location_tag(3)
    moved = s.default_restore_location(x.storage(), "cpu")
    assert moved.data_ptr() == x.data_ptr()
    assert s.normalize_storage_type(lucerne.FloatStorage) is lucerne.FloatStorage
    assert s.storage_to_tensor_type(x.storage()) is lucerne.FloatTensor
    assert s.StorageType("LongStorage").dtype is lucerne.int64
    assert str(s.StorageType("LongStorage")) == "StorageType(dtype=torch.int64)"
    assert s.get_crc32_options() is True
    s.set_crc32_options(True)
    with s.set_default_mmap_options(s.get_default_mmap_options()):
        assert s.check_module_version_greater_or_equal(np, (2, 0))
    assert os.path.isdir(s.mkdtemp())
    assert issubclass(s.SourceChangeWarning, Warning)


@pytest.mark.parametrize(
    "call",
    [
        lambda: s.set_crc32_options(False),
        lambda: s.skip_data(),
        lambda: s.register_package(1, None, None),
        lambda: s.validate_cuda_device("cuda:0"),
        lambda: s.validate_hpu_device("hpu:0"),
        lambda: s.set_default_mmap_options(1),
        lambda: s.set_default_load_endianness(3),
        lambda: s.StorageType("NoStorage"),
        lambda: s.add_safe_globals([3]),
        lambda: s.add_safe_globals([(int, 3)]),
        lambda: s.check_module_version_greater_or_equal(os, (2, 0)),
    ],
)
def test_refusals(call: Any) -> None:
    with pytest.raises((ValueError, TypeError, RuntimeError, AttributeError)):
        call()


# ---- beyond 4 GiB -----------------------------------------------------------------------------


def test_wide_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit of 32-bit fields moved from 4 GiB to 2000 bytes, so that all forms occur."""
    monkeypatch.setattr(archive, "FULL", 2000)
    want = {"small": lucerne.ones(3), "big": lucerne.arange(1000.0), "far": lucerne.ones(2)}
    stream = io.BytesIO()
    lucerne.save(want, stream)
    assert_same(lucerne.load(stream_at_start(stream)), want)
    raw = bytearray(stream.getvalue())
    for n in range(0, len(raw), 7):
        raw[n] ^= 1
        with pytest.raises(s.LoadError):
            lucerne.load(io.BytesIO(bytes(raw)))
        raw[n] ^= 1


def stream_at_start(stream: io.BytesIO) -> io.BytesIO:
    stream.seek(0)
    return stream


@pytest.mark.nightly
@pytest.mark.torch
def test_a_tensor_beyond_4_gib(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = str(tmp_path / "x.pt")
    for writer in (torch, lucerne):
        x = writer.zeros(2**32 + 100, dtype=writer.uint8)
        x[-1] = 7
        writer.save([writer.ones(3), x, writer.ones(5)], path)
        del x
        for reader in (torch, lucerne):
            first, big, last = reader.load(path, mmap=True)
            assert (first.tolist(), last.tolist()) == ([1.0] * 3, [1.0] * 5)
            assert big.shape == (2**32 + 100,)
            assert big[-1].item() == 7
            del first, big, last
