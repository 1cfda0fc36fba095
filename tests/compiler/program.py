"""A program as data: inputs, a straight list of steps, and what is returned.

A program prints as a short Python function that anyone can paste, and what runs is that text: on
Lucerne, on PyTorch, or compiled. `wide.py` runs the list itself, with NumPy.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

FLOATS = ("float64", "float32", "bfloat16", "float16")
NARROW = ("bfloat16", "float16")
WHOLE = ("int64", "int32")
DTYPES = (*FLOATS, *WHOLE, "bool")


@dataclass(frozen=True)
class Ref:
    """An input or an earlier result, by name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Dtype:
    name: str

    def __str__(self) -> str:
        return f"torch.{self.name}"


@dataclass(frozen=True)
class Index:
    """What stands between the brackets: slices, numbers, None, Ellipsis and tensors."""

    items: tuple[Any, ...]

    def __str__(self) -> str:
        return ", ".join(map(_subscript, self.items))


def _subscript(x: Any) -> str:
    if x is Ellipsis:
        return "..."
    if not isinstance(x, slice):
        return show(x)
    ends = ["" if e is None else str(e) for e in (x.start, x.stop)]
    return ":".join(ends if x.step is None else [*ends, str(x.step)])


def show(x: Any) -> str:
    """An argument as it is written in Python."""
    if isinstance(x, tuple):
        inside = ", ".join(map(show, x))
        return (
            f"[{inside}]"
            if any(isinstance(i, Ref) for i in x)
            else f"({inside}{',' * (len(x) == 1)})"
        )
    return str(x) if isinstance(x, Ref | Dtype | Index) else repr(x)


@dataclass(frozen=True)
class Input:
    """How one argument is made. `layout` is a row of `inputs.LAYOUTS`.

    `of` names an earlier input that this one is a view of (`layout` says which view). A number is
    an argument too: dtype "number", with the value in `number`.
    """

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    layout: str = "contiguous"
    values: str = "normal"
    requires_grad: bool = False
    of: str = ""
    number: float = 0.0


@dataclass(frozen=True)
class Step:
    """`outs = text.format(*args)`; `op` is a row of the table."""

    op: str
    text: str
    args: tuple[Any, ...]
    outs: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        body = self.text.format(*map(show, self.args))
        left = ", ".join(self.outs) + ("," if self.star else "")
        return (f"{left} = {body}" if self.outs else body).split("\n")

    @property
    def star(self) -> bool:
        """Written with a comma after one name: the result is a tuple of one."""
        return len(self.outs) == 1 and self.op in ("split", "chunk", "unbind", "grad")

    def reads(self) -> list[str]:
        return [r.name for r in refs(self.args)]


def refs(args: Any) -> Iterator[Ref]:
    """Every Ref in an argument list."""
    if isinstance(args, Ref):
        yield args
    elif isinstance(args, tuple):
        for a in args:
            yield from refs(a)
    elif isinstance(args, Index):
        yield from refs(args.items)


def renamed(args: Any, names: Callable[[str], Any]) -> Any:
    """The arguments with each Ref replaced by `names(its name)`."""
    if isinstance(args, Ref):
        return names(args.name)
    if isinstance(args, tuple):
        return tuple(renamed(a, names) for a in args)
    if isinstance(args, Index):
        return Index(renamed(args.items, names))
    return args


@dataclass(frozen=True)
class Program:
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    returns: tuple[str, ...]
    grad: str = "none"
    """What the caller does next: "none", "sum" (of all outputs, backward), "cotangents" (given
    ones, for all outputs) or "first" (for one output)."""
    seed: int = 0
    plain: bool = field(default=True, compare=False)
    """False: writes go through values that may or may not share memory; NumPy can't follow."""
    around: str = ""
    """How it is called: a row of `around.AROUND`."""

    def source(self, name: str = "program") -> str:
        body = [line for s in self.steps for line in s.lines()]
        head = f"def {name}({', '.join(i.name for i in self.inputs)}):"
        left = ", ".join(self.returns) + ("," if len(self.returns) == 1 else "")
        return "\n".join([head, *(f"    {line}" for line in body), f"    return {left or '()'}"])

    def __str__(self) -> str:
        return self.source()


def function(program: Program, module: Any) -> Callable[..., Any]:
    """The program as a function on `module` (a torch, by any name)."""
    space: dict[str, Any] = {"torch": module}
    exec(_code(program.source()), space)
    made: Callable[..., Any] = space["program"]
    return made


@lru_cache(maxsize=256)
def _code(source: str) -> Any:
    return builtins.compile(source, "<random program>", "exec")
