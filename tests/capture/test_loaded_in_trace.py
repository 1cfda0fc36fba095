"""Modules that are loaded by the very call that is captured: what they hold lasts."""

from __future__ import annotations

import gc
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lucerne as torch

NAME = "loaded_in_a_trace"


@pytest.fixture
def unloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of the user's that nobody has loaded yet."""
    (tmp_path / f"{NAME}.py").write_text("calls, on = 0, False\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop(NAME, None)


def by_statement(x: Any) -> Any:
    import loaded_in_a_trace as m  # type: ignore[import-not-found]

    m.calls += 1
    m.on = not m.on
    return x * (2 if m.on else 3)


def by_function(x: Any) -> Any:
    m = importlib.import_module(NAME)
    m.calls += 1
    m.on = not m.on
    return x * (2 if m.on else 3)


@pytest.mark.usefixtures("unloaded")
@pytest.mark.parametrize("fn", [by_statement, by_function])
def test_what_it_holds_changes_at_each_call(fn: Callable[[Any], Any]) -> None:
    compiled, x = torch.compile(fn), torch.ones(3)
    for k in range(1, 6):
        assert compiled(x).tolist() == [2.0 if k % 2 else 3.0] * 3
        m: types.ModuleType = sys.modules[NAME]
        assert (m.calls, m.on) == (k, k % 2 == 1)


@pytest.mark.parametrize(("library", "setting"), [("cudnn", "benchmark"), ("mkldnn", "enabled")])
def test_settings_of_libraries(library: str, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"lucerne.backends.{library}"
    loaded = getattr(torch.backends, library)
    first = getattr(loaded, setting)
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(torch.backends, library)

    def fn(x: Any) -> Any:
        there = getattr(torch.backends, library)
        setattr(there, setting, not getattr(there, setting))
        return x * 2

    compiled, x = torch.compile(fn), torch.ones(3)
    for k in range(1, 5):
        assert compiled(x).tolist() == [2.0] * 3
        assert getattr(sys.modules[name], setting) is (first == (k % 2 == 0))


@pytest.mark.parametrize("library", ["cudnn", "mkldnn"])
def test_a_trace_that_ends_inside_puts_back_what_it_loaded(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    getattr(torch.backends, library)
    monkeypatch.delitem(sys.modules, f"lucerne.backends.{library}")
    monkeypatch.delattr(torch.backends, library)

    def fn(x: Any) -> Any:
        with getattr(torch.backends, library).flags(enabled=False):
            y = x * 2 if float(x.sum()) > 0 else x - 1
            y = y + torch.rand(3) * 0
        return y * 3

    compiled = torch.compile(fn)
    for k in range(4):
        x = torch.full((3,), float(k - 1))
        assert torch.equal(compiled(x), fn(x))
        gc.collect()
        assert getattr(torch.backends, library).enabled
