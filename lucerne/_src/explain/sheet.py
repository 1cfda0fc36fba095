"""A report that is one table: on a terminal, in a notebook, as a page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lucerne._src.capture.report import dump, page


def call_of(batch: Any, named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A batch as arguments: one of them, a tuple of them, or a dict of named ones."""
    if isinstance(batch, dict):
        return (), {**batch, **named}
    return (batch if isinstance(batch, tuple) else (batch,)), named


class Sheet:
    """A table with a title and a closing line."""

    heads: tuple[str, ...]
    left = 3
    """How many columns hold words, not numbers."""

    def title(self) -> str:
        """What the page is called."""
        raise NotImplementedError

    def rows(self) -> list[tuple[str, ...]]:
        """The table's cells, as text."""
        raise NotImplementedError

    def totals(self) -> str:
        """What stands below."""
        raise NotImplementedError

    def __str__(self) -> str:
        lines = aligned([self.heads, *self.rows()], self.left)
        rule = "-" * max(map(len, lines))
        return "\n".join([lines[0], rule, *lines[1:], rule, self.totals()])

    __repr__ = __str__

    def _body(self) -> str:
        rows = [[page.escape(c).replace("  ", "&emsp;") for c in row] for row in self.rows()]
        closing = "".join(f"<p>{page.escape(line)}</p>" for line in self.totals().splitlines())
        return page.table(self.heads, rows) + closing

    def html(self) -> str:
        """One page that needs no network and no other file."""
        return page.page(self.title(), self._body())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, which appears at once or not at all."""
        dump.write(Path(path), self.html())

    def _repr_html_(self) -> str:
        return self._body()


def aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Lines of a table whose first columns are words."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
