"""Small programs that random ones found to differ once."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne
from lucerne._src.capture.trace.fake import CaptureError

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.mT,
    "every other": lambda x: x[..., ::2],
    "inner part": lambda x: x[1:, 1:-1],
    "expanded": lambda x: x[:1].expand(6, 8),
}
FUNCTIONS = {
    "permute": lambda x: x.permute(1, 0),
    "movedim": lambda x: x.movedim(0, -1),
    "square": lambda x: x.mT * x.mT,
    "exp": lambda x: x.exp(),
    "rows": lambda x: x[1:3].mT,
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_of_a_gradient(layout: str, function: str) -> None:
    """It follows the leaf, or is contiguous where the leaf has gaps: on every engine."""
    fn = FUNCTIONS[function]

    def strides(module: Any, fn: Any, summed: bool) -> Any:
        x = LAYOUTS[layout](module.arange(48.0).reshape(6, 8)).detach().requires_grad_()
        y = fn(x)
        y.sum().backward() if summed else y.backward(module.ones(tuple(y.shape)))
        return x.grad.stride()

    for summed in (True, False):
        want = strides(torch, fn, summed)
        assert strides(lucerne, fn, summed) == want
        if layout != "expanded":  # of which no view is returned (docs/guide/compile.md)
            assert strides(lucerne, lucerne.compile(lambda x: fn(x)), summed) == want


def test_two_arguments_with_one_history_are_refused_for_it() -> None:
    """Stand-ins for two views of one memory don't share a history: `backward` inside raises, which
    is not what the function is refused for."""

    def fn(x: Any, y: Any, new: Any) -> Any:
        x[1:] = new
        y.sum().backward()
        return y

    x, new = lucerne.zeros(3), lucerne.ones(2, requires_grad=True)
    compiled = lucerne.compile(fn, fullgraph=True)
    with pytest.raises(CaptureError) as raised:
        compiled(x, x, new)
    assert "does not require grad" not in str(raised.value)
    assert new.grad is None


def test_a_view_of_an_argument_returned_twice() -> None:
    """Inputs of the graph are put in another order than the arguments are in."""

    def fn(x: Any, y: Any, z: Any) -> Any:
        y.sub_(x)  # two arguments in one memory: one input covers both, and comes last
        turned = z.mT
        return turned, turned

    base, z = lucerne.tensor([[1.0, 2.0, 3.0]])[:, 1:2], lucerne.tensor([[0.5]])
    a, b = lucerne.compile(fn, fullgraph=True)(base, base, z)
    assert a is b
    assert a.tolist() == [[0.5]]
    assert a.data_ptr() == z.data_ptr()


OVERWRITES = {
    "copy_": lambda v, y: v.copy_(y),
    "zero_": lambda v, y: v.zero_(),
    "fill_": lambda v, y: v.fill_(2.0),
    "fill_ by a tensor": lambda v, y: v.fill_(y[0]),
}


@pytest.mark.parametrize("write", OVERWRITES)
def test_what_is_overwritten_has_a_gradient_of_nought(write: str) -> None:
    def gradients(module: Any, wrap: Any) -> Any:
        x, y = (module.tensor(a, requires_grad=True) for a in ([1.0, 2.0], [3.0, 4.0]))

        def fn(x: Any, y: Any) -> Any:
            v = module.sinh(x)
            OVERWRITES[write](v, y)
            (v * v).sum().backward()

        wrap(fn)(x, y)
        return [None if t.grad is None else t.grad.tolist() for t in (x, y)]

    want = gradients(torch, lambda fn: fn)
    assert want[0] == [0, 0]
    assert gradients(lucerne, lambda fn: fn) == want
    assert gradients(lucerne, lucerne.compile) == want


@pytest.mark.parametrize("rows", [0, 1])
def test_a_write_through_another_argument_is_seen_by_the_backward_pass(rows: int) -> None:
    """Two arguments in one memory: a write to one, be it of no rows, makes the other stale."""

    def fn(x: Any, same: Any, w: Any) -> Any:
        y = same @ w
        x[:rows] += 1
        return y

    for wrap in (lambda fn: fn, lucerne.compile):
        x, w = lucerne.ones(2, 2), lucerne.ones(2, 2, requires_grad=True)
        y = wrap(fn)(x, x[...], w)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_a_sum_of_nothing_is_not_minus_nought() -> None:
    def fn(x: Any) -> Any:
        return -lucerne.ones(0, 3).sum(0) * -1 + x, (-lucerne.ones(0)).sum()

    for mode in (None, "bitwise"):
        total = lucerne.compile(fn, mode=mode)(lucerne.ones(3))[1]
        assert not lucerne.signbit(total).item()


@pytest.mark.parametrize("name", ["sin", "cos", "silu", "gelu"])
@pytest.mark.parametrize("way", ["from float64", "of a row"])
def test_bits_do_not_depend_on_how_many_lanes_there_are(name: str, way: str) -> None:
    """A kernel with float64 in it has half as many lanes, the value of a whole row has one."""
    op = getattr(lucerne, name, None) or getattr(lucerne.nn.functional, name)

    def fn(x: Any) -> Any:
        return op(x.amax(-1)) if way == "of a row" else op(x.to(lucerne.float32))

    x = lucerne.linspace(-9, 9, 700, dtype=lucerne.float64).reshape(100, 7)
    if way == "of a row":
        x = x.to(lucerne.float32)
    assert lucerne.equal(lucerne.compile(fn, mode="bitwise")(x), fn(x))
    if name in ("sin", "cos"):  # the others are taken apart there
        assert lucerne.equal(lucerne.compile(fn)(x), fn(x))


def test_bits_of_a_gradient_with_a_part_from_outside() -> None:
    """x gets a gradient as a result too: parts are added in eager's order, not sums of them."""

    def fn(x: Any) -> Any:
        return x, lucerne.nn.functional.layer_norm(x, (5,), x, x)

    compiled = lucerne.compile(fn, mode="bitwise")
    for seed in range(20):
        found = []
        for f in (fn, compiled):
            lucerne.manual_seed(seed)
            x = lucerne.randn(5, requires_grad=True)
            sum(t.sum() for t in f(x)).backward()
            found.append(x.grad)
        assert lucerne.equal(*found)
