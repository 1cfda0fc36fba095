"""Module against torch: attributes, registration, trees, conversions, copies, text."""

from __future__ import annotations

import copy
import pickle
import sys
from collections import OrderedDict
from typing import Any

import pytest

import lucerne
from tests.nn.scenes import Notes, Scene, assert_same

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def net(torch: Any) -> Any:
    """A small tree: parameters, buffers, a shared child, a None child."""
    nn = torch.nn

    class Leaf(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.arange(float(n)))
            self.bias = nn.Parameter(torch.ones(n), requires_grad=False)
            self.register_parameter("none", None)
            self.register_buffer("mean", torch.zeros(n))
            self.register_buffer("temp", torch.ones(1), persistent=False)
            self.register_buffer("absent", None)
            self.n = n

        def forward(self, x: Any) -> Any:
            return x * self.weight + self.bias + self.mean

        def extra_repr(self) -> str:
            return f"n={self.n}"

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = Leaf(2)
            self.second = Leaf(2)
            self.again = self.first
            self.nothing = None
            self.add_module("gone", None)
            self.top = nn.Parameter(torch.tensor(2.0))

        def forward(self, x: Any) -> Any:
            return self.second(self.first(x)) * self.top

    return Net()


def attributes(torch: Any, note: Notes) -> None:
    nn = torch.nn
    m = net(torch)
    note(m.first.weight, m.first.none, m.first.absent, m.nothing, m.gone, m.first.n)
    note.of(lambda: m.missing, lambda: m.first.missing)

    def put(target: Any, name: str, value: Any) -> Any:
        def action() -> Any:
            setattr(target, name, value)
            return sorted(target._parameters), sorted(target._buffers), sorted(target._modules)

        return action

    tensor = torch.ones(2)
    note.of(
        put(m.first, "weight", tensor), put(m.first, "weight", 3), put(m.first, "weight", None),
        put(m.first, "weight", nn.Parameter(tensor)), put(m.first, "mean", 3),
        put(m.first, "mean", tensor), put(m.first, "mean", None), put(m, "second", tensor),
        put(m, "second", "text"), put(m, "second", None),
        put(m.first, "mean", nn.Parameter(tensor)),
        put(m.first, "weight", nn.Module()), put(m.first, "bias", nn.Buffer(tensor)),
        put(m.first, "plain", tensor), put(m.first, "plain", nn.Parameter(tensor)),
        put(m.first, "loose", nn.Buffer(tensor, persistent=False)),
        put(m.first, "loose", tensor), put(m.first, "loose", nn.Buffer(tensor)),
        put(m.first, "temp", nn.Module()),
    )  # fmt: skip
    note(m.first.__dict__.get("plain"), m.first._non_persistent_buffers_set)
    for name in ("bias", "weight", "plain", "n", "temp", "missing"):
        note.of(lambda name=name: delattr(m.first, name))
    note(sorted(m.first._parameters), sorted(m.first._buffers), sorted(m.first._modules))
    note("first" in dir(m), "top" in dir(m), "missing" in dir(m), "0" in dir(nn.ModuleList([m])))


def before_init(torch: Any, note: Notes) -> None:
    nn = torch.nn

    class Early(nn.Module):
        def __init__(self, kind: str) -> None:
            values: dict[str, Any] = {
                "parameter": nn.Parameter(torch.ones(1)), "module": nn.Identity(),
                "buffer": nn.Buffer(torch.ones(1)), "number": 3, "tensor": torch.ones(1),
            }  # fmt: skip
            if kind == "register_parameter":
                self.register_parameter("x", values["parameter"])
            elif kind == "register_buffer":
                self.register_buffer("x", torch.ones(1))
            elif kind == "get":
                self.x  # noqa: B018
            else:
                self.x = values[kind]
            super().__init__()

    for kind in (
        "parameter", "module", "buffer", "number", "register_parameter", "register_buffer", "get",
    ):  # fmt: skip
        note.of(lambda kind=kind: sorted(Early(kind).__dict__))
    note.of(lambda: nn.Module(3), lambda: nn.Module(a=3), lambda: nn.Module()(1))


