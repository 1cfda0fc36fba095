"""The programs of the bytecode machine (`tests.capture_bytecode`), compiled."""

from __future__ import annotations

import warnings
from typing import Any

import lucerne as torch
from tests.capture_bytecode.cases import Case, observe_run
from tests.capture_bytecode.table import CASES

CALLS = 4


def machine_cases() -> list[Case]:
    """All of them."""
    return CASES


def compare_case(one: Case) -> tuple[list[str], Any]:
    """Where the compiled function differs from Python's own run, and the function."""
    compiled = torch.compile(one.fn)

    def call(_: Any, args: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*runs uncompiled")
            return compiled(*args)

    wrong = []
    for k in range(CALLS):
        want = observe_run(one, lambda fn, args: fn(*args))
        have = observe_run(one, call)
        for key in sorted(want.keys() | have.keys()):
            a, b = want.get(key), have.get(key)
            if a != b:
                wrong.append(f"call {k}, {key}: {a!r} got {b!r}")
    return wrong, compiled
