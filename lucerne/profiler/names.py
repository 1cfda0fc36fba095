"""What events are called: PyTorch's name where it has one for the same thing.

An op of PyTorch's is `aten::name`, the name from its entry (`Op.torch`). The table has ops of its
own (parts of formulas): those that PyTorch has nothing like are `lucerne::name`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from lucerne._src.ir.define import fronts
from lucerne._src.ir.dispatch import InPlace
from lucerne._src.ir.op import Op, table, torch_name


@cache
def spelled(qualified: str) -> str | None:
    """The name of an op or a front of the table; None: it shows by what it calls."""
    if "::" in qualified:  # a custom op
        return qualified
    entry: Any = table().get(qualified) or fronts().get(qualified)
    if entry is None:  # a method of tensors in place
        return f"aten::{qualified}"
    if entry.internal and entry.torch == "" and not qualified.endswith("_op"):
        return f"lucerne::{qualified}"
    name = torch_name(entry)
    return None if name is None else f"aten::{name}"


@cache
def of_function(function: Any) -> str | None:
    """The qualified name of a public function or a method of tensors; None: it calls nothing but
    one op, or none at all."""
    run = function.__wrapped__
    if getattr(function, "op", None) is not None or getattr(run, "op", None) is not None:
        return None
    for front in fronts().values():
        if front.function in (run, getattr(run, "__wrapped__", None)):
            return f"{front.namespace}.{front.name}" if front.namespace else front.name
    if run.__qualname__ == f"Tensor.{run.__name__}" and run.__name__.endswith("_"):
        return str(run.__name__)
    return None


def of_call(op: Op, first: Any, out: Any = None) -> str | None:
    """The name of a call of an op whose first argument has this meta (if it is a tensor); in place
    it ends in an underscore, as PyTorch's does."""
    name = spelled(op.qualified)
    if name == "aten::bmm" and first is not None and len(first.shape) == 2:
        name = "aten::mm"
    if name is None or type(out) is not InPlace or name.endswith("_"):
        return name
    return f"{name}_"
