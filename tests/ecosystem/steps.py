"""What scenarios are written with: steps that are timed, and numbers that are kept."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from typing import Any

DONE: list[tuple[str, str, float, list[float]]] = []
"""Name, "ok" or the error, seconds and numbers of each step so far."""


def step(name: str, run: Callable[[], Any]) -> Any:
    """Run a part of a scenario; a failure is noted, and the scenario goes on."""
    start = time.perf_counter()
    try:
        found = run()
    except Exception as error:
        traceback.print_exc()
        text = f"{type(error).__name__}: {str(error)[:200]}"
        DONE.append((name, text, time.perf_counter() - start, []))
        return None
    DONE.append((name, "ok", time.perf_counter() - start, numbers(found)))
    return found


def back(loss: Any) -> float:
    """Differentiate, and the loss as a number."""
    loss.backward()
    return float(loss.detach())


def numbers(found: Any) -> list[float]:
    """A result in a few numbers: of a tensor, sums with growing weights, so that places count."""
    if isinstance(found, (int, float)):
        return [float(found)]
    if isinstance(found, list) and all(isinstance(x, (int, float)) for x in found):
        return [float(x) for x in found]
    if not hasattr(found, "detach") or not hasattr(found, "double"):
        return []
    flat = found.detach().double().flatten().tolist()
    return [sum(flat), sum(abs(x) * (1 + k % 7) for k, x in enumerate(flat))]
