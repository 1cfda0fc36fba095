"""Hooks of modules against torch: order, replacement, errors, backward hooks, global hooks."""

from __future__ import annotations

import copy
from importlib import import_module
from typing import Any

import pytest

from tests.nn.scenes import Notes, Scene, assert_same

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def double(torch: Any) -> Any:
    class Double(torch.nn.Module):
        def forward(self, x: Any, *, plus: float = 0.0) -> Any:
            return x * 2 + plus

    return Double()


def forward_hooks(torch: Any, note: Notes) -> None:
    m = double(torch)
    x = torch.ones(2)
    handles = [
        m.register_forward_pre_hook(lambda m, args: note("pre", args)),
        m.register_forward_pre_hook(lambda m, args: args[0] + 1),
        m.register_forward_pre_hook(lambda m, args: note("first", args), prepend=True),
        m.register_forward_pre_hook(
            lambda m, args, kwargs: (args, {**kwargs, "plus": 100.0}), with_kwargs=True
        ),
        m.register_forward_hook(lambda m, args, out: note("post", args, out)),
        m.register_forward_hook(lambda m, args, out: out + 1000),
        m.register_forward_hook(lambda m, args, kw, out: note("named", kw, out), with_kwargs=True),
        m.register_forward_hook(lambda m, args, out: note("prepended", out), prepend=True),
    ]
    note(m(x), m(x, plus=3.0))
    note(len(m._forward_hooks), len(m._forward_hooks_with_kwargs), len(m._forward_pre_hooks))
    for handle in handles:
        handle.remove()
        handle.remove()
    note(m(x), len(m._forward_hooks_with_kwargs), len(m._forward_pre_hooks_with_kwargs))
    with m.register_forward_hook(lambda m, args, out: "replaced"):
        note(m(x))
    note(m(x))
    m._forward_hooks[12345] = lambda m, args, out: "written directly"
    note(m(x))
    m._forward_hooks.clear()
    m.register_forward_pre_hook(lambda m, args, kwargs: 3, with_kwargs=True)
    note.of(lambda: m(x))


