"""User code that the library calls back runs as often, in the same order and on the same values as
it does uncompiled."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.capture.breaks.reasons import BreakError
from tests.capture.rows_callbacks import ROWS, Log, called, told

EAGER = lambda fn: fn  # noqa: E731


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_callback(row: Any) -> None:
    found = []
    for wrap in (EAGER, torch.compile):
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(told(row(wrap)))
    assert found[1] == found[0]


def test_a_lost_call_is_seen() -> None:
    """The rows compare what they say: a function that is traced once tells another story."""

    class Once:
        def __init__(self, fn: Any) -> None:
            self.fn, self.result = fn, None

        def __call__(self, x: Any) -> Any:
            if self.result is None:
                self.result = self.fn(x)
            return self.result.detach()

    log = Log()

    def fn(x: Any) -> Any:
        log.note()
        return x * 2

    assert told(called(Once(fn), log)) != told(called(fn, Log()))


# ---- what stays one graph -----------------------------------------------------------------------


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, scale: float) -> Any:
        ctx.scale = scale
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * ctx.scale * torch.sigmoid(x) * FACTOR, None


FACTOR = 2.0


def test_code_that_only_computes_is_part_of_the_graph() -> None:
    def fn(x: Any) -> Any:
        y = Scaled.apply(x * 2, 3.0)
        y.register_hook(lambda g: g.clamp(-1, 1))
        return y.sin()

    want, have = called(fn, Log()), called(torch.compile(fn, fullgraph=True), Log())
    assert told(have) == told(want)


def test_what_a_backward_pass_reads_must_not_change_before_it() -> None:
    global FACTOR
    fn = torch.compile(lambda x: Scaled.apply(x, 3.0).sum(), fullgraph=True)
    loss = fn(torch.ones(3, requires_grad=True))
    FACTOR = 4.0
    try:
        with pytest.raises(RuntimeError, match="FACTOR"):
            loss.backward()
    finally:
        FACTOR = 2.0
    loss.backward()


def test_one_graph_is_refused_in_words() -> None:
    log = Log()

    def fn(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda g: log.note(g.sum().item()))
        return y.sin()

    with pytest.raises(BreakError, match=r"\(hook\)|\(callback\)"):
        torch.compile(fn, fullgraph=True)(torch.ones(3, requires_grad=True))
    assert log.seen == []
