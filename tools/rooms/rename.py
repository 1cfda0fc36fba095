"""`python -m tools.rooms.rename MAP`: classes get other names, wherever they are named.

The map is JSON: `{"lucerne.capture.guards.reachable.Reach": "ReachableState", ...}`. A class is
known by its bare name where it is defined and where it is imported, and as an attribute of its
module. `tools.rooms.same` takes such a map too.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

from tools.rooms.move import ROOT, Rewrite, texts


class Renaming(Rewrite):
    """One file. `names` is from whole names to new last names."""

    def __init__(self, text: str, names: dict[str, str], module: str) -> None:
        super().__init__(text, names)
        self.module = module

    def result(self) -> str:
        modules: dict[str, str] = {}
        local: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and not node.level:
                for a in node.names:
                    whole = f"{node.module}.{a.name}"
                    modules[a.asname or a.name] = whole
                    if whole in self.names:
                        self._imported(a, self.names[whole], local)
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and f"{self.module}.{node.name}" in self.names:
                local[node.name] = self.names[f"{self.module}.{node.name}"]
                start = self.at(node.lineno, node.col_offset) + len("class ")
                self.edits.append((start, start + len(node.name), local[node.name]))
        taken = {n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name)}
        assert not taken & set(local.values()), (self.module, taken & set(local.values()))
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and node.id in local:
                self.edits.append((*self.span(node), local[node.id]))
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                whole = f"{modules.get(node.value.id, '')}.{node.attr}"
                if whole in self.names:
                    end = self.span(node)[1]
                    self.edits.append((end - len(node.attr), end, self.names[whole]))
            elif isinstance(node, (ast.Assign, ast.Subscript)):
                self._quoted(node, local)
        return in_words(self.edited(), local)

    def _quoted(self, node: ast.Assign | ast.Subscript, local: dict[str, str]) -> None:
        """Names in quotes: those of `__all__`, and of types that are defined further down."""
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) != "__all__":
            return
        for inner in ast.walk(node.value if isinstance(node, ast.Assign) else node.slice):
            if isinstance(inner, ast.Constant) and inner.value in local:
                start, stop = self.span(inner)
                self.edits.append((start + 1, stop - 1, local[inner.value]))

    def _imported(self, alias: ast.alias, new: str, local: dict[str, str]) -> None:
        start = self.at(alias.lineno, alias.col_offset)
        self.edits.append((start, start + len(alias.name), new))
        if alias.asname == alias.name:  # (for others to import from here)
            stop = self.at(alias.end_lineno or 0, alias.end_col_offset or 0)
            self.edits.append((stop - len(alias.name), stop, new))
        if alias.asname is None:
            local[alias.name] = new


def in_words(text: str, local: dict[str, str]) -> str:
    """Classes that comments and docstrings name: in backticks, or in the code of examples."""
    for old, new in local.items():
        text = re.sub(rf"`((?:\w+\.)?){old}\b", rf"`\g<1>{new}", text)
        text = re.sub(
            r"(?m)^ *(>>>|\.\.\.) .*$", lambda m, o=old, n=new: re.sub(rf"\b{o}\b", n, m[0]), text
        )
    return text


def main() -> int:
    names: dict[str, str] = json.loads(Path(sys.argv[1]).read_text())
    for path in texts():
        if path.suffix != ".py" or path.is_relative_to(ROOT / "tools"):
            continue
        text = path.read_text(encoding="utf-8")
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        new = Renaming(text, names, module).result()
        if new != text:
            path.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
