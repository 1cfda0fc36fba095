"""Functions whose programs are stored by one process and found by the next.

A row makes what it needs and returns a list of what its calls gave. Every body calls `is_tensor`,
which is how the worker hears that a body runs.
"""

from __future__ import annotations

import enum
import functools
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import lucerne as torch
from lucerne import nn
from lucerne._src.base.config import config
from lucerne._src.capture import compiled as compiled_
from lucerne.nn import functional as F
from lucerne.utils.checkpoint import checkpoint
from tests.capture_stored import helpers

ROWS: dict[str, Any] = {}
OUTSIDE = {"resumed_step": 1, "check_that_holds": 1}
"""How often a body runs besides, uncompiled: where a check fails, for the note of its error."""


def row(make: Any) -> Any:
    ROWS[make.__name__] = make
    return make


def compiled(fn: Any, **options: Any) -> Any:
    return torch.compile(fn, fullgraph=True, **options)


def x(*shape: int, **options: Any) -> Any:
    return torch.randn(*(shape or (4, 6)), **options)


# ---- arguments and results ---------------------------------------------------------------------

Pair = namedtuple("Pair", "first second")


@dataclass
class Batch:
    data: Any
    scale: float


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@row
def pointwise() -> Any:
    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return (a * 2).tanh() + 1

    c = compiled(f)
    return [c(x()), c(x())]


@row
def two_arguments() -> Any:
    def f(a: Any, b: Any) -> Any:
        torch.is_tensor(0)
        return a @ b.T

    return [compiled(f)(x(), x())]


@row
def keyword_arguments() -> Any:
    def f(a: Any, *, b: Any, scale: float = 2.0) -> Any:
        torch.is_tensor(0)
        return a * scale - b

    c = compiled(f)
    return [c(x(), b=x()), c(x(), b=x())]


@row
def plain_values() -> Any:
    def f(a: Any, n: int, how: str, flag: bool) -> Any:
        torch.is_tensor(0)
        return (a.sum(n) if how == "sum" else a.mean(n)) * (2 if flag else 3)

    return [compiled(f)(x(), 1, "sum", True)]


@row
def dict_argument() -> Any:
    def f(d: Any) -> Any:
        torch.is_tensor(0)
        return d["a"] + d["b"]

    return [compiled(f)({"a": x(), "b": x()})]


@row
def nested_lists() -> Any:
    def f(items: Any) -> Any:
        torch.is_tensor(0)
        return [a * 2 for a, _ in items], items[0][1] + 1

    found = compiled(f)([(x(), x()), (x(), x())])
    return [*found[0], found[1]]


@row
def named_tuple() -> Any:
    def f(p: Any) -> Any:
        torch.is_tensor(0)
        return Pair(p.first + p.second, p.first)

    found = compiled(f)(Pair(x(), x()))
    return [type(found).__name__, found.first, found.second]


@row
def dataclass_argument() -> Any:
    def f(b: Any) -> Any:
        torch.is_tensor(0)
        return Batch(b.data * b.scale, b.scale)

    found = compiled(f)(Batch(x(), 0.5))
    return [type(found).__name__, found.data, found.scale]


@row
def enum_argument() -> Any:
    def f(a: Any, colour: Colour) -> Any:
        torch.is_tensor(0)
        return a + colour.value if colour is Colour.BLUE else a

    return [compiled(f)(x(), Colour.BLUE)]


@row
def results_of_all_kinds() -> Any:
    def f(a: Any) -> Any:
        torch.is_tensor(0)
        y = a + 1
        return OrderedDict(y=y, same=y, none=None, number=3, text="t", view=y[0], itself=a)

    given = x()
    found = compiled(f)(given)
    assert found["y"] is found["same"]
    assert found["itself"] is given
    return [type(found).__name__, *found.values()]


@row
def result_of_an_op_with_two() -> Any:
    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return a.max(1)

    found = compiled(f)(x())
    return [type(found).__name__, found.values, found.indices]


