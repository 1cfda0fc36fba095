"""User code that the library calls back: each row calls a function some times and tells what was
seen. `wrap` is `torch.compile`, or leaves the function as it is; both must tell the same.

What is called writes through an object of the user's own (`Log`): no look at the text of a function
tells that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import lucerne as torch
from lucerne import nn
from lucerne.nn import functional as F
from lucerne.nn.modules import module as modules
from lucerne.nn.utils import parametrize
from lucerne.utils import _pytree, checkpoint

Wrap = Callable[[Any], Any]
ROWS: list[Callable[[Wrap], Any]] = []


def row(fn: Callable[[Wrap], Any]) -> Callable[[Wrap], Any]:
    ROWS.append(fn)
    return fn


class Log:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def note(self, what: Any = 1) -> None:
        self.seen.append(what)


def told(value: Any) -> Any:
    """A result in plain numbers, rounded."""
    if isinstance(value, torch.Tensor):
        return told(value.detach().tolist())
    if isinstance(value, (list, tuple)):
        return [told(v) for v in value]
    if isinstance(value, dict):
        return {k: told(v) for k, v in value.items()}
    return round(value, 4) if isinstance(value, float) else value


def called(fn: Any, log: Log, times: int = 4) -> list[Any]:
    """For each call: how much was noted until then, the result, the gradient of the argument."""
    found = []
    for k in range(times):
        x = torch.ones(2 if k == times - 1 else 3, 3).requires_grad_()
        out = fn(x)
        if out.requires_grad:
            out.sum().backward()
        found.append((len(log.seen), out, x.grad))
    return [found, log.seen]


# ---- functions that are given to the library ----------------------------------------------------


def of_body(make: Callable[[Any, Any], Any]) -> None:
    """A row for something that takes a function: `make(body, x)` calls it in the compiled one."""

    def body_row(wrap: Wrap) -> Any:
        log = Log()

        def body(x: Any) -> Any:
            log.note()
            return x * 2

        return called(wrap(lambda x: make(body, x)), log)

    body_row.__name__ = make.__name__
    ROWS.append(body_row)


@of_body
def no_grad_decorated(body: Any, x: Any) -> Any:
    return torch.no_grad()(body)(x) + x


@of_body
def autocast_decorated(body: Any, x: Any) -> Any:
    return torch.autocast("cpu", enabled=False)(body)(x)


@of_body
def checkpointed(body: Any, x: Any) -> Any:
    return checkpoint.checkpoint(lambda z: body(z).sin(), x, use_reentrant=False)


@of_body
def checkpointed_reentrant(body: Any, x: Any) -> Any:
    return checkpoint.checkpoint(body, x, use_reentrant=True)


@of_body
def vmapped(body: Any, x: Any) -> Any:
    return torch.vmap(body)(x)


@of_body
def func_grad(body: Any, x: Any) -> Any:
    return torch.func.grad(lambda z: body(z).pow(2).sum())(x)


@of_body
def func_jvp(body: Any, x: Any) -> Any:
    return torch.func.jvp(body, (x,), (x,))[1]


@of_body
def func_vjp(body: Any, x: Any) -> Any:
    return torch.func.vjp(body, x)[0]


@of_body
def func_jacrev(body: Any, x: Any) -> Any:
    return torch.func.jacrev(body)(x).sum()


@of_body
def tree_mapped(body: Any, x: Any) -> Any:
    return _pytree.tree_map(body, [x, x])[0]


@of_body
def branch_of_cond(body: Any, x: Any) -> Any:
    return torch.cond(x.sum() > 0, body, lambda z: z * 3, (x.detach(),))


@of_body
def mapped(body: Any, x: Any) -> Any:
    return next(iter(map(body, [x])))


@row
def vmapped_outside(wrap: Wrap) -> Any:
    log = Log()

    def body(x: Any) -> Any:
        log.note()
        return x * 2

    over, slope = torch.vmap(body), torch.func.grad(lambda z: body(z).sum())
    return called(wrap(lambda x: over(x) + slope(x)), log)


class Noting(nn.Module):
    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log

    def forward(self, x: Any) -> Any:
        self.log.note()
        return x * 2


@row
def checkpoint_sequential(wrap: Wrap) -> Any:
    log = Log()
    m = nn.Sequential(Noting(log), Noting(log))
    fn = lambda x: checkpoint.checkpoint_sequential(m, 2, x, use_reentrant=False)  # noqa: E731
    return called(wrap(fn), log)


@row
def functional_call(wrap: Wrap) -> Any:
    log = Log()
    m = Noting(log)
    return called(wrap(lambda x: torch.func.functional_call(m, {}, (x,))), log)


@row
def parametrization(wrap: Wrap) -> Any:
    log = Log()
    m = nn.Linear(3, 3)
    parametrize.register_parametrization(m, "weight", Noting(log))
    log.seen.clear()
    return called(wrap(m), log)


@row
def module_apply(wrap: Wrap) -> Any:
    log, m = Log(), nn.Linear(3, 3)

    def fn(x: Any) -> Any:
        m.apply(lambda _: log.note())
        return m(x)

    return called(wrap(fn), log)


@row
def closure_of_an_optimizer(wrap: Wrap) -> Any:
    log, w = Log(), nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([w], lr=0.1)

    def fn(x: Any) -> Any:
        def closure() -> Any:
            log.note()
            optimizer.zero_grad()
            loss = (w * x.detach()).sum()
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    return called(wrap(fn), log)


@row
def lambda_lr(wrap: Wrap) -> Any:
    log, w = Log(), nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([w], lr=0.1)

    def rate(epoch: int) -> float:
        log.note(epoch)
        return 1.0

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)

    def fn(x: Any) -> Any:
        y = (w * x).sum()
        scheduler.step()
        return y

    return called(wrap(fn), log)


@row
def averaging_function(wrap: Wrap) -> Any:
    log, m = Log(), nn.Linear(3, 3)

    def average(old: Any, new: Any, count: Any) -> Any:
        log.note()
        return old

    averaged = torch.optim.swa_utils.AveragedModel(m, avg_fn=average)
    averaged.update_parameters(m)

    def fn(x: Any) -> Any:
        averaged.update_parameters(m)
        return x * 2

    return called(wrap(fn), log)


# ---- Functions ----------------------------------------------------------------------------------


def of_function(**members: Callable[[Log, Any], Any]) -> None:
    """A row for a Function whose methods of these names are wrapped by these."""

    def function_row(wrap: Wrap) -> Any:
        log = Log()

        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        def backward(ctx: Any, g: Any) -> Any:
            return g * 3

        found = {"forward": forward, "backward": backward}
        for name, around in members.items():
            found[name] = around(log, found.get(name))
        made = {name: staticmethod(f) for name, f in found.items()}
        kind = type("Made", (torch.autograd.Function,), made)
        return called(wrap(lambda x: kind.apply(x * 1) * 1), log)

    function_row.__name__ = "function_" + "_".join(f.__name__ for f in members.values())
    ROWS.append(function_row)


def noting(log: Log, fn: Any) -> Any:
    def method(ctx: Any, x: Any) -> Any:
        log.note()
        return fn(ctx, x)

    return method


def looking(log: Log, fn: Any) -> Any:
    def method(ctx: Any, x: Any) -> Any:
        log.note(x.sum().item())
        return fn(ctx, x)

    return method


def once(log: Log, fn: Any) -> Any:
    return torch.autograd.function.once_differentiable(noting(log, fn))


def amp_forward(log: Log, fn: Any) -> Any:
    return torch.amp.custom_fwd(noting(log, fn), device_type="cpu")


def amp_backward(log: Log, fn: Any) -> Any:
    return torch.amp.custom_bwd(noting(log, fn), device_type="cpu")


def bare_forward(log: Log, fn: Any) -> Any:
    return lambda x: x * 2


def context(log: Log, fn: Any) -> Any:
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        log.note()

    return setup_context


def counting_context(log: Log, fn: Any) -> Any:
    def backward(ctx: Any, g: Any) -> Any:
        ctx.times = getattr(ctx, "times", 0) + 1
        return g * ctx.times

    return backward


of_function(forward=noting)
of_function(backward=noting)
of_function(backward=looking)
of_function(backward=once)
of_function(forward=amp_forward, backward=amp_backward)
of_function(forward=bare_forward, setup_context=context)
of_function(backward=counting_context)


@row
def backward_of_a_function_is_exchanged(wrap: Wrap) -> Any:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    fn = wrap(lambda x: Double.apply(x))
    first = called(fn, Log(), 2)
    Double.backward = staticmethod(lambda ctx, g: g * 5)
    return first, called(fn, Log(), 2)


SCALE = 2.0


@row
def backward_reads_a_global(wrap: Wrap) -> Any:
    global SCALE

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * SCALE

    fn, found = wrap(lambda x: Scaled.apply(x)), []
    for SCALE in (2.0, 3.0, 2.0):  # noqa: B007
        found.append(called(fn, Log(), 2))
    SCALE = 2.0
    return found


@row
def jvp_of_a_function(wrap: Wrap) -> Any:
    log = Log()

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            log.note()
            return t * 2

    return called(wrap(lambda x: torch.func.jvp(Double.apply, (x,), (x,))[1].detach()), log)


_numbers = iter(range(10**6))


@row
def custom_op(wrap: Wrap) -> Any:
    log = Log()

    @torch.library.custom_op(f"callbacks::double{next(_numbers)}", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def backward(ctx: Any, g: Any) -> Any:
        log.note("backward")
        return g * 2

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        log.note("context")

    double.register_fake(lambda x: torch.empty_like(x))
    double.register_autograd(backward, setup_context=setup_context)
    return called(wrap(lambda x: double(x) * 1), log)


# ---- hooks of tensors and nodes -----------------------------------------------------------------


def of_hook(attach: Callable[[Any, Any], Any]) -> None:
    """Rows for hooks that are attached to a tensor made inside: `attach(y, hook)`."""

    def makers(log: Log) -> dict[str, Any]:
        class Noted:
            def __call__(self, *grads: Any) -> None:
                log.note()

            def method(self, *grads: Any) -> None:
                log.note()

        def looks(*grads: Any) -> None:
            log.note(_first(grads).sum().item())

        return {
            "object": Noted(), "method": Noted().method, "looks": looks,
            "partial": functools.partial(lambda log, *grads: log.note(), log),
            "no_grad": torch.no_grad()(lambda *grads: log.note()), "builtin": log.seen.append,
        }  # fmt: skip

    for name in ("object", "method", "looks", "partial", "no_grad", "builtin"):
        if name == "builtin" and attach.__name__ != "tensor_hook":
            continue

        def hook_row(wrap: Wrap, name: str = name) -> Any:
            log = Log()
            hook = makers(log)[name]

            def fn(x: Any) -> Any:
                y = x * 2
                attach(y, hook)
                return y.sin() * 3

            return called(wrap(fn), log)

        hook_row.__name__ = f"{attach.__name__}_{name}"
        ROWS.append(hook_row)


def _first(grads: Any) -> Any:
    return _first(grads[0]) if isinstance(grads, tuple) else grads


@of_hook
def tensor_hook(y: Any, hook: Any) -> None:
    y.register_hook(hook)


@of_hook
def node_hook(y: Any, hook: Any) -> None:
    y.grad_fn.register_hook(hook)


@of_hook
def node_prehook(y: Any, hook: Any) -> None:
    y.grad_fn.register_prehook(hook)


@row
def multi_grad_hook(wrap: Wrap) -> Any:
    log = Log()

    def fn(x: Any) -> Any:
        y, z = x * 2, x * 3
        torch.autograd.graph.register_multi_grad_hook((y, z), lambda grads: log.note(len(grads)))
        return y * z

    return called(wrap(fn), log)


@row
def hook_on_an_argument(wrap: Wrap) -> Any:
    def fn(x: Any) -> Any:
        x.register_hook(lambda g: g * 5)
        return x * 2

    return called(wrap(fn), Log())


@row
def hook_on_a_parameter_inside(wrap: Wrap) -> Any:
    log, w = Log(), nn.Parameter(torch.ones(3))

    def fn(x: Any) -> Any:
        w.register_hook(lambda g: log.note())
        return x * w

    return called(wrap(fn), log)


@row
def kept_gradient_of_a_result(wrap: Wrap) -> Any:
    def fn(x: Any) -> Any:
        y = x * 2
        y.retain_grad()
        return y, (y * 3).sum()

    compiled, found = wrap(fn), []
    for _ in range(3):
        y, loss = compiled(torch.ones(3, requires_grad=True))
        loss.backward()
        found.append(y.grad)
    return found


@row
def kept_gradient_and_hook_in_a_step(wrap: Wrap) -> Any:
    log = Log()

    def fn(x: Any) -> Any:
        y = x * 2
        y.retain_grad()
        y.register_hook(lambda g: log.note())
        (y * 3).sum().backward()
        return y.grad

    return called(wrap(fn), log)


@row
def hooks_in_their_order(wrap: Wrap) -> Any:
    log = Log()

    def fn(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda g: log.note(("y", g.sum().item())))
        z = y.sin()
        z.register_hook(lambda g: log.note(("z", g.sum().item())))
        return z * y

    return called(wrap(fn), log)


@row
def hook_by_a_flag(wrap: Wrap) -> Any:
    def fn(x: Any, on: bool) -> Any:
        y = x * 2
        if on:
            y.register_hook(lambda g: g * 10)
        return y

    compiled = wrap(fn)
    return [called(functools.partial(compiled, on=on), Log()) for on in (True, False, True)]


@row
def hook_with_a_closure(wrap: Wrap) -> Any:
    scale = 2.0

    def fn(x: Any) -> Any:
        y = x * 1
        y.register_hook(lambda g: g * scale)
        return y

    compiled, found = wrap(fn), []
    for scale in (2.0, 7.0):  # noqa: B007
        found.append(called(compiled, Log()))
    return found


@row
def gradients_of_parameters_are_logged(wrap: Wrap) -> Any:
    log = Log()
    m = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    for name, p in m.named_parameters():
        p.register_hook(lambda g, name=name: log.note((name, g.norm().item())))
    return called(wrap(m), log)


# ---- hooks of modules ---------------------------------------------------------------------------


def of_module(register: Callable[[Any, Any], Any]) -> None:
    """Rows for hooks of modules, around a compiled model and inside of a compiled step."""

    def model_row(wrap: Wrap) -> Any:
        log = Log()
        m = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
        handle = register(m, log)
        try:
            return called(wrap(lambda x: m(x)), log)
        finally:
            handle.remove()

    def step_row(wrap: Wrap) -> Any:
        log = Log()
        m = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
        handle = register(m, log)

        def step(x: Any) -> Any:
            m.zero_grad()
            loss = m(x).sum()
            loss.backward()
            return loss.detach()

        try:
            return called(wrap(step), log), [p.grad for p in m.parameters()]
        finally:
            handle.remove()

    model_row.__name__ = f"{register.__name__}_of_a_model"
    step_row.__name__ = f"{register.__name__}_in_a_step"
    ROWS.extend([model_row, step_row])


@of_module
def forward_hook(m: Any, log: Log) -> Any:
    return m[1].register_forward_hook(lambda *given: log.note())


@of_module
def full_backward_hook(m: Any, log: Log) -> Any:
    return m[2].register_full_backward_hook(lambda m, gi, go: log.note(go[0].norm().item()))


@of_module
def full_backward_hook_that_computes(m: Any, log: Log) -> Any:
    return m[2].register_full_backward_hook(lambda m, gi, go: (gi[0] * 3,))


@of_module
def full_backward_hook_that_keeps(m: Any, log: Log) -> Any:
    return m[2].register_full_backward_hook(lambda m, gi, go: log.note(go[0].norm()))


@of_module
def full_backward_pre_hook(m: Any, log: Log) -> Any:
    return m[0].register_full_backward_pre_hook(lambda *given: log.note())


@of_module
def old_backward_hook(m: Any, log: Log) -> Any:
    return m[2].register_backward_hook(lambda *given: log.note())


@of_module
def hook_of_all_modules(m: Any, log: Log) -> Any:
    return modules.register_module_forward_hook(lambda *given: log.note())


@of_module
def pre_hook_of_all_modules(m: Any, log: Log) -> Any:
    return modules.register_module_forward_pre_hook(lambda *given: log.note())


@of_module
def backward_hook_of_all_modules(m: Any, log: Log) -> Any:
    return modules.register_module_full_backward_hook(lambda *given: log.note())


@of_module
def hook_of_a_parameter(m: Any, log: Log) -> Any:
    return m[0].weight.register_hook(lambda g: log.note(g.norm()))


@of_module
def hook_after_a_gradient(m: Any, log: Log) -> Any:
    return m[0].weight.register_post_accumulate_grad_hook(lambda p: log.note(p.grad.norm()))


@row
def hooks_come_and_go(wrap: Wrap) -> Any:
    log = Log()
    m = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    compiled = wrap(m)
    found = [called(compiled, log)]
    for register in (
        m[0].register_full_backward_hook, m[1].register_forward_hook,
        m[1].register_full_backward_pre_hook,
    ):  # fmt: skip
        handle = register(lambda *given: log.note())
        found.append(called(compiled, log))
        handle.remove()
        found.append(called(compiled, log))
    w = m[0].weight
    for register in (w.register_hook, w.register_post_accumulate_grad_hook):
        handle = register(lambda t: log.note())
        found.append(called(compiled, log))
        handle.remove()
        found.append(called(compiled, log))
    return found


# ---- hooks of optimizers ------------------------------------------------------------------------


def of_optimizer(register: Callable[[Any, Any], Any]) -> None:
    """Rows for hooks of an optimizer: the whole step compiled, or `optimizer.step` alone."""

    def made(log: Log) -> tuple[Any, Any, Any]:
        m = nn.Linear(3, 3)
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
        return m, optimizer, register(optimizer, log)

    def whole_row(wrap: Wrap) -> Any:
        log = Log()
        m, optimizer, handle = made(log)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = m(x).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        try:
            return called(wrap(step), log), list(m.parameters())
        finally:
            handle.remove()

    def alone_row(wrap: Wrap) -> Any:
        log = Log()
        m, optimizer, handle = made(log)
        step = wrap(optimizer.step)
        try:
            for _ in range(3):
                optimizer.zero_grad()
                m(torch.ones(2, 3)).sum().backward()
                step()
            return log.seen, list(m.parameters())
        finally:
            handle.remove()

    whole_row.__name__ = f"{register.__name__}_in_a_step"
    alone_row.__name__ = f"{register.__name__}_of_step_alone"
    ROWS.extend([whole_row, alone_row])


def _norm(optimizer: Any) -> float:
    return float(optimizer.param_groups[0]["params"][0].grad.norm().item())


@of_optimizer
def step_pre_hook(optimizer: Any, log: Log) -> Any:
    return optimizer.register_step_pre_hook(lambda *given: log.note())


@of_optimizer
def step_post_hook(optimizer: Any, log: Log) -> Any:
    return optimizer.register_step_post_hook(lambda *given: log.note())


@of_optimizer
def step_pre_hook_that_looks(optimizer: Any, log: Log) -> Any:
    return optimizer.register_step_pre_hook(lambda o, a, k: log.note(_norm(o)))


@of_optimizer
def step_hook_of_all(optimizer: Any, log: Log) -> Any:
    register = torch.optim.optimizer.register_optimizer_step_post_hook
    return register(lambda *given: log.note())


@row
def optimizer_in_the_backward_pass(wrap: Wrap) -> Any:
    m = nn.Linear(3, 3)
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in m.parameters()}

    def hook(p: Any) -> None:
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in m.parameters():
        p.register_post_accumulate_grad_hook(hook)

    def step(x: Any) -> Any:
        loss = m(x).sum()
        loss.backward()
        return loss.detach()

    return called(wrap(step), Log()), list(m.parameters())


@row
def state_dict_hooks(wrap: Wrap) -> Any:
    log, m = Log(), nn.Linear(3, 3)
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    optimizer.register_state_dict_pre_hook(lambda *given: log.note())
    m.register_state_dict_pre_hook(lambda *given: log.note())

    def fn(x: Any) -> Any:
        optimizer.state_dict()
        m.state_dict()
        return m(x)

    return called(wrap(fn), log)


# ---- tensors that are saved ---------------------------------------------------------------------


def _packing(log: Log) -> Any:
    def pack(t: Any) -> Any:
        log.note(tuple(t.shape))
        return t

    def unpack(t: Any) -> Any:
        log.note("unpack")
        return t

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


@row
def saved_tensors_inside(wrap: Wrap) -> Any:
    log = Log()

    def fn(x: Any) -> Any:
        with _packing(log):
            return (x * x).sin()

    found = called(wrap(fn), log)
    before = len(log.seen)
    (torch.ones(2, requires_grad=True) ** 2).sum().backward()
    return found, len(log.seen) - before


@row
def saved_tensors_in_a_step(wrap: Wrap) -> Any:
    log = Log()

    def fn(x: Any) -> Any:
        with _packing(log):
            y = (x * x).sin()
        y.sum().backward()
        return y.detach()

    return called(wrap(fn), log)


@row
def saved_tensors_around(wrap: Wrap) -> Any:
    log = Log()
    inner = wrap(lambda x: (x * x).sin())
    inner(torch.ones(3, 3, requires_grad=True))

    def fn(x: Any) -> Any:
        with _packing(log):
            return inner(x)

    return called(fn, log)


@row
def saved_tensors_that_are_computed(wrap: Wrap) -> Any:
    hooks = torch.autograd.graph.saved_tensors_hooks

    def fn(x: Any) -> Any:
        with hooks(lambda t: t.half(), lambda t: t.float()):
            return F.softplus(x * 1.0001)

    return called(wrap(fn), Log())
