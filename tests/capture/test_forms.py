"""The forms of `compile`, copies, threads, and what is said about a compiled function."""

from __future__ import annotations

import copy
import functools
import pickle
import threading
from typing import Any

import pytest

import lucerne as torch
from lucerne import nn
from lucerne._src.capture.compiled import Compiled
from tests.capture.observe import Observer, differences
from tests.capture.scene import Scene, check, entries_of


@torch.compile
def double(x: Any) -> Any:
    """Twice."""
    return x * 2


@torch.compile(fullgraph=True, mode="bitwise")
def triple(x: Any) -> Any:
    return x * 3


def test_as_a_decorator() -> None:
    assert double(torch.ones(2)).tolist() == [2.0, 2.0]
    assert triple(torch.ones(2)).tolist() == [3.0, 3.0]
    assert isinstance(double, Compiled)
    assert (double.__name__, double.__doc__) == ("double", "Twice.")


def test_disabled_it_is_the_function() -> None:
    fn = lambda x: x  # noqa: E731
    assert torch.compile(fn, disable=True) is fn
    model = nn.Linear(2, 2)
    assert torch.compile(model, disable=True) is model


class Scales:
    """Methods of a plain class."""

    def __init__(self, by: float) -> None:
        self.by = torch.full((3,), by)

    @torch.compile(fullgraph=True)
    def scaled(self, x: Any) -> Any:
        return x * self.by

    def plain(self, x: Any) -> Any:
        return x * self.by


def test_a_decorated_method() -> None:
    a, b = Scales(2.0), Scales(5.0)
    for _ in range(2):
        assert a.scaled(torch.ones(3)).tolist() == [2.0] * 3
        assert b.scaled(torch.ones(3)).tolist() == [5.0] * 3


def test_a_bound_method_and_a_partial() -> None:
    method = torch.compile(Scales(2.0).plain, fullgraph=True)
    partial = torch.compile(functools.partial(torch.add, alpha=3), fullgraph=True)
    for _ in range(2):
        assert method(torch.ones(3)).tolist() == [2.0] * 3
        assert partial(torch.ones(2), torch.ones(2)).tolist() == [4.0] * 2


def module() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"]
)
def test_a_copy_of_a_compiled_module_is_compiled_and_its_own(again: Any) -> None:
    model = module()
    compiled = torch.compile(model, fullgraph=True)
    x = torch.randn(5, 3)
    want = compiled(x)
    other = again(compiled)
    assert torch.equal(other(x), want)
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    assert other(x).abs().max() == 0
    assert torch.equal(compiled(x), want)
    assert entries_of(other) == 1
    assert other.__dict__["forward"].fn is other._orig_mod


def test_a_compiled_module_passes_for_the_module() -> None:
    model = module()
    compiled = torch.compile(model, fullgraph=True)
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in model.parameters()]
    assert list(compiled.state_dict()) == [f"_orig_mod.{k}" for k in model.state_dict()]
    compiled.eval()
    assert not model.training
    assert not compiled.training
    model.train()
    assert compiled.training
    compiled.note = "here"
    assert model.note == "here"


def test_versions_follow_the_mode() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    compiled = torch.compile(model, fullgraph=True)
    x = torch.ones(4, 3)
    model.eval()
    assert torch.equal(compiled(x), compiled(x))
    model.train()
    assert not torch.equal(compiled(x), compiled(x))
    assert entries_of(compiled) == 2


def test_inference_mode_is_compiled_too() -> None:
    model = module()
    compiled = torch.compile(model, fullgraph=True)
    x = torch.randn(5, 3)
    with torch.inference_mode():
        want = model(x)
        for _ in range(2):
            have = compiled(x)
            assert torch.allclose(have, want)
            assert have.is_inference()
            assert compiled(have[:, :1].expand(5, 3)).is_inference()
    assert compiled.forward.latest.calls >= 1
    assert compiled(x).requires_grad
    assert not compiled(x).is_inference()


