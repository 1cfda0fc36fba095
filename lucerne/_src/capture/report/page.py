"""The frame of our pages, and the plain ones: dumps and the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_STYLE = (
    ":root{color-scheme:light dark}body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;"
    "max-width:78rem;padding:0 1rem}h1{font-size:1.4rem}table{border-collapse:collapse;"
    "font-variant-numeric:tabular-nums}td,th{text-align:left;padding:.2rem .9rem .2rem 0;"
    "border-bottom:1px solid #8884;vertical-align:top}td.r{text-align:right;white-space:nowrap}"
    "i{display:inline-block;height:.6rem;background:#3b6fd4;opacity:.6;border-radius:2px}"
    "pre{overflow:auto}small{opacity:.7}.bad{color:#c8322b}"
)


def escape(text: str) -> str:
    """Text as HTML. (Python's `html` takes longer to load than to write all of our pages.)"""
    for sign, word in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot"), ("'", "#x27")):
        text = text.replace(sign, f"&{word};")
    return text


def document(title: str, style: str, body: str) -> str:
    """A whole file with everything in it."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{style}</style></head><body>{body}</body></html>\n"
    )


def page(title: str, body: str) -> str:
    """A plain page."""
    return document(title, _STYLE, f"<h1>{escape(title)}</h1>{body}")


def _right(is_number: object) -> str:
    return ' class="r"' if is_number else ""


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 0, style: str = ""
) -> str:
    """A table of cells that are HTML already. `left`: how many columns hold words; 0: it is not
    known, and cells that begin with a digit stand right."""
    head = "".join(f"<th{_right(left and k >= left)}>{escape(h)}</th>" for k, h in enumerate(heads))
    body = "".join(
        "<tr>" + "".join(
            f"<td{_right(k >= left if left else c[:1].isdigit())}>{c}</td>"
            for k, c in enumerate(row)
        ) + "</tr>"
        for row in rows
    )  # fmt: skip
    named = f' class="{style}"' if style else ""
    return f"<table{named}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
