"""Pages of documentation: which there are, where their links lead, what a README may hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tools.site import markdown

ROOT = Path(__file__).parents[2]
LEFT_OUT = {"build", "changes", ".git", ".venv", "venv", ".pytest_cache"}

HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)

README_LINES, README_WIDTH = 80, 120


def documentation(root: Path = ROOT) -> list[Path]:
    """The pages whose code is run: README.md and those of docs/, decisions aside."""
    pages = (root / "docs").rglob("*.md")
    return sorted([root / "README.md", *(p for p in pages if "decisions" not in p.parts)])


def all_pages(root: Path = ROOT) -> list[Path]:
    """Every page with links: those of examples, tests and the package too."""
    return sorted(p for p in root.rglob("*.md") if not LEFT_OUT & set(p.relative_to(root).parts))


def anchors(page: Path) -> set[str]:
    """What a link to a heading may say, as hosts of repositories and MyST make it."""
    found: dict[str, int] = {}
    for heading in HEADING.findall(markdown.FENCED.sub("", page.read_text())):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {f"{s}-{n}" if n else s for s, last in found.items() for n in range(last + 1)}


def links(page: Path) -> Iterator[str]:
    """Where a page's links lead, inside of this repository."""
    yield from (target for target in markdown.links(page.read_text()) if "://" not in target)


def dead_links(pages: list[Path]) -> list[str]:
    """Links to files or headings that are not there."""
    found = []
    for page in pages:
        for target in links(page):
            name, _, anchor = target.partition("#")
            file = page.parent / name if name else page
            if not file.exists() or (anchor and anchor not in anchors(file)):
                found.append(f"{page.name} links to {target}")
    return found


def beyond_one_screen(text: str) -> list[str]:
    """What makes a README longer than one screen."""
    lines = text.splitlines()
    found = [f"line {n} is too long" for n, x in enumerate(lines, 1) if len(x) > README_WIDTH]
    if len(lines) > README_LINES:
        found.append(f"it has {len(lines)} lines, and {README_LINES} fit")
    return found


def no_fragments(folder: Path) -> list[str]:
    """Files among the fragments of the changelog that are none by their names."""
    fragment = re.compile(r"[\w-]+\.(added|changed|fixed|removed|security)\.md|README\.md")
    return sorted(p.name for p in folder.glob("*.md") if not fragment.fullmatch(p.name))
