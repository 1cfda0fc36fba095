"""`python -m tools.rooms.same MAP COMMIT`: nothing but names has changed since a commit.

Every Python file is compared with what it was, as syntax trees: imports as what each local name
stands for, module names in strings read by the map. Docstrings of rooms (`__init__.py`) are new.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tools.rooms.move import FOLDERS, ROOT, in_text, load, path_of


class Plain(ast.NodeTransformer):
    """A tree whose imports are gone: what they bound stands in the names."""

    def __init__(self, tree: ast.AST, names: dict[str, str]) -> None:
        self.names = names
        self.bound: dict[str, str] = {}
        self.targets: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and not node.level:
                for a in node.names:
                    module = names.get(node.module or "", node.module)
                    full = names.get(f"{node.module}.{a.name}", f"{module}.{a.name}")
                    self.bound[a.asname or a.name] = full
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

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        whole = ast.unparse(node)
        if whole in self.names:
            return ast.parse(self.names[whole], mode="eval").body
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            node.value = in_text(node.value, self.names)
        return node


def plain(text: str, names: dict[str, str]) -> tuple[str, set[str]]:
    tree = ast.parse(text)
    change = Plain(tree, names)
    return ast.dump(change.visit(tree)), change.targets


def main() -> int:
    names = load(Path(sys.argv[1]))
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", sys.argv[2], "--", *FOLDERS],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    moved = {str(path_of(a).relative_to(ROOT)): path_of(b) for a, b in names.items()}
    differ, count = [], 0
    for file in (f for f in listed if f.endswith(".py") and not f.startswith("tools/")):
        new = moved.get(file, ROOT / file)
        was = subprocess.run(
            ["git", "show", f"{sys.argv[2]}:{file}"], cwd=ROOT, check=True, capture_output=True
        ).stdout.decode()
        count += 1
        if not new.exists() or plain(was, names) != plain(new.read_text(encoding="utf-8"), {}):
            differ.append(file)
    print("\n".join(differ))
    print(f"{count} files, {len(differ)} differ beyond their names")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
