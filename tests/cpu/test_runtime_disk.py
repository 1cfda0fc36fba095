"""Kernels on disk: found again by equal keys only, and nothing damaged or foreign is ever run.

The full attack suite is `pytest -m nightly tests/cpu/test_runtime_disk.py`; every run makes a part.
"""

import ctypes
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lucerne._src.backends.cpu.emit.builder import I64, Module
from lucerne._src.backends.cpu.runtime import code, disk
from lucerne._src.backends.cpu.runtime.image import PAGE
from lucerne._src.base.config import config
from lucerne._src.base.process import source_digests
from lucerne._src.ir import op
from tests.support.pace import fastest, slowness
from tests.support.structure import load

MEGABYTE = 1 << 20
Patch = pytest.MonkeyPatch


class Bench:
    """A cache of its own, and a process that forgets on demand."""

    def __init__(self, folder: Path, patch: Patch) -> None:
        self.folder, self.patch, self.written = folder, patch, 0
        self.cache = disk.Cache(str(folder), MEGABYTE)
        patch.setattr(disk, "cache_of_process", lambda: self.cache)
        patch.setattr(disk, "environment", lambda: b"the environment of this test")

    def ask(self, number: int, key: object = None) -> int:
        """What the kernel of this number answers in a fresh process (almost: code is forgotten)."""
        self.patch.setattr(code, "_codes", {})

        def write(m: Module) -> None:
            self.written += 1
            with m.function("f", [], I64) as f:
                f.ret(number)

        made = code.compiled(("test_runtime_disk", number) if key is None else key, write)
        return int(ctypes.CFUNCTYPE(ctypes.c_int64)(made["f"])())

    def path(self, number: int) -> Path:
        digest = disk.digest_of(("test_runtime_disk", number))
        assert digest is not None
        return self.folder / f"{digest.hex()}.kernel"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: Patch) -> Bench:
    return Bench(tmp_path / "cache", monkeypatch)


def test_second_process_neither_writes_nor_compiles(bench: Bench) -> None:
    assert [bench.ask(5), bench.ask(5), bench.ask(6), bench.ask(5)] == [5, 5, 6, 5]
    assert bench.written == 2
    assert (bench.cache.hits, bench.cache.misses, bench.cache.refused) == (2, 2, 0)


def test_folder_and_files_are_private(bench: Bench) -> None:
    bench.ask(1)
    assert bench.folder.stat().st_mode & 0o777 == 0o700
    assert {p.stat().st_mode & 0o777 for p in bench.folder.iterdir()} == {0o600}


def test_a_hit_is_quick(bench: Bench) -> None:
    bench.ask(1)
    assert fastest(lambda: bench.ask(1), 50) < 0.0005 * slowness()
    assert bench.written == 1


# ---- keys -------------------------------------------------------------------------------------


def test_other_environment_is_another_entry(bench: Bench, monkeypatch: Patch) -> None:
    bench.ask(1)
    monkeypatch.setattr(disk, "environment", lambda: b"another processor, or other sources")
    bench.ask(1)
    assert bench.written == 2


def test_keys_that_other_processes_would_not_make_are_not_kept(bench: Bench) -> None:
    assert bench.ask(1, key=("x", object())) == 1
    assert list(bench.folder.iterdir()) == []


OWN_OP = """
from __future__ import annotations
import lucerne as torch
from lucerne._src.ir.define import pointwise
from lucerne._src.ir.op import Tensor
from lucerne import tiles

@pointwise()
def own_op(input: Tensor) -> Tensor:
    return input * FACTOR + 1

@tiles.kernel
def own_kernel(x: tiles.In, y: tiles.Out):
    row = tiles.program_id(0)
    tiles.store(y[row, :], x[row, :] * FACTOR)

x = torch.ones(3)
print(own_op(x).tolist(), torch.compile(lambda x: own_op(x) + 1)(x).tolist())
print(own_kernel(torch.ones(1, 2)).tolist())
"""


def test_own_ops_and_kernels_that_were_edited(tmp_path: Path) -> None:
    """A kernel on disk does not go by the name of an op whose body is not the package's."""
    environment = {**os.environ, "LUCERNE_CACHE_DIR": str(tmp_path / "cache")}
    script = tmp_path / "own.py"
    for factor in (2.0, 3.0):
        script.write_text(OWN_OP.replace("FACTOR", str(factor)))
        out = subprocess.check_output([sys.executable, str(script)], env=environment, text=True)
        op, compiled = [factor + 1] * 3, [factor + 2] * 3
        assert out == f"{op} {compiled}\n[[{factor}, {factor}]]\n"


