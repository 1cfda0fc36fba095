"""Rows: gradients, inside and outside of the compiled function."""

from __future__ import annotations

from typing import Any

import lucerne as torch
from lucerne import nn
from tests.capture.scene import Row, Scene, collector, data

ROWS: list[Row] = []
row = collector(ROWS)
BITWISE = {"mode": "bitwise"}
"""Random numbers of compiled functions are eager's in this mode only."""


@row
def backward_outside() -> Scene:
    x, w = data(3, grad=True), data(3, grad=True)
    return Scene(lambda x: (x * w).sum(), [(x,)], watched={"w": w}, after=lambda k, r: r.backward())


@row
def backward_inside() -> Scene:
    w = data(3, grad=True)

    def fn(x: Any) -> Any:
        loss = (x * w).sum()
        loss.backward()
        return loss

    return Scene(fn, [(data(3),)], watched={"w": w}, versions=None)


@row
def gradients_add_up() -> Scene:
    w = data(3, grad=True)

    def fn(x: Any) -> None:
        (x * w).sum().backward()

    return Scene(fn, [(data(3),), (data(3),), (data(3),)], watched={"w": w}, versions=None)


@row
def gradients_exist_at_the_first_call() -> Scene:
    w = data(3, grad=True)
    w.grad = torch.ones(3)

    def fn(x: Any) -> None:
        (x * w).sum().backward()

    return Scene(fn, [(data(3),)], watched={"w": w})


@row
def the_gradient_object_stays() -> Scene:
    w = data(3, grad=True)
    w.grad = torch.ones(3)
    held = w.grad

    def fn(x: Any) -> None:
        (x * w).sum().backward()

    return Scene(fn, [(data(3),)], watched={"w": w, "held": held})


@row
def gradients_are_cleared_inside() -> Scene:
    w = data(3, grad=True)

    def fn(x: Any) -> Any:
        w.grad = None
        (x * w).sum().backward()

    return Scene(fn, [(data(3),)], watched={"w": w})


@row
def gradients_are_zeroed_inside() -> Scene:
    model = nn.Linear(3, 2)

    def fn(x: Any) -> Any:
        model.zero_grad(set_to_none=False)
        loss = model(x).sum()
        loss.backward()
        return loss

    return Scene(fn, [(data(4, 3),)], watched={"model": model}, versions=None)


@row
def gradients_are_read_inside() -> Scene:
    w = data(3, grad=True)

    def fn(x: Any) -> Any:
        w.grad = None
        (x * w).sum().backward()
        return w.grad * 2, w.grad.norm()

    return Scene(fn, [(data(3),)], watched={"w": w})


@row
def gradients_are_returned() -> Scene:
    w = data(3, grad=True)

    def fn(x: Any) -> Any:
        w.grad = None
        (x * w).sum().backward()
        return w.grad

    return Scene(fn, [(data(3),)], watched={"w": w})


@row
def autograd_grad_inside() -> Scene:
    w = data(3, grad=True)
    fn = lambda x: torch.autograd.grad((x * w * w).sum(), [w])  # noqa: E731
    return Scene(fn, [(data(3),)], watched={"w": w})


@row
def second_derivatives_inside() -> Scene:
    def fn(x: Any) -> Any:
        (g,) = torch.autograd.grad((x**3).sum(), [x], create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), [x])
        return h

    return Scene(fn, [(data(3, grad=True),)])


@row
def backward_twice_is_an_error() -> Scene:
    x = data(3, grad=True)

    def after(k: int, loss: Any) -> None:
        loss.backward()
        loss.backward()

    return Scene(lambda x: (x * x).sum(), [(x,)], after=after)


@row
def retain_graph_outside() -> Scene:
    x = data(3, grad=True)

    def after(k: int, loss: Any) -> None:
        loss.backward(retain_graph=True)
        loss.backward()

    return Scene(lambda x: (x * x).sum(), [(x,)], after=after)


@row
def backward_again_after_backward_inside() -> Scene:
    w = data(3, grad=True)

    def fn(x: Any) -> Any:
        loss = (x * w * w).sum()
        loss.backward()
        return loss

    return Scene(fn, [(data(3),)], watched={"w": w}, after=lambda k, r: r.backward(), versions=None)


