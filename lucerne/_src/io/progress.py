"""How far something long has come, on one line of the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import Any, TextIO


class ProgressLine:
    """A line that says how much of `total` is done; takes the arguments of tqdm's class that name
    what is counted.

    >>> import io
    >>> shown = io.StringIO()
    >>> with ProgressLine(total=4, unit="B", desc="weights", file=shown) as line:
    ...     line.update(3)
    >>> shown.getvalue().split("\\r")[-1]
    'weights: 75% (3 of 4 B)\\n'
    """

    def __init__(
        self, iterable: Iterable[Any] | None = None, desc: str | None = None,
        total: float | None = None, disable: bool = False, unit: str = "it",
        unit_scale: bool = False, unit_divisor: int = 1000, file: TextIO | None = None,
    ) -> None:  # fmt: skip
        self.iterable, self.desc, self.disable = iterable, desc, disable
        self.total = len(iterable) if total is None and isinstance(iterable, Sized) else total
        self.unit, self.file, self.n = unit, sys.stderr if file is None else file, 0.0
        self._divisor = unit_divisor if unit_scale else 0
        self._said = ""

    def update(self, n: float = 1) -> None:
        """So much more is done."""
        self.n += n
        if not self.disable:
            self._say()

    def close(self) -> None:
        """End the line."""
        if not self.disable:
            self._say()
            self.file.write("\n")
        self.disable = True

    def _say(self) -> None:
        done = f"{self._short(self.n)} {self.unit}"
        if self.total:
            done = f"{self.n / self.total:.0%} ({self._short(self.n)} of {self._short(self.total)}"
            done += f" {self.unit})"
        text = f"{self.desc}: {done}" if self.desc else done
        if text != self._said:
            self._said = text
            self.file.write(f"\r{text}")
            self.file.flush()

    def _short(self, count: float) -> str:
        for prefix in ("", "k", "M", "G") if self._divisor else ():
            if count < self._divisor:
                return f"{count:.3g}{prefix}"
            count /= self._divisor
        return f"{count:.3g}T" if self._divisor else f"{count:g}"

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        for x in () if self.iterable is None else self.iterable:
            yield x
            self.update()
        self.close()