def test_whatever_decides_what_kernels_look_like_is_in_their_environment() -> None:
    """All modules that this backend imports, and those whose bodies it writes as machine code."""
    package = load(source_digests.PACKAGE)
    left = [name for name in package.modules if name.startswith("lucerne._src.backends.cpu")]
    seen = {entry.body.__module__ for entry in op.table().values() if entry.kind == op.POINTWISE}
    while left:
        name = left.pop()
        if name in package.modules and name not in seen:
            seen.add(name)
            left += [one.target for one in package.imports[name]]
    inside = tuple("lucerne._src." + folder.replace("/", ".") for folder in disk.SOURCES)
    homes = ("lucerne", "lucerne._src", "lucerne._src.backends")  # windows, without code of theirs
    assert len(seen) > 300
    assert [
        name for name in sorted(seen) if not name.startswith(inside) and name not in homes
    ] == []


def test_environment_names_what_code_depends_on(monkeypatch: Patch, tmp_path: Path) -> None:
    """Each source file counts by its name and by its text."""
    package = tmp_path / "lucerne"
    for part in disk.SOURCES:
        (package / part).mkdir(parents=True)
    module = package / "backends/cpu/runtime/x/disk.py"
    module.parent.mkdir(parents=True)
    monkeypatch.setattr(disk, "__file__", str(package / "backends/cpu/runtime/disk.py"))
    monkeypatch.setattr(source_digests, "process_start", lambda: time.time() + 100)

    def digest() -> bytes | None:
        disk.environment.cache_clear()
        return disk.environment()

    seen = [digest()]
    module.write_text("a = 1\n")
    seen.append(digest())
    assert digest() == seen[-1]
    module.write_text("a = 2\n")
    seen.append(digest())
    module.rename(module.with_name("other.py"))
    seen.append(digest())
    monkeypatch.setattr(disk.llvm, "version", lambda: "99.0")
    seen.append(digest())
    assert None not in seen
    assert len(set(seen)) == 5
    monkeypatch.setattr(source_digests, "process_start", lambda: time.time() - 100)
    assert digest() is None, "sources edited since the start must switch the cache off"
    monkeypatch.undo()
    disk.environment.cache_clear()


# ---- attacks ----------------------------------------------------------------------------------


def truncated(bench: Bench, rng: random.Random, path: Path, other: Path) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def flipped(bench: Bench, rng: random.Random, path: Path, other: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)


def swapped(bench: Bench, rng: random.Random, path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())


def relabelled(bench: Bench, rng: random.Random, path: Path, other: Path) -> None:
    """Another kernel with the right key written over its own."""
    own, foreign = path.read_bytes(), other.read_bytes()
    path.write_bytes(own[:40] + foreign[40:])


def resealed_header(bench: Bench, rng: random.Random, path: Path, other: Path) -> None:
    """The right head before another kernel."""
    own, foreign = path.read_bytes(), other.read_bytes()
    path.write_bytes(own[: disk._HEAD.size] + foreign[disk._HEAD.size :])


def grown(bench: Bench, rng: random.Random, path: Path, other: Path) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(1 + rng.randrange(100)))


def random_bytes(bench: Bench, rng: random.Random, path: Path, other: Path) -> None:
    path.write_bytes(rng.randbytes(rng.randrange(3 * PAGE)))


def linked(bench: Bench, rng: random.Random, path: Path, other: Path) -> None:
    """The right bytes, behind a link into a place that others may change."""
    outside = bench.folder.parent / f"outside{rng.random()}"
    path.rename(outside)
    path.symlink_to(outside)


def writable_by_others(bench: Bench, rng: random.Random, path: Path, other: Path) -> None:
    path.chmod(0o622)


def stale(bench: Bench, rng: random.Random, path: Path, other: Path) -> None:
    """What an older version of the package kept under another key."""
    digest = disk.digest_of(("test_runtime_disk", "older"))
    assert digest is not None
    payload = disk.parse_entry(other.read_bytes(), bytes.fromhex(other.stem))
    assert payload is not None
    path.write_bytes(disk.make_entry(digest, payload))


ATTACKS: list[Callable[[Bench, random.Random, Path, Path], None]] = [
    truncated, flipped, swapped, relabelled, resealed_header, grown, random_bytes, linked,
    writable_by_others, stale,
]  # fmt: skip


def attack(bench: Bench, count: int) -> None:
    """`count` attacks of all kinds: each must be noticed, and the answer stay right."""
    rng = random.Random(0)
    for number in (1, 2):
        bench.ask(number)
    for turn in range(count):
        way = ATTACKS[turn % len(ATTACKS)]
        way(bench, rng, bench.path(1), bench.path(2))
        refused, written = bench.cache.refused, bench.written
        assert bench.ask(1) == 1, way.__name__
        assert bench.cache.refused == refused + 1, f"{way.__name__} was not noticed"
        assert bench.written == written + 1
        assert bench.ask(1) == 1
        assert bench.written == written + 1, "the entry was not written anew"


def test_damaged_and_foreign_entries_are_never_run(bench: Bench) -> None:
    attack(bench, 120)


@pytest.mark.nightly
def test_a_thousand_damaged_and_foreign_entries_are_never_run(bench: Bench) -> None:
    attack(bench, 1000)


def _race(folder: Path, rounds: int) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.cpu.race", str(folder), str(rounds), "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_processes_killed_at_any_time_leave_no_wrong_entry(tmp_path: Path) -> None:
    found = _race(tmp_path / "cache", 6)
    assert found["wrong"] == found["ended"] == 0
    assert found["killed"] == 48
    assert found["right"] > 40


