"""Programs of the table through `lucerne.compile`."""

from __future__ import annotations

from typing import Any

import lucerne
from tests.capture_bytecode.cases import Case, assert_same, natively, observe_run


def assert_compiled_same(one: Case, calls: int = 3) -> None:
    """Raise if a call of a program through `lucerne.compile` differs from Python's."""
    expected = without_lines(observe_run(one, natively))
    fn = lucerne.compile(one.fn)
    for k in range(calls):
        seen = without_lines(observe_run(one, lambda _, args: fn(*args)))
        assert_same(one, expected, seen, f"compiled, call {k + 1}")


def without_lines(seen: dict[str, Any]) -> dict[str, Any]:
    """What is compared of a compiled run: not tracebacks, no warnings (breaks are told), and not
    the sign of a zero (`relu(x - 1)` and the like may be computed in another order)."""
    kept = {key: value for key, value in seen.items() if key != "warned"}
    if "error" in kept:
        kept["error"] = kept["error"][:2]
    return {key: _unsigned(value) for key, value in kept.items()}


def _unsigned(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_unsigned(x) for x in value]
    return "0.0" if value == "-0.0" else value
