"""What a person meets first: versions, the environment, a model at a glance, a slow first call."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lucerne as torch
from lucerne import nn
from lucerne._src import cli, environment
from lucerne._src.base.config import config
from lucerne._src.capture import ledger
from tests.explain.test_page import assert_well_formed


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    out = capsys.readouterr().out.strip()
    assert out == environment.version_line()
    assert torch.version.lucerne in out
    assert torch.version.follows in out


def test_collect_env_is_one_command() -> None:
    command = [sys.executable, "-m", "lucerne.utils.collect_env"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    heads = [line.partition(":")[0] for line in ran.stdout.splitlines()]
    assert heads[:6] == ["Lucerne", "Python", "System", "Processor", "Threads", "Packages"]
    assert "Device" in heads
    assert heads[-1] == "Settings"


def test_config_shows_versions_and_threads() -> None:
    assert "llvmlite" in torch.__config__.show()
    assert f"get_num_threads() : {torch.get_num_threads()}" in torch.__config__.parallel_info()


def test_changed_settings_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "most_captures", 3)
    assert environment.changed_settings()["LUCERNE_MOST_CAPTURES"] == 3


# ---- summary -------------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout())
        self.twice = nn.Linear(6, 6)
        self.unused = nn.Linear(2, 2)
        self.twice.weight.requires_grad_(False)

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        found = self.twice(self.twice(self.body(x))) * scale
        return {"found": found, "first": (found[0],)}


def test_summary_has_layers_shapes_parameters_and_work() -> None:
    net = Net()
    found = torch.summary(net, torch.ones(2, 3, 8, 8), scale=2.0)
    by_path = {layer.path: layer for layer in found.layers}
    assert list(by_path) == [name for name, _ in net.named_modules()]
    assert by_path["body.0"].shapes == [(2, 8, 6, 6)]
    assert by_path[""].shapes == [(2, 8, 6, 6), (8, 6, 6)]
    assert by_path["body.0"].flops == 2 * (2 * 8 * 6 * 6) * (3 * 3 * 3)
    assert by_path["twice"].flops == 2 * (2 * (2 * 8 * 6) * 6 * 6)
    assert by_path["twice"].calls == 2
    assert (by_path["unused"].calls, by_path["unused"].shapes) == (0, [])
    assert found.flops == by_path[""].flops
    assert found.parameters == sum(p.numel() for p in net.parameters())
    assert found.parameters - found.trained == 36
    kept = [*net.parameters(), *net.buffers()]
    assert found.nbytes == sum(t.numel() * t.element_size() for t in kept)


def test_summary_leaves_the_model_as_it_was() -> None:
    net = Net()
    net.body[2].eval()
    before = {name: t.clone() for name, t in net.state_dict().items()}
    torch.summary(net, {"x": torch.ones(2, 3, 8, 8)})
    assert all(torch.equal(before[name], t) for name, t in net.state_dict().items())
    assert net.training
    assert net.body[1].training
    assert not net.body[2].training
    assert not any(m._forward_hooks for m in net.modules())
    with pytest.raises(RuntimeError, match="channels"):
        torch.summary(net, torch.ones(2, 4, 8, 8))
    assert net.training
    assert not any(m._forward_hooks for m in net.modules())


def test_summary_is_a_table_and_a_page(tmp_path: Path) -> None:
    found = torch.summary(Net(), torch.ones(2, 3, 8, 8))
    lines = str(found).splitlines()
    assert lines[0].split() == ["layer", "kind", "output", "parameters", "FLOP", "bytes"]
    assert len(lines) == len(found.layers) + 5
    assert lines[-2].startswith("bytes: ")
    assert found.html().index("288 parameters") < found.html().index("<table")
    assert "Linear (2 calls)" in str(found)
    assert_well_formed(found.html())
    assert found._repr_html_() in found.html()
    found.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == found.html()


class Two(nn.Module):
    """A branch with layers of its own name inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 4))

    def forward(self, x: Any) -> Any:
        return self.inner(x)


