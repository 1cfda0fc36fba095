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

from lucerne._src.explain.explanation import Explanation as Explanation
from lucerne._src.explain.explanation import explain as explain
