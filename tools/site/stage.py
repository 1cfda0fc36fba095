"""The sources of the site: the pages of the repository, each at its place, with links that fit.

A link to a file that is no page of the site (a folder of the source, a licence) becomes its text. A
link to nothing is left as it is, and Sphinx fails on it.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from tools.site.markdown import LINK, parts

ROOT = Path(__file__).parents[2]
SECTIONS = ("guide", "extend", "inside", "proofs", "results")
"""Folders of docs/ that have an index of their own, made of its part of docs/README.md."""
PROJECT = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "tests/conformance/README.md": "proofs/how_ops_are_compared.md",
}


def places(root: Path = ROOT) -> dict[str, str]:
    """Paths in the repository and in the site of every page."""
    found = {"README.md": "index.md", "docs/README.md": "contents.md"}
    found |= {name: place for name, place in PROJECT.items() if (root / name).exists()}
    for page in sorted((root / "docs").glob("*/*.md")):
        name = page.relative_to(root / "docs").as_posix()
        found[f"docs/{name}"] = name.replace("README.md", "index.md")
    for page in sorted((root / "examples").glob("*/README.md")):
        found[page.relative_to(root).as_posix()] = f"examples/{page.parent.name}.md"
    return found


def folders(known: dict[str, str]) -> dict[str, str]:
    """Folders of the repository that a page of the site stands for."""
    found = {"examples": "examples/index.md"}
    return found | {p.removesuffix("/README.md"): s for p, s in known.items() if "examples/" in p}


def fitting(text: str, name: str, known: dict[str, str], root: Path = ROOT) -> str:
    """A page's text with links from its place in the site."""
    known = known | folders(known)
    here, there = os.path.dirname(name), os.path.dirname(known[name]) or "."

    def link(match: re.Match[str]) -> str:
        label, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or not target:
            return match[0]
        path = os.path.normpath(os.path.join(here, target))
        if path in known:
            return f"[{label}]({os.path.relpath(known[path], there)}{anchor})"
        return label if (root / path).exists() else match[0]

    return "".join(shown(p) if fenced else LINK.sub(link, p) for fenced, p in parts(text))


def shown(block: str) -> str:
    """A fenced block as a reader wants it: empty lines of an output are empty."""
    return re.sub(r"^<BLANKLINE>$", "", block, flags=re.MULTILINE)


def tree(names: list[str], *, hidden: bool = True) -> str:
    options = [":hidden:"] if hidden else [":maxdepth: 1"]
    return "\n".join(["", "```{toctree}", *options, "", *names, "```", ""])


def section(contents: str, name: str) -> str:
    """The index of a section: its part of docs/README.md, and the tree of its pages."""
    part = re.search(rf"^## {name.capitalize()}\n(.*?)(?=^## )", contents, re.M | re.S)
    if part is None:
        raise ValueError(f"docs/README.md has no part '## {name.capitalize()}'")
    body = part[1].replace(f"]({name}/", "](")
    pages = re.findall(r"^\| \[[^]]*\]\(([\w/]+)\.md\)", body, re.MULTILINE)
    return f"# {name.capitalize()}\n{body}{tree(pages)}"


def write(target: Path, root: Path = ROOT) -> int:
    """Write all sources but the reference; how many pages these are."""
    shutil.rmtree(target, ignore_errors=True)
    known = places(root)
    made = {site: fitting((root / n).read_text(), n, known, root) for n, site in known.items()}
    contents = (root / "docs" / "README.md").read_text()
    for name in SECTIONS:
        made[f"{name}/index.md"] = section(contents, name)
    made["proofs/index.md"] += tree(["how_ops_are_compared"])
    made["decisions/index.md"] += tree([p for p in of(made, "decisions") if p != "index"])
    examples = of(made, "examples")
    about = "Whole programs. Those that train models run on both frameworks (`--framework torch`)."
    made["examples/index.md"] = f"# Examples\n\n{about}\n{tree(examples, hidden=False)}"
    made["project/index.md"] = f"# Project\n{tree(of(made, 'project'), hidden=False)}"
    heads = ["guide", "reference", "examples", "extend", "inside", "proofs", "results"]
    heads = [f"{name}/index" for name in [*heads, "decisions", "project"]]
    made["index.md"] += tree([*heads, "contents"])
    for name, text in made.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return len(made)


def of(made: dict[str, str], folder: str) -> list[str]:
    """Names of the pages in a folder."""
    return sorted(Path(p).stem for p in made if p.startswith(f"{folder}/"))
