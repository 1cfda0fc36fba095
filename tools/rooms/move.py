"""`python -m tools.rooms.move MAP`: modules get the rooms and names that a map says.

The map is JSON: `{"lucerne.capture.reach": "lucerne.capture.guards.reachable", ...}`. Files move by
`git mv`; imports, module names in strings and paths in texts follow, in Python and in Markdown. A
module that is known in a file by its last name is known by its new one, unless that means something
else there: then it is imported under the old one. `tools.rooms.same` proves that nothing else
has changed. `"windows": [...]` lists old names that stay for users, as modules written by hand:
they are followed in the imports of the package alone.
"""

from __future__ import annotations

import ast
import functools
import io
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("lucerne", "tests", "benchmarks", "examples", "docs", "tools")
Edit = tuple[int, int, str]
PACKAGES: set[str] = set()
"""Names in the map, old and new, that are packages: said in it by a dot at the end."""
WINDOWS: set[str] = set()
"""Old names that users go on to import."""
_TEXTS = (tokenize.STRING, tokenize.COMMENT)


def path_of(module: str) -> Path:
    """The file of a module, or that of a package."""
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if module in PACKAGES else path.with_suffix(".py")


class Rewrite:
    """One Python file under a map."""

    def __init__(self, text: str, names: dict[str, str], inside: bool = True) -> None:
        self.text, self.tree = text, ast.parse(text)
        self.names = without_windows(names)
        self.imported = names if inside else self.names
        self.bytes = text.encode()
        lines = self.bytes.splitlines(keepends=True)
        self.starts = [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line))
        self.edits: list[Edit] = []
        self.renamed: dict[str, str] = {}

    def at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self.at(node.lineno, node.col_offset),
            self.at(node.end_lineno, node.end_col_offset),
        )

    def result(self) -> str:
        imports = [n for n in ast.walk(self.tree) if isinstance(n, ast.ImportFrom) and not n.level]
        for node in imports:
            self._import_from(node)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                self._import(node)
            elif isinstance(node, ast.Attribute):
                self._dotted(node)
            elif isinstance(node, ast.Name) and node.id in self.renamed:
                self.edits.append((*self.span(node), self.renamed[node.id]))
        for token in tokenize.tokenize(io.BytesIO(self.bytes).readline):
            if token.type in _TEXTS:
                start, stop = self.at_text(*token.start), self.at_text(*token.end)
                new = in_text(token.string, self.names)
                if new != token.string:
                    self.edits.append((start, stop, new))
        return self.edited()

    def edited(self) -> str:
        """The text after all edits."""
        data, end = bytearray(self.bytes), len(self.bytes) + 1
        for start, stop, new in sorted(self.edits, reverse=True):
            if stop <= end:  # (else a part of what is replaced as a whole)
                data[start:stop] = new.encode()
                end = start
        return data.decode()

    def at_text(self, line: int, column: int) -> int:
        """Likewise of a token, which counts characters."""
        whole = self.bytes[self.starts[line - 1] :].split(b"\n", 1)[0].decode()
        return self.starts[line - 1] + len(whole[:column].encode())

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        wanted: dict[str, list[str]] = {}
        changed = module in self.imported
        for alias in node.names:
            full = f"{module}.{alias.name}"
            if full in self.imported:
                changed = True
                package, _, name = self.imported[full].rpartition(".")
                again = alias.asname == alias.name  # (`x as x`: for others to import from here)
                local = name if again else alias.asname or self._local(alias.name, name)
                text = name if local == name and not again else f"{name} as {local}"
                wanted.setdefault(package, []).append(text)
            else:
                text = alias.name if alias.asname is None else f"{alias.name} as {alias.asname}"
                wanted.setdefault(self.imported.get(module, module), []).append(text)
        if not changed:
            return
        indent = " " * node.col_offset
        lines = [f"from {package} import {', '.join(names)}" for package, names in wanted.items()]
        self.edits.append((*self.span(node), f"\n{indent}".join(lines)))

    def _local(self, old: str, new: str) -> str:
        """What a module is called in this file from now on."""
        if old == new:
            return old
        if new in self._all_names or self._is_bound_again(old):
            return old
        self.renamed[old] = new
        return new

    @property
    def _all_names(self) -> set[str]:
        found = {n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name)}
        found |= {n.arg for n in ast.walk(self.tree) if isinstance(n, ast.arg)}
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                found |= {(a.asname or a.name).partition(".")[0] for a in node.names}
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
        return found | set(self.renamed.values())

    def _is_bound_again(self, name: str) -> bool:
        return any(
            (isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load))
            or (isinstance(n, ast.arg) and n.arg == name)
            or (isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name == name)
            for n in ast.walk(self.tree)
        )

    @functools.cached_property
    def _package_names(self) -> set[str]:
        """What the package is called in this file: `lucerne`, `torch`, ..."""
        imports = [n for n in ast.walk(self.tree) if isinstance(n, ast.Import)]
        aliases = [a for n in imports for a in n.names]
        return {"lucerne"} | {a.asname for a in aliases if a.name == "lucerne" and a.asname}

    def _import(self, node: ast.Import) -> None:
        if any(a.name in self.imported for a in node.names):
            texts = [
                self.imported.get(a.name, a.name) + (f" as {a.asname}" if a.asname else "")
                for a in node.names
            ]
            self.edits.append((*self.span(node), f"import {', '.join(texts)}"))

    def _dotted(self, node: ast.Attribute) -> None:
        name = ast.unparse(node) if _is_dotted(node) else ""
        first, _, rest = name.partition(".")
        known = self.names.get(f"lucerne.{rest}") if first in self._package_names else None
        if known is not None:
            self.edits.append((*self.span(node), f"{first}.{known.partition('.')[2]}"))