@pytest.mark.nightly
def test_a_thousand_killed_processes_leave_no_wrong_entry(tmp_path: Path) -> None:
    found = _race(tmp_path / "cache", 125)
    assert found["wrong"] == found["ended"] == 0
    assert found["killed"] == 1000


# ---- folders ----------------------------------------------------------------------------------


def _foreign(path: Path) -> None:
    path.mkdir(0o700)
    os.chown(path, 12345, 12345)


def _open_to_all(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def _open_to_group(path: Path) -> None:
    path.mkdir()
    path.chmod(0o770)


def _link(path: Path) -> None:
    path.with_name("real").mkdir(0o700)
    path.symlink_to(path.with_name("real"))


def _file(path: Path) -> None:
    path.write_text("")


FOLDERS = [
    (_foreign, "belongs to another user"),
    (_open_to_all, "others may write"),
    (_open_to_group, "others may write"),
    (_link, "can't be opened"),
    (_file, "can't be opened"),
]


@pytest.mark.parametrize(("make", "why"), FOLDERS, ids=[make.__name__ for make, _ in FOLDERS])
def test_folder_that_others_control_is_refused(
    make: Callable[[Path], None], why: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    """With one warning; kernels are then compiled in every process."""
    if make is _foreign and os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    make(tmp_path / "cache")
    with pytest.warns(RuntimeWarning, match=why):
        bench = Bench(tmp_path / "cache", monkeypatch)
    assert not bench.cache.is_on
    assert [bench.ask(1), bench.ask(1)] == [1, 1]
    assert bench.written == 2


def test_no_folder_means_no_cache(monkeypatch: Patch, tmp_path: Path) -> None:
    bench = Bench(tmp_path / "cache", monkeypatch)
    bench.cache = disk.Cache("", MEGABYTE)
    assert [bench.ask(1), bench.ask(1)] == [1, 1]
    assert bench.written == 2


def test_folder_that_cannot_be_made_is_no_error(monkeypatch: Patch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="can't be opened"):
        bench = Bench(tmp_path / "file" / "cache", monkeypatch)
    assert bench.ask(3) == 3


def test_folder_removed_meanwhile_is_no_error(bench: Bench) -> None:
    bench.ask(1)
    for path in bench.folder.iterdir():
        path.unlink()
    bench.folder.rmdir()
    assert [bench.ask(1), bench.ask(2)] == [1, 2]


def test_default_folder_is_the_users_own() -> None:
    assert config.cache_dir == "" or os.path.isabs(config.cache_dir)


# ---- size -------------------------------------------------------------------------------------


def test_least_used_entries_go_first(bench: Bench) -> None:
    bench.cache.limit = 100_000
    now = time.time()
    for k in range(20):
        key = bytes([k]) * 32
        bench.cache.write(key, bytes(10_000))
        os.utime(bench.folder / f"{key.hex()}.kernel", (now - 1000 + k, now - 1000 + k))
    bench.cache.sweep()
    left = sorted(int(path.stem[:2], 16) for path in bench.folder.glob("*.kernel"))
    assert left == list(range(20 - len(left), 20))
    assert 5 <= len(left) <= 9


def test_what_killed_writers_left_is_removed_later(bench: Bench) -> None:
    bench.ask(1)
    old, fresh = bench.folder / "a.1.2.writing", bench.folder / "b.1.2.writing"
    unknown = bench.folder / "notes.txt"
    for path in (old, fresh, unknown):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    os.utime(unknown, (0, 0))
    bench.cache.sweep()
    assert not old.exists()
    assert fresh.exists()
    assert unknown.exists()


def test_use_keeps_an_entry_young(bench: Bench) -> None:
    bench.ask(1)
    os.utime(bench.path(1), (1000, 1000))
    bench.ask(1)
    assert time.time() - bench.path(1).stat().st_mtime < 100


def test_digest_of_sources_is_kept_and_follows_the_text(bench: Bench, tmp_path: Path) -> None:
    """The remembered digest is that of the text, and an edit of equal length is noticed."""
    package = tmp_path / "lucerne"
    for part in disk.SOURCES:
        (package / part).mkdir(parents=True)
    source = package / "ir" / "x.py"
    source.write_text("a = 1\n")
    bench.patch.setattr(source_digests, "process_start", lambda: time.time() + 100)
    first = disk._digest_of_sources(package)
    assert list(bench.folder.glob("*.kernel")) == [], "too young to be remembered"
    bench.patch.setattr(source_digests, "SETTLED_SECONDS", -1.0)
    assert disk._digest_of_sources(package) == first
    hits = bench.cache.hits
    assert disk._digest_of_sources(package) == first
    assert bench.cache.hits == hits + 1
    time.sleep(0.02)
    source.write_text("a = 2\n")
    os.utime(source, ns=(0, 0))
    assert disk._digest_of_sources(package) not in (None, first)
