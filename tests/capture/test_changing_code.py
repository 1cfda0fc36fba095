"""Functions, methods, properties, hooks and classes that are replaced after a function was
compiled: what stands there now is called, under whatever name it was found."""

from __future__ import annotations

import functools
import time
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.capture.breaks.reasons import BreakError
from tests.capture.test_changing_numbers import MANY, Place, differences


def functions() -> Place:
    def times(x: Any, s: float = 2.0) -> Any:
        return x * s

    at = types.SimpleNamespace(f=times)
    return (lambda x: at.f(x)), [
        lambda v: setattr(at, "f", times),
        lambda v: setattr(at, "f", lambda x: x - v),
        lambda v: setattr(at, "f", functools.partial(times, s=v)),
        lambda v: setattr(times, "__defaults__", (v,)),
        lambda v: setattr(times, "__code__", (lambda x, s=v: x + s).__code__),
    ]


def methods() -> Place:
    class Base:
        def m(self, x: Any) -> Any:
            return x * 2

        def __call__(self, x: Any) -> Any:
            return self.m(x)

    class Sub(Base):
        pass

    it: Any = Sub()
    return (lambda x: it(x)), [
        lambda v: setattr(Base, "m", lambda self, x: x + v),
        lambda v: setattr(Sub, "m", lambda self, x: x * v),
        lambda v: delattr(Sub, "m") if "m" in vars(Sub) else None,
        lambda v: setattr(it, "m", lambda x: x - v),
        lambda v: vars(it).pop("m", None),
        lambda v: setattr(Base, "__call__", lambda self, x: self.m(x) + v),
        lambda v: setattr(it, "__class__", Sub if type(it) is Base else Base),
    ]


def properties() -> Place:
    class Own:
        k = 2.0

        @property
        def p(self) -> float:
            return self.k + 1

    it = Own()
    return (lambda x: x * it.p), [
        lambda v: setattr(Own, "p", property(lambda self: v)),
        lambda v: setattr(Own, "p", property(lambda self: self.k * v)),
        lambda v: setattr(Own, "p", v),
        lambda v: setattr(Own, "k", v),
        lambda v: setattr(it, "k", v),
        lambda v: vars(it).pop("k", None),
    ]


def special_methods() -> Place:
    class Own:
        def __getitem__(self, k: float) -> float:
            return 2 * k

        def __len__(self) -> int:
            return 2

        def __bool__(self) -> bool:
            return True

        def __add__(self, other: Any) -> Any:
            return other + 3

        __radd__ = __add__

        def __contains__(self, k: float) -> bool:
            return True

        def __enter__(self) -> float:
            return 1.0

        def __exit__(self, *error: object) -> None:
            return None

    it = Own()

    def fn(x: Any) -> Any:
        x = (x * it[2.0] + len(it)) * (2.0 + it) + (it + 3.0)
        if it:
            x = x * 2
        if 2.0 in it:
            x = x + 1
        with it as k:
            return x + k

    return fn, [
        lambda v: setattr(Own, "__getitem__", lambda self, k: k + v),
        lambda v: setattr(Own, "__len__", lambda self: int(v) + 1),
        lambda v: setattr(Own, "__bool__", lambda self: v > 1),
        lambda v: setattr(Own, "__radd__", lambda self, x: x * v),
        lambda v: setattr(Own, "__add__", lambda self, x: x - v),
        lambda v: setattr(Own, "__contains__", lambda self, k: v > 1),
        lambda v: setattr(Own, "__enter__", lambda self: v),
    ]


def asked_by_native_code() -> Place:
    """`sorted` asks `__lt__`, which reads an attribute of the class."""

    class Own:
        sign = 1.0

        def __init__(self, v: float) -> None:
            self.v = v

        def __lt__(self, other: Any) -> bool:
            return bool(self.v * self.sign < other.v * other.sign)

    those = [Own(1.0), Own(2.0)]

    def fn(x: Any) -> Any:
        for it in sorted(those):
            x = x * it.v + 1
        return x

    return fn, [
        lambda v: setattr(Own, "sign", v - 1.5),
        lambda v: setattr(Own, "__lt__", lambda self, other: self.v > other.v),
        lambda v: setattr(Own, "__lt__", lambda self, other: self.sign * self.v < other.v),
        lambda v: setattr(those[0], "v", v),
        lambda v: setattr(those[0], "sign", v - 1.5),
        lambda v: vars(those[0]).pop("sign", None),
    ]


def metaclasses() -> Place:
    class Meta(type):
        k = 2.0

        def __call__(cls, *args: Any) -> Any:
            return type.__call__(cls, *args)

        @property
        def q(cls) -> float:
            return cls.k + 1

        def __len__(cls) -> int:
            return 3

    class Own(metaclass=Meta):
        def __init__(self, v: float) -> None:
            self.v = v

    return (lambda x: x * Own(2.0).v * Own.q + len(Own)), [
        lambda v: setattr(Meta, "k", v),
        lambda v: setattr(Own, "k", v),
        lambda v: setattr(Meta, "q", property(lambda cls: v)),
        lambda v: setattr(Meta, "__len__", lambda cls: int(v)),
        lambda v: setattr(Own, "__init__", lambda self, w: setattr(self, "v", w + v)),
    ]


