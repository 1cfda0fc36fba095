"""Rows: arguments, results, mutation, memory that is shared."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import lucerne as torch
from tests.capture.scene import Row, Scene, collector, data

ROWS: list[Row] = []
row = collector(ROWS)

BITWISE = {"mode": "bitwise"}
"""Random numbers of compiled functions are eager's in this mode only."""


# ---- arguments and results ---------------------------------------------------------------------


@row
def plain() -> Scene:
    return Scene(lambda x, y: x * y + 1, [(data(3, 4), data(3, 4)), (data(3, 4), data(3, 4))])


def written_after(alias: Callable[[Any], Any]) -> Row:
    """What is returned lies in the memory of x; then x gets a history."""

    def made() -> Scene:
        given = [(data(3, 2),) for _ in range(3)]

        def after(k: int, r: Any) -> Any:
            given[k][0][0] = torch.ones((), requires_grad=True)
            return r, r._is_view()

        return Scene(alias, given, after=after)

    return made


ALIASES: dict[str, Callable[[Any], Any]] = {
    "view": lambda x: x.t(),
    "detached": lambda x: x.detach(),
    "data": lambda x: x.data,
    "detached_view": lambda x: x.t().detach(),
    "view_of_detached": lambda x: x.detach()[1:],
    "view_of_a_detached_view": lambda x: x.t().detach()[:1],
}
for _name, _alias in ALIASES.items():
    _made = written_after(_alias)
    _made.__name__ = f"{_name}_of_what_is_written_later"
    row(_made)


@row
def keyword_arguments() -> Scene:
    def fn(x: Any, *, scale: float = 2.0, other: Any = None) -> Any:
        return x * scale if other is None else x * scale + other

    return Scene(fn, [(data(3),)], kwargs={"other": data(3), "scale": 3.0})


@row
def defaults_left_out() -> Scene:
    return Scene(lambda x, y=None, k=2: x * k if y is None else y, [(data(3),)])


@row
def nested_containers() -> Scene:
    def fn(tree: Any) -> Any:
        return {"sum": tree["a"][0] + tree["b"][1], "all": [tree["a"], (tree["b"][0] * 2, None)]}

    return Scene(fn, [({"a": [data(2)], "b": (data(2), data(2))},)])


class Point(NamedTuple):
    x: Any
    y: Any


@row
def named_tuples() -> Scene:
    return Scene(lambda p: Point(p.x + p.y, p.x * p.y), [(Point(data(2), data(2)),)])


@dataclasses.dataclass
class Batch:
    images: Any
    labels: Any
    name: str = "train"


@row
def dataclasses_both_ways() -> Scene:
    def fn(b: Batch) -> Batch:
        return Batch(b.images * 2, b.labels + 1, b.name + "ed")

    return Scene(fn, [(Batch(data(2, 2), torch.arange(2)),)])


@row
def numbers_recompile() -> Scene:
    x = data(3)
    return Scene(lambda x, k: x * k, [(x, 2), (x, 3), (x, 2)], versions=2)


@row
def strings_recompile() -> Scene:
    def fn(x: Any, how: str) -> Any:
        return x.sum() if how == "sum" else x.mean()

    x = data(3)
    return Scene(fn, [(x, "sum"), (x, "mean"), (x, "sum")], versions=2)


@row
def true_is_not_one() -> Scene:
    x = data(3)
    return Scene(lambda x, k: (x, k, type(k) is bool), [(x, 1), (x, True), (x, 1.0)], versions=3)


@row
def nan_as_an_argument() -> Scene:
    nan = float("nan")
    return Scene(lambda x, k: x + k, [(data(3), nan)])


@row
def none_then_tensor() -> Scene:
    x = data(3)
    fn = lambda x, m: x if m is None else x * m  # noqa: E731
    return Scene(fn, [(x, None), (x, data(3)), (x, None)], versions=2)


@row
def a_list_that_grows() -> Scene:
    a, b = data(2), data(2)
    return Scene(lambda xs: sum(xs), [([a],), ([a, b],), ([a],)], versions=2)


@row
def shapes_change() -> Scene:
    fn = lambda x: x.sum(0) * x.shape[0]  # noqa: E731
    return Scene(fn, [(data(2, 3),), (data(4, 3),), (data(2, 3),)], versions=None)


@row
def dtypes_change() -> Scene:
    x = data(3)
    return Scene(lambda x: x * 2, [(x,), (x.double(),), (torch.arange(3),)], versions=3)


@row
def strides_change() -> Scene:
    x = data(3, 3)
    return Scene(lambda x: x * 2, [(x,), (x.t(),), (x[:, ::2],)], versions=3)


@row
def requires_grad_changes() -> Scene:
    x = data(3)
    calls = [(x,), (data(3, grad=True),), (x,)]
    return Scene(lambda x: x * 2, calls, versions=2)