@row
def two_losses_outside() -> Scene:
    x = data(3, grad=True)

    def after(k: int, r: Any) -> None:
        (r[0].sum() + 2 * r[1].sum()).backward()

    return Scene(lambda x: (x * 2, x.exp(), x.detach()), [(x,)], after=after)


@row
def only_one_of_two_outputs_is_used() -> Scene:
    x = data(3, grad=True)
    return Scene(lambda x: (x * 2, x.exp()), [(x,)], after=lambda k, r: r[1].sum().backward())


@row
def an_argument_with_history() -> Scene:
    x = data(3, grad=True)
    y = x * 2

    def after(k: int, r: Any) -> None:
        r.sum().backward(retain_graph=True)

    return Scene(lambda y: y * y, [(y,)], watched={"x": x}, after=after)


@row
def a_view_with_history_is_returned() -> Scene:
    x = data(3, 3, grad=True)
    y = x * 2

    def after(k: int, r: Any) -> None:
        r.sum().backward(retain_graph=True)

    return Scene(lambda y: y[0], [(y,)], watched={"x": x}, after=after)


def _beyond(fn: Any) -> Scene:
    """A view that reads elements which the view it was made of had left out: they get nothing."""
    after = lambda k, r: (r[-1] if isinstance(r, tuple) else r).sin().sum().backward()  # noqa: E731
    return Scene(fn, [(data(2, 2, 2, grad=True),)], after=after, fallback="more than its input")


@row
def a_view_reads_beyond_the_one_before() -> Scene:
    return _beyond(lambda x: x[0, 0].as_strided((2, 2), (1, 1)))


@row
def a_view_reads_all_from_the_first_element() -> Scene:
    return _beyond(lambda x: x[:1, :1, :1].as_strided((2, 2, 2), (4, 2, 1)))


@row
def a_view_reads_beyond_beside_its_base() -> Scene:
    return _beyond(lambda x: (y := x * 2, y[0].as_strided((2, 3), (1, 2))))


@row
def a_view_by_strides_of_all_elements() -> Scene:
    after = lambda k, r: r.sin().sum().backward()  # noqa: E731
    return Scene(lambda x: x.as_strided((2, 2), (1, 1)), [(data(2, 4, grad=True),)], after=after)


@row
def detached_views_of_a_parameter() -> Scene:
    w = data(3, 3, grad=True)

    def fn(x: Any) -> Any:
        with torch.no_grad():
            inside = w[0]
        return inside, w.detach()[1], w[2], w.data

    return Scene(fn, [(data(3),)], watched={"w": w})


@row
def requires_grad_is_set_inside() -> Scene:
    def fn(x: Any) -> Any:
        y = x.detach().requires_grad_()
        (g,) = torch.autograd.grad((y * y).sum(), [y])
        return g

    return Scene(fn, [(data(3),)])


@row
def parameters_in_one_memory() -> Scene:
    flat = data(6)
    a, b = nn.Parameter(flat[:3]), nn.Parameter(flat[3:])

    def fn(x: Any) -> Any:
        return (x * a * b).sum()

    watched = {"a": a, "b": b, "flat": flat}
    return Scene(fn, [(data(3),)], watched=watched, after=lambda k, r: r.backward())


@row
def a_step_on_parameters_in_one_memory() -> Scene:
    flat = data(6)
    a, b = nn.Parameter(flat[:3]), nn.Parameter(flat[3:])

    def fn(x: Any) -> Any:
        a.grad = b.grad = None
        loss = (x * a * b).sum()
        loss.backward()
        with torch.no_grad():
            for p in (a, b):
                p -= 0.1 * p.grad
        return loss, flat.sum()

    return Scene(fn, [(data(3),)], watched={"a": a, "b": b, "flat": flat})


@row
def two_parameters_over_the_same_elements() -> Scene:
    a = nn.Parameter(data(3))
    b = nn.Parameter(a.data)
    fn = lambda x: (x * a).sum() + (x * b * b).sum()  # noqa: E731
    return Scene(fn, [(data(3),)], watched={"a": a, "b": b}, after=lambda k, r: r.backward())


@row
def in_place_on_an_argument_that_needs_grad() -> Scene:
    w = data(3, grad=True)

    def fn(x: Any) -> Any:
        with torch.no_grad():
            w.mul_(0.5)
        return (x * w).sum()

    return Scene(fn, [(data(3),)], watched={"w": w}, after=lambda k, r: r.backward())


