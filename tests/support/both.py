"""Run the same source under torch and under Lucerne and compare what it shows."""

import contextlib
import copy
import io
import math
import operator
import pickle
import textwrap
import types
import warnings
from typing import Any

import numpy as np

Shown = tuple[str, ...]


def show(module: types.ModuleType, source: str, *, errors: bool = False) -> Shown:
    """What an expression or a few lines print and give, or which error they raise.

    The last line, if it is an expression, is shown by its repr. With `errors` the first line of an
    error's text counts too; else only its type.
    """
    scope = {"torch": module, "np": np, "math": math, "copy": copy, "pickle": pickle}
    scope |= {"operator": operator}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.manual_seed(0)
        try:
            value = _run(textwrap.dedent(source).strip(), scope)
        except Exception as error:
            text = str(error).split("\n")[0] if errors else ""
            return ("raised", type(error).__name__, _plain(text))
    return ("gave", _plain(printed.getvalue()), _plain(repr(value)))


def _run(source: str, scope: dict[str, Any]) -> Any:
    *lines, last = source.split("\n")
    while lines and (last.startswith((" ", ")", "]")) or _open(lines)):
        last = f"{lines.pop()}\n{last}"
    exec("\n".join(lines), scope)
    try:
        code = compile(last, "<source>", "eval")
    except SyntaxError:
        exec(last, scope)
        return None
    return eval(code, scope)


def _open(lines: list[str]) -> bool:
    text = "\n".join(lines)
    return any(text.count(a) > text.count(b) for a, b in ("()", "[]", "{}"))


def _plain(text: str) -> str:
    return text.replace("lucerne", "torch")
