"""Runs a case eagerly and compiled, each in a world of its own, and compares what can be seen.

After each call that is: what it returned or raised, every variable of the case with all that hangs
on it, what was printed, and the warnings of the case (they begin with "case:").
"""

from __future__ import annotations

import builtins
import contextlib
import enum
import io
import itertools
import linecache
import math
import os
import random
import signal
import sys
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import lucerne as torch
import lucerne.nn.functional as F
from lucerne import nn
from tests.capture_cases.table import Case

_NUMBERS = itertools.count(1)
_DEEPEST = 7
_SCALARS = (bool, int, float, complex, str, bytes)
_OWN = frozenset(("f", "M", "st"))
"""Variables that hold the function itself, compiled or not."""


class OutOfTimeError(BaseException):
    """A case takes too long."""


# ---- what can be seen of a value ----------------------------------------------------------------


def snapshot(v: Any, seen: tuple[int, ...] = ()) -> tuple[Any, ...]:
    """A value as plain data that later changes don't touch."""
    if id(v) in seen:
        return ("cycle",)
    if len(seen) > _DEEPEST:
        return ("deep",)
    inner = (*seen, id(v))

    def go(x: Any) -> tuple[Any, ...]:
        return snapshot(x, inner)

    if isinstance(v, torch.Tensor):
        return _tensor(v, go)
    if isinstance(v, np.ndarray):
        return "array", str(v.dtype), v.shape, v.copy()
    if isinstance(v, np.generic):
        return "number", type(v).__name__, v.item()
    if isinstance(v, enum.Enum):
        return "enum", str(v)
    if v is None or isinstance(v, _SCALARS):
        return type(v).__name__, v
    if isinstance(v, nn.Module):
        return _module(v, go)
    if isinstance(v, torch.optim.Optimizer):
        return "optimizer", go(v.state_dict())
    if isinstance(v, (list, tuple, deque)):
        return type(v).__name__, [go(x) for x in v]
    if isinstance(v, (set, frozenset)):
        return type(v).__name__, sorted(map(repr, v))
    if isinstance(v, dict):
        return type(v).__name__, [(_key(k), go(x)) for k, x in v.items()]
    if isinstance(v, (torch.dtype, torch.device)):
        return "plain", str(v)
    return _object(v, go)


def _tensor(v: Any, go: Callable[[Any], Any]) -> tuple[Any, ...]:
    d = v.detach()
    try:
        if d.layout != torch.strided:
            d = d.to_dense()
        if d.dtype in (torch.bfloat16, torch.float16):
            d = d.float()
        values = np.array(d.resolve_conj().resolve_neg().numpy(), copy=True)
    except Exception as error:
        return "tensor without values", type(v).__name__, str(v.dtype), type(error).__name__
    grad = v.grad if v.is_leaf and v.requires_grad else None
    told = type(v).__name__, str(v.dtype), tuple(v.shape), bool(v.requires_grad)
    return "tensor", *told, values, None if grad is None else go(grad)


def _module(v: Any, go: Callable[[Any], Any]) -> tuple[Any, ...]:
    own = {
        k: x
        for k, x in v.__dict__.items()
        if not k.startswith("_") and k not in ("training", "forward")
    }
    named = [(k.replace("_orig_mod.", ""), go(t)) for k, t in v.named_parameters()]
    buffers = [(k.replace("_orig_mod.", ""), go(t)) for k, t in v.named_buffers()]
    modes = [m.training for m in v.modules() if type(m).__name__ != "OptimizedModule"]
    return "module", v.training, named, buffers, [(k, go(x)) for k, x in own.items()], modes


def _object(v: Any, go: Callable[[Any], Any]) -> tuple[Any, ...]:
    functions = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)
    if isinstance(v, (types.ModuleType, type)):
        return ("skip",)
    if isinstance(v, functions):
        own = getattr(v, "__dict__", {})
        told = [(k, go(x)) for k, x in own.items() if not k.startswith("_")]
        return ("function", told) if told else ("skip",)
    if not type(v).__module__.startswith("case_"):
        return "other", type(v).__name__
    held = dict(getattr(v, "__dict__", {}))
    for name in getattr(type(v), "__slots__", ()):
        if hasattr(v, name):
            held[name] = getattr(v, name)
    return "instance", type(v).__name__, [(k, go(x)) for k, x in held.items()]