@row
def in_place() -> Any:
    def f(a: Any) -> None:
        torch.is_tensor(0)
        a.mul_(2).add_(1)

    c, given = compiled(f), x()
    c(given)
    c(given)
    return [given]


@row
def arguments_that_share_memory() -> Any:
    def f(a: Any, b: Any) -> Any:
        torch.is_tensor(0)
        a.add_(1)
        return b * 2

    whole = x(8, 6)
    return [compiled(f)(whole[:4], whole[2:6]), whole]


@row
def transposed_argument() -> Any:
    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return a.contiguous() + a.sum()

    return [compiled(f)(x().T)]


@row
def integers() -> Any:
    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return a % 3 + torch.arange(4)

    return [compiled(f)(torch.arange(10, 14))]


@row
def constants_inside() -> Any:
    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return a * torch.tensor([1.0, -0.0, 3.5, float("inf"), 2.0, 0.1]) + torch.eye(4, 6)

    return [compiled(f)(x())]


@row
def two_sizes() -> Any:
    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return torch.softmax(a, -1)

    c = compiled(f)
    often = (9, 11) * 10  # (sizes that were not traced are stored when they come often)
    return [c(x(n, 6)) for n in (4, 7, *often, 4)]


@row
def dynamic_at_once() -> Any:
    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return torch.softmax(a, -1)

    c = compiled(f, dynamic=True)
    return [c(x(n, 6)) for n in (4, *(7,) * 10)]


@row
def marked_dimension() -> Any:
    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return a.sum(0)

    given = x(5, 6)
    torch.compiler.mark_dynamic(given, 0)
    return [compiled(f)(given)]


# ---- what a function sees ----------------------------------------------------------------------

NUMBER = 1.5
TENSOR = torch.linspace(0, 1, 6)
SETTINGS = {"scale": 0.5, "layers": [2, 3]}


@row
def closure_tensor() -> Any:
    held, scale = x(6), 0.25

    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return a * held + scale

    c = compiled(f)
    first = c(x())
    held.add_(1)
    return [first, c(x())]


@row
def global_values() -> Any:
    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return a * NUMBER + TENSOR * SETTINGS["scale"] + SETTINGS["layers"][1]

    return [compiled(f)(x())]


@row
def helper_of_another_module() -> Any:
    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return helpers.scaled(a) - helpers.SCALE

    return [compiled(f)(x())]


@row
def function_looked_up_by_name() -> Any:
    chosen = helpers.Chosen(helpers.Functions)

    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return chosen.named("named")(a)

    return [compiled(f)(x())]


@row
def partial() -> Any:
    def f(scale: float, a: Any) -> Any:
        torch.is_tensor(0)
        return a * scale

    return [compiled(functools.partial(f, 0.75))(x())]


class Owner:
    def __init__(self) -> None:
        self.weight, self.count = x(6), 2

    def method(self, a: Any) -> Any:
        torch.is_tensor(0)
        return a * self.weight * self.count


@row
def bound_method() -> Any:
    return [compiled(Owner().method)(x())]


@row
def keeps_a_tensor() -> Any:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.hidden = nn.Linear(6, 6), torch.zeros(4, 6)

        def forward(self, a: Any) -> Any:
            torch.is_tensor(0)
            self.hidden = torch.tanh(self.inner(a) + self.hidden).detach()
            return self.hidden * 2

    cell = Cell()
    c = compiled(cell)
    return [c(x()), c(x()), c(x()), cell.hidden]


@row
def local_class() -> Any:
    @dataclass
    class Out:
        y: Any

    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return Out(y=a + 1)

    found = compiled(f)(x())
    return [type(found).__name__, found.y]


def doubled(fn: Any) -> Any:
    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        return fn(*args) * 2

    return wrapper


@row
def decorated() -> Any:
    @doubled
    def f(a: Any) -> Any:
        torch.is_tensor(0)
        with torch.no_grad():
            return a.exp()

    return [compiled(f)(x())]


