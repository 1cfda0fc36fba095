"""The table of custom ops: defined the same way on both sides, with calls of each."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

_count = itertools.count()


class Row(NamedTuple):
    """`define(t, name)` makes the op with `t` (lucerne or torch); `calls(t)` gives arguments."""

    name: str
    define: Callable[[Any, str], Any]
    calls: Callable[[Any], list[tuple[tuple[Any, ...], dict[str, Any]]]]

    def __str__(self) -> str:
        return self.name

    def make(self, t: Any) -> Any:
        """A new op: names are never used twice."""
        return self.define(t, f"testlib{next(_count)}::{self.name}")


def _data(t: Any, *shape: int) -> Any:
    count = 1
    for n in shape:
        count *= n
    return (t.arange(count, dtype=t.float32).reshape(shape) - count / 3) / count


def _leaf(t: Any, *shape: int) -> Any:
    return _data(t, *shape).requires_grad_()


def sine(t: Any, name: str) -> Any:
    @t.library.custom_op(name, mutates_args=())
    def op(x: t.Tensor, scale: float = 2.0) -> t.Tensor:
        return t.from_numpy(__import__("numpy").sin(x.detach().numpy()) * scale).to(x.dtype)

    op.register_fake(lambda x, scale=2.0: t.empty_like(x))

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.scale = inputs
        ctx.save_for_backward(x)

    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * x.cos() * ctx.scale, None

    op.register_autograd(backward, setup_context=setup)

    @op.register_vmap
    def batched(info: Any, in_dims: Any, x: Any, scale: float) -> Any:
        return op(x, scale), in_dims[0]

    return op


def times(t: Any, name: str) -> Any:
    @t.library.custom_op(name, mutates_args=())
    def op(x: t.Tensor, y: t.Tensor) -> t.Tensor:
        return (x * y).clone()

    op.register_fake(lambda x, y: t.empty_like(x * y))

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        return g * y if ctx.needs_input_grad[0] else None, g * x if ctx.needs_input_grad[
            1
        ] else None

    op.register_autograd(backward, setup_context=setup)
    return op


def halves(t: Any, name: str) -> Any:
    @t.library.custom_op(name, mutates_args=())
    def op(x: t.Tensor, dim: int) -> tuple[t.Tensor, t.Tensor]:
        a, b = x.chunk(2, dim)
        return a.clone(), b.clone()

    @op.register_fake
    def fake(x: Any, dim: int) -> Any:
        a, b = x.chunk(2, dim)
        return t.empty(a.shape, dtype=x.dtype), t.empty(b.shape, dtype=x.dtype)

    op.register_autograd(
        lambda ctx, ga, gb: (t.cat([ga, gb], ctx.dim), None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "dim", inputs[1]),
    )
    return op


def scaled_list(t: Any, name: str) -> Any:
    @t.library.custom_op(name, mutates_args=())
    def op(xs: list[t.Tensor], by: list[float]) -> list[t.Tensor]:
        return [x * k for x, k in zip(xs, by, strict=True)]

    op.register_fake(lambda xs, by: [t.empty_like(x) for x in xs])
    op.register_autograd(
        lambda ctx, gs: ([g * k for g, k in zip(gs, ctx.by, strict=True)], None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]),
    )
    return op


def optional(t: Any, name: str) -> Any:
    @t.library.custom_op(name, mutates_args=())
    def op(x: t.Tensor, bias: t.Tensor | None, *, flag: bool = True) -> t.Tensor:
        found = x.abs() if flag else x.clone()
        return found if bias is None else found + bias

    op.register_fake(lambda x, bias, *, flag=True: t.empty_like(x))
    return op


def adds_into(t: Any, name: str) -> Any:
    @t.library.custom_op(name, mutates_args={"out"})
    def op(x: t.Tensor, out: t.Tensor, k: float) -> None:
        out += x * k

    return op


def adds_and_returns(t: Any, name: str) -> Any:
    @t.library.custom_op(name, mutates_args={"total"})
    def op(x: t.Tensor, total: t.Tensor) -> t.Tensor:
        total.add_(x)
        return x * 3

    op.register_fake(lambda x, total: t.empty_like(x))
    return op


def by_schema(t: Any, name: str) -> Any:
    schema = "(Tensor x, int[] dims, *, bool keep=False) -> Tensor"

    @t.library.custom_op(name, mutates_args=(), schema=schema)
    def op(x: Any, dims: Any, *, keep: bool = False) -> Any:
        return x.sum(dims, keepdim=keep)

    op.register_fake(lambda x, dims, *, keep=False: x.sum(dims, keepdim=keep))
    return op


TABLE = [
    Row("sine", sine, lambda t: [((_leaf(t, 3, 4),), {}), ((_data(t, 5), 0.5), {})]),
    Row("times", times, lambda t: [((_leaf(t, 2, 3), _leaf(t, 2, 3)), {})]),
    Row("halves", halves, lambda t: [((_leaf(t, 4, 6), 1), {}), ((_leaf(t, 4, 6), 0), {})]),
    Row(
        "scaled_list",
        scaled_list,
        lambda t: [(([_leaf(t, 2), _leaf(t, 3, 2)], [2.0, -1.0]), {})],
    ),
    Row(
        "optional",
        optional,
        lambda t: [
            ((_data(t, 3), None), {}),
            ((_data(t, 3), _data(t, 3)), {"flag": False}),
        ],
    ),
    Row("adds_into", adds_into, lambda t: [((_data(t, 3), _data(t, 3), 2.0), {})]),
    Row("adds_and_returns", adds_and_returns, lambda t: [((_data(t, 3), _data(t, 3)), {})]),
    Row(
        "by_schema",
        by_schema,
        lambda t: [((_data(t, 3, 4), [1]), {}), ((_data(t, 3, 4), [0]), {"keep": True})],
    ),
]
BY_NAME = {row.name: row for row in TABLE}