def _key(k: Any) -> str:
    return "tensor" if isinstance(k, torch.Tensor) else repr(k)


def difference(a: Any, b: Any, tolerance: float, sign: bool = False, path: str = "") -> str | None:
    """Where two snapshots differ, in words; None: nowhere.

    >>> from tests.capture_cases.runs import difference, snapshot
    >>> difference(snapshot([1, 2.0]), snapshot([1, 2.5]), 1e-5)
    '.1.1.1: 2.0, compiled 2.5'
    """
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return _of_arrays(a, b, tolerance, sign, path)
    if type(a) is not type(b):
        return f"{path}: {a!s:.150}, compiled {b!s:.150}"
    if isinstance(a, (tuple, list)):
        if len(a) != len(b):
            return f"{path}: {a!s:.200}, compiled {b!s:.200}"
        found = (
            difference(x, y, tolerance, sign, f"{path}.{_step(x, k)}")
            for k, (x, y) in enumerate(zip(a, b, strict=True))
        )
        return next((text for text in found if text), None)
    if isinstance(a, (float, complex)):
        near = a == b or (a != a and b != b) or abs(a - b) <= tolerance * max(1.0, abs(a))
        return None if near else f"{path}: {a}, compiled {b}"
    return None if a == b else f"{path}: {a!s:.200}, compiled {b!s:.200}"


def _step(x: Any, number: int) -> Any:
    named = isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], str) and len(x[0]) > 5
    return x[0] if named else number


def _of_arrays(a: Any, b: Any, tolerance: float, sign: bool, path: str) -> str | None:
    same = a.shape == b.shape and a.dtype == b.dtype
    if same and a.dtype.kind in "fc":
        same = np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
        if same and sign and a.dtype.kind == "f":
            signs = (np.signbit(a) == np.signbit(b)) | np.isnan(a) | (abs(a) > 0)
            same = bool(np.all(signs))
    elif same:
        same = np.array_equal(a, b)
    if same:
        return None
    shown = [np.array2string(x.reshape(-1)[:8], precision=5) for x in (a, b)]
    return f"{path}: {shown[0]}, compiled {shown[1]}"


# ---- one run ------------------------------------------------------------------------------------


class World:
    """A module of its own, in which a case runs."""

    def __init__(self, case: Case, wrap: Callable[..., Any]) -> None:
        self.case, self.wrap = case, wrap
        self.name = f"case_{next(_NUMBERS)}"
        self.module = types.ModuleType(self.name)
        self.space = self.module.__dict__
        self.space.update(
            torch=torch, nn=nn, F=F, np=np, math=math, random=random, os=os, sys=sys,
            warnings=warnings, C=wrap, C_=wrap,
        )  # fmt: skip
        self.given = set(self.space)

    def run(self) -> tuple[list[Any], list[str]]:
        """What was seen after each call, and the warnings that are none of the case's."""
        case, log, out = self.case, [], io.StringIO()
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        sys.modules[self.name] = self.module
        try:
            with contextlib.redirect_stdout(out), warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                self.space["x"] = torch.arange(1.0, 7.0).reshape(2, 3)
                self._execute(case.setup, "setup")
                if case.options.get("wrap", True):
                    self.space["f"] = self.wrap(self.space["f"])
                for k, step in enumerate(["", "", *case.steps]):
                    seen = [self._called(step, k), *self._variables()]
                    seen.append(("printed", out.getvalue()))
                    out.seek(0)
                    out.truncate(0)
                    own = [str(w.message) for w in told if str(w.message).startswith("case:")]
                    log.append([*seen, ("warned", own)])
        finally:
            del sys.modules[self.name]
        others = [str(w.message) for w in told if not str(w.message).startswith("case:")]
        return log, others

    def _execute(self, text: str, name: str) -> None:
        file = f"<{self.name}.{name}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), self.space)

    def _called(self, step: str, number: int) -> tuple[Any, ...]:
        call = self.case.call
        try:
            if step:
                self._execute(step, f"step{number}")
            if "\n" in call:
                self._execute(call, f"call{number}")
                found = self.space.get("r")
            else:
                found = eval(compile(call, f"<{self.name}.call>", "eval"), self.space)
            return "returned", snapshot(found)
        except Exception as error:
            text = str(error).replace(f"{self.name}.", "")  # (from 3.13 on Python tells the module)
            return "raised", type(error).__name__, text.split("\n")[0][:200]

    def _variables(self) -> Iterator[tuple[str, Any]]:
        for name, value in list(self.space.items()):
            if name not in self.given and not name.startswith("__") and name not in _OWN:
                told = snapshot(value)
                if told[0] not in ("skip", "other"):
                    yield name, told


