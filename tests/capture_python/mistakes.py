"""25 classic mistakes in a compiled function, and what the explanation of each must say.

A row is a function, the arguments of its calls, and pieces of text: the line the explanation must
name (by the text of that line), and what it must say of the reason and the fix.
"""

from __future__ import annotations

import inspect
import logging
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import lucerne as torch

HISTORY: list[Any] = []
STATE = {"step": 0, "scale": 1.0}
TENSORS: dict[str, Any] = {}
LOG = logging.getLogger("lucerne.tests.mistakes")
LOG.propagate = False


@dataclass(frozen=True)
class Mistake:
    """One row: what must be in the explanation."""

    fn: Callable[..., Any]
    line: str
    """Part of the line that must be named; empty: nothing is wrong with it."""
    kind: str
    """Of the break; "recompile": it is compiled again, with the reason in the ledger."""
    fix: str
    calls: Sequence[tuple[Any, ...]]

    @property
    def name(self) -> str:
        return self.fn.__name__

    @property
    def number(self) -> int:
        """The number of the line in this file."""
        source, first = inspect.getsourcelines(self.fn)
        found = [
            first + k
            for k, text in enumerate(source)
            if self.line in text and not text.startswith("@")
        ]
        assert found, f"{self.name} has no line with {self.line!r}"
        return found[0]


MISTAKES: list[Mistake] = []


def mistake(line: str, kind: str, fix: str, *calls: tuple[Any, ...]) -> Callable[[Any], Any]:
    def enter(fn: Any) -> Any:
        given = calls or ((torch.ones(4, 3),), (torch.ones(4, 3) * 2,))
        MISTAKES.append(Mistake(fn, line, kind, fix, given))
        return fn

    return enter


@mistake("if y.sum() > 0", "branch", "torch.where")
def data_dependent_branch(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


@mistake("total += row.sum().item()", "values", "keep it a tensor")
def item_in_the_loop(x):
    total = 0.0
    for row in x:
        total += row.sum().item()
    return x * total


@mistake("print(y.shape, file=sys.stderr)", "print", "print it outside")
def prints(x):
    y = x * 2
    print(y.shape, file=sys.stderr)
    return y + 1


@mistake("", "", "")
def list_append(x):
    HISTORY.append(x.sum())
    return x * 2


@mistake("", "recompile", "k is 2", (torch.ones(3), 1), (torch.ones(3), 2))
def changing_python_int(x, k):
    return x * k


@mistake("STATE", "changing value", "keep the count in a tensor")
def global_counter(x):
    y = x + 1
    STATE["step"] += 1
    return y * [2, 3][STATE["step"] % 2]


@mistake("np.sort", "values", "keep it a tensor")
def numpy_in_the_middle(x):
    y = x * 2
    return torch.from_numpy(np.sort(y.numpy())) + 1


@mistake("random.random()", "random", "torch.rand")
def random_module(x):
    return x * random.random()


@mistake("time.time()", "clock", "lucerne.profiler")
def reads_the_clock(x):
    began = time.time()
    return x * 2, time.time() - began >= 0


@mistake("", "", "")
def in_place_on_the_input(x):
    x.mul_(2)
    return x + 1


@mistake("", "recompile", "x", (torch.ones(3, 2),), (torch.ones(5, 2),))
def shape_dependent_loop(x):
    out = x[0] * 0
    for k in range(x.shape[0]):
        out = out + x[k] * k
    return out


@mistake("", "", "")
def dict_of_tensors_changed(x):
    TENSORS["last"] = x * 2
    return TENSORS["last"] + 1


@mistake("(x * 2).sum().item()", "values", "keep it a tensor")
def try_except_around_a_look(x):
    try:
        k = (x * 2).sum().item()
    except Exception:
        k = 0.0
    return x + k


@mistake("assert (x < 100).all()", "branch", "torch.where")
def assert_on_a_tensor(x):
    assert (x < 100).all()
    return x * 2


@mistake("", "", "")
def len_of_a_tensor(x):
    return sum(x[k] for k in range(len(x)))


@mistake("", "", "")
def isinstance_on_a_tensor(x):
    return x * 2 if isinstance(x, torch.Tensor) else x


@mistake("table = {x: 2.0}", "identity", "decide by values")
def tensor_as_a_dict_key(x):
    table = {x: 2.0}
    return x * table[x]


@mistake("", "", "")
def boolean_mask(x):
    y = x * 2
    return y[y > 1].sum()


@mistake("", "", "")
def default_argument_cache(x, seen=[]):  # noqa: B006
    y = x * 2
    seen.append(y.sum())
    return y + 1


@mistake("", "", "")
def generator_consumed_twice(x):
    rows = (r * 2 for r in x)
    return sum(rows), sum(rows)


@mistake("", "", "")
def lambda_with_a_loop_variable(x):
    fns = [lambda t: t * k for k in range(3)]  # noqa: B023
    return sum(f(x) for f in fns)


@mistake("os.environ", "environment", "pass it as an argument")
def reads_the_environment(x):
    y = x * 2
    return y * len(os.environ.copy())


@mistake("LOG.info", "logging", "log it outside")
def logs(x):
    y = x * 2
    LOG.info("rows %d", len(y), stack_info=True)
    return y + 1


@mistake("open(", "file", "before or after")
def writes_a_file(x):
    y = x * 2
    with open(os.devnull, "w") as file:
        file.write("done")
    return y + 1


@mistake("", "recompile", "flag is 'b'", (torch.ones(3), "a"), (torch.ones(3), "b"))
def string_flag(x, flag):
    return x * 2 if flag == "a" else x + 2


@mistake("warnings.warn", "warnings", "warn outside")
def warns(x):
    y = x * 2
    warnings.warn("look", stacklevel=1)
    return y + 1


@mistake("torch.manual_seed", "generator state", "seed before the call")
def seeds_inside(x):
    torch.manual_seed(0)
    return x + torch.ones(3)


@mistake("tempfile.gettempdir", "file", "before or after")
def asks_for_a_folder(x):
    y = x * 2
    return y * len(tempfile.gettempdir())


@mistake("float(x.sum())", "values", "keep it a tensor")
def float_of_a_tensor(x):
    return x / float(x.sum())


@mistake("while x.max() > 1", "branch", "torch.where")
def loop_until_small(x):
    while x.max() > 1:
        x = x / 2
    return x
