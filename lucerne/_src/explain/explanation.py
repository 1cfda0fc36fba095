"""Explanation: a report with its ways out."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lucerne._src.capture.report import dump
from lucerne._src.explain import page, text
from lucerne._src.explain.collect import compiled_of, explained
from lucerne._src.explain.report import Report


class Explanation:
    """What one call of a function was, as `report` has it; `result` is what it returned.

    >>> import lucerne as torch
    >>> found = torch.explain(lambda x: x * 2 + 1)(torch.ones(3))
    >>> print(found).__class__  # doctest: +ELLIPSIS
    <lambda>: 1 program, 1 kernel...
    """

    def __init__(self, result: Any, report: Report) -> None:
        self.result, self.report = result, report

    def __str__(self) -> str:
        return text.table(self.report)

    __repr__ = __str__

    def json(self) -> dict[str, Any]:
        """As plain lists and dicts."""
        return dataclasses.asdict(self.report)

    def html(self) -> str:
        """One page that needs no network and no other file."""
        return page.page(self.report)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, which appears at once or not at all."""
        dump.write(Path(path), self.html())

    def _repr_html_(self) -> str:
        style = "border:0;width:100%;height:800px"
        return f'<iframe srcdoc="{page.quoted(self.html())}" style="{style}"></iframe>'


def explain(fn: Any, **options: Any) -> Callable[..., Explanation]:
    """A function that calls `fn` once, for real, and explains the call.

    `fn` may be compiled already; else it is compiled with these options (those of
    `lucerne.compile`). Kernels are measured afterwards, on copies of what they write to: nothing
    changes but what the one call changes.
    """
    compiled = compiled_of(fn, options)
    anew = not hasattr(fn, "versions") and compiled is not getattr(fn, "__dict__", {}).get(
        "forward"
    )

    def call(*args: Any, **kwargs: Any) -> Explanation:
        return Explanation(*explained(compiled, args, kwargs, anew=anew))

    return call
