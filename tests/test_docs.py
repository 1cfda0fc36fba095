"""The documentation is true: its examples run and print what they say.

In README.md and the folders of docs/ each ```python block is run, all blocks of a page in one
namespace. A plain ``` block right after it is the expected output, where `...` stands for anything.
Fragments that can't run by themselves are fenced as ```py.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
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
from tests.support.pages import (
    ROOT,
    all_pages,
    beyond_one_screen,
    dead_links,
    documentation,
    no_fragments,
)

PAGES = documentation()
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


def check(page: Path) -> None:
    """Run a page; fail where a block prints something else than the page says."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for line, code, expected in examples(page):
        got = run(code, namespace)
        if expected is not None:
            same = doctest.OutputChecker().check_output(
                expected.rstrip() + "\n", got.rstrip() + "\n", FLAGS
            )
            assert same, f"{page.name}:{line} prints\n{got}\ninstead of\n{expected}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_examples_print_what_the_page_says(page: Path) -> None:
    if page.name == "tensorboard.md":
        pytest.importorskip("tensorboard", reason="its examples write with that package")
    if page.name == "cpp.md" and importlib.util.find_spec("tvm_ffi") is None:
        pytest.skip("its examples are called through apache-tvm-ffi, which is not installed")
    check(page)


def test_no_page_is_lost() -> None:
    """As many pages and blocks as there were when these numbers were written, or more."""
    blocks = [x for page in PAGES for x in examples(page)]
    assert len(PAGES) >= 53
    assert len(blocks) >= 239
    assert sum(expected is not None for _, _, expected in blocks) >= 224


def test_a_wrong_output_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```\n3\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:2 prints"):
        check(page)


def test_links_lead_somewhere() -> None:
    pages = all_pages()
    assert len(pages) > 80
    assert dead_links(pages) == []


# a page's text, the links of it that are dead
LINKS = [
    ("[a](other.md) [b](other.md#a-heading) [c](#of-this-page) [d](https://x.org)", []),
    ("[a](missing.md)", ["missing.md"]),
    ("[a](other.md#no-heading)", ["other.md#no-heading"]),
    ("[a](#nowhere)", ["#nowhere"]),
    ("`[a](missing.md)` and\n\n```\n[a](missing.md)\n```\n", []),
    ("[a](other.md#the-same-1) [b](other.md#the-same-2)", ["other.md#the-same-2"]),
]


@pytest.mark.parametrize(("text", "dead"), LINKS)
def test_dead_links_are_found(text: str, dead: list[str], tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A [heading](x.md)!\n\n## The same\n\n## The same\n")
    page = tmp_path / "page.md"
    page.write_text(f"# Of `this` page\n\n{text}\n")
    assert dead_links([page]) == [f"page.md links to {target}" for target in dead]


# a README's text, what is wrong with it
READMES = [
    ("x\n" * 80, []),
    ("x\n" * 81, ["it has 81 lines, and 80 fit"]),
    ("x" * 120, []),
    ("\n" + "x" * 121, ["line 2 is too long"]),
]


@pytest.mark.parametrize(("text", "wrong"), READMES)
def test_a_long_readme_is_noticed(text: str, wrong: list[str]) -> None:
    assert beyond_one_screen(text) == wrong


def test_the_readme_is_one_screen() -> None:
    assert beyond_one_screen((ROOT / "README.md").read_text()) == []


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    records = (ROOT / "docs" / "decisions" / "README.md").read_text()
    for page in (ROOT / "docs").glob("*/*.md"):
        name = page.relative_to(ROOT / "docs")
        assert "decisions" in name.parts or f"({name})" in index, f"docs/README.md misses {name}"
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
    if name.startswith("lucerne._src.backends.xla"):
        pytest.importorskip("jax", reason="the device 'xla' runs on jax")
    module: ModuleType = importlib.import_module(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        failed, _ = doctest.testmod(module, optionflags=FLAGS | doctest.NORMALIZE_WHITESPACE)
    assert not failed, f"{failed} examples of {name} are wrong (python -m doctest shows them)"


# files beside README.md, those that are no fragments
FRAGMENTS = [
    (["123.fixed.md", "index-put.added.md", "a_b.security.md"], []),
    (["123.md", "a.improved.md", "a b.fixed.md"], ["123.md", "a b.fixed.md", "a.improved.md"]),
]


@pytest.mark.parametrize(("files", "loose"), FRAGMENTS)
def test_other_files_among_fragments_are_found(
    files: list[str], loose: list[str], tmp_path: Path
) -> None:
    for name in ("README.md", *files):
        (tmp_path / name).write_text("")
    assert no_fragments(tmp_path) == loose


def test_changes_are_fragments() -> None:
    assert no_fragments(ROOT / "changes") == []