@row
def returns_nothing() -> Scene:
    def fn(x: Any) -> None:
        x * 2

    return Scene(fn, [(data(2),)])


@row
def returns_numbers_and_shapes() -> Scene:
    return Scene(lambda x: (x.shape[0], x.ndim, str(x.dtype), x.numel(), 1.5), [(data(2, 3),)])


@row
def zero_size() -> Scene:
    return Scene(lambda x: (x * 2, x.sum(0), torch.cat([x, x])), [(data(0, 3),)])


@row
def scalars() -> Scene:
    return Scene(lambda x: x * 2 + 1, [(torch.tensor(3.0),)])


@row
def constants_inside() -> Scene:
    return Scene(lambda x: x * torch.tensor([1.0, 2.0, 3.0]) + torch.ones(3), [(data(3),)])


@row
def a_constant_is_returned() -> Scene:
    return Scene(lambda x: (torch.tensor([1, 2]), torch.zeros(2), x + 1), [(data(2),)])


@row
def a_constant_is_written_to() -> Scene:
    def fn(x: Any) -> Any:
        made = torch.tensor([1.0, 2.0])
        made += x
        return made

    return Scene(fn, [(data(2),)])


@row
def index_lists_inside() -> Scene:
    return Scene(lambda x: (x[[2, 0]], x[:, 1], x[None, ..., -1]), [(data(3, 3),)])


# ---- mutation ----------------------------------------------------------------------------------


@row
def writes_an_argument() -> Scene:
    def fn(x: Any) -> Any:
        x.mul_(2)
        return x + 1

    return Scene(fn, [(data(3),)])


@row
def writes_and_returns_it() -> Scene:
    return Scene(lambda x: x.add_(1), [(data(3),)])


@row
def writes_a_view() -> Scene:
    def fn(x: Any) -> Any:
        before = x * 1
        x[1:].zero_()
        x[0] = 7
        return before, x.sum()

    return Scene(fn, [(data(3, 2),)])


@row
def writes_through_a_transpose() -> Scene:
    def fn(x: Any) -> Any:
        y = x.t()
        y[0].add_(5)
        return x.sum(0), y.sum(0)

    return Scene(fn, [(data(3, 2),)])


@row
def an_argument_is_a_view() -> Scene:
    base = data(4, 4)
    return Scene(lambda x: x.mul_(3), [(base[1:3, ::2],)], watched={"base": base})


@row
def writes_the_closure() -> Scene:
    total = torch.zeros(3)

    def fn(x: Any) -> Any:
        total.add_(x)
        return total * 2

    return Scene(fn, [(data(3),)], watched={"total": total})


@row
def writes_an_integer_counter() -> Scene:
    count = torch.zeros((), dtype=torch.int64)

    def fn(x: Any) -> Any:
        count.add_(1)
        return x * count

    return Scene(fn, [(data(3),)], watched={"count": count})


@row
def copies_between_arguments() -> Scene:
    def fn(a: Any, b: Any) -> None:
        t = a.clone()
        a.copy_(b)
        b.copy_(t)

    return Scene(fn, [(data(3), data(3))])


@row
def fills_by_out() -> Scene:
    def fn(a: Any, out: Any) -> Any:
        return torch.mul(a, 2, out=out)

    return Scene(fn, [(data(3), data(3))])


@row
def index_put_on_argument() -> Scene:
    def fn(x: Any, i: Any, v: Any) -> Any:
        x[i] = v
        return x

    return Scene(fn, [(data(4), torch.tensor([2, 0]), data(2))])


@row
def masked_fill_on_argument() -> Scene:
    def fn(x: Any) -> Any:
        x[x > 0] = 0
        return x.sum()

    return Scene(fn, [(data(4),)])


# ---- sharing -----------------------------------------------------------------------------------


@row
def an_output_is_an_input() -> Scene:
    return Scene(lambda x, y: (x, y, x), [(data(2), data(2))])


@row
def an_output_is_a_view_of_an_input() -> Scene:
    return Scene(lambda x: (x[1:], x.t(), x.view(-1)), [(data(2, 2),)])


@row
def outputs_share() -> Scene:
    def fn(x: Any) -> Any:
        y = x * 2
        return y, y[0], y.t(), y

    return Scene(fn, [(data(2, 2),)])


@row
def an_output_is_the_closure() -> Scene:
    held = data(3)
    return Scene(lambda x: (held, held[1:], x + held), [(data(3),)], watched={"held": held})


@row
def the_same_tensor_twice() -> Scene:
    x = data(3)

    def fn(a: Any, b: Any) -> Any:
        a.add_(1)
        return a + b

    return Scene(fn, [(x, x)])