# ---- modules -----------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self, drop: float = 0.0, norm: bool = False) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 12), nn.Linear(12, 3)
        self.norm = nn.BatchNorm1d(12) if norm else nn.Identity()
        self.drop = nn.Dropout(drop)

    def forward(self, a: Any) -> Any:
        torch.is_tensor(0)
        return self.b(self.drop(torch.relu(self.norm(self.a(a)))))


@row
def module_in_evaluation() -> Any:
    net = Net(0.5, norm=True).eval()
    with torch.no_grad():
        return [compiled(net)(x())]


@row
def backward_from_outside() -> Any:
    net = Net()
    c = compiled(net)
    found = []
    for _ in range(2):
        given = x(requires_grad=True)
        c(given).square().sum().backward()
        found += [given.grad, *(p.grad.clone() for p in net.parameters())]
    return found


@row
def dropout() -> Any:
    c = compiled(Net(0.5))
    return [c(x()).detach(), c(x()).detach()]


@row
def draws_go_on_in_bitwise_mode() -> Any:
    """Calls for a trial would draw as well."""
    before = config.payoff_calls, compiled_._SMALL
    config.payoff_calls, compiled_._SMALL = 3, 1e3
    try:
        c = torch.compile(nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.3)), mode="bitwise")
        return [*(c(x()).detach() for _ in range(4)), torch.rand(3)]
    finally:
        config.payoff_calls, compiled_._SMALL = before


@row
def draws_are_made_once() -> Any:
    """(For second derivatives a call is made once more, if it may be.)"""

    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return (F.dropout(a, 0.3) ** 3).sum()

    given = x(requires_grad=True)
    loss = compiled(f, mode="bitwise")(given)
    try:
        (first,) = torch.autograd.grad(loss, given, create_graph=True)
        return [torch.autograd.grad(first.sum(), given)[0]]
    except RuntimeError as error:
        return ["draws random numbers" in str(error)]


@row
def batch_norm() -> Any:
    net = Net(norm=True)
    c = compiled(net)
    found = [c(x()).detach(), c(x()).detach()]
    return [*found, net.norm.running_mean, net.norm.running_var, net.norm.num_batches_tracked]


@row
def tied_weights() -> Any:
    net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    net[2].weight = net[0].weight

    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return net(a)

    out = compiled(f)(x())
    out.sum().backward()
    return [out.detach(), net[0].weight.grad]


@row
def parametrised() -> Any:
    """Its class was made, and it has hooks that no call runs."""
    net = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)), nn.Tanh())

    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return net(a)

    out = compiled(f)(x())
    out.sum().backward()
    return [out.detach(), *(p.grad for p in net.parameters())]


@row
def a_gradient_that_is_there() -> Any:
    net = nn.Linear(6, 6)

    def f(a: Any) -> Any:
        torch.is_tensor(0)
        known = [p.grad is not None for p in net.parameters()]
        return net(a) * (1 + sum(known))

    step = compiled(f)
    found = [step(x()).detach()]
    net.weight.grad = torch.ones(6, 6)
    return [*found, step(x()).detach()]


@row
def attention() -> Any:
    q, k, v = x(2, 3, 8, 4), x(2, 3, 8, 4), x(2, 3, 8, 4)

    def f(q: Any, k: Any, v: Any) -> Any:
        torch.is_tensor(0)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return [compiled(f)(q, k, v)]


@row
def images() -> Any:
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())

    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return net(a)

    return [compiled(f)(x(2, 3, 8, 8)).detach()]


@row
def words() -> Any:
    table, head = nn.Embedding(10, 6), nn.Linear(6, 10)

    def f(a: Any, target: Any) -> Any:
        torch.is_tensor(0)
        return F.cross_entropy(head(table(a)), target)

    given = torch.arange(8) % 10
    loss = compiled(f)(given, (given + 1) % 10)
    loss.backward()
    return [loss.detach(), table.weight.grad]


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Any) -> Any:
        ctx.save_for_backward(a)
        return a**3

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (a,) = ctx.saved_tensors
        return g * 3 * a**2


@row
def own_function() -> Any:
    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return Cube.apply(a).sum()

    given = x(requires_grad=True)
    compiled(f)(given).backward()
    return [given.grad]