def registration(torch: Any, note: Notes) -> None:
    nn = torch.nn
    m = net(torch)
    p, t = nn.Parameter(torch.ones(1)), torch.ones(1)
    computed = nn.Parameter(torch.ones(1)) * 2
    for add, value in (
        (m.register_parameter, p), (m.register_buffer, t), (m.add_module, nn.Identity()),
        (m.register_module, None),
    ):  # fmt: skip
        for name in (3, "a.b", "", "first", "training", "top", "fresh"):
            note.of(lambda add=add, name=name, value=value: add(name, value))
    note.of(
        lambda: m.register_parameter("y", t),
        lambda: m.register_parameter("y", 3),
        lambda: m.register_parameter("y", computed),
        lambda: m.register_buffer("y", 3),
        lambda: m.add_module("y", t),
        lambda: m.add_module("y", int),
        lambda: m.train("yes"),
    )
    note(list(m._parameters), list(m._buffers), list(m._modules))


def walking(torch: Any, note: Notes) -> None:
    m = net(torch)
    note(list(m.named_parameters()), list(m.named_buffers()), [n for n, _ in m.named_modules()])
    for kwargs in ({"recurse": False}, {"prefix": "p"}, {"remove_duplicate": False}):
        note(
            [n for n, _ in m.named_parameters(**kwargs)], [n for n, _ in m.named_buffers(**kwargs)]
        )
    note([n for n, _ in m.named_modules(prefix="x", remove_duplicate=False)])
    note([n for n, _ in m.named_children()], len(list(m.modules())), len(list(m.children())))
    note(len(list(m.parameters())), len(list(m.buffers(recurse=False))))
    note(m, str(m.first), torch.nn.Module())
    seen: list[str] = []
    m.apply(lambda module: seen.append(type(module).__name__))
    note(seen)
    paths = ("", "first", "first.x", "top", "nothing.x", "gone", "first.weight", "first.mean")
    for path in paths:
        for get in (m.get_submodule, m.get_parameter, m.get_buffer):
            note.of(lambda get=get, path=path: get(path))


def replacing(torch: Any, note: Notes) -> None:
    m = net(torch)
    new = torch.nn.Identity()
    for path, strict in (
        ("first", False), ("first.new", False), ("first.other", True), ("", False), ("x.y", False),
        ("top", False), ("first.weight", True), ("second", True), ("first.new.deep", False),
    ):  # fmt: skip
        note.of(lambda path=path, strict=strict: m.set_submodule(path, new, strict))
    note.of(lambda: m.set_submodule("first", 3))


def gradients(torch: Any, note: Notes) -> None:
    m = net(torch)
    m(torch.ones(2)).sum().backward()
    note([(n, p.grad) for n, p in m.named_parameters()])
    held = m.top.grad
    m.zero_grad(set_to_none=False)
    note(held, m.first.weight.grad)
    m.zero_grad()
    note([p.grad for p in m.parameters()])
    note([p.requires_grad for p in m.requires_grad_(False).parameters()])
    note([x.training for x in m.eval().modules()], [x.training for x in m.train().modules()])


def conversions(torch: Any, note: Notes) -> None:
    for change in (
        lambda m: m.double(), lambda m: m.half(), lambda m: m.bfloat16(), lambda m: m.float(),
        lambda m: m.to(torch.float64), lambda m: m.to("cpu"),
        lambda m: m.to(torch.zeros(1).double()),
        lambda m: m.to("cpu", torch.float64), lambda m: m.to(dtype=torch.float64, device="cpu"),
        lambda m: m.to(torch.int64), lambda m: m.to(torch.complex64),
        lambda m: m.type(torch.float64),
        lambda m: m.cpu(), lambda m: m.to(), lambda m: m.share_memory(),
    ):  # fmt: skip
        m = net(torch)
        m.register_buffer("count", torch.tensor(3))
        m(torch.ones(2)).sum().backward()
        before, grad = m.top, m.top.grad
        note.of(lambda m=m, change=change: change(m) is m)
        note(m.top is before, m.top, m.top.grad, m.top.grad is grad, m.first.mean, m.count)
    m = net(torch)
    before = m.top
    note(m.to("meta").top is before, m.top.is_meta, m.first.mean.is_meta)
    note.of(lambda: m.to("cpu"))
    note(m.to_empty(device="cpu").top.is_meta)
    image = torch.nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
    note(image.weight.stride(), image.bias.stride())