def hooks() -> Place:
    m = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh()).requires_grad_(False)
    first: Any = m[0]
    for p in m.parameters():
        p.fill_(0.5)

    def weight(v: float) -> torch.nn.Parameter:
        return torch.nn.Parameter(torch.full((2, 2), v), requires_grad=False)

    return (lambda x: m(x)), [
        lambda v: m.register_forward_hook(lambda a, b, c: c * v),
        lambda v: m._forward_hooks.clear(),
        lambda v: m._forward_hooks.update({1: lambda a, b, c: c + v}),
        lambda v: m._forward_hooks.pop(1, None),
        lambda v: setattr(m, "_forward_hooks", OrderedDict()),
        lambda v: first._forward_pre_hooks.update({1: lambda a, b: (b[0] * v,)}),
        lambda v: first._forward_pre_hooks.clear(),
        lambda v: setattr(first, "_parameters", {"weight": weight(v), "bias": None}),
        lambda v: first._parameters.update(weight=weight(v)),
        lambda v: m._modules.update({"1": torch.nn.Sigmoid()}),
        lambda v: setattr(m, "_modules", dict(m._modules)),
        lambda v: m._modules.update({"2": torch.nn.Softplus()}),
        lambda v: m._modules.pop("2", None),
    ]


def closures() -> Place:
    def make(k: float) -> Any:
        return lambda x: x * k

    def more(x: Any, *args: float, s: float = 1.0, **kwargs: float) -> Any:
        return x * s + sum(args) + sum(kwargs.values())

    at = types.SimpleNamespace(f=make(2.0), keywords={"s": 2.0}, args=[1.0])
    return (lambda x: more(at.f(x), *at.args, **at.keywords)), [
        lambda v: setattr(at, "f", make(v)),
        lambda v: setattr(at.f.__closure__[0], "cell_contents", v),
        lambda v: at.keywords.update(s=v),
        lambda v: at.keywords.update(z=v),
        lambda v: at.keywords.pop("z", None),
        lambda v: at.args.append(v),
        lambda v: setattr(at, "args", [v]),
        lambda v: setattr(more, "__kwdefaults__", {"s": v}),
    ]


PLACES: dict[str, Callable[[], Place]] = {
    f.__name__: f
    for f in (
        functions, methods, properties, special_methods, asked_by_native_code, metaclasses, hooks,
        closures,
    )
}  # fmt: skip


def check(name: str, seed: int, fullgraph: bool) -> None:
    fn, changes = PLACES[name]()
    try:
        assert differences(fn, torch.compile(fn, fullgraph=fullgraph), changes, seed) == []
    except BreakError:
        assert fullgraph


@pytest.mark.filterwarnings(MANY)
@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("name", PLACES)
def test_what_stands_there_now_is_called(name: str, fullgraph: bool) -> None:
    for seed in range(4):
        check(name, seed, fullgraph)


@pytest.mark.nightly
@pytest.mark.filterwarnings(MANY)
@pytest.mark.parametrize("name", PLACES)
def test_over_many_changes(name: str) -> None:
    for seed in range(100):
        check(name, seed, fullgraph=seed % 2 == 0)


def test_a_group_that_was_taken_out() -> None:
    """Guards look for its options where it was."""
    p, q = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = torch.optim.SGD([p], lr=0.5)

    def step() -> None:
        p.grad, q.grad = torch.ones(2), torch.ones(2)
        optimizer.step()

    compiled = torch.compile(step)
    compiled()
    optimizer.add_param_group({"params": [q], "lr": 0.25})
    compiled()
    optimizer.param_groups.pop()
    compiled()
    assert p.tolist() == [-0.5, -0.5]
    assert q.tolist() == [0.75, 0.75]
    optimizer.param_groups[0]["params"][0] = q
    compiled()
    assert p.tolist() == [-0.5, -0.5]
    assert q.tolist() == [0.25, 0.25]


@pytest.mark.parametrize("bad", [[False, True, True, False], [True, True, False]])
def test_a_variable_is_kept_for_the_handler_of_a_call(bad: list[bool]) -> None:
    """The frame that waits for the call stands behind it, and nobody but the handler reads it."""

    def helper(x: Any, bad: bool) -> Any:
        y = x * 2
        time.time()
        if bad:
            raise ValueError(float(y.sum()))
        return y

    def fn(x: Any, bad: bool) -> Any:
        kept = x + 1
        try:
            return helper(x, bad)
        except ValueError:
            return kept * 10

    compiled = torch.compile(fn)
    for wrong in bad:
        assert compiled(torch.ones(2), wrong).tolist() == fn(torch.ones(2), wrong).tolist()