@row
def checkpointed() -> Any:
    net = Net()

    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return checkpoint(net, a, use_reentrant=False).sum()

    compiled(f)(x()).backward()
    return [p.grad for p in net.parameters()]


@row
def check_that_holds_after_a_write() -> Any:
    def f(a: Any, b: Any, seen: Any) -> Any:
        torch.is_tensor(0)
        seen.add_(1)
        return F.binary_cross_entropy(a, b)

    c, seen = compiled(f), torch.zeros(1)
    found: list[Any] = [c(torch.full((3,), 0.25), torch.ones(3), seen)]
    try:
        c(torch.full((3,), 1.5), torch.ones(3), seen)
    except RuntimeError as error:
        found.append(str(error))
    return [*found, seen]


@row
def check_that_holds() -> Any:
    def f(a: Any, b: Any) -> Any:
        torch.is_tensor(0)
        return F.binary_cross_entropy(a, b)

    c = compiled(f)
    found: list[Any] = [c(torch.full((3,), 0.25), torch.ones(3))]
    try:
        c(torch.full((3,), 1.5), torch.ones(3))
    except RuntimeError as error:
        found.append(str(error))
    return found


@row
def branches() -> Any:
    held = x(6)

    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return torch.cond(a.sum() > 0, lambda b: b * held, lambda b: b - 1, (a,))

    c = compiled(f)
    return [c(torch.ones(4, 6)), c(-torch.ones(4, 6))]


@row
def loops() -> Any:
    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return torch.while_loop(lambda b, n: b > 1, lambda b, n: (b / 2, n + 1), (a, a * 0))

    c = compiled(f)
    return [*c(torch.tensor(40.0)), *c(torch.tensor(3.0))]


# ---- modes -------------------------------------------------------------------------------------


@row
def bitwise() -> Any:
    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return F.gelu(F.layer_norm(a, (6,))) + torch.rand(4, 6)

    return [compiled(f, mode="bitwise")(x())]


@row
def bitwise_backward() -> Any:
    net = Net(norm=True)

    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return F.gelu(net(a)).square().sum()

    given = x(requires_grad=True)
    compiled(f, mode="bitwise")(given).backward()
    return [given.grad, *(p.grad for p in net.parameters())]


@row
def recurrent() -> Any:
    net = nn.LSTM(6, 5, 2, batch_first=True)

    def f(a: Any) -> Any:
        torch.is_tensor(0)
        out, (h, c) = net(a)
        return out.sum() + h.sum() * c.sum()

    compiled(f)(x(3, 4, 6)).backward()
    return [p.grad for p in net.parameters()]


@row
def half_precision_step() -> Any:
    net = Net()
    opt = torch.optim.AdamW(net.parameters(), lr=0.01)

    def step(a: Any) -> Any:
        torch.is_tensor(0)
        opt.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.mse_loss(net(a).float(), torch.zeros(4, 3))
        loss.backward()
        opt.step()
        return loss

    c = compiled(step)
    return [c(x()).detach(), c(x()).detach(), *net.parameters()]


