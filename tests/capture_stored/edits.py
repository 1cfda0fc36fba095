"""Edits of a function's source, and of what it sees, that make a stored program stale.

Each row has a source and the same after an edit; both define `make()`, which returns a function and
its arguments. A row with `same` edits what changes nothing: the stored program must still be found.
"""

from __future__ import annotations

from typing import NamedTuple


class Edit(NamedTuple):
    before: str
    after: str
    same: bool = False


_HEAD = """
import functools
from collections import namedtuple
from dataclasses import dataclass
from enum import Enum
import lucerne as torch
from lucerne import nn
x = lambda: torch.linspace(-1.0, 1.0, 24).reshape(4, 6)
"""


def edit(text: str, old: str, new: str, same: bool = False) -> Edit:
    assert old in text, old
    return Edit(_HEAD + text, _HEAD + text.replace(old, new), same)


_PLAIN = """
def f(a):
    return a * 2 + 1
def make():
    return f, (x(),)
"""
_HELPER = """
SCALE = 2.0
TABLE = {"k": [1.0, 2.0]}
def inner(a):
    return a * SCALE
def helper(a, by=1.0):
    return inner(a) + by + TABLE["k"][1]
def f(a):
    return helper(a)
def make():
    return f, (x(),)
"""
_CLOSURE = """
def make():
    scale, how = 2.0, "sum"
    def f(a):
        return getattr(a, how)(1) * scale
    return f, (x(),)
"""
_CLASS = """
class Base(nn.Module):
    factor = 3.0
    def scaled(self, a):
        return a * self.factor
class Net(Base):
    def __init__(self):
        super().__init__()
        self.depth, self.slope = 2, 0.1
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.LeakyReLU(0.2))
    @property
    def twice(self):
        return 2.0
    @staticmethod
    def shifted(a):
        return a + 1
    def forward(self, a):
        for _ in range(self.depth):
            a = self.inner(a) * self.twice
        return self.scaled(self.shifted(a))
def make():
    torch.manual_seed(0)
    return Net(), (x(),)
"""
_STEP = """
def make():
    torch.manual_seed(0)
    net = nn.Linear(6, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.0)
    def f(a):
        opt.zero_grad()
        net(a).square().mean().backward()
        opt.step()
        return net.weight.detach().clone()
    return f, (x(),)
"""
_FUNCTION = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2
def f(a):
    b = a.detach().requires_grad_()
    Own.apply(b).sum().backward()
    return b.grad
def make():
    return f, (x(),)
"""
_KINDS = """
class Mode(Enum):
    A = 1.0
@dataclass
class Options:
    scale: float = 2.0
    def times(self, a):
        return a * self.scale
Pair = namedtuple("Pair", "a b")
MODE, OPTIONS, PAIR = Mode.A, Options(), Pair(1.0, 2.0)
def f(a, by):
    return OPTIONS.times(a) * MODE.value + PAIR.b + by
def make():
    return functools.partial(f, by=0.5), (x(),)
"""
_TENSOR = """
T = torch.ones(6)
def f(a):
    return a * T
def make():
    return f, (x(),)
"""

_FROZEN = "    net.bias.requires_grad_(False)\n    opt ="

_CUSTOM = """
KEPT = 2.0
@torch.library.custom_op("edits::scaled", mutates_args=())
def scaled(a: torch.Tensor, by: float = 1.5) -> torch.Tensor:
    return a * KEPT * by
@scaled.register_kernel("cpu")
def on_host(a, by=1.5):
    return a * KEPT * by + 0
@scaled.register_fake
def _(a, by=1.5):
    return torch.empty_like(a)
def setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
def backward(ctx, g):
    return g * 3 + ctx.saved_tensors[0], None
scaled.register_autograd(backward, setup_context=setup)
def f(a):
    return scaled(a).sum()
def make():
    return f, (x().requires_grad_(),)
