"""How many values of a tensor are nan or infinite, and between which numbers the others lie."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.tensor.autograd.modes import no_grad
from lucerne._src.tensor.base import TensorBase

_CATEGORIES = (dt.FLOAT, dt.COMPLEX)


def counts(x: Any) -> tuple[int, int]:
    """How many values are nan, and how many infinite; of what is no tensor of numbers: none."""
    if not _is_read(x):
        return 0, 0
    with no_grad():
        if x.isfinite().all().item():
            return 0, 0
        return int(x.isnan().sum().item()), int(x.isinf().sum().item())


def _is_read(x: Any) -> bool:
    return isinstance(x, TensorBase) and x._meta.dtype.category in _CATEGORIES and x._meta.numel > 0


class WithRange:
    """A tensor as messages show it, with its range."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __repr__(self) -> str:
        t: Any = self.tensor
        if not hasattr(t, "_meta"):
            return repr(t)
        text = f"{t._meta.dtype.name}{list(t._meta.shape)}"
        if not _is_read(t) or t._meta.dtype.category is dt.COMPLEX:
            return text
        with no_grad():
            finite = t[t.isfinite()]
            if not finite._meta.numel:
                return f"{text} with no finite value"
            least, most = finite.min().item(), finite.max().item()
            return f"{text} in [{least:.4g}, {most:.4g}]" + _others(counts(t))


def _others(found: tuple[int, int]) -> str:
    nans, infs = found
    named = [f"{count} {name}" for count, name in ((nans, "nan"), (infs, "inf")) if count]
    return f" beside {' and '.join(named)}" if named else ""
