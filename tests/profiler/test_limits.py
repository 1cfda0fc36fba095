"""The machine's limits: measured once, kept safely, and used with the right rules."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lucerne as torch
from lucerne import backends
from lucerne._src.backends.cpu.runtime.disk import Cache
from lucerne.profiler import limits as module
from lucerne.profiler.limits import Limits, limits, main

cpu_limits = importlib.import_module("lucerne._src.backends.cpu.limits")
disk = importlib.import_module("lucerne._src.backends.cpu.runtime.disk")

EXAMPLE = Limits(
    "a machine", 2, {"float32": {"fma": 100.0, "tiles": 300.0}, "float64": {"fma": 50.0}},
    memory_gbs=20.0, memory_gbs_core=12.0, l2_gbs=100.0, last_level_gbs=25.0,
    cache_bytes={"L2": 1 << 20, "last": 1 << 25}, parallel_us=0.1, launch_us=0.2,
)  # fmt: skip


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """A cache of kernels that is empty, and a measurement that takes no time."""
    made = Cache(str(tmp_path / "cache"), 1 << 24)
    monkeypatch.setattr(disk, "cache_of_process", lambda: made)
    return made


def figures(rate: float, us: float = 1.0) -> dict[str, Any]:
    return {"processor": "p", "threads": 2, "peaks": {"float32": {"fma": rate}}, "parallel_us": us}


def test_this_machine_is_measured_and_the_figures_make_sense() -> None:
    found = limits()
    assert found.threads == torch.get_num_threads()
    for name in ("float32", "float64", "bfloat16", "float16"):
        assert 0.5 < found.peaks[name]["fma"] < 1000
    assert found.peaks["float64"]["fma"] < found.peaks["float32"]["fma"]
    if "tiles" in found.peaks["float32"]:
        assert found.peaks["bfloat16"]["tiles"] > found.peaks["float32"]["tiles"]
    assert found.l2_gbs > found.memory_gbs_core * 0.5 > 0
    assert 0.01 < found.launch_us < 1000
    assert limits() is found


def test_what_was_measured_is_kept_and_not_measured_again(
    own_cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_limits, "measure", lambda: figures(10.0))
    assert cpu_limits.limits() == figures(10.0)
    monkeypatch.setattr(cpu_limits, "measure", lambda: pytest.fail("measured again"))
    assert cpu_limits.limits() == figures(10.0)


def test_measured_anew_the_better_figures_stay(
    own_cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rate, us in ((10.0, 3.0), (8.0, 2.0), (12.0, 5.0)):
        monkeypatch.setattr(cpu_limits, "measure", lambda r=rate, u=us: figures(r, u))
        cpu_limits.limits(anew=True)
    assert cpu_limits.limits() == figures(12.0, 2.0)


@pytest.mark.parametrize("change", ["cut", "flipped", "foreign key", "link", "open to others"])
def test_a_spoiled_file_is_measured_anew(
    change: str, own_cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_limits, "measure", lambda: figures(10.0))
    cpu_limits.limits()
    [file] = Path(own_cache.folder).glob("*.kernel")
    raw = bytearray(file.read_bytes())
    if change == "cut":
        file.write_bytes(raw[:-3])
    elif change == "flipped":
        raw[-2] ^= 1
        file.write_bytes(raw)
    elif change == "foreign key":
        file.write_bytes(disk.make_entry(b"k" * 32, json.dumps(figures(1e9)).encode()))
    elif change == "link":
        other = file.with_name("elsewhere")
        file.rename(other)
        file.symlink_to(other)
    else:
        file.chmod(0o666)
    monkeypatch.setattr(cpu_limits, "measure", lambda: figures(20.0))
    assert cpu_limits.limits() == figures(20.0)


def test_sizes_of_caches_are_read_as_the_system_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for k, (level, kind, size) in enumerate(
        [
            (1, "Data", "48K"),
            (1, "Instruction", "32K"),
            (2, "Unified", "2048K"),
            (3, "Unified", "1G"),
        ]
    ):
        folder = tmp_path / f"index{k}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(cpu_limits, "_CACHES", tmp_path)
    assert cpu_limits.cache_sizes() == (2 << 20, 1 << 30)
    monkeypatch.setattr(cpu_limits, "_CACHES", tmp_path / "nowhere")
    assert cpu_limits.cache_sizes() == (1 << 20, 1 << 20)


# ---- rules --------------------------------------------------------------------------------------


def test_peaks_are_of_the_best_unit_and_all_threads() -> None:
    assert EXAMPLE.gflops("float32") == 600.0
    assert EXAMPLE.gflops(torch.float64, threads=1) == 50.0
    assert EXAMPLE.gflops(torch.int64) == EXAMPLE.gflops("float32")


def test_bandwidth_is_that_of_the_memory_the_work_fits_in() -> None:
    assert EXAMPLE.gbs() == 20.0
    assert EXAMPLE.gbs(threads=1) == 12.0
    assert EXAMPLE.gbs(1 << 10) == 200.0
    assert EXAMPLE.gbs(1 << 23) == 50.0
    assert EXAMPLE.gbs(1 << 30) == 20.0


@given(st.floats(0, 1e15), st.floats(1, 1e12), st.floats(1, 10))
def test_more_work_never_takes_less(flops: float, nbytes: float, more: float) -> None:
    least = EXAMPLE.least_seconds(flops, nbytes)
    assert EXAMPLE.least_seconds(flops * more, nbytes) >= least
    assert EXAMPLE.least_seconds(flops, nbytes * more) >= least
    assert EXAMPLE.least_seconds(flops, nbytes, threads=1) >= least


def test_the_table_has_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    text = EXAMPLE.table()
    for part in ("a machine, 2 threads", "float32, tiles", "300", "600", "L2 (1 MB)", "20.0"):
        assert part in text
    assert main([]) == 0
    assert "GFLOP/s" in capsys.readouterr().out


def test_a_backend_that_can_not_measure_is_measured_from_outside() -> None:
    found = Limits(**module._from_outside(2))
    assert found.gflops("float32") > 0
    assert "last level" not in found.table()
    assert "limits" not in backends.get("reference").abilities
