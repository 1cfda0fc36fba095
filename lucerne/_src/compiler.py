"""`lucerne.compiler`: `compile`, and what programs say to it about their own functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from lucerne._src import capture
from lucerne._src.backend_names import chosen
from lucerne._src.backend_names import list_backends as list_backends
from lucerne._src.backend_names import register_backend as register_backend
from lucerne._src.capture import ledger as capture_ledger
from lucerne._src.capture import mark_dynamic as mark_dynamic
from lucerne._src.capture.ledger import Budget, Ledger
from lucerne._src.capture.ledger import CompileBudgetError as CompileBudgetError
from lucerne.nn.modules.module import Module
from lucerne.optim.optimizer import Optimizer


class OptimizedModule(Module):
    """A compiled module: everything but calling it is the original's (`_orig_mod`)."""

    def __init__(self, module: Any, **options: Any) -> None:
        super().__init__()
        self._orig_mod = module
        self.__dict__["forward"] = capture.compile(module, **options)
        del self.__dict__["training"]  # the original's counts

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_orig_mod":
                raise
            return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if "_orig_mod" in self.__dict__.get("_modules", ()):
            setattr(self._orig_mod, name, value)
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__ or name == "_orig_mod":
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def train(self, mode: bool = True) -> Any:
        self._orig_mod.train(mode)
        return self


def compile(model: Any = None, **options: Any) -> Any:
    """A function or module that is captured and compiled when it is first called.

    Options: `fullgraph` (raise where it can't be captured), `dynamic` (a capture for all sizes:
    None, when a second size is seen; True, at once; False, never), `backend` (a name out of
    `list_backends`, or a function that gets a GraphModule and example inputs), `mode` ("bitwise":
    every bit as eager has it), `options` (`disable`: passes to leave out, `memory_budget`),
    `disable`. Also as a decorator, with or without options.

    >>> import lucerne as torch
    >>> @torch.compile
    ... def double(x):
    ...     return x * 2
    >>> double(torch.ones(2))
    tensor([2., 2.])
    """
    if model is None:
        return lambda function: compile(function, **options)
    if "maker" not in options:
        options.update(chosen(options.get("backend"), options.get("options")))
    if isinstance(model, Module) and not options.get("disable"):
        return OptimizedModule(model, **options)
    return capture.compile(_called_whole(model), **options)


def _called_whole(fn: Any) -> Any:
    """`optimizer.step` is what a function calls it is: a call of ours that is captured as one, not
    entered (with its hooks and what it asks of the process)."""
    owner = getattr(fn, "__self__", None)
    if not isinstance(owner, Optimizer) or not callable(fn):
        return fn

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return call


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """A function that is never part of a graph: where it is called, capturing ends.

    What calls it runs uncompiled (with `fullgraph=True` that is an error). Also as a decorator with
    arguments.

    >>> import lucerne as torch
    >>> @torch.compiler.disable
    ... def log(x):
    ...     print("sum", x.sum().item())
    >>> log(torch.ones(3))
    sum 3.0
    """
    if fn is None:
        return lambda function: disable(function, recursive, reason=reason)
    if isinstance(fn, Module):
        fn.forward = disable(fn.forward, recursive, reason=reason)
        return fn

    @functools.wraps(fn)
    def apart(*args: Any, **kwargs: Any) -> Any:
        capture.refuse(f"{getattr(fn, '__qualname__', fn)} is kept out of graphs", reason)
        return fn(*args, **kwargs)

    return apart


def allow_in_graph(fn: Any) -> Any:
    """The function itself: there is no graph to keep it in."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """The function itself: it is called each time."""
    return fn


def substitute_in_graph(original_fn: Any, **options: Any) -> Callable[[Any], Any]:
    """A decorator that changes nothing: there is no graph to put the substitute in."""
    if not callable(original_fn):
        raise TypeError(f"substitute_in_graph: a function is expected, not {original_fn!r}")
    return lambda function: function


def is_compiling() -> bool:
    """Whether the code that asks is being captured."""
    return capture.is_capturing()


def is_dynamo_compiling() -> bool:
    """`is_compiling`."""
    return capture.is_capturing()


def is_exporting() -> bool:
    """Whether the code that asks is being exported."""
    return capture.Exporting.active > 0


def cudagraph_mark_step_begin() -> None:
    """No step is recorded."""


def ledger() -> Ledger:
    """Every compile of this process: which function, why (the first call, or the guard that failed,
    in your words), how long each stage took, what was compiled and what was found on disk. Prints
    as a table; `.html()`, `.json()`, `.rows`.

    >>> import lucerne as torch
    >>> @torch.compile(dynamic=False)
    ... def halve(x):
    ...     return x / 2
    >>> y = halve(torch.ones(2)), halve(torch.ones(3))
    >>> [row.why for row in torch.compiler.ledger()][-2:]
    ['first call', 'x is float32[3] on cpu, it was float32[2] on cpu']
    """
    return capture_ledger.ledger()


def budget(
    recompiles: int | None = None, seconds: float | None = None, breaks: int | None = None
) -> AbstractContextManager[Budget]:
    """Inside, compiling more than this raises `CompileBudgetError`, with the ledger in its message.

    `recompiles`: compiles of functions that had been compiled before; `seconds`: of all compiling;
    `breaks`: places where a function is not one graph. For a whole process:
    LUCERNE_RECOMPILE_BUDGET, LUCERNE_COMPILE_SECONDS and LUCERNE_BREAK_BUDGET.

    >>> import lucerne as torch
    >>> double = torch.compile(lambda x: x * 2)
    >>> with torch.compiler.budget(recompiles=0):
    ...     y = double(torch.ones(3))
    """
    return capture_ledger.budget(recompiles, seconds, breaks)


def program_cache() -> Any:
    """What became of compiled programs on disk in this process: how many were found, not found and
    stored, and for functions whose programs can't be stored, why (docs/inside/program_cache.md).

    >>> import lucerne as torch
    >>> torch.compiler.program_cache().stale
    0
    """
    return capture.stored_part("lookup").account


def save_cache_artifacts() -> tuple[bytes, Any] | None:
    """The programs and kernels that this process has used, as bytes, with a list of what they are.

    Another machine with the same kind of processor gets them by `load_cache_artifacts` and then
    need not compile. None: nothing is kept on disk.

    >>> import lucerne as torch
    >>> torch.compiler.load_cache_artifacts(b"something else")
    Traceback (most recent call last):
    ...
    ValueError: load_cache_artifacts: not what save_cache_artifacts gave: it is too short
    """
    found: tuple[bytes, Any] | None = capture.stored_part("artifacts").save()
    return found


def load_cache_artifacts(serialized_artifacts: bytes) -> Any:
    """Put what `save_cache_artifacts` gave into the user's cache; returns the list, None if nothing
    is kept on disk. They hold machine code: load only what you would run."""
    return capture.stored_part("artifacts").load(serialized_artifacts)


def reset() -> None:
    """Forget all versions of all compiled functions: the next call of each captures it anew."""
    capture.reset()
