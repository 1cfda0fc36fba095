"""A cell as the text of a program: `make()` gives its function, how it is changed, what is seen."""

from __future__ import annotations

import re
import textwrap

from tests.effects.columns import Column
from tests.effects.kinds import Kind

IMPORTS = """
import abc, array, collections, contextlib, contextvars, copy, dataclasses, enum, functools, gc
import heapq, bisect, io, itertools, math, operator, os, queue, random, re, struct, sys, tempfile
import threading, time, types, weakref, string, ctypes, typing
import numpy as np
import lucerne as torch
from lucerne import nn
from lucerne.utils.checkpoint import checkpoint
CALLS = []
@torch.compiler.disable
def pause():
    CALLS.append(0)
"""


def fits(kind: Kind, column: Column, place: str) -> bool:
    """Whether there is such a program."""
    if column.writes and not kind.write:
        return False
    if kind.rebinds and (place in ("argument", "attribute") or column.name == "method"):
        return False
    if column.name == "module" and place == "argument":
        return False
    return place in kind.places


def source(kind: Kind, column: Column, place: str) -> str:
    """The program of a cell."""
    named = "H.S" if place == "attribute" else "S"
    handed = place == "argument"
    seen = kind.state or f"told({kind.read})"
    binds = {"global": "global S\n", "closure": "nonlocal S\n"}.get(place, "")
    binds = binds if kind.rebinds else ""
    helpers = _passed(column.helpers, handed, binds)
    body = _passed(column.body, handed, "")
    parts = [
        kind.setup.strip(),
        "class Holder: pass\nH = Holder()\nH.S = S" if place == "attribute" else "",
        _filled(helpers, kind, binds, named),
        "def f(x" + (", S" if handed else "") + "):",
        textwrap.indent(binds + _filled(body, kind, "", named), "    "),
        "def change(k):",
        textwrap.indent(binds + _named(kind.change or "pass", named), "    "),
        "def state():",
        textwrap.indent("return " + _named(seen, named), "    "),
        "def undo():",
        textwrap.indent(_named(kind.undo or "pass", named), "    "),
    ]
    text = "\n".join(p for p in parts if p)
    giving = "return f, change, state, undo" + (", (S,)" if handed else ", ()")
    if place == "closure":
        inside = textwrap.indent(f"{text}\n{giving}", "    ")
        return f"{IMPORTS}{_TOLD}\ndef make():\n{inside}\n"
    return f"{IMPORTS}{_TOLD}\n{text}\ndef make():\n    {giving}\n"


_TOLD = """
def told(v):
    if isinstance(v, torch.Tensor):
        return str(v.dtype), v.requires_grad, [round(float(n), 5) for n in v.detach().flatten()]
    if isinstance(v, float):
        return round(v, 5)
    if isinstance(v, np.ndarray):
        return v.tolist()
    if isinstance(v, (list, tuple)):
        return [told(n) for n in v]
    if isinstance(v, dict):
        return {str(k): told(n) for k, n in v.items()}
    return repr(v)
"""


def _named(text: str, named: str) -> str:
    return text if named == "S" else re.sub(r"(?<![\w.'\"])S(?!\w)", named, text)


def _passed(text: str, handed: bool, binds: str) -> str:
    """`S` is handed to functions beside `f` if it is an argument, and found by them if not."""
    if handed:
        return text
    text = text.replace("functools.partial(reader, S=S)", "reader")
    text = text.replace(", S)", ")")
    text = text.replace("Other(S)", "Other(0)").replace("        S = self.s\n", "")
    return text


def _filled(text: str, kind: Kind, binds: str, named: str) -> str:
    """A template with the pieces of a kind in it."""
    lines: list[str] = []
    for line in text.splitlines():
        room = line[: len(line) - len(line.lstrip())]
        if line.strip() == "WRITE":
            lines.append(textwrap.indent(_named(kind.write, named), room))
        else:
            lines.append(line.replace("READ", f"({_named(kind.read, named)})"))
        if binds and line.lstrip().startswith("def "):
            lines.append(textwrap.indent(binds.rstrip("\n"), room + "    "))
    return "\n".join(lines)
