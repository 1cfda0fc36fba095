"""What torch refuses is refused, with an error of its kind; what it takes is taken, with its
answer."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import lucerne

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

INF, NAN = math.inf, math.nan
Call = Callable[[Any], Any]


def _told(x: Any) -> Any:
    if isinstance(x, tuple):
        return [_told(v) for v in x]
    if not hasattr(x, "dtype"):
        return x
    values = [round(v, 3) if isinstance(v, float) else v for v in x.flatten().tolist()]
    return str(x.dtype).removeprefix("torch."), tuple(x.shape), str(values)


def _outcome(call: Call, t: Any) -> Any:
    try:
        return _told(call(t))
    except Exception as e:
        return next(kind for kind in type(e).__mro__ if kind.__module__ == "builtins")


# ---- losses --------------------------------------------------------------------------------------


def _ctc(frames: Any, lengths: Any, targets: Any) -> Call:
    def call(t: Any) -> Any:
        at = [t.tensor(v) if isinstance(v, list) else v for v in (targets, frames, lengths)]
        return t.nn.functional.ctc_loss(t.zeros(5, 2, 3), *at, reduction="none")

    return call


def _labels(*row: int) -> Call:
    return lambda t: t.nn.functional.multilabel_margin_loss(
        t.tensor([[0.1, 0.7, 0.2]]), t.tensor([row])
    )


ROWS: dict[str, Call] = {
    "ctc": _ctc([5, 4], [2, 1], [[1, 2], [1, 1]]),
    "ctc, frames below 0": _ctc([-1, 5], [2, 2], [[1, 2], [1, 1]]),
    "ctc, frames below 0 as numbers": _ctc((-1, 5), (2, 2), [[1, 2], [1, 1]]),
    "ctc, too many frames": _ctc([5, 6], [2, 2], [[1, 2], [1, 1]]),
    "ctc, labels below 0": _ctc([5, 5], [-2, 2], [[1, 2], [1, 1]]),
    "ctc, rows too short": _ctc([5, 5], [3, 2], [[1, 2], [1, 1]]),
    "ctc, one after another": _ctc([5, 5], [2, 1], [1, 2, 1]),
    "ctc, too few labels": _ctc([5, 5], [2, 2], [1, 2, 1]),
    "ctc, too many labels": _ctc([5, 5], [2, 2], [1, 2, 1, 1, 1]),
    "several labels": _labels(1, -1, 0),
    "several labels, below -1": _labels(-2, 0, 1),
    "several labels, below -1 behind the end": _labels(0, -1, -2),
    "several labels, too large": _labels(3, 0, 1),
}

# ---- matrices and counts -------------------------------------------------------------------------


def _unpacked(*pivots: int, **settings: Any) -> Call:
    return lambda t: tuple(t.lu_unpack(t.eye(3) * 2, t.tensor(pivots, dtype=t.int32), **settings))


def _cov(**weights: Any) -> Call:
    return lambda t: t.cov(
        t.tensor([[1.0, 2.0, 4.0]]), **{k: t.tensor(v) for k, v in weights.items()}
    )


ROWS |= {
    "pivots": _unpacked(2, 3, 3),
    "a pivot of 0": _unpacked(0, 2, 3),
    "a pivot behind the end": _unpacked(1, 2, 4),
    "a pivot of 0 nobody asks for": _unpacked(0, 2, 3, unpack_pivots=False),
    "histogram, wider weights": lambda t: t.histogram(
        t.ones(3), 4, range=(0.0, 1.0), weight=t.ones(3, dtype=t.float64)
    ),
    "histogram, wider edges": lambda t: t.histogram(
        t.ones(3), t.tensor([0.0, 1.0, 2.0], dtype=t.float64)
    ),
    "histogram, whole edges": lambda t: t.histogram(t.ones(3), t.tensor([0, 1, 2])),
    "histogramdd, wider weights": lambda t: t.histogramdd(
        t.ones(3, 2), [2, 2], weight=t.ones(3, dtype=t.float64)
    )[0],
    "histogramdd, wider edges": lambda t: t.histogramdd(
        t.ones(3, 1), [t.tensor([0.0, 1.0, 2.0], dtype=t.float64)]
    )[0],
    "cov": _cov(fweights=[1, 2, 3]),
    "cov, weights of 0": _cov(aweights=[0.0, 0.0, 0.0]),
    "cov, counts of 0": _cov(fweights=[0, 0, 0]),
    "cov, weights that cancel": _cov(fweights=[0, 1, 0], aweights=[1.0, 0.0, 0.0]),
    "cov, no weights": lambda t: t.cov(t.zeros(2, 0), fweights=t.zeros(0, dtype=t.int64)),
}

# ---- equal ---------------------------------------------------------------------------------------

EQUAL = {
    "as a whole number": ([1.0, 2.0], [1, 2]), "not a whole number": ([1.5, 2.0], [1, 2]),
    "the other way": ([1, 2], [1.5, 2.0]), "complex": ([1.0], [1 + 0j]), "bool": ([True], [1]),
    "nan": ([NAN], [1]), "another shape": ([1.0], [1, 2]), "both infinite": ([INF], [INF]),
}  # fmt: skip
ROWS |= {
    f"equal, {name}": lambda t, pair=pair: t.equal(*map(t.tensor, pair))
    for name, pair in EQUAL.items()
}
ROWS["equal, wider"] = lambda t: t.equal(t.tensor([0.1]), t.tensor([0.1], dtype=t.float64))

# ---- sizes ---------------------------------------------------------------------------------------


def _set(t: Any) -> Any:
    x = t.arange(5)
    x[:: 2**62] = 9
    return x


def _wrapped(n: int, *pad: int) -> Call:
    return lambda t: t.nn.functional.pad(t.arange(float(n)).reshape(1, 1, n), pad, mode="circular")


ROWS |= {
    "a step far out": lambda t: t.arange(5)[:: 2**62],
    "a step far out, from the second": lambda t: t.arange(5)[1 :: 2**62],
    "a step far out, written": _set,
    "a step far out, along rows": lambda t: t.arange(6).reshape(2, 3)[:, :: 2**62] * 2,
    "circular, cut": _wrapped(6, -1, 2),
    "circular, cut to nothing": _wrapped(3, -1, -2),
    "circular, of nothing": _wrapped(0, 0, 0),
    "circular, less than nothing": _wrapped(3, -2, -2),
    "circular, rows of nothing": lambda t: t.nn.functional.pad(
        t.ones(1, 1, 2, 3), (-3, 0, 1, 1), mode="circular"
    ),
}
DEEP = ((1,) * 100, (2, *(1,) * 99), ((1,) * 40 + (2, 3) + (1,) * 30 + (4,)), ((1,) * 70 + (0,)))
ROWS |= {
    f"text of {len(shape)} dimensions {shape.count(1)}": lambda t, shape=shape: str(
        t.arange(math.prod(shape)).reshape(shape)
    )
    for shape in DEEP
}
ROWS["numbers of 100 dimensions"] = lambda t: (
    t.ones(DEEP[0]).item(), bool(t.ones(DEEP[0])), str(t.ones(DEEP[1]).tolist())
)  # fmt: skip

# ---- elements that are one -----------------------------------------------------------------------


def _one(f: Callable[[Any, Any], Any], *shape: int) -> Call:
    """What is left of a number that stands for all elements of `shape`."""

    def call(t: Any) -> Any:
        with warnings.catch_warnings():  # torch calls some of this deprecated
            warnings.simplefilter("ignore")
            return f(t, t.ones([1] * len(shape or (3, 3))).expand(shape or (3, 3)))

    return call


def _put(x: Any, index: Any, value: Any) -> Any:
    x[index] = value
    return x


FILLS: dict[str, Callable[[Any, Any], Any]] = {
    "masked_fill_": lambda t, x: x.masked_fill_(t.eye(3).bool(), 2.0),
    "masked_fill_ of a tensor": lambda t, x: x.masked_fill_(t.eye(3).bool(), t.tensor(2.0)),
    "masked_fill_ nowhere": lambda t, x: x.masked_fill_(t.zeros(3, 3).bool(), 2.0),
    "a mask": lambda t, x: _put(x, t.eye(3).bool(), 2.0),
    "an index": lambda t, x: _put(x, t.tensor([0, 2]), t.arange(6.0).reshape(2, 3)),
    "an index, as it was at last": lambda t, x: _put(
        x, t.tensor([0, 2]), t.tensor([[5.0], [1.0]])
    ),
    "tril_": lambda t, x: x.tril_(), "triu_": lambda t, x: x.triu_(1),
    "index_put_": lambda t, x: x.index_put_((t.tensor([0, 1]),), t.tensor(5.0)),
    "index_put_ that adds": lambda t, x: x.index_put_(
        (t.tensor([0, 1]),), t.tensor(5.0), accumulate=True
    ),
    "index_fill_": lambda t, x: x.index_fill_(0, t.tensor([1]), 3.0),
    "threshold_": lambda t, x: t.nn.functional.threshold_(x, 1.5, 7.0),
    "add_": lambda t, x: x.add_(1), "copy_": lambda t, x: x.copy_(t.ones(3, 3)),
    "index_add_": lambda t, x: x.index_add_(0, t.tensor([0]), t.ones(1, 3)),
    "scatter_": lambda t, x: x.scatter_(0, t.zeros(1, 3, dtype=t.int64), 1.0),
}  # fmt: skip
ROWS |= {f"shared, {name}": _one(f) for name, f in FILLS.items()}
ROWS |= {
    "shared, baddbmm_": _one(lambda t, x: x.baddbmm_(t.ones(2, 3, 4), t.ones(2, 4, 3)), 2, 3, 3),
    "shared, addmv_": _one(lambda t, x: x.addmv_(t.ones(3, 4), t.ones(4)), 3),
    "shared rows, triu_": lambda t: t.ones(1, 3).expand(3, 3).triu_(),
    "shared columns, triu_": lambda t: t.arange(3.0).reshape(3, 1).expand(3, 3).triu_(),
    "shared matrices, tril_": lambda t: t.ones(1, 3, 3).expand(2, 3, 3).tril_(),
    "shared matrices, baddbmm_": lambda t: (
        t.ones(1, 3, 3).expand(2, 3, 3).baddbmm_(t.ones(2, 3, 4), t.ones(2, 4, 3))
    ),
}

# ---- objects -------------------------------------------------------------------------------------


class _Liar:
    """An object that says its numbers are at an address where nothing is."""

    __array_interface__: ClassVar = {
        "shape": (3,),
        "typestr": "<f4",
        "data": (16, False),
        "version": 3,
    }


class _LiarWithItems(_Liar):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, at: int) -> float:
        return [0.5, 1.5][at]


ROWS |= {
    "an address that is none": lambda t: t.as_tensor(_Liar()),
    "an address that is none, and items": lambda t: t.as_tensor(_LiarWithItems()),
}


@pytest.mark.parametrize("name", ROWS)
def test_as_in_torch(name: str) -> None:
    assert _outcome(ROWS[name], lucerne) == _outcome(ROWS[name], torch)


# ---- points that are no numbers ------------------------------------------------------------------

MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")


def _sampled(t: Any, n: int, mode: str, padding: str, align: bool, values: Any) -> Any:
    """What is read at points some of whose coordinates are no numbers, and the gradients."""
    x = t.arange(1.0, 1 + 4**n).reshape(1, 1, *[4] * n).requires_grad_()
    points = [[0.1] * n for _ in range(4)]
    points[0][0], points[1][-1] = values
    grid = t.tensor(points).reshape(1, *[1] * (n - 2), 2, 2, n).requires_grad_()
    y = t.nn.functional.grid_sample(x, grid, mode, padding, align)
    if n == 3 or padding != "zeros":  # torch's gradients there write outside its memory
        return _told(y)
    y.sum().backward()
    return [_told(v) for v in (y, x.grad, grid.grad)]


@pytest.mark.parametrize(("mode", "padding"), list(itertools.product(MODES, PADDINGS)))
@pytest.mark.parametrize("n", [2, 3])
def test_points_that_are_no_numbers(n: int, mode: str, padding: str) -> None:
    if n == 3 and mode == "bicubic":
        return  # of images alone
    rows = [(NAN, NAN)]
    if padding != "reflection":  # torch reads outside its memory
        rows.append((INF, -INF))
    for align, values in itertools.product((True, False), rows):
        found = _sampled(lucerne, n, mode, padding, align, values)
        assert found == _sampled(torch, n, mode, padding, align, values), (align, values)
