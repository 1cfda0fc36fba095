"""Many small runs in few processes: what a process did not come to, the next one does."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MARK = "RESULT "
AT_ONCE = 30


def run(command: list[str], names: list[str], seconds: float) -> Iterator[dict[str, Any]]:
    """What the command tells of each name, in their order; `seconds`: for all of a process."""
    left = list(names)
    while left:
        told = _told([*command, *left[:AT_ONCE]], seconds)
        yield from told
        del left[: len(told)]
        if len(told) < min(AT_ONCE, len(left) + len(told)):  # it ended early, or took too long
            yield {"kind": left.pop(0), "at": "start", "error": "its process ended"}


def _told(command: list[str], seconds: float) -> list[dict[str, Any]]:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, cwd=ROOT, check=False
        )
        text = done.stdout
    except subprocess.TimeoutExpired as stopped:
        text = (stopped.stdout or b"").decode()
    return [json.loads(x[len(MARK) :]) for x in text.splitlines() if x.startswith(MARK)]
