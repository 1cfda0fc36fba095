"""The user's lines that matter: the functions that kernels come from."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable

from lucerne._src.explain.report import SourceReport

_MARGIN = 2
_MOST_LINES = 120
Span = tuple[int, int, str]


def sources_of(places: Iterable[tuple[str, int]], first: tuple[str, int]) -> list[SourceReport]:
    """The functions around some places (file, line), that of `first` first."""
    by_file: dict[str, set[int]] = {}
    for file, line in (first, *places):
        by_file.setdefault(file, set()).add(line)
    found: dict[tuple[str, int], SourceReport] = {}
    for file, lines in by_file.items():
        text = linecache.getlines(file)
        spans = _functions("".join(text))
        for line in sorted(lines):
            start, stop, name = _around(spans, line, len(text))
            if stop >= start and 0 < line <= len(text):
                stop = min(stop, max(start + _MOST_LINES, line + _MARGIN))
                code = [x.rstrip("\n") for x in text[start - 1 : stop]]
                known = found.get((file, start))
                if known is None or len(known.lines) < len(code):
                    found[file, start] = SourceReport(file, name, start, code)
    own = (first[0], _around(_functions("".join(linecache.getlines(first[0]))), first[1], 0)[0])
    return [s for key, s in sorted(found.items(), key=lambda x: (x[0] != own, x[0]))]


def _functions(text: str) -> list[Span]:
    """First line, last line and name of each function, decorators included."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    found: list[Span] = []
    stack: list[tuple[ast.AST, str]] = [(tree, "")]
    while stack:
        node, prefix = stack.pop()
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = f"{prefix}.{child.name}" if prefix else child.name
                if not isinstance(child, ast.ClassDef):
                    first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                    found.append((first, child.end_lineno or child.lineno, name))
            stack.append((child, name))
    return found


def _around(spans: list[Span], line: int, count: int) -> Span:
    """The innermost function that a line is in, or the lines beside it."""
    inside = [s for s in spans if s[0] <= line <= s[1]]
    if inside:
        return min(inside, key=lambda s: s[1] - s[0])
    return max(line - _MARGIN, 1), min(line + _MARGIN, count), ""
