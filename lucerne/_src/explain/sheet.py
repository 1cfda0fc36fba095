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


_STYLE = (
    "<style>table.lucerne{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "table.lucerne th,table.lucerne td{padding:.15rem .9rem .15rem 0;text-align:left;"
    "border-bottom:1px solid #8884}table.lucerne .r{text-align:right;white-space:nowrap}"
    "table.lucerne tbody tr:hover{background:#8882}table.lucerne i{display:inline-block;"
    "height:.6rem;background:#3b6fd4;opacity:.6;border-radius:2px}</style>"
)
"""A notebook's cell has the notebook's style, which sets all numbers to the left."""


class Sheet:
    """A table with a title and a closing line."""

    heads: tuple[str, ...]
    left = 3
    """How many columns hold words, not numbers."""
    legend = ""
    """What a column means that its head does not tell."""

    def title(self) -> str:
        """What the page is called."""
        raise NotImplementedError

    def rows(self) -> list[tuple[str, ...]]:
        """The table's cells, as text."""
        raise NotImplementedError

    def totals(self) -> str:
        """What it says at a glance: below the table on a terminal, where the eye is, and above it
        on a page."""
        raise NotImplementedError

    def __str__(self) -> str:
        lines = aligned([self.heads, *self.rows()], self.left)
        rule = "-" * max(map(len, lines))
        told = [self.legend] if self.legend else []
        return "\n".join([lines[0], rule, *lines[1:], rule, *told, self.totals()])

    __repr__ = __str__

    def _body(self) -> str:
        rows = [[page.escape(c).replace("  ", "&emsp;") for c in row] for row in self.rows()]
        most = max((_share(row[-1]) or 0 for row in rows), default=0)
        rows = [[*row[:-1], _with_bar(row[-1], most)] for row in rows]
        first, *others = [page.escape(line) for line in self.totals().splitlines()]
        said = f"<p><b>{first}</b></p>" + "".join(f"<p>{line}</p>" for line in others)
        told = f"<p><small>{page.escape(self.legend)}</small></p>" if self.legend else ""
        return _STYLE + said + page.table(self.heads, rows, self.left, "lucerne") + told

    def html(self) -> str:
        """One page that needs no network and no other file."""
        return page.page(self.title(), self._body())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, which appears at once or not at all."""
        dump.write(Path(path), self.html())

    def _repr_html_(self) -> str:
        return self._body()


def _share(cell: str) -> int | None:
    """The percent that a cell says, if it does."""
    share = cell.removesuffix(" %")
    return int(share) if share != cell and share.isdigit() else None


def _with_bar(cell: str, most: int) -> str:
    """A share of the whole behind a picture of it, beside the largest one's; other cells as they
    are."""
    share = _share(cell)
    if share is None:
        return cell
    width = 100 * share // max(most, 1)
    bar = f'<i style="width:{width}px;margin-right:{100 - width}px"></i>'
    return f'{bar}<span style="display:inline-block;width:3.5em">{cell}</span>'


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