def _is_dotted(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


@functools.cache
def _pattern(names: tuple[tuple[str, str], ...]) -> tuple[re.Pattern[str], dict[str, str]]:
    found = dict(names)
    for cut in ("", "lucerne/", "lucerne/backends/"):
        for old, new in names:
            a, b = (m.replace(".", "/").removeprefix(cut) + ".py" for m in (old, new))
            if "/" in a:
                found[a] = b
    known = "|".join(re.escape(x) for x in sorted(found, key=len, reverse=True))
    return re.compile(rf"(?<![\w./])({known})(?!\w)"), found


def in_text(text: str, names: dict[str, str]) -> str:
    """Module names and paths inside of strings, comments, pages."""
    if not names:
        return text
    pattern, found = _pattern(tuple(names.items()))
    parts = re.split(r"(from lucerne[\w.]* import \w+)(?! as)", text)
    for k, part in enumerate(parts):
        new = _imported(part, names) if k % 2 else part
        parts[k] = pattern.sub(lambda m: found[m[1]], part) if new == part else new
    return "".join(parts)


def _imported(text: str, names: dict[str, str]) -> str:
    """`from package import module` in a text: the module may be elsewhere."""
    _, old_package, _, old = text.split()
    new = names.get(f"{old_package}.{old}")
    if new is None:
        return text
    package, _, name = new.rpartition(".")
    return f"from {package} import {name}" + ("" if name == old else f" as {old}")


def without_windows(names: dict[str, str]) -> dict[str, str]:
    return {old: new for old, new in names.items() if old not in WINDOWS}


def load(path: Path) -> dict[str, str]:
    found = json.loads(path.read_text())
    WINDOWS.update(found.pop("windows", ()))
    PACKAGES.update(x[:-1] for pair in found.items() for x in pair if x.endswith("."))
    return {old.rstrip("."): new.rstrip(".") for old, new in found.items()}


def texts() -> Iterable[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".md") and path.name != "CHANGELOG.md":
                yield path
    yield from (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "pyproject.toml")


def main() -> int:
    names = load(Path(sys.argv[1]))
    assert len(set(names.values())) == len(names), "two modules of one name"
    for path in texts():
        text = path.read_text(encoding="utf-8")
        if path.is_relative_to(ROOT / "tools"):
            continue
        if path.suffix == ".py":
            new = Rewrite(text, names, path.is_relative_to(ROOT / "lucerne")).result()
        else:
            new = in_text(text, without_windows(names))
        if new != text:
            path.write_text(new, encoding="utf-8")
    for old, new in sorted(names.items(), key=lambda pair: pair[0] not in PACKAGES):
        target = path_of(new)
        for folder in target.relative_to(ROOT).parents:
            room = ROOT / folder / "__init__.py"
            if room != target and str(folder).startswith("lucerne") and not room.exists():
                room.parent.mkdir(parents=True, exist_ok=True)
                room.write_text("")
                subprocess.run(["git", "add", str(room)], cwd=ROOT, check=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "mv", str(path_of(old)), str(target)], cwd=ROOT, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
