"""The documentation is true: its examples run and print what they say.

In README.md and docs/*.md each ```python block is run, all blocks of a page in one namespace. A
plain ``` block right after it is the expected output, where `...` stands for anything. Fragments
that can't run by themselves are fenced as ```py.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import pkgutil
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import lucerne

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS


def examples(page: Path) -> Iterator[tuple[int, str, str | None]]:
    """Line, code and expected output (None: whatever) of each block that runs."""
    text = page.read_text()
    blocks = list(FENCE.finditer(text))
    for n, block in enumerate(blocks):
        if block[1] != "python":
            continue
        following = blocks[n + 1] if n + 1 < len(blocks) else None
        expected = None
        if following is not None and not following[1]:
            between = text[block.end() : following.start()]
            expected = following[2] if not between.strip() else None
        yield text.count("\n", 0, block.start()) + 2, block[2], expected


def run(code: str, namespace: dict[str, Any]) -> str:
    """What a block prints. Messages name its lines as those of `example.py`."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "example.py", "exec"), namespace)
    return printed.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_examples_print_what_the_page_says(page: Path) -> None:
    if page.name == "tensorboard.md":
        pytest.importorskip("tensorboard", reason="its examples write with that package")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for line, code, expected in examples(page):
        got = run(code, namespace)
        if expected is not None:
            same = doctest.OutputChecker().check_output(
                expected.rstrip() + "\n", got.rstrip() + "\n", FLAGS
            )
            assert same, f"{page.name}:{line} prints\n{got}\ninstead of\n{expected}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    records = (ROOT / "docs" / "decisions" / "README.md").read_text()
    for page in PAGES:
        assert page.name == "README.md" or f"({page.name})" in index, (
            f"docs/README.md misses {page.name}"
        )
    for record in (ROOT / "docs" / "decisions").glob("0*.md"):
        assert f"({record.name})" in records, f"docs/decisions/README.md misses {record.name}"
        text = record.read_text()
        for part in ("Status: ", "## Context", "## Decision", "## Consequences"):
            assert part in text, f"{record.name} has no {part!r}"


def modules() -> list[str]:
    found = ["lucerne"]
    for info in pkgutil.walk_packages(lucerne.__path__, "lucerne."):
        if not info.name.endswith("__main__"):
            found.append(info.name)
    return found


@pytest.mark.parametrize("name", modules())
def test_doctests(name: str) -> None:
    if name.startswith("lucerne.utils.tensorboard"):
        pytest.importorskip("tensorboard", reason="its examples write with that package")
    module: ModuleType = importlib.import_module(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        failed, _ = doctest.testmod(module, optionflags=FLAGS | doctest.NORMALIZE_WHITESPACE)
    assert not failed, f"{failed} examples of {name} are wrong (python -m doctest shows them)"


def test_changes_are_fragments() -> None:
    for path in (ROOT / "changes").glob("*.md"):
        kinds = r"added|changed|fixed|removed|security"
        assert path.name == "README.md" or re.fullmatch(rf"[\w-]+\.({kinds})\.md", path.name), (
            path.name
        )