@row
def autocast_inside() -> Any:
    net = Net()

    def f(a: Any) -> Any:
        torch.is_tensor(0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return net(a)

    return [compiled(f)(x()).detach().float()]


@row
def autocast_outside() -> Any:
    net = Net()
    c = compiled(net)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = c(x())
    return [low.detach().float(), c(x()).detach()]


@row
def inference() -> Any:
    net = Net()
    c = compiled(net)
    with torch.inference_mode():
        return [c(x()).clone()]


@row
def double_by_default() -> Any:
    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return a + torch.ones(6)

    torch.set_default_dtype(torch.float64)
    try:
        return [compiled(f)(x())]
    finally:
        torch.set_default_dtype(torch.float32)


@row
def random_numbers() -> Any:
    def f(a: Any) -> Any:
        torch.is_tensor(0)
        return a + torch.rand(4, 6) + torch.randn_like(a)

    c = compiled(f)
    return [c(x()), c(x())]


# ---- training steps ----------------------------------------------------------------------------


def trained(optimizer: Any, steps: int = 3, **options: Any) -> Any:
    net = Net(**options)
    opt = optimizer(net)
    loss_of = nn.CrossEntropyLoss()

    def step(a: Any, target: Any) -> Any:
        torch.is_tensor(0)
        opt.zero_grad()
        loss = loss_of(net(a), target)
        loss.backward()
        opt.step()
        return loss

    c = compiled(step)
    found = [c(x(), torch.arange(4) % 3).detach() for _ in range(steps)]
    state = [t for s in opt.state.values() for t in s.values()]
    return [*found, *net.parameters(), *state]


_OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 0.1}),
    "sgd_momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "sgd_nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "adam": ("Adam", {"lr": 0.01}),
    "adam_amsgrad": ("Adam", {"lr": 0.01, "amsgrad": True, "maximize": True}),
    "adamw": ("AdamW", {"lr": 0.01, "betas": (0.8, 0.9)}),
    "rmsprop": ("RMSprop", {"momentum": 0.5, "centered": True}),
    "adagrad": ("Adagrad", {"initial_accumulator_value": 0.5}),
    "adadelta": ("Adadelta", {}),
    "adamax": ("Adamax", {}),
    "nadam": ("NAdam", {}),
    "radam": ("RAdam", {}),
    "rprop": ("Rprop", {}),
    "asgd": ("ASGD", {}),
}


def _with(name: str, options: dict[str, Any]) -> Any:
    return lambda: trained(lambda net: getattr(torch.optim, name)(net.parameters(), **options))


for _name, (_kind, _options) in _OPTIMIZERS.items():
    ROWS[f"step_{_name}"] = _with(_kind, _options)


@row
def step_of_two_groups() -> Any:
    def made(net: Any) -> Any:
        groups = [{"params": net.a.parameters(), "lr": 0.1}, {"params": net.b.parameters()}]
        return torch.optim.SGD(groups, lr=0.01, momentum=0.5)

    return trained(made, drop=0.25)


@row
def step_with_a_schedule() -> Any:
    net = Net()
    opt = torch.optim.AdamW(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)

    def step(a: Any) -> Any:
        torch.is_tensor(0)
        opt.zero_grad()
        loss = net(a).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        return loss

    c = compiled(step)
    found = []
    for _ in range(3):
        found.append(c(x()).detach())
        schedule.step()
    return [*found, *net.parameters(), opt.param_groups[0]["lr"]]


@row
def gradients_add_up() -> Any:
    net = Net()

    def f(a: Any) -> Any:
        torch.is_tensor(0)
        net(a).sum().backward()

    c = compiled(f)
    c(x())
    c(x())
    c(x())
    return [p.grad for p in net.parameters()]


@row
def resumed_step() -> Any:
    """The optimizer has a state before the first captured call."""
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=0.01)
    net(x()).sum().backward()
    opt.step()
    opt.zero_grad()

    def step(a: Any) -> Any:
        torch.is_tensor(0)
        opt.zero_grad()
        loss = net(a).square().mean()
        loss.backward()
        opt.step()
        return loss

    c = compiled(step)
    return [c(x()).detach(), c(x()).detach(), *net.parameters()]


# ---- modules of the user's in containers of ours -----------------------------------------------


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, a: Any) -> Any:
        torch.is_tensor(0)
        return self.inner(a).relu()


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Own(), Own()])
        self.named = nn.ModuleDict({"one": Own(), "two": nn.Sequential(Own(), nn.ReLU())})

    def forward(self, a: Any) -> Any:
        torch.is_tensor(0)
        for block in self.blocks:
            a = block(a)
        for name, block in self.named.items():
            a = block(a) * len(name)
        return a


@row
def own_modules_in_sequential() -> Any:
    return [compiled(nn.Sequential(Own(), nn.Sequential(Own(), nn.Tanh())))(x())]


@row
def own_modules_in_lists_and_dicts() -> Any:
    return [compiled(Listed())(x())]
