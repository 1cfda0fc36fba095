"""Gradients: leaves, backward, modes, what is saved, and what is refused."""

from typing import Any

from tests.conformance.own_cases.tools import Rows, attempt, counted, numbers, raises


def backward_accumulates(t: Any) -> Any:
    x = numbers(t, 3, grad=True)
    (x * 2).sum().backward()
    first = x.grad.clone()
    (x**2).sum().backward()
    second = x.grad
    x.grad = None
    (x * 3).sum().backward()
    return first, second, x.grad


def backward_with_gradient(t: Any) -> Any:
    x = numbers(t, 2, 3, grad=True)
    (x.exp()).backward(t.ones(2, 3) * 0.5)
    t.autograd.backward([x.sin(), x.cos()], [t.ones(2, 3), t.ones(2, 3)])
    return x.grad


def shared_subgraph(t: Any) -> Any:
    x = numbers(t, 4, grad=True)
    y = x.tanh()
    z = (y * y + y.sum() * x).sum() + (y / (1 + x.detach() ** 2)).sum()
    z.backward()
    return x.grad


def graph_is_freed(t: Any) -> Any:
    x = numbers(t, 3, grad=True)
    y = (x**2).sum()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad, raises(y.backward, "backward through the graph a second time")


def leaf_refusals(t: Any) -> Any:
    x = numbers(t, 3, grad=True)
    y = x * 2
    return (
        raises(lambda: x.add_(1), "a leaf Variable that requires grad"),
        raises(lambda: x[:2].mul_(2), "leaf Variable"),
        raises(lambda: y.requires_grad_(False), "leaf"),
        raises(lambda: y.backward(), "grad can be implicitly created only for scalar outputs"),
        raises(lambda: t.ones(1).sum().backward(), "does not require grad"),
        raises(lambda: y.backward(t.ones(4)), "shape"),
        raises(lambda: t.ones(2, dtype=t.int64).requires_grad_(), "floating point"),
    )


def saved_then_changed(t: Any) -> Any:
    """A tensor that backward needs was overwritten."""

    def run(op: Any, change: Any) -> Any:
        x = numbers(t, 3, grad=True)
        y = x * 1
        z = op(y).sum()
        change(y)
        return raises(z.backward, "modified by an inplace operation")

    return {
        "square": run(lambda y: y * y, lambda y: y.add_(1)),
        "exp keeps its result": run(lambda y: y.exp(), lambda y: y.add_(1)),
        "view was written": run(lambda y: y * y, lambda y: y[:1].zero_()),
        "add saves nothing": run(lambda y: y + 1, lambda y: y.add_(1)),
        "sin": run(lambda y: y.sin(), lambda y: y.mul_(2)),
        "data hides it": run(lambda y: y * y, lambda y: y.data.add_(1)),
    }


def inplace_in_graph(t: Any) -> Any:
    x = numbers(t, 4, grad=True)
    y = x.clone()
    y.mul_(2).add_(x)
    y[1:3] = 0
    y[0] *= x[3]
    y.sum().backward()
    return x.grad, y


def inplace_on_views(t: Any) -> Any:
    x = numbers(t, 3, 3, grad=True)
    base = x * 1
    row, column = base[0], base[:, 1]
    row.mul_(2)
    column.copy_(x[2])
    base.t()[2].sigmoid_()
    loss = (base * counted(t, 3, 3)).sum() + row.sum()
    return base, t.autograd.grad(loss, x)


def inplace_makes_grad(t: Any) -> Any:
    x = t.zeros(3)
    w = numbers(t, 2, grad=True)
    x[1:] = w
    flags = (x.requires_grad, x.is_leaf)
    (x**2).sum().backward()
    return flags, w.grad


def modes(t: Any) -> Any:
    x = numbers(t, 2, grad=True)
    seen = [t.is_grad_enabled()]
    with t.no_grad():
        seen += [t.is_grad_enabled(), (x * 2).requires_grad]
        with t.enable_grad():
            seen += [(x * 2).requires_grad]
        made = t.ones(1, requires_grad=True)
        seen += [made.requires_grad]
    with t.set_grad_enabled(False):
        seen += [(x * 2).requires_grad]
    with t.inference_mode():
        seen += [t.is_inference_mode_enabled(), (x * 2).requires_grad]
    seen += [(x * 2).requires_grad]
    return seen