def future(torch: Any, note: Notes) -> None:
    from importlib import import_module

    switches = import_module(f"{torch.__name__}.__future__")
    m = net(torch)
    before = m.top
    switches.set_overwrite_module_params_on_conversion(True)
    try:
        note(switches.get_overwrite_module_params_on_conversion(), m.double().top is before)
    finally:
        switches.set_overwrite_module_params_on_conversion(False)
    switches.set_swap_module_params_on_conversion(True)
    try:
        m = net(torch)
        before = m.top
        before.tag = "kept"
        m.double()
        note(switches.get_swap_module_params_on_conversion(), m.top is before, before)
        note(m.load_state_dict(net(torch).double().state_dict()), m.top is before)
    finally:
        switches.set_swap_module_params_on_conversion(False)
    a, b = torch.nn.Parameter(torch.ones(2)), torch.zeros(3)
    torch.utils.swap_tensors(a, b)
    note(a, b)


def copies(torch: Any, note: Notes) -> None:
    m = net(torch)
    m(torch.ones(2)).sum().backward()
    twin = copy.deepcopy(m)
    note(
        twin.first is twin.again, twin.first is m.first, twin.top, twin.top.grad, twin.state_dict()
    )
    twin.first.weight.data.add_(1)
    note(m.first.weight, twin.first.weight)
    flat = copy.copy(m)
    note(flat.first is m.first, flat._parameters is m._parameters)
    m = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    m[0].weight.requires_grad_(False)
    again = pickle.loads(pickle.dumps(m))
    note(again, again.state_dict(), again[0].weight, again[0].bias)
    tied = torch.nn.ModuleList([torch.nn.Linear(2, 2, bias=False) for _ in range(2)])
    tied[1].weight = tied[0].weight
    for made in (copy.deepcopy(tied), pickle.loads(pickle.dumps(tied))):
        note(made[0].weight is made[1].weight, len(list(made.parameters())))
    old = torch.nn.Linear(1, 1)
    for name in ("_forward_pre_hooks", "_non_persistent_buffers_set", "_is_full_backward_hook"):
        del old.__dict__[name]
    fresh = torch.nn.Linear.__new__(torch.nn.Linear)
    fresh.__setstate__(old.__dict__)
    note(sorted(fresh.__dict__), sorted(torch.nn.Module().__dict__))


def direct_changes(torch: Any, note: Notes) -> None:
    """Libraries write into the dictionaries of a module."""
    m = net(torch)
    new = torch.nn.Parameter(torch.full((2,), 7.0))
    m.first._parameters["weight"] = new
    note(m.first.weight is new)
    del m.first._parameters["weight"]
    note.of(lambda: m.first.weight)
    m.first.weight = new * 2
    note(m.first.weight, "weight" in m.first.__dict__)
    m.first._buffers["mean"] = torch.full((2,), 5.0)
    m._modules["second"] = torch.nn.Identity()
    note(m(torch.ones(2)), m.first.mean)
    m.__dict__["top"] = torch.tensor(100.0)
    note(m.top)
    m.first._parameters = {"weight": new}
    m.first.__dict__.pop("weight")
    note(m.first.weight)
    m.forward = lambda x: x + 1
    note(m(torch.ones(1)))


def inheritance(torch: Any, note: Notes) -> None:
    nn = torch.nn

    class Named:
        def __init__(self, name: str = "nobody") -> None:
            self.name = name

    class Both(nn.Module, Named):
        call_super_init = True

    class Wrapper(nn.Module):
        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.module, name)

    class Counted(nn.Module):
        calls = 0

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            type(self).calls += 1
            return super().__call__(*args, **kwargs)

        def forward(self, x: Any) -> Any:
            return x

    class Impl(nn.Module):
        def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
            return "impl", super()._call_impl(*args, **kwargs)

        def forward(self, x: Any) -> Any:
            return x

    class Prop(nn.Module):
        @property
        def broken(self) -> Any:
            return self.nowhere

        @property
        def fine(self) -> Any:
            return 3

    note(Both(name="x").name, Both().name)
    note.of(lambda: Both(3).name, lambda: Both(other=3))
    wrapped = Wrapper(net(torch))
    note(wrapped.top, wrapped.first.n, wrapped.module.top is wrapped.top)
    note.of(lambda: wrapped.missing)
    note(Counted()(3), Counted.calls, Impl()(3))
    note.of(lambda: Prop().broken, lambda: Prop().fine, lambda: setattr(Prop(), "fine", 4))


