"""Markdown as far as links go: the one reader, for the site and for the check of dead links."""

from __future__ import annotations

import re
from collections.abc import Iterator

FENCED = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\[((?:[^][]|\[[^]]*\])*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
"""A label, a target, and a place in it."""


def parts(text: str) -> Iterator[tuple[bool, str]]:
    """The text in pieces, and whether each is a fenced block."""
    at = 0
    for block in FENCED.finditer(text):
        yield False, text[at : block.start()]
        yield True, block[0]
        at = block.end()
    yield False, text[at:]


def links(text: str) -> Iterator[str]:
    """Where links lead; what stands in code is none."""
    prose = "".join(part for fenced, part in parts(text) if not fenced)
    for _, target, anchor in LINK.findall(CODE.sub("", prose)):
        yield target + anchor
