"""How much a call has to do: what a convolution and each of its gradients count."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne
from lucerne._src.ir.dispatch import Interpreter
from lucerne.profiler import work
from lucerne.utils.flop_counter import FlopCounterMode

CONVOLUTIONS = frozenset(("conv", "conv_input", "conv_weight"))
SHAPES = {
    "stride 2": ((2, 3, 9, 9), (4, 3, 3, 3), {"stride": 2}),
    "padding 2": ((1, 2, 5, 7), (3, 2, 3, 3), {"padding": 2}),
    "groups": ((1, 4, 6, 6), (6, 2, 3, 3), {"groups": 2}),
}


class Counted(Interpreter):
    """What `work` says of each convolution that runs."""

    level = "kernel"

    def __init__(self) -> None:
        self.found: dict[str, int] = {}

    def run(self, op: Any, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        result = proceed(op, args, out)
        if op.qualified in CONVOLUTIONS:
            metas = [getattr(a, "_meta", a) for a in args]
            self.found[op.qualified] = work.flops(op, metas, [result._meta])
        return result


@pytest.mark.parametrize("name", SHAPES)
def test_gradients_of_a_convolution_do_as_much_as_it_does(name: str) -> None:
    image, weight, how = SHAPES[name]
    x = lucerne.ones(image, requires_grad=True)
    w = lucerne.ones(weight, requires_grad=True)
    with FlopCounterMode(display=False) as counter, Counted() as counted:
        y = lucerne.nn.functional.conv2d(x, w, **how)
        y.sum().backward()
    forward = 2 * y.numel() * weight[1] * weight[2] * weight[3]
    assert counted.found == dict.fromkeys(CONVOLUTIONS, forward)
    assert counter.get_total_flops() == 3 * forward