"""
_BY_NAME = _CUSTOM.replace("return scaled(a).sum()", "return torch.ops.edits.scaled(a).sum()")
EDITS: dict[str, Edit] = {
    "a kernel of a custom op": edit(_CUSTOM, "by + 0", "by + 1"),
    "the other kernel": edit(_CUSTOM, "    return a * KEPT * by\n", "    return a * KEPT / by\n"),
    "what a kernel sees": edit(_CUSTOM, "KEPT = 2.0", "KEPT = 3.0"),
    "a schema": edit(_CUSTOM, "by: float = 1.5", "by: float = 2.5"),
    "a fake implementation": edit(_CUSTOM, "empty_like(a)", "zeros_like(a)"),
    "a derivative of a custom op": edit(_CUSTOM, "g * 3", "g * 4"),
    "what a custom op saves": edit(_CUSTOM, "ctx.save_for_backward(inputs[0])",
                                   "ctx.save_for_backward(inputs[0] * 1)"),
    "a comment in a kernel": edit(_CUSTOM, "    return a * KEPT * by + 0",
                                  "    # said more\n    return a * KEPT * by + 0", same=True),
    "a kernel of an op that is found by name": edit(_BY_NAME, "by + 0", "by + 1"),
    "a derivative of an op that is found by name": edit(_BY_NAME, "g * 3", "g * 4"),
    "a comment in an op that is found by name": edit(_BY_NAME, "    return g",
                                                     "    # more\n    return g", same=True),
    "a number": edit(_PLAIN, "* 2", "* 3"),
    "an operator": edit(_PLAIN, "* 2 + 1", "* 2 - 1"),
    "a comment": edit(_PLAIN, "    return a", "    # said more\n    return a", same=True),
    "lines above": edit(_PLAIN, "def f", "\n\n\nother = 3\n\n\ndef f", same=True),
    "a global of a helper": edit(_HELPER, "SCALE = 2.0", "SCALE = 2.5"),
    "a default": edit(_HELPER, "by=1.0", "by=1.5"),
    "an item of a global": edit(_HELPER, "2.0]", "2.25]"),
    "the inner helper": edit(_HELPER, "a * SCALE", "a / SCALE"),
    "another function": edit(_HELPER, "def make", "def unused():\n    pass\ndef make", same=True),
    "a number of the closure": edit(_CLOSURE, "scale, how = 2.0", "scale, how = 4.0"),
    "a word of the closure": edit(_CLOSURE, '"sum"', '"mean"'),
    "an attribute of a base class": edit(_CLASS, "factor = 3.0", "factor = 3.5"),
    "a method of a base class": edit(_CLASS, "a * self.factor", "a - self.factor"),
    "a property": edit(_CLASS, "return 2.0", "return 2.5"),
    "a static method": edit(_CLASS, "return a + 1", "return a + 2"),
    "an attribute of a module": edit(_CLASS, "self.slope = 2", "self.slope = 3"),
    "an option of a module": edit(_CLASS, "LeakyReLU(0.2)", "LeakyReLU(0.3)"),
    "another activation": edit(_CLASS, "nn.LeakyReLU(0.2)", "nn.ReLU()"),
    "training": edit(_CLASS, "return Net(), ", "return Net().eval(), "),
    "the learning rate": edit(_STEP, "lr=0.1", "lr=0.2"),
    "the momentum": edit(_STEP, "momentum=0.9", "momentum=0.5"),
    "no momentum": edit(_STEP, "momentum=0.9", "momentum=0.0"),
    "the weight decay": edit(_STEP, "weight_decay=0.0", "weight_decay=0.1"),
    "another optimizer": edit(_STEP, "SGD", "RMSprop"),
    "a frozen parameter": edit(_STEP, "    opt =", _FROZEN),
    "a derivative": edit(_FUNCTION, "return g * 2", "return g * 5"),
    "the value of an enum": edit(_KINDS, "A = 1.0", "A = 1.5"),
    "a field of a dataclass": edit(_KINDS, "scale: float = 2.0", "scale: float = 2.5"),
    "a method of a dataclass": edit(_KINDS, "return a * self.scale", "return a - self.scale"),
    "a field of a named tuple": edit(_KINDS, "Pair(1.0, 2.0)", "Pair(1.0, 3.0)"),
    "an argument of a partial": edit(_KINDS, "by=0.5", "by=0.75"),
    "the dtype of a tensor": edit(_TENSOR, "torch.ones(6)", "torch.ones(6, dtype=torch.float64)"),
    "the shape of a tensor": edit(_TENSOR, "torch.ones(6)", "torch.ones(4, 6)"),
    "the values of a tensor": edit(_TENSOR, "torch.ones(6)", "torch.full((6,), 2.0)", same=True),
}  # fmt: skip