def always_called(torch: Any, note: Notes) -> None:
    class Broken(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("inside")

    for module, x in ((Broken(), torch.ones(1)), (double(torch), torch.ones(1))):
        module.register_forward_hook(lambda m, args, out: note("always", out), always_call=True)
        module.register_forward_hook(lambda m, args, out: note("usual", out))
        note.of(lambda module=module, x=x: module(x))

        def bad(m: Any, args: Any, out: Any) -> None:
            raise RuntimeError("hook")

        module.register_forward_hook(bad, always_call=True)
        module.register_forward_hook(lambda m, args, out: note("last", out), always_call=True)
        note.of(lambda module=module, x=x: module(x))
        note(len(module._forward_hooks_always_called))


def backward_hooks(torch: Any, note: Notes) -> None:
    nn = torch.nn

    class Two(nn.Module):
        def forward(self, x: Any, y: Any, flag: bool = True) -> Any:
            return x * y, (x + y) * 2, "text"

    m = Two()
    m.register_full_backward_pre_hook(lambda m, go: note("pre", go))
    m.register_full_backward_hook(lambda m, gi, go: note("full", gi, go))
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    for y in (torch.tensor([3.0, 4.0], requires_grad=True), torch.tensor([3.0, 4.0])):
        a, b, text = m(x, y, False)
        note(a, b, text, a.grad_fn is not None)
        (a.sum() + b.sum()).backward()
        note(x.grad, y.grad)
        a, b, _ = m(x, y)
        a.sum().backward()
        note(x.grad, y.grad)
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.fill_(1)
    layer.register_full_backward_hook(lambda m, gi, go: note("no input", gi, go))
    layer(torch.ones(2)).sum().backward()
    note(layer.weight.grad)
    with torch.no_grad():
        note(m(x, x)[0])


def changed_gradients(torch: Any, note: Notes) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    for full, pre in (
        (lambda m, gi, go: (gi[0] * 10,), None),
        (lambda m, gi, go: gi[0] * 10, lambda m, go: (go[0] * 100,)),
        (None, lambda m, go: go[0] * 100),
        (lambda m, gi, go: (gi[0], gi[0]), None),
        (None, lambda m, go: (go[0], go[0])),
    ):
        m = double(torch)
        if full is not None:
            m.register_full_backward_hook(full)
        if pre is not None:
            m.register_full_backward_pre_hook(pre)
        x.grad = None
        note.of(lambda m=m: m(x).sum().backward())
        note(x.grad)
    layer = torch.nn.Linear(2, 1)
    layer.register_full_backward_hook(lambda m, gi, go: (go[0],))
    note.of(lambda: layer(torch.ones(2)).backward())


def wrong_kinds(torch: Any, note: Notes) -> None:
    m = double(torch)
    m.register_full_backward_hook(lambda *a: None)
    note.of(lambda: m.register_backward_hook(lambda *a: None))
    m = double(torch)
    m.register_backward_hook(lambda *a: None)
    note.of(lambda: m.register_full_backward_hook(lambda *a: None))

    class Dict(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return {"a": x * 2}

    m = Dict()
    m.register_full_backward_hook(lambda m, gi, go: note("never"))
    note.of(lambda: m(torch.ones(1, requires_grad=True))["a"].sum().backward())

    class Bypass(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            self.kept = x * 3
            return x * 2

    m = Bypass()
    m.register_full_backward_hook(lambda m, gi, go: note("bypassed"))
    m(torch.ones(1, requires_grad=True))
    note.of(lambda: m.kept.sum().backward())


def old_backward_hooks(torch: Any, note: Notes) -> None:
    class Shapes(torch.nn.Module):
        def __init__(self, kind: str) -> None:
            super().__init__()
            self.kind = kind

        def forward(self, x: Any, y: Any = None) -> Any:
            return {
                "one": lambda: x.exp(), "two": lambda: (x.exp(), -x), "dict": lambda: {"a": -x},
                "deep": lambda: (-x).exp(), "flag": lambda: -x,
            }[self.kind]()  # fmt: skip

    for kind in ("one", "two", "dict", "deep", "flag"):
        m = Shapes(kind)
        m.register_backward_hook(lambda m, gi, go: note(type(m).__name__, gi, go))
        x = torch.ones(1, requires_grad=True)
        out = m(x, 3) if kind == "flag" else m(x)
        while not hasattr(out, "backward"):
            out = out["a"] if isinstance(out, dict) else out[0]
        out.sum().backward()
        note(x.grad)


def global_hooks(torch: Any, note: Notes) -> None:
    place = import_module(f"{torch.__name__}.nn.modules.module")
    m = torch.nn.Sequential(double(torch), double(torch))
    x = torch.ones(1, requires_grad=True)

    def seen(what: str) -> Any:
        return lambda module, *rest: note(what, type(module).__name__, *rest)

    handles = [
        place.register_module_forward_pre_hook(seen("pre")),
        place.register_module_forward_hook(seen("post")),
        place.register_module_forward_hook(seen("named"), with_kwargs=True),
        place.register_module_full_backward_pre_hook(seen("backward pre")),
        place.register_module_full_backward_hook(seen("backward")),
    ]
    try:
        note.of(lambda: place.register_module_backward_hook(seen("no")))
        m(x).sum().backward()
        note(bool(place._has_any_global_hook()))
    finally:
        for handle in handles:
            handle.remove()
    note(m(x), x.grad)


def registration_hooks(torch: Any, note: Notes) -> None:
    place = import_module(f"{torch.__name__}.nn.modules.module")
    replaced = torch.nn.Identity()
    handles = [
        place.register_module_parameter_registration_hook(
            lambda m, name, p: note("parameter", type(m).__name__, name, p is None)
        ),
        place.register_module_buffer_registration_hook(
            lambda m, name, b: note("buffer", type(m).__name__, name, b)
        ),
        place.register_module_module_registration_hook(
            lambda m, name, child: replaced if name == "swap" else note("module", name)
        ),
    ]
    try:
        m = torch.nn.Module()
        m.swap = double(torch)
        m.kept = double(torch)
        m.add_module("more", double(torch))
        m.weight = torch.nn.Parameter(torch.ones(1))
        m.register_parameter("none", None)
        m.register_buffer("mean", torch.zeros(1))
        m.mean = torch.ones(1)
        note(m.swap is replaced, m)
    finally:
        for handle in handles:
            handle.remove()


def copied_hooks(torch: Any, note: Notes) -> None:
    m = double(torch)
    seen: list[Any] = []
    handle = m.register_forward_hook(lambda m, args, out: seen.append(out))
    twin = copy.deepcopy(m)
    handle.remove()
    twin(torch.ones(1))
    note(seen, len(m._forward_hooks), len(twin._forward_hooks))


SCENES: list[Scene] = [
    forward_hooks, always_called, backward_hooks, changed_gradients, wrong_kinds,
    old_backward_hooks, registration_hooks, copied_hooks, global_hooks,
]  # fmt: skip


@pytest.mark.parametrize("scene", SCENES, ids=lambda s: s.__name__)
def test_scene(scene: Scene) -> None:
    assert_same(scene, torch)
