"""Dead links of a built site: files that are not there, and places in them that are not."""

from __future__ import annotations

import functools
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """What a page links to, and the places it has."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key in ("id", "name") and value:
                self.places.add(value)
            elif key in ("href", "src") and value and not tag.startswith("template"):
                self.targets.add(value)


@functools.cache
def _read(file: Path) -> _Page:
    page = _Page()
    page.feed(file.read_text(encoding="utf-8"))
    return page


def dead(site: Path) -> list[str]:
    """Each link between files of the site that leads nowhere."""
    found = []
    files = (f for f in site.rglob("*.html") if "_static" not in f.parts)  # templates of the theme
    for file in sorted(files):
        for target in sorted(_read(file).targets):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            there = file.parent / unquote(parts.path) if parts.path else file
            anchor = unquote(parts.fragment)
            lost = anchor and there.suffix == ".html" and there.is_file()
            if not there.exists() or (lost and anchor not in _read(there).places):
                found.append(f"{file.relative_to(site)} links to {target}")
    return found
