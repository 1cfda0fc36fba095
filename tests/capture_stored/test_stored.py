"""Programs on disk: found by the process after, never when they are damaged, foreign or stale."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.base.config import config
from lucerne._src.base.process.sealed_folder import Cache
from lucerne._src.capture.cache.disk import artifacts, lookup
from tests.capture_stored import proofs, race
from tests.capture_stored.bench import HELD, MEGABYTE, Bench, given, other, subject
from tests.capture_stored.edits import EDITS
from tests.capture_stored.table import ROWS

Patch = pytest.MonkeyPatch
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: Patch) -> Bench:
    return Bench(tmp_path / "programs", monkeypatch)


def run(names: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """Rows of the table in a process of its own."""
    environment = {
        **os.environ, "LUCERNE_PROGRAM_CACHE": "1", "LUCERNE_CACHE_DIR": str(folder),
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.capture_stored.worker", *names]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout))


def verdict(first: dict[str, Any], second: dict[str, Any]) -> str:
    """What is wrong with a row that one process stored and the next should have found."""
    if first["refused"] or second["refused"]:
        return f"it is not stored: {first['refused']} {second['refused']}"
    if first["values"] != second["values"]:
        return f"other bits: {first['values']} {second['values']}"
    if not first["kept"] or second["misses"] or not second["hits"]:
        return f"{first['kept']} stored, {second['hits']} found, {second['misses']} not found"
    outside = first["outside"]
    return "" if second["runs"] == outside else f"its body ran {second['runs'] - outside} times"


def test_next_process_finds_what_the_first_has_stored(tmp_path: Path) -> None:
    names = tuple(ROWS)
    first, second = run(names, tmp_path), run(names, tmp_path)
    wrong = {name: verdict(first[name], second[name]) for name in names}
    assert {name: text for name, text in wrong.items() if text} == {}


def test_verdict_finds_what_is_wrong() -> None:
    row = {
        "values": ["1"],
        "runs": 2,
        "kept": 1,
        "hits": 0,
        "misses": 1,
        "refused": {},
        "outside": 0,
    }
    found = {**row, "runs": 0, "kept": 0, "hits": 1, "misses": 0}
    assert verdict(row, found) == ""
    assert "body ran" in verdict(row, {**found, "runs": 1})
    assert "other bits" in verdict(row, {**found, "values": ["2"]})
    assert "not found" in verdict(row, {**found, "hits": 0, "misses": 1})
    assert "not stored" in verdict({**row, "refused": {"f": "why"}}, found)


def test_damaged_and_foreign_files_are_never_run(bench: Bench) -> None:
    proofs.attacked(bench, 45)
    assert bench.account.stale + bench.cache.refused > 30


@pytest.mark.nightly
def test_a_thousand_damaged_and_foreign_files_are_never_run(bench: Bench) -> None:
    assert sum(proofs.attacked(bench, 1000, seed=1).values()) == 1000


def test_check_of_attacks_fails_for_what_was_run() -> None:
    with pytest.raises(AssertionError, match="it was run"):
        proofs.check("x", torch.ones(1), torch.ones(1), "hit")
    with pytest.raises(AssertionError, match="a wrong result"):
        proofs.check("x", torch.ones(1), torch.zeros(1), "miss")


@pytest.mark.parametrize("name", EDITS)
def test_edits_make_programs_stale(name: str, bench: Bench, tmp_path: Path) -> None:
    before, after, back = proofs.edited(bench, EDITS[name], tmp_path)
    assert (before, after, back) == ("miss", "hit" if EDITS[name].same else "miss", "hit")


def test_a_custom_op_that_the_key_does_not_see_is_not_stored(bench: Bench) -> None:
    @torch.library.custom_op("stored::unseen", mutates_args=())
    def unseen(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    unseen.register_fake(torch.empty_like)
    assert bench.ask(looked_up, given())[1] == "refused"
    assert "custom op ops.stored.unseen" in next(iter(bench.account.refused.values()))


def looked_up(x: Any) -> Any:
    return getattr(torch.ops.stored, "un" + "seen")(x) + 1


# ---- what is in the key ------------------------------------------------------------------------


def test_surroundings_options_and_modes_are_in_the_key(bench: Bench) -> None:
    x = given()
    assert bench.ask(subject, x)[1] == "miss"
    assert bench.ask(subject, x)[1] == "hit"
    bench.around = "another processor"
    assert bench.ask(subject, x)[1] == "miss"
    bench.around = "the package and the machine of this test"
    assert bench.ask(subject, x, mode="bitwise")[1] == "miss"
    assert bench.ask(subject, x, options={"disable": ("cse",)})[1] == "miss"
    with torch.no_grad():
        assert bench.ask(subject, x)[1] == "miss"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert bench.ask(subject, x)[1] == "miss"
    bench.patch.setattr(config, "program_memory", "poison")
    assert bench.ask(subject, x)[1] == "miss"
    bench.patch.setattr(config, "program_memory", "")
    assert bench.ask(subject, x)[1] == "hit"


def test_surroundings_name_versions_and_the_processor(monkeypatch: Patch, tmp_path: Path) -> None:
    cache = Cache(str(tmp_path / "c"), MEGABYTE, ".program")
    monkeypatch.setattr(lookup, "folder", lambda: cache)
    found = []

    class Backend:
        name = b"a processor"

        def identity(self) -> bytes:
            return self.name

    monkeypatch.setattr(lookup.backends, "get", lambda name: Backend())
    monkeypatch.setattr(lookup.source_digests, "digest", lambda *args: b"text")
    for name, value in (
        ("", None), ("python_version", lambda: "3.99"), ("python_implementation", lambda: "x"),
    ):  # fmt: skip
        if name:
            monkeypatch.setattr(lookup.platform, name, value)
        lookup.surroundings.cache_clear()
        found.append(lookup.surroundings("cpu"))
    Backend.name = b"another processor"
    lookup.surroundings.cache_clear()
    found.append(lookup.surroundings("cpu"))
    monkeypatch.setattr(lookup.source_digests, "digest", lambda *args: b"edited")
    lookup.surroundings.cache_clear()
    found.append(lookup.surroundings("cpu"))
    monkeypatch.setattr(lookup.source_digests, "digest", lambda *args: None)
    lookup.surroundings.cache_clear()
    assert lookup.surroundings("cpu") is None
    lookup.surroundings.cache_clear()
    assert len(set(found)) == 5


@pytest.mark.parametrize(
    ("name", "other_x"),
    [
        ("shape", lambda: torch.ones(5, 6)),
        ("dtype", lambda: torch.ones(4, 6, dtype=torch.float64)),
        ("strides", lambda: torch.ones(6, 4).T),
        ("needs a gradient", lambda: torch.ones(4, 6, requires_grad=True)),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_kinds_of_arguments_are_in_the_key(name: str, other_x: Any, bench: Bench) -> None:
    bench.ask(subject, given())
    assert bench.ask(subject, other_x())[1] == "miss"


def test_values_of_tensors_are_read_anew(bench: Bench) -> None:
    bench.ask(subject, given())
    before = HELD.clone()
    try:
        HELD.mul_(3)
        found, how = bench.ask(subject, given())
        assert how == "hit"
        assert torch.equal(found, subject(given()))
    finally:
        HELD.copy_(before)


# ---- after a hit -------------------------------------------------------------------------------


def test_a_found_program_is_guarded_like_a_captured_one(bench: Bench) -> None:
    net = torch.nn.Linear(6, 3)

    def f(a: Any) -> Any:
        return net(a)

    bench.ask(f, given())
    c = torch.compile(f, fullgraph=True)
    assert torch.equal(c(given()), net(given()))
    assert (bench.account.hits, c.traces) == (1, 0)
    net.weight = torch.nn.Parameter(torch.ones(3, 6))
    assert torch.allclose(c(given()), net(given()))
    net.weight.requires_grad_(False)
    assert torch.allclose(c(given()), net(given()))
    assert c.traces >= 1


def test_other_sizes_after_a_hit_are_traced_and_learned(bench: Bench) -> None:
    def f(a: Any) -> Any:
        return torch.softmax(a, -1)

    bench.ask(f, torch.randn(4, 6))
    c = torch.compile(f, fullgraph=True)
    for rows in (4, 5, 7, 9, 11, 13, 4):
        x = torch.randn(rows, 6)
        assert torch.allclose(c(x), f(x), atol=1e-6)
    assert bench.account.hits == 1
    assert c.traces <= 4


def test_sizes_that_were_seen_are_all_found(bench: Bench) -> None:
    def f(a: Any) -> Any:
        return torch.softmax(a, -1)

    sizes = (4, 5, 7, 9, 11)
    first, second = torch.compile(f, fullgraph=True), torch.compile(f, fullgraph=True)
    for rows in sizes * 10:  # (a size that comes often is stored)
        first(torch.randn(rows, 6))
    for rows in sizes:
        second(torch.randn(rows, 6))
    assert (bench.account.hits, second.traces) == (len(sizes), 0)


# ---- what is not stored ------------------------------------------------------------------------


class Opaque:
    __slots__ = ()


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (lambda: {Opaque}, "a set of objects"),
        (lambda: (x for x in ()), "is a generator"),
        (lambda: memoryview(b"x"), "is a memoryview"),
    ],
    ids=("a set of objects", "a generator", "a memoryview"),
)
def test_what_cannot_be_described_is_not_stored(seen: Any, why: str, bench: Bench) -> None:
    thing = seen()

    def f(a: Any) -> Any:
        return a + (thing is not None)

    found, how = bench.ask(f, given())
    assert how == "refused"
    assert torch.equal(found, given() + 1)
    [told] = bench.account.refused.values()
    assert why in told
    assert "thing" in told


def test_too_much_to_look_at_is_looked_at_once(bench: Bench) -> None:
    many = list(range(200_000))

    def f(a: Any) -> Any:
        return a + len(many)

    c = torch.compile(f, fullgraph=True, dynamic=False)
    assert torch.equal(c(given()), given() + 200_000)
    assert "f's many has 200,000 items" in str(bench.account)
    bench.account.refused.clear()
    c(torch.ones(3))
    assert bench.account.refused == {}
    assert bench.account.kept == 0


def test_objects_that_raise_are_no_error(bench: Bench) -> None:
    class Shy:
        __slots__ = ("value",)

        def __getattribute__(self, name: str) -> Any:
            if name == "value":
                raise ZeroDivisionError("not now")
            return object.__getattribute__(self, name)

    shy = Shy()

    def f(a: Any) -> Any:
        return a + (shy is not None)

    found, how = bench.ask(f, given())
    assert (how, torch.equal(found, given() + 1)) == ("refused", True)
    assert "ZeroDivisionError: not now" in str(bench.account)


def test_hooks_are_not_stored(bench: Bench) -> None:
    net = torch.nn.Linear(6, 3)
    net.register_forward_hook(lambda module, args, out: out * 2)
    found, how = bench.ask(net, given())
    assert how == "refused"
    assert torch.equal(found, net(given()))
    assert "hooks" in str(bench.account)


def test_hooks_for_all_modules_are_not_stored(bench: Bench) -> None:
    net = torch.nn.Linear(6, 3)
    hooks = torch.nn.modules.module
    handle = hooks.register_module_forward_hook(lambda module, args, out: out * 2)
    try:
        assert torch.compile(net)(given()).shape == (4, 3)
    finally:
        handle.remove()
    assert "hooks for all" in str(bench.account)
    assert bench.account.kept == 0


def test_what_changes_something_unseen_is_not_stored(bench: Bench) -> None:
    class Owner:
        held = 0

    keep = functools.partial(setattr, Owner, "held")

    def f(a: Any) -> Any:
        keep(Owner.held + 1)
        return a + 1

    assert bench.ask(f, given())[1] == "refused"
    assert bench.account.kept == 0
    assert Owner.held == 1


def test_a_function_put_into_the_package_is_in_the_key(bench: Bench) -> None:
    def f(a: Any) -> Any:
        return torch.nn.functional.relu(a) + a.sigmoid()

    def mine(a: Any) -> Any:
        return a * 3

    assert bench.ask(f, given())[1] == "miss"
    bench.patch.setattr(torch.nn.functional, "relu", mine)
    found, how = bench.ask(f, given())
    assert how == "miss"
    assert torch.allclose(found, f(given()))
    bench.patch.setattr(torch.Tensor, "sigmoid", lambda self: self)
    assert bench.ask(f, given())[1] == "miss"


def test_functions_without_a_file_are_not_stored(bench: Bench) -> None:
    scope: dict[str, Any] = {}
    exec("def f(a): return a + 1", scope)
    assert bench.ask(scope["f"], given())[1] == "refused"
    assert bench.account.kept == 0


def test_off_means_off(bench: Bench) -> None:
    bench.patch.setattr(config, "program_cache", False)
    assert bench.ask(subject, given())[1] == "refused"
    assert bench.files == []


# ---- folders and disks -------------------------------------------------------------------------


def test_unusable_folder_is_no_error(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="compiled programs are not kept"):
        bench = Bench(tmp_path / "file" / "programs", monkeypatch)
    found, how = bench.ask(subject, given())
    assert how == "refused"
    assert torch.equal(found, subject(given()))


def test_folder_that_others_may_write_to_is_not_used(tmp_path: Path, monkeypatch: Patch) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="others may write to it"):
        bench = Bench(folder, monkeypatch)
    assert bench.ask(subject, given())[1] == "refused"
    assert bench.files == []


def test_full_disk_costs_the_entry_only(bench: Bench) -> None:
    def full(file: int, data: Any) -> int:
        raise OSError(28, "No space left on device")

    bench.patch.setattr(os, "write", full)
    found, _ = bench.ask(subject, given())
    bench.patch.undo()
    assert torch.equal(found, subject(given()))
    assert list(bench.folder.iterdir()) == []


@pytest.mark.nightly
def test_processes_that_are_killed_leave_no_wrong_program(tmp_path: Path) -> None:
    done = race.run(tmp_path / "programs", 8, 12, 20)
    assert (done["wrong"], done["torn"], done["stale"]) == (0, 0, 0)
    assert done["killed"] >= 20
    assert done["hits"] > 0


def test_least_used_programs_go_first(tmp_path: Path, monkeypatch: Patch) -> None:
    bench = Bench(tmp_path / "programs", monkeypatch)
    bench.ask(subject, given())
    [old] = bench.files
    os.utime(old, (1000, 1000))
    bench.ask(other, given())
    [new] = [p for p in bench.files if p != old]
    bench.cache.limit = 3 * new.stat().st_size // 2
    bench.cache.sweep()
    assert bench.files == [new]


def test_artifacts_are_carried_to_another_folder(bench: Bench, tmp_path: Path) -> None:
    bench.ask(subject, given())
    saved = artifacts.save()
    assert saved is not None
    data, info = saved
    assert len(info.artifacts["program"]) == 1
    elsewhere = Bench(tmp_path / "elsewhere", bench.patch)
    assert dataclasses.asdict(artifacts.load(data) or info) == dataclasses.asdict(info)
    assert elsewhere.ask(subject, given())[1] == "hit"
    for wrong in (b"", data[:-1], data + b"x", data[:50] + b"?" + data[51:], b"x" * 60):
        with pytest.raises(ValueError, match="load_cache_artifacts"):
            artifacts.load(wrong)
