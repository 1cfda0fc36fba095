"""The fallback bill: each op that left its device, how often, what it cost, from which line."""

from __future__ import annotations

import atexit
import dataclasses
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lucerne._src.base.config import config
from lucerne._src.base.process import forks


@dataclasses.dataclass
class FallbackEntry:
    """What one op of a device cost on the host."""

    device: str
    op: str
    times: int = 0
    bytes_out: int = 0
    """From the device to the host."""
    bytes_in: int = 0
    """Back again."""
    seconds: float = 0.0
    lines: Counter[str] = dataclasses.field(default_factory=Counter)
    """The user's lines, with how often each."""


class Bill:
    """What left its device so far (or since `clear`).

    >>> bill = Bill()
    >>> print(bill)
    nothing left its device
    >>> bill.add("chip", "sort_along", (4000, 12000), 0.002, "model.py:7 in forward")
    >>> [(e.op, e.times, e.bytes_out) for e in bill]
    [('sort_along', 1, 4000)]
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], FallbackEntry] = {}
        self._lock = forks.lock()

    def __iter__(self) -> Iterator[FallbackEntry]:
        return iter(sorted(self._entries.values(), key=lambda e: -e.seconds))

    def __len__(self) -> int:
        return len(self._entries)

    @staticmethod
    def of(rows: Iterable[Mapping[str, Any]]) -> Bill:
        """A bill from what `rows` gave, of several processes too."""
        made = Bill()
        for row in rows:
            key = row["device"], row["op"]
            e = made._entries.setdefault(key, FallbackEntry(*key))
            for name in ("times", "bytes_out", "bytes_in", "seconds"):
                setattr(e, name, getattr(e, name) + row[name])
            e.lines.update(row["lines"])
        return made

    def clear(self) -> None:
        self._entries.clear()

    def add(self, device: str, op: str, moved: tuple[int, int], seconds: float, line: str) -> None:
        """Note one call; `moved` are bytes out of the device and back."""
        with self._lock:
            e = self._entries.setdefault((device, op), FallbackEntry(device, op))
            e.times += 1
            e.bytes_out += moved[0]
            e.bytes_in += moved[1]
            e.seconds += seconds
            e.lines[line] += 1

    def since(self, before: dict[tuple[str, str], FallbackEntry]) -> Bill:
        """What was added after `snapshot` gave `before`."""
        made = Bill()
        for key, now in self._entries.items():
            old = before.get(key, FallbackEntry(now.device, now.op))
            if now.times > old.times:
                made._entries[key] = FallbackEntry(
                    now.device,
                    now.op,
                    now.times - old.times,
                    now.bytes_out - old.bytes_out,
                    now.bytes_in - old.bytes_in,
                    now.seconds - old.seconds,
                    now.lines - old.lines,
                )
        return made

    def snapshot(self) -> dict[tuple[str, str], FallbackEntry]:
        return {
            key: dataclasses.replace(e, lines=Counter(e.lines)) for key, e in self._entries.items()
        }

    def rows(self) -> list[dict[str, Any]]:
        """The bill as plain data, the dearest first."""
        return [{**dataclasses.asdict(e), "lines": dict(e.lines)} for e in self]

    def __str__(self) -> str:
        if not self._entries:
            return "nothing left its device"
        head = f"{'op':<22}{'device':<12}{'times':>7}{'out':>12}{'back':>12}{'ms':>10}  line"
        lines = [head]
        for e in self:
            place = e.lines.most_common(1)[0][0]
            more = f" (and {len(e.lines) - 1} more)" if len(e.lines) > 1 else ""
            lines.append(
                f"{e.op:<22}{e.device:<12}{e.times:>7}{_size(e.bytes_out):>12}"
                f"{_size(e.bytes_in):>12}{1e3 * e.seconds:>10.2f}  {place}{more}"
            )
        out, back = sum(e.bytes_out for e in self), sum(e.bytes_in for e in self)
        total = sum(e.seconds for e in self)
        lines.append(
            f"{'all':<34}{sum(e.times for e in self):>7}{_size(out):>12}{_size(back):>12}"
            f"{1e3 * total:>10.2f}"
        )
        return "\n".join(lines)


def _size(n: int) -> str:
    for unit in ("B", "kB", "MB"):
        if n < 1000:
            return f"{n} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000  # type: ignore[assignment]
    return f"{n:.1f} GB"


BILL = Bill()


def bill() -> Bill:
    """What ops left their device, since the process began or `bill().clear()`."""
    return BILL


def _at_exit() -> None:
    if config.fallback_bill and len(BILL):
        print(f"left their device:\n{BILL}", file=sys.stderr)


atexit.register(_at_exit)
