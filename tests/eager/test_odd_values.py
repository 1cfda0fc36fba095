"""Values and sizes at the edge, as torch has them: rows that the sweep (M11) has found."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import lucerne
from lucerne._src.ops.reduce.scan import scan
from lucerne._src.ops.spatial.pool import max_pool
from lucerne._src.ops.spatial.taps import resample

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

INF, NAN = math.inf, math.nan


def _gradients(t: Any, fn: Callable[..., Any], *values: Any) -> Any:
    """The result, and the gradients to all that it is made of."""
    given = [t.tensor(v, requires_grad=True) for v in values]
    found = fn(*given)
    grads = t.autograd.grad(found.sum(), given, allow_unused=True)
    return found, *[g for g in grads if g is not None]


def _bag(t: Any, weight: Any) -> Any:
    return t.nn.functional.embedding_bag(t.tensor([[0, 1, 2, 1], [2, 2, 0, 0]]), weight, mode="max")


ROWS: dict[str, Callable[[Any], Any]] = {
    "sinc": lambda t: _gradients(t, t.sinc, [1e-42, -1e-30, 0.0, 0.5]),
    "mvlgamma": lambda t: _gradients(t, lambda x: t.mvlgamma(x, 1), [-0.0, 0.0, 1.5]),
    "nextafter": lambda t: _gradients(t, t.nextafter, [1.0, 3.0, INF], [2.0, 3.0, 1.0]),
    "rrelu": lambda t: t.nn.functional.rrelu(t.tensor([INF, -INF, 1.0, -1.0])),
    "bce": lambda t: _gradients(
        t, t.nn.functional.binary_cross_entropy, [0.0, 1.0, 0.3], [0.0, 1.0, 0.5]
    ),
    "i1e": lambda t: _gradients(t, t.special.i1e, [1e-42, -1e-38, 0.0, 1e-9, 2.0]),
    "vector_norm": lambda t: t.linalg.vector_norm(t.tensor([[1e30], [-1e25]]), ord=6, dim=1),
    "norm of a number": lambda t: t.linalg.vector_norm(t.tensor(-1e30), ord=3),
    "maxima that are equal": lambda t: _gradients(
        t, lambda w: _bag(t, w), [[1.0, 2.0], [1.0, -1.0], [0.5, 2.0]]
    ),
    "maxima of windows longer than the input": lambda t: _gradients(
        t, lambda x: t.nn.functional.max_pool1d(x, 40, 50, 18, ceil_mode=True), [[[1.0, 3.0, 2.0]]]
    ),
    "means of windows longer than the input": lambda t: _gradients(
        t, lambda x: t.nn.functional.avg_pool1d(x, 40, 3, 19, ceil_mode=True), [[[1.0, 3.0, 2.0]]]
    ),
    "dilated windows longer than the input": lambda t: t.nn.functional.max_pool2d(
        t.arange(24.0).view(1, 1, 4, 6), (17, 2), (60, 1), (4, 0), (3, 2), ceil_mode=True
    ),
    "softmax, backward of large numbers": lambda t: t._softmax_backward_data(
        t.tensor([1e30, 2.0, -1.0]), t.tensor([1e30, 3.0, 1.0]), 0, t.float32
    ),
    **{
        f"softmax, backward of backward at {y}": lambda t, g=g, y=y: _gradients(
            t, lambda g, y: t._softmax_backward_data(g, y, 0, t.float32), g, y
        )
        for g, y in (
            ([1e30, 2.0, -1.0], [1e30, 3.0, 1.0]),
            ([1.0, 2.0, -1.0], [INF, 3.0, 1.0]),
            ([INF, 2.0, -1.0], [0.5, 0.0, 0.5]),
            ([1.0, 2.0, -1.0], [-INF, 3.0, INF]),
        )
    },
    "log_softmax, backward of backward": lambda t: _gradients(
        t,
        lambda g, y: t._log_softmax_backward_data(g, y, 0, t.float32),
        [1e30, 2.0, -1.0],
        [INF, -INF, 1.0],
    ),
    "bilinear of nothing": lambda t: t.nn.functional.bilinear(
        t.ones(0, 2), t.ones(0, 3), t.ones(4, 2, 3)
    ),
}


def _plain(x: Any) -> Any:
    return [_plain(y) for y in x] if isinstance(x, tuple) else x.detach().double().numpy()


@pytest.mark.parametrize("name", ROWS)
def test_as_torch_has_them(name: str) -> None:
    found, expected = _plain(ROWS[name](lucerne)), _plain(ROWS[name](torch))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_nan_spreads_through_hardswish() -> None:
    """(torch's answer depends on where in a vector the element lies.)"""
    _, grad = _gradients(lucerne, lucerne.nn.functional.hardswish, [NAN, -4.0, 4.0])
    assert math.isnan(float(grad[0]))
    assert grad[1:].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("loss", "target"), [("multi_margin_loss", (0,)), ("multilabel_margin_loss", (0, 3))]
)
def test_margins_of_nothing(loss: str, target: tuple[int, ...]) -> None:
    """The mean of nothing is nan and its sum 0 (torch gives memory that it has not written)."""
    fn = getattr(lucerne.nn.functional, loss)
    given = lucerne.ones(0, 3), lucerne.ones(target, dtype=lucerne.int64)
    assert math.isnan(float(fn(*given)))
    assert float(fn(*given, reduction="sum")) == 0.0


REFUSED: dict[str, Callable[[], Any]] = {
    "a scan": lambda: scan(lucerne.ones(3), 0, "mul!", False, None),
    "a mode of resampling": lambda: resample(lucerne.ones(1, 1, 3), (4,), "line", False, (None,)),
    "too many scales": lambda: resample(lucerne.ones(1, 1, 3), (4,), "linear", False, (1.0, 1.0)),
    "a window behind the end": lambda: max_pool(
        lucerne.ones(1, 1, 5), (10**9,), (1,), (0,), (1,), (1,)
    ),
    "more bytes than there are numbers": lambda: lucerne.nn.functional.pad(
        lucerne.ones(4), (0, 2**62)
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_machine_code(name: str) -> None:
    """Found by forged files: ops of the inside, called with what no public function would give."""
    with pytest.raises(RuntimeError, match=r"scan by|resampling|windows of|overflowed"):
        REFUSED[name]()