@row
def two_views_of_one_memory() -> Scene:
    base = data(6)

    def fn(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 2

    calls = [(base[:4], base[2:])]
    return Scene(fn, calls, watched={"base": base})


@row
def shared_then_apart() -> Scene:
    base = data(6)

    def fn(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 2

    calls = [(base[:4], base[2:]), (data(4), data(4)), (base[:4], base[1:5])]
    return Scene(fn, calls, watched={"base": base}, versions=3)


@row
def apart_then_shared() -> Scene:
    base = data(6)

    def fn(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 2

    calls = [(data(4), data(4)), (base[:4], base[2:])]
    return Scene(fn, calls, watched={"base": base}, versions=2)


@row
def an_argument_that_is_the_closure() -> Scene:
    held = data(3)

    def fn(x: Any) -> Any:
        x.add_(1)
        return held * 2

    return Scene(fn, [(held,), (data(3),), (held,)], watched={"held": held}, versions=None)


@row
def an_argument_that_views_the_closure() -> Scene:
    held = data(3)

    def fn(x: Any) -> Any:
        x.add_(1)
        return held * 2

    return Scene(fn, [(held[:2],), (data(2),), (held[1:],)], watched={"held": held}, versions=None)


@row
def detach_and_data() -> Scene:
    def fn(x: Any) -> Any:
        y = x * 2
        y.detach().add_(1)
        return y, y.data, x.detach()

    return Scene(fn, [(data(3),)])


@row
def expanded_argument() -> Scene:
    return Scene(lambda x: x * 2, [(data(1, 3).expand(4, 3),)])


@row
def overlapping_view_made_inside() -> Scene:
    return Scene(lambda x: x.as_strided((3, 2), (1, 1)) + 1, [(data(4),)])


# ---- what is around ----------------------------------------------------------------------------


@row
def the_closure_gets_another_tensor() -> Scene:
    held = [data(3)]

    def fn(x: Any) -> Any:
        return x + held[0]

    def after(k: int, result: Any) -> None:
        held[0] = data(3)

    return Scene(fn, [(data(3),)], after=after, versions=None)


@row
def a_number_of_the_closure_changes() -> Scene:
    scale = 1.0

    def fn(x: Any) -> Any:
        return x * scale

    def after(k: int, result: Any) -> None:
        nonlocal scale
        scale += 1

    return Scene(fn, [(data(3),)], after=after, versions=2)


GLOBAL_SCALE = 2.0


@row
def a_global_changes() -> Scene:
    global GLOBAL_SCALE
    GLOBAL_SCALE = 2.0

    def fn(x: Any) -> Any:
        return x * GLOBAL_SCALE

    def after(k: int, result: Any) -> None:
        global GLOBAL_SCALE
        GLOBAL_SCALE += 1

    return Scene(fn, [(data(3),)], after=after, versions=2)


class Setting:
    """An object with a number and a method."""

    def __init__(self) -> None:
        self.scale = 2.0
        self.bias = torch.ones(3)

    def __call__(self, x: Any) -> Any:
        return x * self.scale + self.bias

    def method(self, x: Any) -> Any:
        return self(x) - 1


@row
def an_object_that_is_called() -> Scene:
    return Scene(Setting(), [(data(3),)])


@row
def a_bound_method() -> Scene:
    return Scene(Setting().method, [(data(3),)])


@row
def an_attribute_changes() -> Scene:
    setting = Setting()

    def after(k: int, result: Any) -> None:
        setting.scale += 1

    return Scene(setting.method, [(data(3),)], after=after, versions=None)


@row
def an_attribute_of_the_closure_changes() -> Scene:
    setting = Setting()

    def after(k: int, result: Any) -> None:
        setting.scale += 1

    return Scene(lambda x: x * setting.scale, [(data(3),)], after=after, versions=None)


@row
def a_dict_of_the_closure_changes() -> Scene:
    options = {"scale": 1.0, "on": True}

    def after(k: int, result: Any) -> None:
        options["scale"] = 5.0
        options["on"] = k == 1

    fn = lambda x: x * options["scale"] if options["on"] else x  # noqa: E731
    return Scene(fn, [(data(3),)], after=after, versions=None)


@row
def a_partial() -> Scene:
    return Scene(functools.partial(torch.add, alpha=2), [(data(3), data(3))])


@row
def a_partial_with_a_tensor() -> Scene:
    held = data(3)
    return Scene(functools.partial(lambda a, b: a.add_(b), held), [(data(3),)])


@row
def an_op_itself() -> Scene:
    return Scene(torch.softmax, [(data(3, 3), 1)])


@row
def a_compiled_function_inside() -> Scene:
    inner = torch.compile(lambda x: x * 2, fullgraph=True)
    return Scene(lambda x: inner(x) + 1, [(data(3),)])


@row
def no_grad_inside() -> Scene:
    def fn(x: Any) -> Any:
        with torch.no_grad():
            y = x * 2
        return y, x * y

    return Scene(fn, [(data(3, grad=True),)], after=lambda k, r: r[1].sum().backward())


@row
def no_grad_outside() -> Scene:
    def fn(x: Any) -> Any:
        return x * 2

    scene = Scene(fn, [(data(3, grad=True),)], versions=2)
    switch = iter([False, True, False])

    def outer(x: Any) -> Any:
        with torch.set_grad_enabled(next(switch)):
            return fn_now(x)

    fn_now = fn

    def compile(f: Any, **options: Any) -> Any:
        nonlocal fn_now
        fn_now = torch.compile(fn, **options)
        return outer

    scene.fn, scene.compile, scene.versions = outer, compile, None
    return scene


@row
def enable_grad_inside() -> Scene:
    def fn(x: Any) -> Any:
        with torch.no_grad(), torch.enable_grad():
            return x * 2

    return Scene(fn, [(data(3, grad=True),)])


@row
def inference_mode_inside() -> Scene:
    def fn(x: Any) -> Any:
        with torch.inference_mode():
            y = x * 2
        return y.shape[0] + x

    return Scene(fn, [(data(3),)])


@row
def inference_mode_outside() -> Scene:
    compiled: list[Any] = []
    fn = lambda x: x * 2 + 1  # noqa: E731

    def outer(x: Any) -> Any:
        with torch.inference_mode():
            y = (compiled or [fn])[0](x)
        return y.is_inference(), y

    def compile(f: Any, **options: Any) -> Any:
        compiled.append(torch.compile(fn, **options))
        return outer

    return Scene(outer, [(data(3, grad=True),)], compile=compile)


@row
def default_dtype_changes() -> Scene:
    def after(k: int, result: Any) -> None:
        torch.set_default_dtype(torch.float64 if k == 0 else torch.float32)

    return Scene(lambda x: x + torch.ones(3), [(data(3),)], after=after, versions=2)


@row
def autocast_inside() -> Scene:
    w = data(3, 3)

    def fn(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return x @ w

    return Scene(fn, [(data(2, 3),)])


@row
def autocast_outside() -> Scene:
    w = data(3, 3, grad=True)
    compiled: list[Any] = []
    fn = lambda x: (x @ w).float().sum()  # noqa: E731

    def outer(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            loss = (compiled or [fn])[0](x)
        loss.backward()
        return loss

    def compile(f: Any, **options: Any) -> Any:
        compiled.append(torch.compile(fn, **options))
        return outer

    return Scene(outer, [(data(2, 3),)], watched={"w": w}, compile=compile)


# ---- randomness --------------------------------------------------------------------------------


@row
def random_inside() -> Scene:
    return Scene(lambda x: x + torch.rand(3) + torch.randn_like(x), [(data(3),)], options=BITWISE)


@row
def the_stream_goes_on() -> Scene:
    return Scene(
        lambda x: x * torch.rand(3), [(data(3),)], after=lambda k, r: torch.rand(2), options=BITWISE
    )


@row
def dropout_inside() -> Scene:
    return Scene(lambda x: torch.dropout(x, 0.5, True), [(data(20),)], options=BITWISE)


@row
def a_generator() -> Scene:
    g = torch.Generator().manual_seed(5)
    fn = lambda x: x + torch.rand(3, generator=g)  # noqa: E731
    return Scene(fn, [(data(3),)], after=lambda k, r: torch.rand(2, generator=g))


@row
def a_key_of_the_closure_is_renamed() -> Scene:
    options: dict[str, Any] = {"twice": 2.0}

    def after(k: int, result: Any) -> None:
        if k == 0:
            options["thrice"] = options.pop("twice")

    fn = lambda x: x * 2 if "twice" in options else x * 3  # noqa: E731
    return Scene(fn, [(data(3),)], after=after, versions=2)


@row
def a_huge_list_in_the_closure() -> Scene:
    table = list(range(5000))
    return Scene(lambda x: x * table[7], [(data(3),)])


@row
def an_argument_is_the_closure_seen_otherwise() -> Scene:
    held = data(3)

    def fn(x: Any) -> Any:
        x.add_(1)
        return held * 2

    calls = [(held.view(3),), (data(3),), (held.view(3),)]
    return Scene(fn, calls, watched={"held": held}, versions=2)


@row
def an_argument_is_a_gradient() -> Scene:
    w = data(3, grad=True)
    w.grad = data(3)

    def fn(g: Any) -> Any:
        w.grad.mul_(2)
        return g + 1

    calls = [(w.grad,), (data(3),), (w.grad,)]
    return Scene(fn, calls, watched={"w": w}, versions=2)
