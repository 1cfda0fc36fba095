"""`python -m tools.rooms.same MAP COMMIT`: nothing but names has changed since a commit.

Every Python file is compared with what it was, as syntax trees: imports as what each local name
stands for, module names in strings read by the map, class names likewise.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tools.rooms.move import FOLDERS, ROOT, WINDOWS, in_text, load, path_of
from tools.rooms.rename import in_words


class Plain(ast.NodeTransformer):
    """A tree whose imports are gone: what they bound stands in the names."""

    def __init__(self, tree: ast.Module, names: dict[str, str], module: str) -> None:
        self.names = names
        self.modules = {o: n for o, n in names.items() if o.rpartition(".")[2].islower()}
        self.words: dict[str, str] = {}
        """How classes that this file knows are named in its texts."""
        self.bound: dict[str, str] = {}
        self.targets: set[str] = set()
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                full = f"{module}.{node.name}"
                self.bound[node.name] = names.get(full, full)
                self.words[node.name] = self.bound[node.name].rpartition(".")[2]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and not node.level:
                for a in node.names:
                    module = names.get(node.module or "", node.module)
                    full = names.get(f"{node.module}.{a.name}", f"{module}.{a.name}")
                    self.bound[a.asname or a.name] = full
                    if a.name[0].isupper():
                        self.words[a.name] = full.rpartition(".")[2]
                    self.targets.add(full)
            elif isinstance(node, ast.Import):
                self.targets |= {names.get(a.name, a.name) for a in node.names}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return node if node.level else None

    def visit_Import(self, node: ast.Import) -> ast.AST:
        for a in node.names:
            a.name = self.names.get(a.name, a.name)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.bound.get(node.id, node.id)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self.bound.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        whole = ast.unparse(node)
        if whole in self.names:
            return ast.parse(self.names[whole], mode="eval").body
        if isinstance(node.value, ast.Name):
            full = f"{self.bound.get(node.value.id, '')}.{node.attr}"
            node.attr = self.names.get(full, full).rpartition(".")[2]
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            node.value = in_text(in_words(node.value, self.words), self.modules)
        return node


def plain(text: str, names: dict[str, str], module: str = "") -> tuple[str, set[str]]:
    tree = ast.parse(text)
    change = Plain(tree, names, module)
    return ast.dump(change.visit(tree)), change.targets


def main() -> int:
    names = load(Path(sys.argv[1]))
    for old, new in names.items():  # of classes the map has the last name alone
        names[old] = new if "." in new else f"{old.rpartition('.')[0]}.{new}"
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", sys.argv[2], "--", *FOLDERS],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    moved = {str(path_of(a).relative_to(ROOT)): path_of(b) for a, b in names.items()}
    windows = {old: new for old, new in names.items() if old in WINDOWS}
    differ, count = [], 0
    for file in (f for f in listed if f.endswith(".py") and not f.startswith("tools/")):
        new = moved.get(file, ROOT / file)
        was = subprocess.run(
            ["git", "show", f"{sys.argv[2]}:{file}"], cwd=ROOT, check=True, capture_output=True
        ).stdout.decode()
        count += 1
        module = ".".join(new.relative_to(ROOT).with_suffix("").parts)
        now = new.read_text(encoding="utf-8") if new.exists() else ""
        # (a window is the same as what is behind it)
        if plain(was, names, module) != plain(now, windows, module):
            differ.append(file)
    print("\n".join(differ))
    print(f"{count} files, {len(differ)} differ beyond their names")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
