"""Changes between two calls: of modules, and of the state of the library."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from typing import Any

import lucerne as torch
from lucerne import nn
from lucerne.nn.utils import parametrize
from tests.capture.rows_changes import Change, Row, row

# ---- modules -----------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.first, self.drop, self.norm = nn.Linear(3, 3), nn.Dropout(p), nn.BatchNorm1d(3)
        self.act: Any = nn.ReLU()
        self.gain = nn.Parameter(torch.ones(3))
        self.register_buffer("shift", torch.ones(3))
        self.order = ["first", "norm"]

    def extra(self, x: Any) -> Any:
        return x + self.shift

    def forward(self, x: Any) -> Any:
        for name in self.order:
            x = getattr(self, name)(x)
        return self.extra(self.drop(self.act(x)) * self.gain)


def block() -> Any:
    torch.manual_seed(0)
    return Block().eval()


@row
def module_parts() -> Row:
    net = block()
    torch.manual_seed(1)
    others = nn.Linear(3, 3), nn.Parameter(torch.full((3,), 2.0))
    return Row(
        lambda x: net(x),
        {
            "forward of the object": lambda: setattr(net, "forward", lambda x: x * 3),
            "another method of the object": lambda: setattr(net, "extra", lambda x: x * 3),
            "a buffer": lambda: setattr(net, "shift", torch.zeros(3)),
            "a buffer by its table": lambda: net._buffers.update(shift=torch.zeros(3)),
            "a buffer's data": lambda: setattr(net.shift, "data", torch.zeros(3)),
            "a buffer that is none": lambda: setattr(net.norm, "running_mean", None),
            "a parameter": lambda: setattr(net, "gain", others[1]),
            "a parameter by its table": lambda: net._parameters.update(gain=others[1]),
            "a parameter's data": lambda: setattr(net.gain, "data", torch.zeros(3)),
            "a parameter of another dtype": lambda: setattr(
                net.gain, "data", torch.zeros(3, dtype=torch.float64)
            ),
            "a bias goes": lambda: setattr(net.first, "bias", None),
            "a layer": lambda: setattr(net, "first", others[0]),
            "a layer by its table": lambda: net._modules.update(first=others[0]),
            "the activation": lambda: setattr(net, "act", nn.Tanh()),
            "training of a layer": lambda: net.norm.train(),
            "training": lambda: net.train(),
            "how much a layer drops": lambda: (setattr(net.drop, "p", 1.0), net.drop.train()),
            "a number of a layer": lambda: setattr(net.norm, "eps", 0.5),
            "the order": lambda: net.order.reverse(),
            "a hook": lambda: net.register_forward_hook(lambda m, a, out: out * 2),
            "a hook of a layer": lambda: net.first.register_forward_hook(lambda m, a, out: out * 2),
            "a hook before": lambda: net.register_forward_pre_hook(lambda m, a: (a[0] * 2,)),
            "a hook with keywords": lambda: net.register_forward_hook(
                lambda m, a, k, out: out - 1, with_kwargs=True
            ),
            "other values": lambda: net.load_state_dict(
                {k: v * 2 for k, v in net.state_dict().items()}
            ),
            "half the precision": lambda: net.double() and net.float(),
        },
    )


@row
def module_classes() -> Row:
    class Own(Block):
        @staticmethod
        def fixed(x: Any) -> Any:
            return x * 2

        @property
        def factor(self) -> float:
            return 3.0

        def forward(self, x: Any) -> Any:
            return self.fixed(super().forward(x)) * self.factor

    torch.manual_seed(0)
    net = Own().eval()
    before = Block.extra, nn.ReLU.forward, nn.Linear.forward

    def undo() -> None:
        Block.extra = before[0]  # type: ignore[method-assign]
        nn.ReLU.forward, nn.Linear.forward = before[1:]

    return Row(
        lambda x: net(x),
        {
            "forward": lambda: setattr(Own, "forward", lambda self, x: x * 5),
            "the code of forward": lambda: setattr(
                Own.forward, "__code__", with_class(Own).__code__
            ),
            "a method of the base": lambda: setattr(Block, "extra", lambda self, x: x * 5),
            "a static method": lambda: setattr(Own, "fixed", staticmethod(lambda x: x * 5)),
            "a property": lambda: setattr(Own, "factor", property(lambda self: 8.0)),
            "forward of our layer": lambda: setattr(nn.ReLU, "forward", lambda self, x: x * 5),
            "forward of a layer with weights": lambda: setattr(
                nn.Linear, "forward", lambda self, x: x @ self.weight
            ),
            "its class": lambda: setattr(net, "__class__", Block),
        },
        undo,
    )


def with_class(__class__: Any) -> Any:
    """A function with the same free variable as one that calls `super()`."""

    def forward(self: Any, x: Any) -> Any:
        return x * 7 if __class__ else x

    return forward


@row
def removed_hooks() -> Row:
    net = block()
    first = net.register_forward_hook(lambda m, a, out: out * 2)
    second = net.first.register_forward_pre_hook(lambda m, a: (a[0] + 1,))
    factor = {"k": 2.0}
    net.act.register_forward_hook(lambda m, a, out: out * factor["k"])
    return Row(
        lambda x: net(x),
        {
            "a hook goes": first.remove,
            "a hook before goes": second.remove,
            "what a hook reads": lambda: factor.update(k=5.0),
            "all go": lambda: (first.remove(), second.remove(), net.act._forward_hooks.clear()),
        },
    )


@row
def hooks_for_all() -> Row:
    net = block()
    handles: list[Any] = []

    def add(register: Any, hook: Any) -> Change:
        return lambda: handles.append(register(hook))

    module = nn.modules.module
    return Row(
        lambda x: net(x),
        {
            "after": add(module.register_module_forward_hook, lambda m, a, out: out + 1),
            "before": add(module.register_module_forward_pre_hook, lambda m, a: (a[0] + 1,)),
        },
        lambda: [h.remove() for h in handles],
    )


@row
def containers_of_modules() -> Row:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    named = nn.ModuleDict({"a": nn.Linear(3, 3)})
    listed = nn.ParameterList([nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))])
    plain = [nn.Linear(3, 3)]
    torch.manual_seed(1)
    other = nn.Linear(3, 3)

    def fn(x: Any) -> Any:
        x = named["a"](layers(x))
        for p in listed:
            x = x * p
        for layer in plain:
            x = layer(x)
        return x

    return Row(
        fn,
        {
            "one more": lambda: layers.append(nn.Tanh()),
            "one exchanged": lambda: layers.__setitem__(0, other),
            "one less": lambda: layers.__delitem__(1),
            "one inserted": lambda: layers.insert(0, nn.Tanh()),
            "by name": lambda: named.update({"a": other}),
            "one more parameter": lambda: listed.append(nn.Parameter(torch.full((3,), 2.0))),
            "a parameter": lambda: listed.__setitem__(0, nn.Parameter(torch.full((3,), 2.0))),
            "in a plain list": lambda: plain.__setitem__(0, other),
            "one more in a plain list": lambda: plain.append(other),
        },
    )


@row
def tied_weights() -> Row:
    torch.manual_seed(0)
    one, two = nn.Linear(3, 3), nn.Linear(3, 3)

    def fn(x: Any) -> Any:
        for p in (one.weight, two.weight):
            p.grad = None
        loss = two(one(x)).square().sum()
        loss.backward()
        return loss.detach(), one.weight.grad, two.weight.grad

    return Row(
        fn,
        {
            "tied": lambda: setattr(two, "weight", one.weight),
            "the same memory": lambda: setattr(two.weight, "data", one.weight.data),
            "exchanged": lambda: exchange(one, two),
        },
    )


def exchange(one: Any, two: Any) -> None:
    one.weight, two.weight = two.weight, one.weight


@row
def frozen_weights() -> Row:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))

    def fn(x: Any) -> Any:
        for p in net.parameters():
            p.grad = None
        loss = net(x).square().sum()
        if loss.requires_grad:
            loss.backward()
        return loss.detach(), *(p.grad for p in net.parameters())

    return Row(
        fn,
        {
            "one": lambda: net[0].weight.requires_grad_(False),
            "a layer": lambda: net[1].requires_grad_(False),
            "all": lambda: net.requires_grad_(False),
            "a hook of a gradient": lambda: net[0].weight.register_hook(lambda g: g * 2),
            "a hook after accumulation": lambda: net[0].weight.register_post_accumulate_grad_hook(
                lambda p: p.grad.mul_(3)
            ),
        },
    )


@row
def frozen_weights_from_outside() -> Row:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    forward = {"f": net}

    def fn(x: Any) -> Any:
        out = forward["f"](x)
        return out, out.requires_grad

    return Row(
        fn,
        {
            "one": lambda: net[0].weight.requires_grad_(False),
            "all": lambda: net.requires_grad_(False),
        },
    )


@row
def weight_norms() -> Row:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    nn.utils.parametrizations.weight_norm(net[1])

    class Doubled(nn.Module):
        def forward(self, w: Any) -> Any:
            return w * 2

    return Row(
        lambda x: net(x),
        {
            "one is registered": lambda: parametrize.register_parametrization(
                net[0], "weight", Doubled()
            ),
            "one more": lambda: parametrize.register_parametrization(net[1], "weight", Doubled()),
            "they go": lambda: parametrize.remove_parametrizations(net[1], "weight"),
            "its values": lambda: torch.no_grad()(net[1].parametrizations.weight.original0.mul_)(2),
            "the weight is set": lambda: setattr(net[1], "weight", torch.ones(3, 3)),
        },
    )


@row
def compiled_inside() -> Row:
    state = {"k": 2.0}

    @torch.compile
    def inner(x: Any) -> Any:
        return x * state["k"]

    net = block()
    fast = torch.compile(net)
    return Row(
        lambda x: inner(fast(x)),
        {
            "what the inner one reads": lambda: state.update(k=5.0),
            "a number of the module": lambda: setattr(net.norm, "eps", 0.5),
            "a buffer": lambda: setattr(net, "shift", torch.zeros(3)),
            "a hook": lambda: net.register_forward_hook(lambda m, a, out: out * 2),
        },
    )


# ---- tensors and switches ----------------------------------------------------------------------


@row
def tensors_outside() -> Row:
    weight = torch.arange(3.0)
    state = {"w": weight, "list": [torch.ones(3), torch.ones(3)]}
    kept = types.SimpleNamespace(t=torch.ones(3))

    def fn(x: Any) -> Any:
        y = x * state["w"] + kept.t  # type: ignore[operator]
        for t in state["list"]:
            y = y + t
        return y + weight

    return Row(
        fn,
        {
            "its values": lambda: weight.add_(1),
            "its data": lambda: setattr(weight, "data", torch.ones(3)),
            "its data in another layout": lambda: setattr(
                weight, "data", torch.arange(6.0).reshape(3, 2)[:, 0]
            ),
            "of another size": lambda: setattr(kept, "t", torch.ones(2, 1)),
            "of another dtype": lambda: state.update(w=torch.ones(3, dtype=torch.float64)),
            "another one": lambda: state.update(w=torch.ones(3)),
            "a number": lambda: state.update(w=2.0),  # type: ignore[dict-item]
            "a parameter": lambda: state.update(w=nn.Parameter(torch.ones(3))),
            "a view": lambda: state.update(w=torch.arange(6.0)[::2]),
            "one more": lambda: state["list"].append(torch.ones(3)),  # type: ignore[attr-defined]
            "a subclass": lambda: setattr(kept, "t", Doubling.of(torch.ones(3))),
            "none of the namespace": lambda: setattr(kept, "t", 0.0),
            "resized": lambda: weight.resize_(1),
            "wants gradients": lambda: weight.requires_grad_(),
        },
    )


class Doubling(torch.Tensor):
    """Answers additions by twice the sum."""

    @staticmethod
    def of(t: Any) -> Any:
        return t.as_subclass(Doubling)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **(kwargs or {}))
        return out * 2 if getattr(func, "__name__", "") in ("add", "__add__") else out


@row
def default_dtype() -> Row:
    return Row(
        lambda x: x * torch.tensor(0.5) + torch.zeros(3) + torch.arange(3) / 7,
        {"float64": lambda: torch.set_default_dtype(torch.float64)},
        lambda: torch.set_default_dtype(torch.float32),
    )


@row
def switches() -> Row:
    net = block()
    entered = contextlib.ExitStack()

    def fn(x: Any) -> Any:
        y = net(x) @ torch.ones(3, 3)
        return y, y.requires_grad, torch.is_grad_enabled(), y.is_inference()

    def enter(context: Callable[[], Any]) -> Change:
        return lambda: entered.enter_context(context())

    return Row(
        fn,
        {
            "no_grad": enter(torch.no_grad),
            "inference_mode": enter(torch.inference_mode),
            "autocast": enter(lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
            "grad mode set": lambda: torch.set_grad_enabled(False),
        },
        lambda: (entered.close(), torch.set_grad_enabled(True)),
    )


@row
def asked_switches() -> Row:
    before = torch.get_num_threads()

    def fn(x: Any) -> Any:
        y = x * torch.get_num_threads()
        if torch.are_deterministic_algorithms_enabled():
            y = y + 1
        if torch.is_autocast_enabled("cpu"):
            y = y + 2
        if torch.get_default_dtype() == torch.float64:
            y = y + 3
        if torch.is_anomaly_enabled():
            y = y + 4
        return y + torch.initial_seed() % 7

    entered = contextlib.ExitStack()

    def undo() -> None:
        entered.close()
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(before)
        torch.set_default_dtype(torch.float32)
        torch.manual_seed(0)

    torch.manual_seed(0)
    return Row(
        fn,
        {
            "deterministic": lambda: torch.use_deterministic_algorithms(True),
            "threads": lambda: torch.set_num_threads(1 if before > 1 else 2),
            "autocast": lambda: entered.enter_context(torch.autocast("cpu")),
            "default dtype": lambda: torch.set_default_dtype(torch.float64),
            "anomalies": lambda: entered.enter_context(torch.autograd.detect_anomaly()),
            "the seed": lambda: torch.manual_seed(3),
        },
        undo,
    )


@row
def optimizers() -> Row:
    p = nn.Parameter(torch.ones(3))
    spare = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([p], lr=0.5, momentum=0.5)

    def fn(x: Any) -> Any:
        with torch.no_grad():
            p.fill_(1.0)
        optimizer.state.clear()
        optimizer.zero_grad()
        (p * x).sum().backward()
        optimizer.step()
        return p.detach().clone()

    group = optimizer.param_groups[0]
    return Row(
        fn,
        {
            "lr": lambda: group.update(lr=0.25),
            "weight_decay": lambda: group.update(weight_decay=0.5),
            "maximize": lambda: group.update(maximize=True),
            "nesterov": lambda: group.update(nesterov=True),
            "another group": lambda: optimizer.add_param_group({"params": [spare]}),
            "no parameters": lambda: group.update(params=[]),
            "a hook": lambda: optimizer.register_step_post_hook(lambda o, a, k: p.data.add_(1)),
            "step of the class": lambda: setattr(
                optimizer, "step", lambda closure=None: p.data.add_(3)
            ),
        },
    )
