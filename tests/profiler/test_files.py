"""What a profile writes: traces, stacks, memory over time."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import lucerne as torch
from lucerne.profiler import profile, record_function, schedule, tensorboard_trace_handler
from lucerne.profiler.blocks import ACTIVATION, GRADIENT, OPTIMIZER_STATE, PARAMETER

EVERYTHING = {
    "record_shapes": True, "profile_memory": True, "with_stack": True, "with_flops": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def profiled() -> profile:
    """Two steps of a small network, with everything noted."""
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(net.parameters())
    compiled = torch.compile(lambda x: (x * 2).exp())
    x = torch.randn(16, 32)
    compiled(x)
    with profile(**EVERYTHING) as prof:
        for _ in range(2):
            with record_function("step"):
                net(compiled(x)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
    return prof


def check_trace(found: dict[str, Any]) -> int:
    """The rules of the format, and that spans of a thread nest; how many spans there are."""
    spans = defaultdict(list)
    arrows: dict[int, list[str]] = defaultdict(list)
    for row in found["traceEvents"]:
        assert row["ph"] in ("X", "M", "s", "f", "C"), row
        assert isinstance(row["pid"], int)
        assert isinstance(row["tid"], int)
        assert row["ts"] >= 0
        if row["ph"] == "X":
            assert row["dur"] >= 0
            spans[row["tid"]].append((row["ts"], row["ts"] + row["dur"], row["name"]))
        if row["ph"] in "sf":
            arrows[row["id"]].append(row["ph"])
    for rows in spans.values():
        open_until: list[float] = []
        for start, end, name in sorted(rows, key=lambda r: (r[0], -r[1])):
            while open_until and open_until[-1] <= start + 1e-3:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-3, f"{name} sticks out"
            open_until.append(end)
    assert all(ends == ["s", "f"] for ends in arrows.values())
    return sum(map(len, spans.values()))


def test_a_trace_is_valid_and_has_every_event(profiled: profile, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    profiled.export_chrome_trace(str(path))
    found = json.loads(path.read_text())
    assert check_trace(found) == len(profiled.events())
    arrows = [row for row in found["traceEvents"] if row["ph"] == "s"]
    assert len(arrows) >= 6
    linear = next(row for row in found["traceEvents"] if row["name"] == "aten::linear")
    assert linear["cat"] == "cpu_op"
    assert linear["args"]["Input Dims"][0] == [16, 32]
    kinds = {row.get("cat") for row in found["traceEvents"]}
    assert {"cpu_op", "user_annotation", "compiled_program", "compiled_kernel", "fwdbwd"} <= kinds
    assert any(row["ph"] == "C" and row["args"][PARAMETER] for row in found["traceEvents"])


def test_a_trace_that_does_not_nest_is_found_out() -> None:
    def span(start: float, duration: float) -> dict[str, Any]:
        return {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": start, "dur": duration}

    assert check_trace({"traceEvents": [span(0, 10), span(2, 3)]}) == 2
    with pytest.raises(AssertionError, match="sticks out"):
        check_trace({"traceEvents": [span(0, 10), span(5, 10)]})


def test_a_name_that_ends_in_gz_is_compressed(profiled: profile, tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    profiled.export_chrome_trace(str(path))
    check_trace(json.loads(gzip.decompress(path.read_bytes())))


def test_metadata_is_in_the_trace(tmp_path: Path) -> None:
    with profile(custom_trace_id_callback=lambda: "mine") as prof:
        torch.ones(2)
    prof.add_metadata("who", "me")
    prof.add_metadata_json("numbers", "[1, 2]")
    prof.export_chrome_trace(str(tmp_path / "t.json"))
    found = json.loads((tmp_path / "t.json").read_text())
    assert (found["who"], found["numbers"], found["trace_id"]) == ("me", [1, 2], "mine")


def test_tensorboard_handler_writes_a_file_for_each_stretch(tmp_path: Path) -> None:
    handler = tensorboard_trace_handler(str(tmp_path / "runs"), "worker", use_gzip=True)
    plan = schedule(wait=0, warmup=1, active=1, repeat=2)
    with profile(schedule=plan, on_trace_ready=handler) as prof:
        for _ in range(5):
            torch.ones(2).exp()
            prof.step()
    files = sorted((tmp_path / "runs").iterdir())
    assert len(files) == 2
    assert all(re.fullmatch(r"worker\.\d+\.pt\.trace\.json\.gz", f.name) for f in files)


def test_stacks_are_lines_of_a_flame_graph(profiled: profile, tmp_path: Path) -> None:
    path = tmp_path / "stacks.txt"
    profiled.export_stacks(str(path), "self_cpu_time_total")
    lines = path.read_text().splitlines()
    assert lines
    for line in lines:
        stack, _, microseconds = line.rpartition(" ")
        assert int(microseconds) > 0
        assert " " not in stack
    assert any("aten::linear" in line and "test_files.py" in line for line in lines)
    with pytest.raises(ValueError, match="metric should be one of"):
        profiled.export_stacks(str(path), "cuda_time")


def test_stacks_need_stacks(tmp_path: Path) -> None:
    with profile() as prof:
        torch.ones(2)
    with pytest.raises(ValueError, match="with_stack=True is required"):
        prof.export_stacks(str(tmp_path / "x"))


def test_memory_over_time_is_a_page_or_numbers(profiled: profile, tmp_path: Path) -> None:
    page = tmp_path / "memory.html"
    profiled.export_memory_timeline(str(page))
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "<polygon" in text
    assert "http" not in text  # nothing from elsewhere
    numbers = tmp_path / "memory.json.gz"
    profiled.export_memory_timeline(str(numbers))
    found = json.loads(gzip.decompress(numbers.read_bytes()))
    assert len(found["times_ns"]) == len(found["bytes"])
    assert found["times_ns"] == sorted(found["times_ns"])
    assert min(min(row) for row in found["bytes"]) >= 0
    with pytest.raises(ValueError, match=r"\.html, \.json"):
        profiled.export_memory_timeline(str(tmp_path / "memory.png"))


def test_memory_is_told_by_what_it_is_for(profiled: profile) -> None:
    peak = profiled.memory_peak()
    parameters = (32 * 64 + 64 + 64 * 4 + 4) * 4
    assert peak[PARAMETER] == parameters
    assert 0 < peak[GRADIENT] <= parameters
    stretch = profiled._done[-1]
    assert stretch.blocks is not None
    seen = {b.category for b in stretch.blocks.blocks}
    assert {PARAMETER, GRADIENT, ACTIVATION} <= seen


def test_states_of_an_optimizer_are_told_apart() -> None:
    p = torch.ones(100, requires_grad=True)
    optimizer = torch.optim.Adagrad([p], lr=0.1)
    moments = torch.optim.NAdam([p], lr=0.1)
    with profile(profile_memory=True) as prof:
        for chosen in (optimizer, moments):
            (p * 2).sum().backward()
            chosen.step()
    assert prof.memory_peak()[OPTIMIZER_STATE] > 0


def test_memory_needs_to_be_asked_for(tmp_path: Path) -> None:
    with profile() as prof:
        torch.ones(2)
    with pytest.raises(ValueError, match="profile_memory=True is required"):
        prof.export_memory_timeline(str(tmp_path / "m.html"))


# ---- tables -------------------------------------------------------------------------------------


def test_tables_are_sorted_cut_and_have_what_was_asked_for(profiled: profile) -> None:
    averages = profiled.key_averages(group_by_input_shape=True)
    text = averages.table(sort_by="cpu_time_total", row_limit=3, header="My table")
    lines = text.splitlines()
    assert set(lines[0]) == {"="}
    assert lines[1] == "My table"
    assert lines[5].split()[0] == "step"  # the longest
    assert "Input Shapes" in lines[3]
    assert "Self CPU Mem" in lines[3]
    assert len(lines) == 3 + 2 + 3 + 2
    assert len({len(line) for line in lines[2:8]}) == 1
    assert "ms" not in averages.table(time_unit="us").replace("Params", "")
    with pytest.raises(ValueError, match="sort_by should be one of"):
        averages.table(sort_by="colour")
    with pytest.raises(ValueError, match="time_unit should be one of"):
        averages.table(time_unit="h")


def test_only_the_outermost_events_on_request(profiled: profile) -> None:
    text = profiled.events().table(top_level_events_only=True)
    assert "aten::linear" not in text
    assert "step" in text


def test_source_locations_have_a_column(profiled: profile) -> None:
    text = profiled.key_averages(group_by_stack_n=2).table(sort_by="self_cpu_time_total")
    assert "Source Location" in text
    assert "test_files.py(" in text


def test_an_empty_profile_has_an_empty_table() -> None:
    with profile() as prof:
        pass
    assert prof.key_averages().table() == ""
    assert prof.key_averages().total_average().count == 0