def patched(torch: Any, note: Notes) -> None:
    """Libraries replace special methods of Module, and the dictionaries by classes of their own."""
    nn = torch.nn

    class Computed(dict):  # type: ignore[type-arg]
        def __getitem__(self, key: str) -> Any:
            return "computed", key

    m = net(torch)
    m.first._parameters = Computed(weight=1)
    note(m.first.weight)
    m.first._parameters = OrderedDict(weight=torch.ones(2))
    note(m.first.weight)
    del m.first.__dict__["_buffers"]
    note.of(lambda: m.first.weight, lambda: m.first.temp)
    m = net(torch)
    x = torch.ones(2)
    call, get = nn.Module.__call__, nn.Module.__getattr__

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        note("called", type(self).__name__)
        return call(self, *args, **kwargs)

    nn.Module.__call__ = wrapped
    try:
        note(m(x), Late(torch)(x))
    finally:
        nn.Module.__call__ = call
    nn.Module.__getattr__ = lambda self, name: 7 if name == "seven" else get(self, name)
    try:
        note(m.seven, m.top, Late(torch).seven)
    finally:
        nn.Module.__getattr__ = get
    note(m(x), m.top)
    note.of(lambda: m.seven, lambda: m(), lambda: m(x, y=1), lambda: m(*[x] * 12))


def Late(torch: Any) -> Any:
    """An instance of a class made just now."""
    return type("Late", (torch.nn.Identity,), {})()


def many_arguments(torch: Any, note: Notes) -> None:
    class Take(torch.nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return args, kwargs

    class Strict(torch.nn.Module):
        @staticmethod
        def forward(x: Any) -> Any:
            return x

    m = Take()
    for n in (0, 1, 7, 8, 9, 30):
        note(m(*range(n)), m(*range(n), a=1))
    note(Strict()(3), m(self_=1))
    note.of(lambda: Strict()(), lambda: Strict()(1, 2))


SCENES: list[Scene] = [
    attributes, before_init, registration, walking, replacing, gradients, conversions, future,
    copies, direct_changes, inheritance, patched, many_arguments,
]  # fmt: skip


@pytest.mark.parametrize("scene", SCENES, ids=lambda s: s.__name__)
def test_scene(scene: Scene) -> None:
    assert_same(scene, torch)


def test_ordered_names() -> None:
    """Order of registration is the order of everything."""
    nn = lucerne.nn
    m = nn.Sequential(OrderedDict([("b", nn.Linear(1, 1)), ("a", nn.Linear(1, 1))]))
    assert list(m.state_dict()) == ["b.weight", "b.bias", "a.weight", "a.bias"]


def test_other_devices_say_so() -> None:
    with pytest.raises(RuntimeError, match="cuda"):
        lucerne.nn.Linear(1, 1).cuda()


@pytest.mark.parametrize("backend", ["inductor", "aot_eager", "reference", "a function"])
def test_compile_in_place_takes_every_backend(backend: str) -> None:
    """PyTorch's names and functions as well, as `compile` itself does."""
    seen = []

    def function(module: Any, inputs: Any) -> Any:
        seen.append(len(inputs))
        return module.forward

    layer, x = lucerne.nn.Linear(2, 3), lucerne.ones(4, 2)
    want = layer(x)
    layer.compile(backend=function if backend == "a function" else backend, fullgraph=True)
    lucerne.testing.assert_close(layer(x), want)
    assert bool(seen) == (backend == "a function")
    with pytest.raises(RuntimeError, match="Invalid backend"):
        layer.compile(backend="no such thing")


def test_compile_in_place() -> None:
    layer, x = lucerne.nn.Linear(3, 2), lucerne.randn(4, 3)
    plain = layer(x)
    layer.compile(fullgraph=True)
    assert lucerne.equal(layer(x), plain)
    assert layer.forward.entries


def test_lookups_and_calls_keep_no_references() -> None:
    class Same(lucerne.nn.Module):
        def forward(self, x: Any, **named: Any) -> Any:
            return x

    m = Same()
    m.weight = lucerne.nn.Parameter(lucerne.ones(1))
    x = object()
    before = sys.getrefcount(m.weight), sys.getrefcount(m), sys.getrefcount(x)
    for _ in range(100):
        m.weight, m(x), m(x, a=x)
        getattr(m, "missing", None)
    assert (sys.getrefcount(m.weight), sys.getrefcount(m), sys.getrefcount(x)) == before
