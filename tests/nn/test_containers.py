"""Containers, parameters and lazy modules against torch."""

from __future__ import annotations

import copy
import pickle
import sys
from collections import OrderedDict
from typing import Any

import pytest

import lucerne
from lucerne._src.tensor.storage import FAST
from tests.nn.scenes import Notes, Scene, assert_same

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def sequential(torch: Any, note: Notes) -> None:
    nn = torch.nn
    relu, tanh, norm = nn.ReLU(), nn.Tanh(), nn.Identity()
    s = nn.Sequential(relu, tanh, norm)
    note(s, len(s), s[0] is relu, s[-1] is norm, s[1:], s[:0], s(torch.tensor([-1.0, 1.0])))
    named = nn.Sequential(OrderedDict([("a", relu), ("b", tanh)]))
    note(named, named[0] is relu, named[1:], named.a is relu, [type(m).__name__ for m in named])
    note.of(
        lambda: s[3], lambda: s[-4], lambda: s["a"], lambda: s.append(relu),
        lambda: s.insert(1, norm),
        lambda: s.insert(-1, tanh), lambda: s.insert(99, tanh), lambda: s.insert(0, 3),
        lambda: s.extend([relu]), lambda: s.pop(0), lambda: s, lambda: s + s, lambda: s * 2,
        lambda: 2 * s, lambda: s * 0, lambda: s * "x", lambda: s + 3, lambda: s.append(3),
        lambda: nn.Sequential(3), lambda: nn.Sequential()(5), lambda: nn.Sequential(),
        lambda: nn.Sequential([relu]), lambda: nn.Sequential({"a": relu}),
    )  # fmt: skip
    s[0] = tanh
    del s[1]
    del s[2:]
    note(s, list(s._modules))
    s += nn.Sequential(relu)
    s *= 2
    note(s, list(s.state_dict()), "0" in dir(s))
    del named[0]
    note(named, list(named._modules))


def module_list(torch: Any, note: Notes) -> None:
    nn = torch.nn
    relu, tanh = nn.ReLU(), nn.Tanh()
    m = nn.ModuleList([relu, tanh, nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 3)])
    note(m, len(m), m[1] is tanh, m[-1], m[1:3], m[::-1], relu in m)
    note.of(
        lambda: m[9], lambda: m[-9], lambda: m.append(relu), lambda: m.extend(3), lambda: m(1),
        lambda: m.insert(1, nn.Identity()), lambda: m.pop(0), lambda: m + [relu],  # noqa: RUF005
        lambda: m.append(3),
        lambda: nn.ModuleList([3]), lambda: nn.ModuleList(), lambda: nn.ModuleList(None),
        lambda: nn.ModuleList(x for x in (relu,)),
    )  # fmt: skip
    m[0] = relu
    del m[1]
    del m[-2:]
    m += [tanh]
    note(m, list(m._modules), list(reversed([1])))
    same = nn.ModuleList([nn.Sequential(nn.ReLU(), nn.ReLU()) for _ in range(3)])
    note(nn.ModuleList([same, same]))


def module_dict(torch: Any, note: Notes) -> None:
    nn = torch.nn
    relu, tanh = nn.ReLU(), nn.Tanh()
    d = nn.ModuleDict({"b": relu, "a": tanh})
    note(d, len(d), list(d), list(d.keys()), [k for k, _ in d.items()], "a" in d, "x" in d)
    note.of(
        lambda: d["x"], lambda: d.update([("c", relu)]), lambda: d.update(3),
        lambda: d.update([("a",)]), lambda: d.update(nn.ModuleDict({"z": relu})),
        lambda: d.pop("a"),
        lambda: d.pop("nope"), lambda: d(1), lambda: d, lambda: d.update({"keys": relu}),
        lambda: d.clear(), lambda: d, lambda: nn.ModuleDict([("q", tanh)]),
        lambda: nn.ModuleDict({"x.y": relu}), lambda: nn.ModuleDict({"t": 3}),
        lambda: len(list(nn.ModuleDict({"a": relu}).values())),
    )  # fmt: skip


