"""The page: well-formed, complete in itself, and its parts refer to each other."""

from __future__ import annotations

import html.parser
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.explain import page
from lucerne._src.explain.report import Report
from tests.explain.scenes import Training, batch, broken

VOID = frozenset(("meta", "br", "line", "rect", "circle", "polygon", "polyline"))
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


class Checker(html.parser.HTMLParser):
    """Notes tags that are not closed, and the names of kernels by the tag that has them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.problems: list[str] = []
        self.kernels: dict[str, set[str]] = {}

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        given = dict(attrs)
        for name in given:
            if name in ("src", "href", "srcset"):
                self.problems.append(f"{tag} loads {given[name]}")
        names = set((given.get("data-k") or "").split())
        kind = tag if tag != "div" else "line"
        self.kernels.setdefault(kind, set()).update(names)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes nothing at {self.getpos()}")


def assert_well_formed(text: str) -> Checker:
    found = Checker()
    found.feed(text)
    assert not found.problems, found.problems[:5]
    assert not found.open, found.open
    return found


def test_the_checker_sees_mistakes() -> None:
    for wrong in ("<p><b></p></b>", "<p>", '<img src="http://x">'):
        with pytest.raises(AssertionError):
            assert_well_formed(wrong)


@pytest.fixture(scope="module")
def pages() -> dict[str, tuple[Report, str]]:
    step = torch.explain(Training().step)(*batch())
    parts = torch.explain(broken)(torch.ones(16, 16), 2.0)
    empty = Report("nothing", "", 0, given_up="it <can't>")
    return {
        "step": (step.report, step.html()),
        "parts": (parts.report, parts.html()),
        "empty": (empty, page.page(empty)),
    }


@pytest.mark.parametrize("name", ["step", "parts", "empty"])
def test_pages(name: str, pages: Any) -> None:
    report, text = pages[name]
    found = assert_well_formed(text)
    assert len(text) < 1 << 20
    assert not re.search(r"https?://|@import|url\(", text)
    kernels = {f"{p}-{k.number}" for p, part in enumerate(report.parts) for k in part.kernels}
    for tag in ("g", "rect", "tr", "line"):
        assert found.kernels.get(tag, set()) <= kernels, tag
    for tag in ("g", "tr"):  # the timeline and the table have them all
        assert found.kernels.get(tag, set()) == kernels, tag


def test_what_comes_from_users_is_escaped(pages: Any) -> None:
    text = pages["empty"][1]
    assert "it &lt;can&#x27;t&gt;" in text
    assert "<can" not in text


def test_lines_lead_to_their_kernels(pages: Any) -> None:
    report, text = pages["step"]
    found = assert_well_formed(text)
    from_lines = {f"0-{k.number}" for k in report.kernels() if k.origins}
    assert found.kernels["line"] == from_lines


def test_breaks_are_told_beside_the_line(pages: Any) -> None:
    report, text = pages["parts"]
    assert report.breaks
    for b in report.breaks:
        assert text.count(page.text(b.fix)) >= 2  # at the top, and in the source


def test_save_and_notebooks(tmp_path: Path) -> None:
    found = torch.explain(lambda x: x + 1)(torch.ones(2))
    found.save(tmp_path / "a.html")
    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    assert found._repr_html_().startswith("<iframe srcdoc=")


@pytest.mark.nightly
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium to open the page with")
def test_chromium_opens_it_without_an_error(tmp_path: Path, pages: Any) -> None:
    file = tmp_path / "page.html"
    hover = (
        "<script>document.querySelector('.line.k').dispatchEvent("
        "new MouseEvent('mouseover',{bubbles:true}));"
        "document.title=document.querySelectorAll('.hot').length</script>"
    )
    file.write_text(pages["step"][1].replace("</body>", hover + "</body>"))
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--dump-dom",
        f"file://{file}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "CONSOLE" not in done.stderr, done.stderr
    [lit] = re.findall(r"<title>(\d+)</title>", done.stdout)
    assert int(lit) > 3
