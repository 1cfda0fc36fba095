"""An independent interpreter of programs: float64 and int64 NumPy arrays, nothing of Lucerne.

Writes through views work because NumPy's views share memory as PyTorch's do. Floats are never
rounded but by an explicit cast, so its results are what eager and compiled results are measured by.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tests.compiler.inputs import arrays
from tests.compiler.ops import EVERY
from tests.compiler.program import NARROW, Dtype, Program, Ref


class NotCoveredError(Exception):
    """The program has a step that NumPy doesn't do."""


def covered(program: Program) -> bool:
    known = all(s.op in EVERY and EVERY[s.op].wide is not None for s in program.steps)
    return known and program.plain


def interpreted(program: Program, variant: int = 0) -> tuple[list[Any], dict[str, Any]]:
    """The outputs, and the bases of the inputs after all writes."""
    if not covered(program):
        raise NotCoveredError(program)
    given = arrays(program, variant)
    space: dict[str, Any] = {name: a.value for name, a in given.items()}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in program.steps:
            run = EVERY[step.op].wide
            assert run is not None
            result = run(*(_argument(a, space) for a in step.args))
            results = result if isinstance(result, tuple) else (result,)
            for name, value in zip(step.outs, results, strict=False):
                space[name] = np.asarray(value)
    bases = {name: a.base for name, a in given.items() if a.base is not None}
    return [np.asarray(space[n]) for n in program.returns], bases


def _argument(a: Any, space: dict[str, Any]) -> Any:
    if isinstance(a, Ref):
        return space[a.name]
    if isinstance(a, tuple):
        return tuple(_argument(x, space) for x in a)
    if hasattr(a, "items") and not isinstance(a, Dtype):
        return type(a)(_argument(a.items, space))
    return a


def is_wide(program: Program) -> bool:
    """No bfloat16 or float16 anywhere, so float64 in place of float32 is the same program."""
    specs = [i.dtype for i in program.inputs]
    casts = [a.name for s in program.steps for a in s.args if isinstance(a, Dtype)]
    return not any(d in NARROW for d in (*specs, *casts))
