"""The table of programs: small functions with arguments, and what can be seen of a run.

Each program is a `Case`; the modules `programs_*.py` fill the table. A run is described by
`observe_run`: the result or the exception (type, text, causes, lines), what was printed, and the
arguments afterwards, all as plain data that can be compared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import io
import types
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lucerne._src.tensor.base import TensorBase

Args = tuple[Any, ...]


def _arguments(args: Args) -> Any:
    return args


@dataclasses.dataclass(frozen=True)
class Case:
    """One program with its arguments."""

    name: str
    fn: Callable[..., Any]
    make_args: Callable[[], Args]
    observe: Callable[[Args], Any] = _arguments
    """What is looked at after the call, from the arguments it was given."""
    reset: Callable[[], Any] = tuple
    """Called before each run, to put module state back."""

    def __str__(self) -> str:
        return self.name

    @property
    def group(self) -> str:
        """The module it stands in, without `programs_`."""
        return self.fn.__module__.rpartition("programs_")[2]


CASES: list[Case] = []


def case(
    *make_args: Callable[[], Args],
    observe: Callable[[Args], Any] = _arguments,
    reset: Callable[[], Any] = tuple,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function into the table, once for each of these makers of arguments."""

    def enter(fn: Callable[..., Any]) -> Callable[..., Any]:
        for k, make in enumerate(make_args or (tuple,)):
            name = fn.__name__ if len(make_args) < 2 else f"{fn.__name__}-{k}"
            CASES.append(Case(name, fn, make, observe, reset))
        return fn

    return enter


Run = Callable[[Callable[..., Any], Args], Any]


def observe_run(one: Case, run: Run) -> dict[str, Any]:
    """Run a program and say what was seen of it."""
    one.reset()
    args = one.make_args()
    seen: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            seen["result"] = plain(run(one.fn, args))
        except Exception as error:
            seen["error"] = plain_error(error)
    seen["printed"] = printed.getvalue()
    seen["warned"] = [(w.category.__name__, str(w.message), w.lineno) for w in warned]
    seen["after"] = plain(one.observe(args))
    return seen


def natively(fn: Callable[..., Any], args: Args) -> Any:
    """Python's own run."""
    return fn(*args)


def plain_error(error: BaseException | None, depth: int = 6) -> Any:
    """An exception as plain data: with the user's lines it went through."""
    if error is None or not depth:
        return None
    lines = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if "programs_" in Path(code.co_filename).name:
            lines.append((code.co_name, trace.tb_lineno))
        trace = trace.tb_next
    parts = (
        [plain_error(e, depth - 1) for e in error.exceptions]
        if isinstance(error, BaseExceptionGroup)
        else []
    )
    return (
        type(error).__name__,
        str(error),
        lines,
        plain_error(error.__cause__, depth - 1),
        plain_error(error.__context__, depth - 1),
        error.__suppress_context__,
        parts,
    )


def plain(value: Any, depth: int = 8) -> Any:
    """Any value as plain data: types are told, addresses are not."""
    if depth == 0:
        return "..."
    if value is None or isinstance(value, bool | int | str | bytes | complex | type(Ellipsis)):
        return (type(value).__name__, repr(value))
    if isinstance(value, float):
        return ("float", repr(value))
    if isinstance(value, TensorBase):
        grad = value.grad if value.requires_grad and value.is_leaf else None
        known = (tuple(value.shape), str(value.dtype), value.requires_grad)
        return ("tensor", known, plain(value.tolist()), plain(grad, depth - 1))
    if isinstance(value, enum.Enum):
        return ("enum", repr(value))
    if isinstance(value, BaseException):
        return plain_error(value)
    return _plain_object(value, depth)


def _plain_object(value: Any, depth: int) -> Any:
    kind = type(value).__name__
    if isinstance(value, type):
        return ("class", value.__qualname__)
    if isinstance(value, types.GeneratorType):
        return ("generator", value.__name__)
    if isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return ("function", value.__qualname__)
    if isinstance(value, Mapping):
        pairs = [(plain(k, depth - 1), plain(v, depth - 1)) for k, v in value.items()]
        return (kind, pairs)
    if isinstance(value, set | frozenset):
        return (kind, sorted(plain(v, depth - 1) for v in value))
    if isinstance(value, Sequence | deque):
        items = [plain(v, depth - 1) for v in value]
        return (kind, items, plain_vars(value, depth))
    return (kind, plain_vars(value, depth))


def plain_vars(value: Any, depth: int) -> Any:
    """The attributes of an object, slots included."""
    found = {}
    for base in type(value).__mro__:
        for name in base.__dict__.get("__slots__", ()):
            if hasattr(value, name):
                found[name] = plain(getattr(value, name), depth - 1)
    own = getattr(value, "__dict__", {})
    found.update({k: plain(v, depth - 1) for k, v in own.items() if not k.startswith("__")})
    return sorted(found.items())


def assert_same(one: Case, expected: dict[str, Any], got: dict[str, Any], how: str = "") -> None:
    """Raise if two runs of a program differ in anything that can be seen."""
    wrong = [key for key in expected.keys() | got.keys() if expected.get(key) != got.get(key)]
    if wrong:
        shown = "\n".join(
            f"  {key}: expected {expected.get(key)!r}\n  {key}:      got {got.get(key)!r}"
            for key in sorted(wrong)
        )
        raise AssertionError(f"{one.group}.{one.name} {how}\n{shown}")