def test_layers_that_are_alike_have_one_row() -> None:
    def names(*widths: int) -> list[str]:
        net = nn.Sequential(*(Two(width) for width in widths))
        return [f"{row[0].strip()} {row[1]}" for row in torch.summary(net, torch.ones(2, 4)).rows()]

    inside = ["inner Sequential", "0 Linear", "1 Linear"]
    first = ["(model) Sequential", "0 Two", *inside]
    assert names(3) == first
    assert names(3, 3) == [*first, "1 Two, like 0"]
    assert names(3, 3, 3, 3) == [*first, "1 to 3 Two, like 0, each"]
    assert names(3, 5, 5) == [*first, "1 Two", *inside, "2 Two, like 1"]
    assert names(3, 5, 3) == [*first, "1 Two", *inside, "2 Two", *inside]


def test_breaks_stand_in_the_order_of_what_they_hand_on() -> None:
    def breaks(x: Any) -> Any:
        y = x * 2
        small = y.sum() if y[0, 0] > 0 else y
        large = small * torch.ones(64, 64)
        return large + 1 if large[0, 0] > 1 else large

    found = torch.explain(breaks)(torch.ones(2, 2))
    handed = [b.nbytes for b in found.report.breaks]
    assert len(handed) == 2
    assert handed == sorted(handed, reverse=True)
    assert handed[0] >= 64 * 64 * 4 > handed[1] > 0
    assert found.report.breaks[0].line > found.report.breaks[1].line
    assert "breaks, the worst first" in str(found)
    assert "are handed on through memory" in found.html()


def test_a_break_is_told_the_bytes_of_the_program_that_ends_there() -> None:
    """Wherever the lines of that program stand: here they come after the break's."""

    def breaks(x: Any) -> Any:
        y = _stands_below(x)
        z = y[:1] + 1 if y[0] > 0 else y
        return _stands_below(z) if z[0] > 0 else z

    found = torch.explain(breaks)(torch.ones(2))
    lines = {b.line: b.nbytes for b in found.report.breaks}
    assert list(lines.values()) == sorted(lines.values(), reverse=True)
    first, second = (lines[k] for k in sorted(lines))
    assert first in (800, 801)  # (3.13 and later: the comparison is no part of the program)
    assert second in (4, 5)


def _stands_below(x: Any) -> Any:
    return x.repeat(100)


def test_each_report_shows_itself_in_a_notebook() -> None:
    net = Net()
    x = torch.ones(2, 3, 8, 8)
    estimate = torch.estimate_memory(net, x, torch.optim.SGD(net.parameters()))
    compiled = torch.compile(net)
    for report in (torch.summary(net, x), estimate, torch.explain(compiled)(x)):
        cell = report._repr_html_()
        assert cell.startswith(("<style>table.lucerne", "<iframe srcdoc="))
    assert 'class="r"' in estimate._repr_html_()  # a notebook sets numbers to the left
    assert '<i style="width:' in estimate._repr_html_()


def test_explain_has_totals_by_module_and_by_op() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    found = torch.explain(torch.compile(net))(torch.ones(4, 8))
    rows = str(found).split("by module\n")[1].splitlines()
    assert {line.split()[-1] for line in rows[:2]} <= {"0", "1", "2"}
    assert "\nby op\n" in str(found)
    assert ">by module</h4>" in found.html()
    assert ">by op</h4>" in found.html()


def test_a_busy_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(os, "getloadavg"):
        pytest.skip("the system does not say how busy it is")
    for load, says in ((0.1, False), (100.0 * (os.cpu_count() or 1), True)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, load, load))
        found = torch.explain(torch.compile(lambda x: x * 2))(torch.ones(4))
        assert ("the machine was busy" in str(found)) is says
        assert ('class="sub busy"' in found.html()) is says


# ---- a slow first call ---------------------------------------------------------------------------


@pytest.fixture
def soon() -> Iterator[None]:
    before, config.progress_seconds = config.progress_seconds, 0.02
    yield
    config.progress_seconds = before


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("kind", "seconds", "says"),
    [(ledger.FIRST, 0.3, True), (ledger.FIRST, 0.0, False), (ledger.RECOMPILE, 0.3, False)],
)
def test_slow_first_call_says_so(
    kind: str, seconds: float, says: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    with ledger.compiling(test_version, kind, "first call"):
        time.sleep(seconds)
    time.sleep(0.1)
    told = capfd.readouterr().err
    assert (f"still compiling test_version ({__file__}:" in told) == says
