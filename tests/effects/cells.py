"""A cell both ways: what eager does and what the compiled function does, and where they differ."""

from __future__ import annotations

import contextlib
import io
import linecache
import random
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import lucerne as torch
from lucerne._src.base.config import config
from tests.effects.columns import Column
from tests.effects.kinds import Kind
from tests.effects.text import source

EVENTS = (0, 0, 2.0, 0, 0, 1.0, 0, "size", 3.0, 0)
"""Calls (0), changes by the caller (a number: `k`), and a call of another size."""


class Found(NamedTuple):
    """What came of a cell."""

    differs: list[str]
    how: str
    """`graph`, `parts`, `eager`: how it ran; "-": the program itself does not work."""


def module_of(text: str, name: str) -> types.ModuleType:
    """A module of its own with that text."""
    made = types.ModuleType(name)
    made.__file__ = f"/effects/{name}.py"
    linecache.cache[made.__file__] = (len(text), None, text.splitlines(True), made.__file__)
    sys.modules[name] = made
    exec(compile(text, made.__file__, "exec"), made.__dict__)
    return made


def _leaves(x: Any) -> Iterator[Any]:
    if isinstance(x, (tuple, list)):
        for part in x:
            yield from _leaves(part)
    else:
        yield x


def _seen(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return str(x.dtype), tuple(x.shape), x.requires_grad, x.detach().double().numpy().copy()
    if isinstance(x, float):
        return "float", np.float64(x)
    if isinstance(x, (np.generic, np.ndarray)):
        return type(x).__name__, np.asarray(x).copy()
    return repr(x)


def seed() -> None:
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)


def run(program: Any, through: Any, grad: bool = True) -> tuple[list[tuple[str, Any]], Any]:
    """What is seen of all calls: (what it is, the value)."""
    seed()
    seen: list[tuple[str, Any]] = []
    fn, change, state, undo, more = program.make()
    called = through(fn)
    try:
        seen += _calls(called, change, state, more, grad)
    finally:
        undo()
    seen.append(
        ("random numbers", (random.random(), float(np.random.rand()), float(torch.rand(()))))
    )
    return seen, called


def _calls(called: Any, change: Any, state: Any, more: Any, grad: bool) -> list[tuple[str, Any]]:
    """What is seen of the calls themselves."""
    seen: list[tuple[str, Any]] = []
    for n, event in enumerate(EVENTS):
        if type(event) is float:
            seen.append((f"change {n}", _told(lambda k=event: change(k))))
            continue
        size = 5 if event == "size" else 3
        x = torch.linspace(-1.0, 1.0 + n / 4, size)
        x.requires_grad_(grad and not x.is_inference())
        told = io.StringIO()
        with contextlib.redirect_stdout(told), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result = called(x, *more)
                seen += [(f"call {n} gives", _seen(v)) for v in _leaves(result)]
                total = next(_leaves(result))
                if isinstance(total, torch.Tensor) and total.requires_grad:
                    total.sum().backward()
            except Exception as error:
                seen.append((f"call {n} raises", f"{type(error).__name__}: {error}"))
        seen.append((f"call {n}, gradient", None if x.grad is None else _seen(x.grad)))
        seen.append((f"call {n} prints", told.getvalue()))
        seen.append((f"call {n}, state", _told(state)))
    return seen


def _told(state: Any) -> str:
    try:
        return repr(state())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def differences(want: Any, have: Any) -> list[str]:
    found = [
        f"{a[0]} {a[1]}, compiled {b[0]} {b[1]}"
        for a, b in zip(want, have, strict=False)
        if a[0] != b[0] or not _same(a[1], b[1])
    ]
    return found or ([] if len(want) == len(have) else ["another number of results"])


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, (np.ndarray, np.floating)) and isinstance(b, (np.ndarray, np.floating)):
        return np.shape(a) == np.shape(b) and bool(np.allclose(a, b, 1e-6, 1e-6, equal_nan=True))
    return type(a) is type(b) and bool(a == b)


def works(seen: list[tuple[str, Any]], column: str) -> str:
    """Why a program is none: it raises what it was not written to raise."""
    for what, value in seen:
        if what.endswith("raises") and value != "ValueError: after it":
            return str(value)
    return ""


def check(kind: Kind, column: Column, place: str, *, grad: bool = True, **options: Any) -> Found:
    """One cell."""
    text = source(kind, column, place)
    options["mode"] = kind.mode or options.get("mode")
    name = "cell_" + "".join(
        c if c.isalnum() else "_" for c in f"{kind.name}_{column.name}_{place}"
    )
    kept, config.payoff_calls = config.payoff_calls, 0
    try:
        want, _ = run(module_of(text, name), lambda f: f, grad)
        why = works(want, column.name)
        if why:
            return Found([f"eager {why}"], "-")
        have, fn = run(module_of(text, name), lambda f: torch.compile(f, **options), grad)
    finally:
        config.payoff_calls = kept
        sys.modules.pop(name, None)
        linecache.cache.pop(f"/effects/{name}.py", None)
    return Found(differences(want, have), how_it_ran(fn))


def how_it_ran(fn: Any) -> str:
    if fn.given_up:
        return "eager"
    return "parts" if fn.segmented is not None else "graph"
