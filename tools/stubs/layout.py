"""Text of stubs, laid out as `ruff format` lays it out, so that making them needs no formatter."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

from tools.stubs.facts import SHADOWED, Parameter, Signature

COMMAND = "python -m tools.stubs"
HEADER = f"# Made by `{COMMAND}` from the op table and the signatures of the package: do not edit."
WIDTH = 100
VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD
KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY


def _written(p: Parameter) -> str:
    star = {VAR_POSITIONAL: "*", VAR_KEYWORD: "**"}.get(p.kind, "")
    if not p.type:
        return f"{star}{p.name}"
    return f"{star}{p.name}: {p.type}" + (f" = {p.default}" if p.default else "")


def _heads(parameters: Iterable[Parameter]) -> list[str]:
    found: list[str] = []
    starred = False
    for p in parameters:
        if p.kind == KEYWORD_ONLY and not starred:
            found.append("*")
        starred = starred or p.kind in (KEYWORD_ONLY, VAR_POSITIONAL)
        found.append(_written(p))
    return found


def function(name: str, forms: list[Signature], indent: str = "", mark: str = "") -> list[str]:
    """The lines of a function, overloaded if it has several forms; `mark`: a comment behind."""
    lines: list[str] = []
    for form in forms:
        if len(forms) > 1:
            lines.append(f"{indent}@overload")
        lines += _definition(name, form, indent, mark)
    return lines


def _definition(name: str, form: Signature, indent: str, mark: str) -> list[str]:
    heads, tail = _heads(form.parameters), f") -> {form.result}: ...{mark}"
    begin = f"{indent}def {name}("
    whole = begin + ", ".join(heads) + tail
    if len(whole) - len(mark) <= WIDTH:
        return [whole]
    inner = indent + "    " + ", ".join(heads)
    if len(inner) <= WIDTH:
        return [begin, inner, indent + tail]
    return [begin, *(f"{indent}    {head}," for head in heads), indent + tail]


_FROM = {
    "Any": "typing",
    "Callable": "collections.abc",
    "Iterable": "collections.abc",
    "NamedTuple": "typing",
    "NoReturn": "typing",
    "Sequence": "collections.abc",
    "TypeAlias": "typing",
    "overload": "typing",
    **{f"_{name}": "builtins" for name in SHADOWED},
}


def imports(
    body: str, homes: dict[str, str], bound: set[str], reexports: set[tuple[str, str, str]]
) -> list[str]:
    """Import lines for what a stub's text names, and for what it shows of other modules.

    `homes`: where names of the package live; `bound`: names that need no import; `reexports`:
    module, name there and name here.
    """
    # Names of functions and of parameters are no uses.
    types = re.sub(r"\bdef \w+|(?<!-> )\b\w+:", "", body)
    words = set(re.findall(r"[A-Za-z_]\w*", types)) - bound
    lines: dict[tuple[str, bool], list[str]] = {}
    for word in sorted(words):
        origin = _FROM.get(word) or homes.get(word)
        if origin == "builtins":
            reexports = {*reexports, (origin, word[1:], word)}
        elif origin is not None:
            lines.setdefault((origin, False), []).append(word)
    for origin, there, here in sorted(reexports, key=_import_order):
        lines.setdefault((origin, True), []).append(f"{there} as {here}")
    found: list[str] = []
    for ours in (False, True):
        chosen = [key for key in sorted(lines) if key[0].startswith("lucerne") == ours]
        if chosen and found:
            found.append("")
        for origin, renamed in chosen:
            groups = [[line] for line in lines[origin, True]] if renamed else [lines[origin, False]]
            found += [line for group in groups for line in _import_lines(origin, group)]
    return found


def _import_order(row: tuple[str, str, str]) -> tuple[Any, ...]:
    """As isort has it: constants, then classes, then the rest."""
    origin, there, here = row
    case = 0 if there.isupper() and len(there) > 1 else 1 if there[:1].isupper() else 2
    return origin, case, there, here


def _import_lines(origin: str, names: list[str]) -> list[str]:
    line = f"from {origin} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return [line]
    return [f"from {origin} import (", *(f"    {name}," for name in names), ")"]


def module(doc: str, imported: list[str], parts: list[list[str]]) -> str:
    """A whole stub."""
    blocks = [[HEADER, f'"""{doc}"""'], imported, *parts]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"
