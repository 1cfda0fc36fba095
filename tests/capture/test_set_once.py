"""`if config.kind is None: config.kind = ...`: what is set once is no changing value."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as torch

MOST = 8
"""Versions of one part."""


class Config:
    """Settings, some of them found out at the first call."""

    kind: Any = None
    scale: float = 2.0


def _attribute(config: Any, x: Any) -> Any:
    if config.kind is None:
        config.kind = "double" if x.shape[0] > 2 else "single"
    return x * (config.scale if config.kind == "double" else 1.0)


def _missing(config: Any, x: Any) -> Any:
    if not hasattr(config, "width"):
        config.width = x.shape[-1]
    return x / config.width


def _item(config: Any, x: Any) -> Any:
    known = config.known
    if known.get("sign") is None:
        known["sign"] = -1
    return x * known["sign"]


def _made() -> Any:
    config = Config()
    config.known = {}  # type: ignore[attr-defined]
    return config


@pytest.mark.parametrize("fn", [_attribute, _missing, _item], ids=lambda f: f.__name__)
def test_set_once(fn: Any) -> None:
    eager, config = _made(), _made()
    compiled = torch.compile(lambda x: fn(config, x + 1) * 3, fullgraph=True)
    for k in range(6):
        x = torch.full((3,), float(k))
        torch.testing.assert_close(compiled(x), fn(eager, x + 1) * 3)
        assert vars(config) == vars(eager)
        if k == 3:  # it may be forgotten again
            for known in (eager, config):
                known.kind = None
                known.known.clear()
                vars(known).pop("width", None)
    assert len(compiled.entries) <= 3  # not there, there, forgotten (its name is there)
    assert not compiled.breaks


def test_a_counter_is_not_set_once() -> None:
    config = _made()

    def f(x: Any) -> Any:
        config.kind = 0 if config.kind is None else config.kind + 1
        return x + config.kind

    compiled = torch.compile(f)
    for k in range(30):
        assert compiled(torch.zeros(2)).tolist() == [k, k]
    assert len(compiled.entries) <= MOST + 1