def parameter_list(torch: Any, note: Notes) -> None:
    nn = torch.nn
    m = nn.ParameterList([torch.ones(2), nn.Parameter(torch.zeros(1, 2)), 3, "text"])
    note(m, len(m), m[0], m[-1], m[1:3], list(m.state_dict()), [type(p).__name__ for p in m])
    note.of(
        lambda: m[9], lambda: m.append(torch.ones(1)), lambda: m.extend([torch.ones(1)]),
        lambda: m.extend(3), lambda: m.extend(torch.ones(2)), lambda: m(3), lambda: m,
        lambda: nn.ParameterList(), lambda: m.append(None), lambda: nn.ParameterList([[1, 2]]),
    )  # fmt: skip
    m[0] = torch.full((2,), 5.0)
    m += [torch.ones(3)]
    note(m[0], len(m), len(list(m.parameters())), copy.deepcopy(m)[0])


def parameter_dict(torch: Any, note: Notes) -> None:
    nn = torch.nn
    d = nn.ParameterDict({"b": torch.ones(2), "a": nn.Parameter(torch.zeros(1))})
    note(d, list(d), len(d), d["a"], "b" in d, list(d.items()), list(d.state_dict()))
    note.of(
        lambda: d["x"], lambda: d.get("x"), lambda: d.get("x", 3), lambda: d.setdefault("s"),
        lambda: d.setdefault("t", torch.ones(1)), lambda: d.update([("u", torch.ones(1))]),
        lambda: d.update(3), lambda: d.update([("a",)]), lambda: d.pop("u"),
        lambda: d.popitem(), lambda: d | {"v": torch.ones(1)}, lambda: {"w": 1} | d, lambda: d[3],
        lambda: list(reversed(d)), lambda: d.copy(), lambda: d.fromkeys(["x", "y"], 4),
        lambda: d(1),
        lambda: nn.ParameterDict(OrderedDict([("z", torch.ones(1)), ("y", torch.ones(1))])),
        lambda: list(d.values()), lambda: nn.ParameterDict(),
    )  # fmt: skip
    d |= {"q": torch.ones(1)}
    del d["a"]
    note(d, len(d))
    d.clear()
    note(d, list(d.parameters()))


def container(torch: Any, note: Notes) -> None:
    note(torch.nn.Container(a=torch.nn.ReLU()))


def parameters(torch: Any, note: Notes) -> None:
    nn = torch.nn
    p = nn.Parameter(torch.ones(2))
    note(p, repr(p), nn.Parameter(), nn.Parameter(None, False), isinstance(p, torch.Tensor))
    note.of(
        lambda: nn.Parameter([1.0]), lambda: nn.Parameter(3.0),
        lambda: nn.Parameter(torch.ones(1).int()),
        lambda: nn.Parameter(torch.ones(1).int(), requires_grad=False),
        lambda: nn.Parameter(p) is p,
        lambda: nn.Parameter(nn.Parameter(torch.ones(1), False)), lambda: type(p * 2).__name__,
        lambda: p * 2,
        lambda: type(p[0]).__name__, lambda: p.data, lambda: p.detach(),
        lambda: type(p.clone()).__name__, lambda: p + p,
        lambda: torch.cat([p, p]), lambda: 1 / p, lambda: p == p, lambda: -p, lambda: abs(p),
        lambda: p.to(torch.float64), lambda: p.to("cpu") is p, lambda: hash(p) == hash(p),
        lambda: torch.ones(2) - p, lambda: torch.ones(2) @ p, lambda: p.view(1, 2),
        lambda: p.float() is p,
    )  # fmt: skip
    data = torch.ones(2)
    shared = nn.Parameter(data)
    data.add_(1)
    note(shared, shared._version, shared.data_ptr() == data.data_ptr())
    history = nn.Parameter(torch.ones(1, requires_grad=True) * 3)
    note(history, history.is_leaf, history.grad_fn)
    (p * p).sum().backward()
    p.mark = "kept"
    for twin in (copy.deepcopy(p), copy.copy(p), pickle.loads(pickle.dumps(p))):
        note(twin, twin.grad, hasattr(twin, "mark"), type(twin).__name__)
    with torch.no_grad():
        p.add_(1)
        note(p, p.requires_grad, p.mul_(2) is p)
    p.data = torch.zeros(3)
    note(p, p.requires_grad, p.is_leaf)

    class Special(torch.Tensor):
        pass

    marked = nn.Parameter(torch.ones(2).as_subclass(Special))
    note(type(marked).__name__, isinstance(marked, nn.Parameter), marked.requires_grad)
    m = nn.Module()
    m.special = marked
    note(list(m._parameters), type(marked * 2).__name__)

    class Named(nn.Parameter):
        pass

    named = Named(torch.ones(1))
    note(type(named).__name__, type(named * 2).__name__, isinstance(named, nn.Parameter))
    note(type(copy.deepcopy(named)).__name__)
    b = nn.Buffer(torch.ones(2), persistent=False)
    note(
        type(b).__name__,
        isinstance(b, nn.Buffer),
        isinstance(torch.ones(1), nn.Buffer),
        b.persistent,
    )
    note(isinstance(torch.ones(1), nn.Parameter), isinstance(3, nn.Parameter), nn.Buffer())