def test_a_compiled_function_inside_another_is_part_of_it() -> None:
    inner = torch.compile(lambda x: x.exp(), fullgraph=True)
    outer = torch.compile(lambda x: inner(x) + inner(x * 2), fullgraph=True)
    x = torch.randn(4)
    for _ in range(2):
        assert torch.allclose(outer(x), x.exp() + (x * 2).exp())
    assert entries_of(inner) == 0
    assert entries_of(outer) == 1


def test_is_compiling_inside_only() -> None:
    told = []

    def fn(x: Any) -> Any:
        told.append(torch.compiler.is_compiling()) if x.shape[0] == 2 else None
        return x * 2

    def ask(x: Any) -> Any:
        return x * 2 if torch.compiler.is_compiling() else x * 3

    assert torch.compile(ask, fullgraph=True)(torch.ones(2)).tolist() == [2.0, 2.0]
    assert ask(torch.ones(2)).tolist() == [3.0, 3.0]
    assert not torch.compiler.is_compiling()


def test_reset_forgets_versions() -> None:
    fn = torch.compile(lambda x: x * 2, fullgraph=True)
    fn(torch.ones(2))
    assert entries_of(fn) == 1
    torch.compiler.reset()
    assert entries_of(fn) == 0
    assert fn(torch.ones(2)).tolist() == [2.0, 2.0]


def test_two_threads_use_one_function() -> None:
    model = module()
    compiled = torch.compile(model, fullgraph=True)
    inputs = [torch.randn(64, 3) for _ in range(2)]
    with torch.no_grad():
        want = [model(x) for x in inputs]
    wrong: list[Any] = []

    def work(k: int) -> None:
        try:
            with torch.no_grad():
                for _ in range(50):
                    if not torch.allclose(compiled(inputs[k]), want[k], atol=1e-6):
                        wrong.append(k)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_the_check_of_the_rows_finds_what_is_wrong() -> None:
    """Each kind of mistake of a compiler is seen by `check`."""
    x = torch.ones(3)
    mistakes = {
        "value": lambda x: x * 2 + 0.1,
        "dtype": lambda x: (x * 2).double(),
        "requires_grad": lambda x: (x * 2).requires_grad_(),
        "memory": lambda x: x.mul_(2),
        "[1]: 1 items": lambda x: [x * 2],
    }
    for where, wrong in mistakes.items():
        scene = lambda wrong=wrong: Scene(  # noqa: E731
            lambda x: x * 2, [(x.clone(),)], compile=lambda fn, **o: wrong, versions=None
        )
        found = check(scene)
        assert found, where
    assert list(differences(Observer().see([x]), Observer().see([x]))) == []
    assert list(differences(Observer().see([x, x]), Observer().see([x, x.clone()])))


def test_options_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="mode is one of"):
        torch.compile(lambda x: x, mode="bitwsie")
    with pytest.raises(ValueError, match="no pass csee to disable"):
        torch.compile(lambda x: x, options={"disable": ["csee"]})
    with pytest.raises(RuntimeError, match="Unexpected optimization option shadw"):
        torch.compile(lambda x: x, options={"shadw": 3})


@pytest.mark.filterwarnings("ignore:compile. mode=")
def test_modes_of_torch_compute_the_same() -> None:
    for mode in ("default", "reduce-overhead", "max-autotune"):
        fn = torch.compile(lambda x: x * 2, mode=mode, fullgraph=True)
        assert fn(torch.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("name", ["fold", "simplify", "cse", "dead", "draws", "fuse", "anchors"])
def test_every_pass_can_be_left_out(name: str) -> None:
    model = module()
    compiled = torch.compile(model, fullgraph=True, options={"disable": [name]})
    x = torch.randn(5, 3)
    assert torch.allclose(compiled(x), model(x), atol=1e-6)
    want = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    have = torch.autograd.grad(compiled(x).sum(), list(model.parameters()))
    for a, b in zip(want, have, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


step = 0


def test_a_global_named_like_an_attribute_is_no_guard() -> None:
    global step
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)

    @torch.compile(fullgraph=True)
    def train() -> Any:
        optimizer.zero_grad()
        loss = (weight * weight).sum()
        loss.backward()
        optimizer.step()
        return loss

    for step in range(12):  # noqa: B007 - the name is the point
        train()
    assert len(train.entries) == 1
