"""The count of instructions: what is asked of valgrind, and how its answers are read."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import instructions, small_calls

ONLY_X86 = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="the requests are x86-64 code"
)


@ONLY_X86
def test_requests_do_nothing_without_valgrind() -> None:
    calls = []
    pattern = next(iter(small_calls.CALLS))
    with pytest.MonkeyPatch.context() as patch:
        one = {"counted": lambda _: lambda: calls.append(1), pattern: None}
        patch.setattr(small_calls, "CALLS", one)
        instructions.measure("counted", 5, watched=False)
    assert len(calls) == 30 + 1 + 3 * (5 + 1)


def test_the_fewest_of_the_rounds_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        start = next(x for x in command if x.startswith("--callgrind-out-file="))
        out = Path(start.partition("=")[2])
        for number, total in enumerate((1200, 1000, 1100)):
            lines = [f"desc: Trigger: Client Request: eager a|{number}", f"totals: {total}"]
            out.with_name(f"d.{number}").write_text("\n".join(lines))
        out.write_text("desc: Trigger: Program termination\ntotals: 7\n")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert instructions.counted(Path(), [], 10) == {"eager a": 100.0}
