"""`lucerne.explain(fn)(*args)`: what a function became, with nothing hidden.

>>> import lucerne as torch
>>> def f(x):
...     return (x.sin() + x.cos()).sum()
>>> found = torch.explain(f)(torch.ones(1000))
>>> [k.name for k in found.report.kernels()]
['sin + cos + add2 + sum']
>>> found.result.shape
torch.Size([])

Printed, it is a table; `found.html()` is a page that needs nothing else, `found.save("f.html")`
writes it, `found.json()` is the same as plain data.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from lucerne.explain.explanation import Explanation as Explanation
from lucerne.explain.explanation import explain as explain


class _Door(types.ModuleType):
    """The module is the function: `lucerne.explain` is both, whichever was asked for first."""

    def __call__(self, fn: Any, **options: Any) -> Any:
        return explain(fn, **options)


sys.modules[__name__].__class__ = _Door
