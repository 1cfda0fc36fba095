"""Compare: measurements side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from lucerne.utils.benchmark.measurement import (
    Measurement,
    select_unit,
    trim_sigfig,
    unit_to_english,
)  # fmt: skip

_BEST, _GOOD, _BAD, _WORST, _PLAIN = (
    "\033[92m",
    "\033[34m",
    "\033[2m\033[91m",
    "\033[31m",
    "\033[0m",
)


class Colorize(Enum):
    """What the colours of a table compare."""

    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


class Compare:
    """A table: a row for each `sub_label`, a column for each `description`.

    >>> from lucerne.utils.benchmark import Measurement, TaskSpec
    >>> one = Measurement(1, [2e-6], TaskSpec("f(x)", "", "", "f", "small", "eager"))
    >>> two = Measurement(1, [1e-6], TaskSpec("f(x)", "", "", "f", "small", "compiled"))
    >>> Compare([one, two]).print()
    [-------------- f ---------------]
               |  eager  |  compiled
    1 threads: -----------------------
        small  |   2.0   |    1.0
    <BLANKLINE>
    Times are in microseconds (us).
    <BLANKLINE>
    """

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results: list[Measurement] = []
        self.extend_results(results)
        self._trims = self._warns = False
        self._colours = Colorize.NONE

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements."""
        for r in results:
            if not isinstance(r, Measurement):
                raise ValueError(
                    f"Expected an instance of `Measurement`, but got {type(r).__name__} instead."
                )
            self._results.append(r)

    def trim_significant_figures(self) -> None:
        """Show no digits that the spread of the times makes meaningless."""
        self._trims = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colour the best and the worst of each row or column."""
        self._colours = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self) -> None:
        """Mark the measurements whose times differ much."""
        self._warns = True

    def print(self) -> None:
        print(str(self))

    def __str__(self) -> str:
        groups: dict[str, list[Measurement]] = {}
        for m in Measurement.merge(self._results):
            groups.setdefault(m.task_spec.label or m.task_spec.stmt, []).append(m)
        return "\n".join(self._table(title, members) for title, members in groups.items())

    def _table(self, title: str, members: Sequence[Measurement]) -> str:
        columns = list(dict.fromkeys(m.task_spec.description or "" for m in members))
        unit, size = select_unit(min(m.median for m in members))
        cells: dict[tuple[int, str, str], Measurement] = {}
        for m in members:
            cells[m.task_spec.num_threads, m.as_row_name, m.task_spec.description or ""] = m
        rows = list(dict.fromkeys((t, name) for t, name, _ in cells))
        rows.sort(key=lambda row: row[0])
        left = max(len(name) for _, name in rows) + 4
        texts = {key: self._number(m, size) for key, m in cells.items()}
        wide = {
            c: max([len(c), *(len(t) for key, t in texts.items() if key[2] == c)]) for c in columns
        }
        head = " " * left + "".join(f"  |  {c:^{wide[c]}}" for c in columns)
        lines = ["[" + f" {title} ".center(len(head), "-") + "]", head.rstrip()]
        threads = None
        for count, name in rows:
            if count != threads:
                lines.append(f"{count} threads: ".ljust(len(head) + 2, "-"))
                threads = count
            found = [cells.get((count, name, c)) for c in columns]
            shown = [
                self._coloured(m, found, cells, texts.get((count, name, c), ""), wide[c])
                for m, c in zip(found, columns, strict=True)
            ]
            lines.append(f"{name:>{left}}" + "".join(f"  |  {text}" for text in shown).rstrip())
        lines += ["", f"Times are in {unit_to_english(unit)}s ({unit}).", ""]
        return "\n".join(lines)

    def _number(self, m: Measurement, size: float) -> str:
        value = m.median / size
        digits = 1
        if self._trims:
            figures = m.significant_figures
            value = trim_sigfig(value, figures)
            digits = max(0, figures - len(str(int(value))))
        text = f"{value:.{digits}f}"
        spread = f" (! {m.iqr / m.median * 100:.0f}%)" if self._warns and m.has_warnings else ""
        return text + spread

    def _coloured(
        self, m: Measurement | None, row: Sequence[Measurement | None],
        cells: dict[tuple[int, str, str], Measurement], text: str, width: int,
    ) -> str:  # fmt: skip
        shown = f"{text:^{width}}"
        if m is None or self._colours is Colorize.NONE:
            return shown
        if self._colours is Colorize.ROWWISE:
            others = [x.median for x in row if x is not None]
        else:
            others = [x.median for key, x in cells.items() if key[2] == m.task_spec.description]
        best, worst = min(others), max(others)
        if m.median <= best * 1.05:
            return f"{_BEST}{shown}{_PLAIN}"
        if m.median >= worst * 0.95 and worst > best * 1.5:
            return f"{_WORST}{shown}{_PLAIN}"
        return f"{_GOOD if m.median < best * 1.25 else _BAD}{shown}{_PLAIN}"