def decorators(t: Any) -> Any:
    x = numbers(t, 2, grad=True)

    @t.no_grad()
    def plain(y: Any) -> Any:
        return y * 2

    @t.no_grad()
    def several(y: Any) -> Any:
        yield y * 2
        yield t.is_grad_enabled()

    @t.enable_grad()
    def on(y: Any) -> Any:
        return y * 2

    with t.no_grad():
        forced = on(x)
    return plain(x), list(several(x)), forced, (x * 2).requires_grad


def view_in_no_grad(t: Any) -> Any:
    x = numbers(t, 4, grad=True)
    with t.no_grad():
        x[:2] = 5.0
        x.sub_(1)
        view = x[2:]
    return x, view, raises(lambda: view.add_(1))


def attributes(t: Any) -> Any:
    x = numbers(t, 2, grad=True)
    y = x * 2
    y.retain_grad()
    (y**2).sum().backward()
    return (
        x.is_leaf,
        y.is_leaf,
        x.grad_fn is None,
        y.grad_fn is not None,
        y.grad,
        y.retains_grad,
        x.output_nr,
        t.ones(1).grad,
        type(y.grad_fn).__name__,
        y.grad_fn.name(),
        len(y.grad_fn.next_functions),
    )


def grad_function(t: Any) -> Any:
    x, unused = numbers(t, 3, grad=True), numbers(t, 2, grad=True)
    y = (x**3).sum()
    (first,) = t.autograd.grad(y, x, create_graph=True)
    (second,) = t.autograd.grad(first.sum(), x)
    zeros = t.autograd.grad((x * 2).sum(), [x, unused], materialize_grads=True)
    nothing = t.autograd.grad((x * 2).sum(), [x, unused], allow_unused=True)
    refused = raises(lambda: t.autograd.grad((x * 2).sum(), unused), "not have been used")
    return first, second, zeros, nothing[1] is None, refused, x.grad


def batched_grad(t: Any) -> Any:
    x = numbers(t, 3, grad=True)
    return t.autograd.grad(x**2, x, t.eye(3), is_grads_batched=True)


def custom_function(t: Any) -> Any:
    class Cube(t.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, power: int) -> Any:
            ctx.save_for_backward(x)
            ctx.power = power
            return x**power

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return grad * ctx.power * x ** (ctx.power - 1), None

    x = numbers(t, 3, grad=True)
    y = Cube.apply(x, 3)
    (first,) = t.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = t.autograd.grad(first.sum(), x)
    return y, first, second, type(y.grad_fn).__name__