@contextlib.contextmanager
def preserved() -> Iterator[None]:
    """What a case does to the process is undone."""
    homes = [(m, dict(m.__dict__)) for m in (F, torch, builtins)]
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    environment, folder = dict(os.environ), os.getcwd()
    try:
        yield
    finally:
        for module, content in homes:
            for name, value in content.items():
                if module.__dict__.get(name) is not value:
                    module.__dict__[name] = value
        torch.set_default_dtype(dtype)
        torch.set_default_device(None)
        torch.set_num_threads(threads)
        torch.set_grad_enabled(True)
        torch.use_deterministic_algorithms(False)
        os.chdir(folder)
        for name in set(os.environ) - environment.keys():
            del os.environ[name]
        os.environ.update(environment)


# ---- both ---------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """How a case ended: "same", "documented", or what is wrong."""

    kind: str
    text: str = ""

    @property
    def is_good(self) -> bool:
        return self.kind in ("same", "documented")


def compiled(mode: str | None) -> Callable[..., Any]:
    """What stands for `compile` in the compiled run."""

    def wrap(fn: Any, **options: Any) -> Any:
        return torch.compile(fn, **({"mode": mode} if mode else {}), **options)

    return wrap


def uncompiled(fn: Any, **_: Any) -> Any:
    """What stands for it in the eager run."""
    return fn


def judged(case: Case, seconds: int = 120, wrap: Callable[..., Any] | None = None) -> Verdict:
    """Run a case both ways and compare. `wrap`: instead of `compile`."""
    mode = "bitwise" if case.options.get("bitwise") else None
    logs: list[Any] = []
    said: list[list[str]] = []

    def alarm(*_: Any) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, alarm)
    try:
        for way in (uncompiled, wrap or compiled(mode)):
            signal.alarm(seconds)
            with preserved():
                log, others = World(case, way).run()
            logs.append(log)
            said.append(others)
    except OutOfTimeError:
        return Verdict("timeout")
    except Exception as error:
        where = "eager" if not logs else "compiled"
        return Verdict("setup", f"{where}: {type(error).__name__}: {error}"[:300])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    found = _compared(case, *logs)
    reason = case.options.get("differs")
    if reason is None:
        return found
    if found.is_good:
        return Verdict("stale", "a documented difference is gone: take its mark away")
    errors = [seen[0][2] for seen in logs[1] if seen[0][0] == "raised"]
    if not any(reason in text for text in (*said[1], *errors)):
        return Verdict("unsaid", f"a documented difference without its warning: {found.text}")
    return Verdict("documented", reason)


def _compared(case: Case, eager: list[Any], got: list[Any]) -> Verdict:
    options = case.options
    tolerance = 0.0 if options.get("bitwise") else options.get("tol", 1e-5)
    steps = ["", "", *case.steps]
    for k, (want, have) in enumerate(zip(eager, got, strict=True)):
        kinds = [x[0][:2] if x[0][0] == "raised" else x[0][:1] for x in (want, have)]
        if options.get("text", True) is False and kinds[0] == kinds[1] and want[0][0] == "raised":
            want, have = want[1:], have[1:]
        text = difference(want, have, tolerance, options.get("sign", False))
        if text:
            raises = kinds[1][0] == "raised" and kinds[0][0] != "raised"
            kind = "raises" if raises else "wrong"
            return Verdict(kind, f"call {k} (after {steps[k]!r:.60}){text} {have[0][1:]!s:.200}")
    return Verdict("same")