class Cube(torch.autograd.Function):
    """A derivative of one's own, and a wrong one so that it is seen to be used."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 30 * x


@row
def custom_function() -> Scene:
    x = data(3, grad=True)
    return Scene(lambda x: Cube.apply(x).sum(), [(x,)], after=lambda k, r: r.backward())


@row
def checkpointed() -> Scene:
    from lucerne.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def fn(x: Any) -> Any:
        return checkpoint(model, x, use_reentrant=False).sum()

    x = data(2, 3)
    return Scene(fn, [(x,)], watched={"m": model}, after=lambda k, r: r.backward())


@row
def checkpointed_with_backward_inside() -> Scene:
    from lucerne.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))

    def fn(x: Any) -> Any:
        model.zero_grad()
        loss = checkpoint(model, x, use_reentrant=False).sum()
        loss.backward()
        return loss

    return Scene(fn, [(data(2, 3),)], watched={"m": model}, options=BITWISE)


@row
def tensor_hooks() -> Scene:
    w = data(3, grad=True)

    def fn(x: Any) -> Any:
        y = x * w
        y.register_hook(lambda g: g * 10)
        return y.sum()

    return Scene(fn, [(data(3),)], watched={"w": w}, after=lambda k, r: r.backward())


@row
def a_hook_on_a_parameter() -> Scene:
    w = data(3, grad=True)
    handle = w.register_hook(lambda g: g * 10)

    def fn(x: Any) -> Any:
        w.grad = None
        (x * w).sum().backward()

    def after(k: int, r: Any) -> None:
        if k == 1:
            handle.remove()

    return Scene(fn, [(data(3),)], watched={"w": w}, after=after, versions=None)


@row
def a_hook_on_a_parameter_and_backward_outside() -> Scene:
    w = data(3, grad=True)
    handle = w.register_hook(lambda g: g * 10)

    def after(k: int, loss: Any) -> None:
        loss.backward()
        if k == 1:
            handle.remove()

    fn = lambda x: (x * w).sum()  # noqa: E731
    return Scene(fn, [(data(3),)], watched={"w": w}, after=after, versions=None)


@row
def a_hook_on_an_argument() -> Scene:
    x = data(3, grad=True)
    x.register_hook(lambda g: g * 10)

    def fn(x: Any) -> Any:
        (x * x).sum().backward()
        return x + 1

    return Scene(fn, [(x,)], fallback="an argument that has hooks")


@row
def a_new_leaf_is_returned() -> Scene:
    return Scene(lambda x: (x * 2).detach().requires_grad_(), [(data(3),)])


@row
def anomaly_of_a_saved_tensor() -> Scene:
    x = data(3, grad=True)

    def after(k: int, loss: Any) -> None:
        with torch.no_grad():
            x.add_(1)
        try:
            loss.backward()
        except RuntimeError as error:
            if "modified by an inplace operation" not in str(error):
                raise

    return Scene(lambda x: (x * x).sum(), [(x,)], after=after)


@row
def jacobian_of_a_compiled_function() -> Scene:
    inner = lambda x: x * x.sum()  # noqa: E731

    def compile(f: Any, **options: Any) -> Any:
        compiled = torch.compile(inner, **options)
        return lambda x: torch.autograd.functional.jacobian(compiled, x)

    fn = lambda x: torch.autograd.functional.jacobian(inner, x)  # noqa: E731
    return Scene(fn, [(data(3),)], compile=compile)


@row
def jacobian_inside() -> Scene:
    fn = lambda x: torch.autograd.functional.jacobian(lambda v: v * v.sum(), x)  # noqa: E731
    return Scene(fn, [(data(3),)])


@row
def parameters_in_one_memory_part() -> Scene:
    a = nn.Parameter(data(3))
    b = nn.Parameter(a.data)

    def after(k: int, r: Any) -> None:
        r.backward()
        if k == 0:
            b.data = data(3)

    fn = lambda x: (x * a).sum() + (x * b * b).sum()  # noqa: E731
    return Scene(fn, [(data(3),)], watched={"a": a, "b": b}, after=after, versions=2)
