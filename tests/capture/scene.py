"""A scene: a function, what it is called with three times, and what is looked at after each call.

A row of the tables is a function without arguments that builds a scene from a seed, so that both
sides (as it is, and compiled) begin with equal tensors that share nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import lucerne as torch
from tests.capture.observe import Observer, differences

CALLS = 3


@dataclass
class Scene:
    """`calls`: the arguments of the calls in turn (the last ones are used again)."""

    fn: Any
    calls: Sequence[tuple[Any, ...]]
    kwargs: dict[str, Any] = field(default_factory=dict)
    watched: dict[str, Any] = field(default_factory=dict)
    after: Callable[[int, Any], Any] | None = None
    """Called with the number of the call and its result; what it returns is looked at too."""
    versions: int | None = 1
    """How many times it is compiled; None: not looked at."""
    compile: Callable[..., Any] = torch.compile
    repeats: int = CALLS
    options: dict[str, Any] = field(default_factory=dict)
    """More options of `compile`."""
    fallback: str = ""
    """A piece of the reason why it runs uncompiled; empty: it must be compiled."""


Row = Callable[[], Scene]


def collector(rows: list[Row]) -> Callable[[Row], Row]:
    """A decorator that adds a row to a table."""

    def add(row: Row) -> Row:
        rows.append(row)
        return row

    return add


def data(*shape: int, grad: bool = False) -> Any:
    return torch.randn(*shape).requires_grad_(grad)


def mlp() -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.BatchNorm1d(4), nn.Linear(4, 2))


def observed(row: Row, compiled: bool, **options: Any) -> tuple[list[Any], Any]:
    """Everything that can be seen at each of three calls, and the compiled function."""
    torch.manual_seed(0)
    scene = row()
    fn = scene.fn
    if compiled:
        given = {"fullgraph": not scene.fallback, **scene.options, **options}
        fn = scene.compile(fn, **given)
    found = []
    for k in range(scene.repeats):
        args = scene.calls[min(k, len(scene.calls) - 1)]
        observer = Observer()
        seen: dict[str, Any] = {"given": observer.see([args, scene.kwargs])}
        result: Any
        try:
            if scene.fallback and k == 0:
                result = silently(lambda a=args: fn(*a, **scene.kwargs))
            else:
                result = fn(*args, **scene.kwargs)
            after = scene.after(k, result) if scene.after is not None else None
        except Exception as error:
            result, after = error, None
        seen["returned"] = observer.see(result)
        seen["arguments"] = observer.see([args, scene.kwargs])
        seen["watched"] = observer.see(scene.watched)
        seen["after"] = observer.see(after)
        found.append(seen)
    return found, fn


def check(row: Row, **options: Any) -> list[str]:
    """What differs between a row as it is and compiled."""
    want, _ = observed(row, compiled=False)
    have, fn = observed(row, compiled=True, **options)
    found = [
        text
        for k, (a, b) in enumerate(zip(want, have, strict=True))
        for text in differences(a, b, f"call {k}")
    ]
    torch.manual_seed(0)
    scene = row()
    made = entries_of(fn)
    if scene.fallback:
        why = given_up(fn) or "; ".join(map(str, fn.breaks))
        if scene.fallback not in why:
            found.append(f"runs uncompiled because of {why!r}, expected {scene.fallback!r}")
    elif scene.versions is not None and made is not None and made != scene.versions:
        found.append(f"compiled {made} times, expected {scene.versions}")
    return found


def entries_of(fn: Any) -> int | None:
    """How many versions a compiled function or module has."""
    if isinstance(fn, torch.nn.Module):
        fn = fn.__dict__.get("forward", fn)
    entries = getattr(fn, "entries", None)
    return None if entries is None else len(entries)


def given_up(fn: Any) -> str:
    """Why a compiled function or module runs uncompiled; empty: it does not."""
    if isinstance(fn, torch.nn.Module):
        fn = fn.__dict__.get("forward", fn)
    return fn.given_up or ""


def silently(action: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return action()