def lazy(torch: Any, note: Notes) -> None:
    nn = torch.nn
    m = nn.LazyLinear(3)
    note(m, m.has_uninitialized_params(), m.weight, m.state_dict(), list(m.parameters()))
    note.of(lambda: m.weight.shape, lambda: nn.Linear(1, 3).load_state_dict(m.state_dict()))
    m.double()
    note(m.weight.dtype, type(m.weight).__name__)
    m.float()
    out = m(torch.ones(2, 4))
    note(m, out.shape, type(m).__name__, m.weight.shape, len(m._forward_pre_hooks))
    note(hasattr(m, "_initialize_hook"), m.has_uninitialized_params if hasattr(m, "x") else None)
    fresh = nn.LazyLinear(3)
    fresh.load_state_dict(m.state_dict())
    note(type(fresh).__name__, fresh.weight.shape, torch.equal(fresh.weight, m.weight))
    note(fresh(torch.ones(2, 4)).shape, type(fresh).__name__)
    both = nn.LazyLinear(3)
    both.load_state_dict(nn.LazyLinear(3).state_dict())
    note(both, copy.deepcopy(both).weight)

    class Half(nn.modules.lazy.LazyModuleMixin, nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.UninitializedParameter()
            self.mean = nn.UninitializedBuffer()

        def initialize_parameters(self, x: Any) -> None:
            self.weight.materialize((2,))

        def forward(self, x: Any) -> Any:
            return x

    class Nothing(nn.modules.lazy.LazyModuleMixin, nn.Module):
        pass

    note.of(lambda: Half()(torch.ones(1)), lambda: Nothing()(torch.ones(1)))
    note.of(lambda: Half().share_memory())
    note(nn.parameter.is_lazy(Half().mean), nn.parameter.is_lazy(torch.ones(1)))


SCENES: list[Scene] = [
    sequential, module_list, module_dict, parameter_list, parameter_dict, container, parameters,
    lazy,
]  # fmt: skip


@pytest.mark.parametrize("scene", SCENES, ids=lambda s: s.__name__)
def test_scene(scene: Scene) -> None:
    assert_same(scene, torch)


X = lucerne.ones(2, 3)
OPS = {
    "mul": lambda p: p * 2,
    "getitem": lambda p: p[0],
    "add": lambda p: p + p,
    "sum": lambda p: p.sum(),
    "linear": lambda p: lucerne.nn.functional.linear(X, p),
    "reflected": lambda p: 3 - p,
}


@pytest.mark.parametrize("name", OPS)
def test_parameter_takes_the_fast_path(name: str) -> None:
    """An op on a parameter that was seen before does not come back to Python."""
    if FAST is None:
        pytest.skip("this machine runs without the native fast path")
    p = lucerne.nn.Parameter(lucerne.ones(3, 3))
    for _ in range(3):
        OPS[name](p)
    calls: list[Any] = []

    def seen(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and "lucerne/" in frame.f_code.co_filename:
            calls.append(frame.f_code)

    sys.setprofile(seen)
    try:
        OPS[name](p)
    finally:
        sys.setprofile(None)
    assert not calls
