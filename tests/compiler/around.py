"""What a caller does around a call: two calls that add up, hooks, autocast, a graph kept, ...

`python -m tests.compiler.fuzz --around all` runs every program of gradients in one of these ways.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.compiler.inputs import Argument
from tests.compiler.program import Program

Differentiate = Callable[[list[Any]], None]
Around = Callable[[Any, Callable[..., Any], list[Argument], Differentiate], list[Any]]


def _values(given: list[Argument]) -> list[Any]:
    return [a.value for a in given]


def _needs_grad(x: Any) -> bool:
    return bool(getattr(x, "requires_grad", False))


def _plain(module: Any, fn: Any, given: list[Argument], back: Differentiate) -> list[Any]:
    outputs = list(fn(*_values(given)))
    back(outputs)
    return outputs


def _two_calls(module: Any, fn: Any, given: list[Argument], back: Differentiate) -> list[Any]:
    """Gradients of two calls add up."""
    _plain(module, fn, given, back)
    return _plain(module, fn, given, back)


def _calls_before_passes(
    module: Any, fn: Any, given: list[Argument], back: Differentiate
) -> list[Any]:
    """Both calls first, as one loss of two batches has it."""
    first, second = list(fn(*_values(given))), list(fn(*_values(given)))
    back(first)
    back(second)
    return second


def _computed(module: Any, fn: Any, given: list[Argument], back: Differentiate) -> list[Any]:
    """Arguments that others computed."""
    outputs = list(fn(*[v * 1.5 if _needs_grad(v) else v for v in _values(given)]))
    back(outputs)
    return outputs


def _used_elsewhere(module: Any, fn: Any, given: list[Argument], back: Differentiate) -> list[Any]:
    """Arguments that others computed, and used before and after."""
    values = [v * 1.5 if _needs_grad(v) else v for v in _values(given)]
    before = [v.sin() for v in values if _needs_grad(v)]
    outputs = list(fn(*values))
    after = [v.cos() for v in values if _needs_grad(v)]
    back([*before, *outputs, *after])
    return outputs


def _used_again(module: Any, fn: Any, given: list[Argument], back: Differentiate) -> list[Any]:
    """Results that several calls use, some of which come before others."""
    outputs = list(fn(*_values(given)))
    wanted = [o for o in outputs if _needs_grad(o)]
    back([x for o in wanted for x in (o.sin(), o, o * wanted[0].sum())] + [o.cos() for o in wanted])
    return outputs


def _last(module: Any, fn: Any, given: list[Argument], back: Differentiate) -> list[Any]:
    """From the last result alone."""
    outputs = list(fn(*_values(given)))
    back([o for o in outputs if _needs_grad(o)][-1:])
    return outputs


def _one_by_one(module: Any, fn: Any, given: list[Argument], back: Differentiate) -> list[Any]:
    """One pass per result, each of a call of its own."""
    count = len(list(fn(*_values(given))))
    outputs: list[Any] = []
    for k in range(count):
        outputs = list(fn(*_values(given)))
        if _needs_grad(outputs[k]):
            back([outputs[k]])
    return outputs


def _hooks(module: Any, fn: Any, given: list[Argument], back: Differentiate) -> list[Any]:
    """Hooks on arguments and results."""
    for v in _values(given):
        if _needs_grad(v):
            v.register_hook(lambda g: g * 2)
    outputs = list(fn(*_values(given)))
    for o in outputs:
        if _needs_grad(o) and not o.is_leaf:
            o.register_hook(lambda g: g * 0.5)
    back(outputs)
    return outputs


def _autocast(module: Any, fn: Any, given: list[Argument], back: Differentiate) -> list[Any]:
    with module.autocast("cpu", dtype=module.bfloat16):
        outputs = list(fn(*_values(given)))
    back(outputs)
    return outputs


def _no_grad(module: Any, fn: Any, given: list[Argument], back: Differentiate) -> list[Any]:
    """Now without history, now with one."""
    with module.no_grad():
        fn(*_values(given))
    return _plain(module, fn, given, back)


def _cleared(module: Any, fn: Any, given: list[Argument], back: Differentiate) -> list[Any]:
    """A step, gradients set to nought where they are, another step."""
    _plain(module, fn, given, back)
    for v in _values(given):
        if _needs_grad(v) and v.grad is not None:
            v.grad.zero_()
    return _plain(module, fn, given, back)


AROUND: dict[str, Around] = {
    "": _plain,
    "two calls": _two_calls,
    "calls before passes": _calls_before_passes,
    "computed": _computed,
    "used elsewhere": _used_elsewhere,
    "used again": _used_again,
    "last": _last,
    "one by one": _one_by_one,
    "hooks": _hooks,
    "autocast": _autocast,
    "no_grad": _no_grad,
    "cleared": _cleared,
}


def called(program: Program, around: str) -> Program:
    """The program, called in another way ("all": each seed in one of them)."""
    if program.grad == "none":
        return program
    if around == "all":
        ways = [n for n in AROUND if n]
        around = ways[program.seed % len(ways)]
    return replace(program, around=around)
