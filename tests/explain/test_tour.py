"""The tour through the compiler stays true."""

from __future__ import annotations

from pathlib import Path

from tests.explain import tour


def test_the_tour_prints_what_it_says() -> None:
    assert tour.differences() == []


def test_a_changed_page_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# T\n```python\nprint(1 + 1)\n```\n\n```\n3\n```\n")
    assert tour.differences(page) == ["it prints\n2\n\ninstead of\n3\n"]


def test_excerpts_of_another_machine_are_compared_by_shape(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    code = 'print("%v1 = fadd <16 x float> %a, %b")'
    for excerpt, same in (("%v7 = fadd <8 x float> %c, %d", True), ("%v7 = fmul i8 %c", False)):
        page.write_text(
            f"# T\n<!-- machine: other -->\n```python\n{code}\n```\n\n```llvm\n{excerpt}\n```\n"
        )
        assert (tour.differences(page) == []) is same