def custom_function_options(t: Any) -> Any:
    class Split(t.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            index = x.argsort()
            ctx.mark_non_differentiable(index)
            ctx.needs = ctx.needs_input_grad
            return x * 2, index, x.clone()

        @staticmethod
        def backward(ctx: Any, first: Any, index: Any, third: Any) -> Any:
            return first * 2 + third

    x = numbers(t, 3, grad=True)
    doubled, index, same = Split.apply(x)
    doubled.sum().backward()
    return x.grad, index.requires_grad, same.requires_grad


def detach_cuts(t: Any) -> Any:
    x = numbers(t, 3, grad=True)
    y = (x * x.detach()).sum()
    y.backward()
    z = x.clone().detach_()
    return x.grad, z.requires_grad, x.detach().is_leaf, x.data.requires_grad


def mixed_dtypes(t: Any) -> Any:
    x = numbers(t, 3, grad=True)
    y = numbers(t, 3, seed=1).double().requires_grad_()
    h = numbers(t, 3, seed=2).bfloat16().requires_grad_()
    (x * y + h).sum().backward()
    return x.grad, y.grad, h.grad


def broadcast_grads(t: Any) -> Any:
    a, b = numbers(t, 3, 1, grad=True), numbers(t, 1, 4, seed=1, grad=True)
    c = t.tensor(2.0, requires_grad=True)
    (a * b + c).pow(2).sum().backward()
    return a.grad, b.grad, c.grad


def ties(t: Any) -> Any:
    """How a gradient is divided where several elements are equal."""

    def of(f: Any) -> Any:
        x = t.tensor([[1.0, 2.0, 2.0], [2.0, 0.0, 2.0]], requires_grad=True)
        return t.autograd.grad(f(x).sum(), x)

    fixed = t.tensor([[1.0, 1.0, 2.0], [2.0, 2.0, 2.0]])
    return {
        "max": of(lambda x: x.max()),
        "max over dim": of(lambda x: x.max(1).values),
        "amax": of(lambda x: x.amax(1)),
        "median": of(lambda x: x.median()),
        "maximum": of(lambda x: t.maximum(x, fixed)),
        "clamp": of(lambda x: x.clamp(1, 2)),
        "relu at zero": of(lambda x: (x - 2).relu()),
        "abs at zero": of(lambda x: (x - 2).abs()),
        "norm at zero": of(lambda x: (x * 0).norm()),
        "sort": of(lambda x: x.sort(1).values * t.arange(3)),
        "prod with zero": of(lambda x: x.prod()),
        "sqrt at zero": of(lambda x: (x[1, 1]).sqrt()),
        "pow at zero": of(lambda x: x**0),
        "where with nan": of(lambda x: t.where(x > 0, x.log(), x)),
    }


def complex_grads(t: Any) -> Any:
    x = t.tensor([1 + 2j, -0.5 + 1j], requires_grad=True)
    loss = (x * x.conj()).real.sum() + x.abs().sum() + x.angle().sum()
    loss.backward()
    real = numbers(t, 2, grad=True)
    (t.complex(real, real * 2) ** 2).imag.sum().backward()
    return x.grad, real.grad, raises(lambda: (x * 2).sum().backward(), "complex")


def functional_tools(t: Any) -> Any:
    x = numbers(t, 3)
    f = t.autograd.functional
    return (
        f.jacobian(lambda v: v**2 + v.sum(), x),
        f.hessian(lambda v: (v**3).sum(), x),
        f.vjp(lambda v: v.sin(), x, t.ones(3)),
        f.jvp(lambda v: v.sin(), x, t.ones(3)),
    )


def deep_chain(t: Any) -> Any:
    x = t.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(3000):
        y = y + 1e-3
    y.backward()
    return x.grad


def anomaly(t: Any) -> Any:
    x = t.tensor(-1.0, requires_grad=True)
    with t.autograd.detect_anomaly(check_nan=True):
        return raises(lambda: x.sqrt().backward(), "returned nan values")


ROWS: Rows = {
    "backward accumulates": backward_accumulates,
    "backward with a gradient": backward_with_gradient,
    "shared subgraph": shared_subgraph,
    "graph is freed": graph_is_freed,
    "leaf refusals": leaf_refusals,
    "saved then changed": saved_then_changed,
    "in-place in the graph": inplace_in_graph,
    "in-place on views": inplace_on_views,
    "in-place makes it differentiable": inplace_makes_grad,
    "grad modes": modes,
    "grad mode decorators": decorators,
    "writes in no_grad": view_in_no_grad,
    "attributes": attributes,
    "grad function": grad_function,
    "batched grad": batched_grad,
    "custom function": custom_function,
    "custom function options": custom_function_options,
    "detach cuts": detach_cuts,
    "mixed dtypes": mixed_dtypes,
    "broadcast gradients": broadcast_grads,
    "ties": ties,
    "complex gradients": complex_grads,
    "functional tools": functional_tools,
    "deep chain": deep_chain,
    "anomaly": anomaly,
    "requires_grad_": lambda t: (
        t.ones(2).requires_grad_(),
        t.ones(2, requires_grad=True).requires_grad_(False),
        (t.ones(2, requires_grad=True) * 2).detach().requires_grad_(),
    ),
    "requires_grad of results": lambda t: (
        (numbers(t, 2, grad=True) > 0).requires_grad,
        numbers(t, 2, grad=True).argmax().requires_grad,
        numbers(t, 2, grad=True).long().requires_grad,
        numbers(t, 2, grad=True).sign().requires_grad,
        t.ones_like(numbers(t, 2, grad=True)).requires_grad,
        numbers(t, 2, grad=True).new_ones(1).requires_grad,
    ),
    "grad must fit": lambda t: (
        raises(lambda: setattr(t.ones(2, requires_grad=True), "grad", t.ones(3)), "size"),
        raises(lambda: setattr(t.ones(2, requires_grad=True), "grad", t.ones(2).double()), "type"),
        attempt(lambda: setattr(t.ones(2), "grad", t.ones(2))),
    ),
    "grad_fn names": lambda t: [
        type(f(numbers(t, 2, 2, grad=True)).grad_fn).__name__
        for f in (
            lambda x: x + 1,
            lambda x: x * x,
            lambda x: x @ x,
            lambda x: x.view(4),
            lambda x: x.t(),
            lambda x: x.sum(),
            lambda x: x.exp(),
            lambda x: x[0],
            lambda x: x.relu(),
        )
    ],
}
