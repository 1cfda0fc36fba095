"""Arguments of constructors that are only kept, in an attribute that nothing in the package loads.

Such an argument is read, but by nobody who would follow it, so `walk` does not see it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

Pair = tuple[ast.expr, ast.expr]


def only_kept(files: dict[str, str]) -> list[str]:
    """`Class:parameter` of each, of texts by path; attributes are known by their names alone."""
    count = Counter(name for text in files.values() for name in _ATTRIBUTE.findall(text))
    found = [
        (owner.name, parameter, attr)
        for file, text in files.items()
        if "def __init__" in text and _is_surface(file)
        for owner in ast.parse(text).body
        if isinstance(owner, ast.ClassDef)
        for parameter, attr in _kept(owner)
        if count[attr] <= FEW
    ]
    rare = {attr for _, _, attr in found}
    readers = [t for t in files.values() if not rare.isdisjoint(_ATTRIBUTE.findall(t))]
    loaded = {
        node.attr
        for text in readers
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    return [f"{owner}:{parameter}" for owner, parameter, attr in found if attr not in loaded]


FEW = 4
"""A name that stands behind more dots than these is loaded somewhere, so it is not looked for."""
_ATTRIBUTE = re.compile(r"\.(\w+)")


def package(root: Path) -> dict[str, str]:
    paths = sorted(root.rglob("*.py"))
    return {p.relative_to(root).as_posix(): p.read_text(encoding="utf-8") for p in paths}


def _is_surface(file: str) -> bool:
    inside = ("backends", "base", "capture", "ir", "loops", "tensor", "transforms")
    return file.partition("/")[0] not in inside


def _kept(owner: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Parameters of `__init__` with the attribute that is all that becomes of them."""
    for f in owner.body:
        if not isinstance(f, ast.FunctionDef) or f.name != "__init__":
            continue
        names = [n.id for b in f.body for n in ast.walk(b) if isinstance(n, ast.Name)]
        pairs = [p for n in ast.walk(f) if isinstance(n, ast.Assign) for p in _pairs(n)]
        for parameter in [a.arg for a in (*f.args.args, *f.args.kwonlyargs)]:
            for target, value in pairs:
                stored = isinstance(value, ast.Name) and value.id == parameter
                if stored and isinstance(target, ast.Attribute) and names.count(parameter) == 1:
                    yield parameter, target.attr


def _pairs(node: ast.Assign) -> list[Pair]:
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return list(zip(target.elts, value.elts, strict=False))
    return [(target, value)]
