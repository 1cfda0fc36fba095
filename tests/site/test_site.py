"""The site is made of the pages as they are: links fit, outputs are shown, docstrings are Markdown.

`make docs` (and .ci/run) builds all of it; here are the parts, without Sphinx.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from tools.site import links, reference, stage
from tools.site.names import NAMESPACES, PAGES_OF_THE_TOP

KNOWN = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "docs/guide/compile.md": "guide/compile.md",
    "docs/inside/tour.md": "inside/tour.md",
    "examples/vae/README.md": "examples/vae.md",
}

# page, text, what is on the site
FITTING = [
    ("README.md", "[a](docs/guide/compile.md#x)", "[a](guide/compile.md#x)"),
    ("README.md", "[a](examples) [b](examples/vae)", "[a](examples/index.md) [b](examples/vae.md)"),
    ("README.md", "[the licence](LICENSE)", "the licence"),
    ("README.md", "[a](gone.md)", "[a](gone.md)"),
    ("README.md", "[a](https://x.org/y) [b](#z)", "[a](https://x.org/y) [b](#z)"),
    ("docs/guide/compile.md", "[`x[0]`](../inside/tour.md)", "[`x[0]`](../inside/tour.md)"),
    ("docs/guide/compile.md", "[a](../../README.md)", "[a](../index.md)"),
    ("README.md", "```\n[a](LICENSE)\n<BLANKLINE>\n```", "```\n[a](LICENSE)\n\n```"),
]


@pytest.mark.parametrize(("page", "text", "shown"), FITTING)
def test_links_fit(page: str, text: str, shown: str, tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text("")
    assert stage.fitting(text, page, KNOWN, tmp_path) == shown


def test_every_page_has_a_place(tmp_path: Path) -> None:
    count = stage.write(tmp_path / "site")
    written = {p.relative_to(tmp_path / "site").as_posix() for p in tmp_path.rglob("*.md")}
    assert len(written) == count
    pages = stage.ROOT / "docs"
    wanted = {p.relative_to(pages).as_posix() for p in pages.glob("*/*.md")}
    assert {p.replace("README.md", "index.md") for p in wanted} <= written
    for name in stage.SECTIONS:
        tree = (tmp_path / "site" / name / "index.md").read_text()
        for page in (pages / name).glob("*.md"):
            assert f"\n{page.stem}\n" in tree, f"{page} is in no tree"


def test_a_section_without_its_part_is_an_error() -> None:
    with pytest.raises(ValueError, match="## Guide"):
        stage.section("# Contents\n\n## Inside\n\n## Other\n", "guide")


def documented(doc: str) -> Any:
    def function() -> None: ...

    function.__doc__ = doc
    return function


# docstring, Markdown
TEXTS = [
    ("One line.", "One line."),
    ("A.\n\n>>> f(1)\n2\n\nB.", "A.\n\n\n```pycon\n>>> f(1)\n2\n```\n\nB."),
    (">>> f(1)\na\n<BLANKLINE>\nb", "```pycon\n>>> f(1)\na\n\nb\n```"),
    ("See docs/guide/fx.md.", "See [fx](../guide/fx.md)."),
    ("# no heading", "\\# no heading"),
]


@pytest.mark.parametrize(("doc", "shown"), TEXTS)
def test_docstrings_become_markdown(doc: str, shown: str) -> None:
    assert reference.text(documented(doc)) == shown


def typed(self: Any, x: int, *rest: int, y: str = "a", z: Any = object()) -> None:  # noqa: B008
    """A function to show."""


SIGNATURES = [
    (typed, False, "(self, x, *rest, y='a', z=...)"),
    (typed, True, "(x, *rest, y='a', z=...)"),
    (lambda kind=int: kind, False, "(kind=int)"),
    (lambda *args: args, True, "(*args)"),
    (3, False, "(...)"),
]


@pytest.mark.parametrize(("value", "bound", "shown"), SIGNATURES)
def test_signatures_are_short(value: Any, bound: bool, shown: str) -> None:
    assert reference.signature(value, bound) == shown


@functools.cache
def pages() -> dict[str, str]:
    return reference.pages()


# page, entry
ENTRIES = [
    ("tensor", "{py:method} lucerne.Tensor.backward("),
    ("tensor", "{py:property} lucerne.Tensor.shape\n"),
    ("dtypes", "{py:data} lucerne.bfloat16\n"),
    ("creation", "{py:function} lucerne.zeros("),
    ("elementwise", "{py:function} lucerne.add("),
    ("tools", "{py:function} lucerne.compile("),
    ("nn", "{py:class} lucerne.nn.Linear(in_features, out_features"),
    ("nn.functional", "{py:function} lucerne.nn.functional.relu("),
    ("utils.data", "{py:class} lucerne.utils.data.DataLoader("),
    ("run_state", "{py:class} lucerne.run_state.RunState("),
    ("compiler", "{py:function} lucerne.compiler.list_backends("),
]


@pytest.mark.parametrize(("page", "entry"), ENTRIES)
def test_names_are_in_the_reference(page: str, entry: str) -> None:
    assert entry in pages()[page]


@pytest.mark.parametrize("page", [*(r.name for r in NAMESPACES), *(r[0] for r in PAGES_OF_THE_TOP)])
def test_no_page_of_the_reference_is_empty(page: str) -> None:
    assert len(reference.ENTRY.findall(pages()[page])) >= 2


def test_names_of_the_reference_are_unique() -> None:
    for page, body in pages().items():
        heads = [line for line in body.splitlines() if reference.ENTRY.match(line)]
        assert len(set(heads)) == len(heads), page


# links of a page that has the place `here`, those that are dead
BUILT = [
    ('<a href="b.html#there">', []),
    ('<a href="b.html#nowhere">', ["b.html#nowhere"]),
    ('<a href="#here"><a href="#gone">', ["#gone"]),
    ('<a href="c.html">', ["c.html"]),
    ('<img src="x.png"><a href="https://x.org/c.html">', ["x.png"]),
]


@pytest.mark.parametrize(("body", "lost"), BUILT)
def test_dead_links_of_the_site_are_found(body: str, lost: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(f'<h1 id="here">A</h1>{body}')
    (tmp_path / "b.html").write_text('<h1 id="there">B</h1>')
    assert links.dead(tmp_path) == [f"a.html links to {target}" for target in lost]
