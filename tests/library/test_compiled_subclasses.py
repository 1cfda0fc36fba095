"""Compiled functions over tensors that answer ops themselves: they do as uncompiled."""

from collections.abc import Callable
from typing import Any

import pytest

import lucerne
from lucerne import nn
from tests.library import wrappers
from tests.library.wrappers import (
    Closed,
    Counting,
    Held,
    Image,
    Labelled,
    Quantised,
    Scaled,
    Two,
    labelled,
    two,
)

INTS = lucerne.tensor([[1, 2, 3], [4, 5, 6]], dtype=lucerne.int8)


def told(x: Any) -> Any:
    """A result as plain data, with its class."""
    if isinstance(x, (tuple, list)):
        return [told(v) for v in x]
    if isinstance(x, lucerne.Tensor) and hasattr(x, "__tensor_flatten__"):
        return type(x).__name__, [told(getattr(x, n)) for n in x.__tensor_flatten__()[0]]
    extra = getattr(x, "label", None)
    return type(x).__name__, x.tolist(), extra


def test_told_sees_classes_and_values() -> None:
    assert told(two()) != told(Two(lucerne.zeros(3), lucerne.zeros(3)))
    assert told(two()) != told(Counting(two().a, two().b))
    assert told(labelled(lucerne.ones(1), "a")) != told(labelled(lucerne.ones(1), "b"))


def writes(x: Any) -> Any:
    x.add_(1)
    return x * 2


ROWS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "wrapper in and out": (lambda x: x * 2 + 1, lambda: (two(),)),
    "two wrappers": (lambda x, y: (x * y).exp(), lambda: (two(), two())),
    "wrapper and plain": (lambda x, y: [x * y, y + 1], lambda: (two(), lucerne.ones(3))),
    "in a dict": (lambda d: d["x"].sum(), lambda: ({"x": two()},)),
    "becomes plain": (lambda x, w: x @ w.t(), lambda: (lucerne.ones(1, 3), Quantised(INTS, 0.5))),
    "views": (lambda x: x.reshape(3, 1).expand(3, 2), lambda: (two(),)),
    "written to": (writes, lambda: (two(),)),
    "nested": (lambda x: x * 2, lambda: (Two(two(), two()),)),
    "made inside": (lambda x: Two(x, x + 1) * 3, lambda: (lucerne.ones(3),)),
    "opened inside": (lambda x: x.a + x.b, lambda: (two(),)),
    "only retyped": (lambda x: x * 2 + 1, lambda: (lucerne.ones(3).as_subclass(Image),)),
    "label": (lambda x: (x * 2).relu(), lambda: (labelled(lucerne.ones(3), "a"),)),
    "label and plain": (lambda x, y: y + x, lambda: (labelled(lucerne.ones(3), "a"), 2.0)),
}


@pytest.mark.parametrize("name", ROWS)
def test_as_uncompiled(name: str) -> None:
    fn, make = ROWS[name]
    compiled = lucerne.compile(fn, fullgraph=True)
    for _ in range(2):
        ours, theirs = make(), make()
        assert told(compiled(*ours)) == told(fn(*theirs))
        tensors = [(a, b) for a, b in zip(ours, theirs, strict=True) if hasattr(a, "_meta")]
        assert [told(a) for a, _ in tensors] == [told(b) for _, b in tensors]
    assert len(compiled.entries) == 1
    assert compiled.entries[0].calls == 2


def test_a_wrapper_is_given_back_as_it_is() -> None:
    compiled = lucerne.compile(lambda x, y: (x, x + y), fullgraph=True)
    x = two()
    first, second = compiled(x, two())
    assert first is x
    assert type(second) is Two


def test_guards_tell_wrappers_apart() -> None:
    compiled = lucerne.compile(lambda x, w: x @ w.t(), fullgraph=True)
    x, count = lucerne.ones(1, 3), []
    for scale in (0.5, 0.25, 0.5):
        assert compiled(x, Quantised(INTS, scale)).tolist() == [[6 * scale, 15 * scale]]
        count.append(len(compiled.entries))
    assert count == [1, 2, 2]
    plain = INTS.float()
    assert compiled(x, plain).tolist() == [[6.0, 15.0]]
    assert compiled(x, Quantised(INTS, 0.5)).tolist() == [[3.0, 7.5]]
    assert len(compiled.entries) == 3


def test_reasons_for_another_version_are_told() -> None:
    compiled = lucerne.compile(lambda w: w * 2, fullgraph=True)
    compiled(Quantised(INTS, 0.5))
    guards = compiled.entries[0].guards
    shape = guards.shape
    other = guards.failure([Quantised(INTS, 2.0)], shape)
    assert "argument 0 (Quantised) has other context: 2.0, it was 0.5" in str(other)
    wide = guards.failure([Quantised(INTS.to(lucerne.int32), 0.5)], shape)
    assert ".ints" in str(wide)
    assert guards.failure([Quantised(INTS + 1, 0.5)], shape) is None


def test_sharing_inside_is_part_of_the_guard() -> None:
    def fn(x: Any, y: Any) -> Any:
        x.a.add_(1)
        return y.a * 2

    compiled = lucerne.compile(fn)
    for shared in (False, True, False):
        x = two()
        y = Two(x.a if shared else lucerne.arange(3.0), x.b)
        assert compiled(x, y).tolist() == ([2.0, 4.0, 6.0] if shared else [0.0, 2.0, 4.0])


def test_a_parameter_that_wraps() -> None:
    layer = nn.Linear(3, 2, bias=False)
    layer.weight = nn.Parameter(Quantised(INTS, 0.5), requires_grad=False)
    compiled = lucerne.compile(lambda x: layer(x), fullgraph=True)
    x = lucerne.ones(1, 3, requires_grad=True)
    compiled(x).sum().backward()
    assert x.grad.tolist() == [[2.5, 3.5, 4.5]]
    entry = compiled.entries[0]
    assert {v.meta.dtype for v in entry.captured.graph.inputs} == {lucerne.int8, lucerne.float32}
    layer.weight.ints = INTS * 2  # other numbers: the same program
    assert compiled(x).tolist() == [[6.0, 15.0]]
    assert len(compiled.entries) == 1
    layer.weight.scale = 1.0  # part of the program
    assert compiled(x).tolist() == [[12.0, 30.0]]
    assert len(compiled.entries) == 2
    module = lucerne.compile(layer)
    assert module(x).tolist() == [[12.0, 30.0]]


def trained(compiled: bool, inside: bool, optimizer: Any) -> Any:
    layer = nn.Linear(3, 2, bias=False)
    layer.weight = nn.Parameter(Held(lucerne.arange(6.0).reshape(2, 3) / 4))
    chosen = optimizer(layer.parameters(), lr=0.25)

    def loss(x: Any) -> Any:
        return layer(x).square().sum()

    def step(x: Any) -> Any:
        chosen.zero_grad()
        found = loss(x)
        found.backward()
        chosen.step()
        return found

    if compiled and inside:
        step = lucerne.compile(step, fullgraph=True)
    elif compiled:
        loss = lucerne.compile(loss, fullgraph=True)
    found = [step(lucerne.full((1, 3), 0.5)).item() for _ in range(3)]
    assert type(layer.weight) is Held
    return found, layer.weight.inner.tolist(), type(layer.weight.grad)


@pytest.mark.parametrize("inside", [False, True], ids=["backward outside", "whole step"])
def test_training_a_parameter_that_wraps(inside: bool) -> None:
    want = trained(False, inside, lucerne.optim.SGD)
    got = trained(True, inside, lucerne.optim.SGD)
    assert got[2] is want[2]
    for a, b in zip(got[:2], want[:2], strict=True):
        assert lucerne.allclose(lucerne.tensor(a), lucerne.tensor(b), rtol=1e-5)


def test_gradients_that_wrap() -> None:
    def loss(x: Any) -> Any:
        y = x * x
        return (y.a + y.b).sum()  # plain: the pair's history ends here

    compiled = lucerne.compile(lambda x, k: (x.detach() * 2, k * 3), fullgraph=True)
    x, k = two(grad=True), lucerne.ones(2, requires_grad=True)
    pair, plain = compiled(x, k)
    assert told(pair) == ("Two", [told(x.a * 2), told(x.b * 2)])
    plain.sum().backward()
    assert k.grad.tolist() == [3.0, 3.0]
    assert loss(two()).tolist() == 505.0


def test_a_wrapper_with_history_as_a_result_runs_uncompiled() -> None:
    fn = lucerne.compile(lambda x: x * x)
    x = two(grad=True)
    y = fn(x)
    y.backward(Two(lucerne.ones(3), lucerne.ones(3)))
    assert told(x.grad) == told(two() * 2)
    assert "takes part in autograd" in str(fn.breaks[0])


def test_what_a_handler_sees_is_guarded() -> None:
    compiled = lucerne.compile(lambda x: x + 1, fullgraph=True)
    x = Scaled(lucerne.ones(2))
    try:
        assert compiled(x).tolist() == [6.0, 6.0]
        assert compiled(x).tolist() == [6.0, 6.0]
        wrappers.FACTOR[0] = 5.0
        assert compiled(x).tolist() == [10.0, 10.0]
        assert compiled(lucerne.ones(2)).tolist() == [2.0, 2.0]
    finally:
        wrappers.FACTOR[0] = 3.0


@pytest.mark.parametrize("held", [False, True], ids=["argument", "parameter"])
def test_a_handler_that_does_more_than_compute_is_called_each_time(held: bool) -> None:
    x = Counting(lucerne.ones(3), lucerne.zeros(3))
    layer = nn.Identity()
    layer.w = x
    fn = lucerne.compile((lambda: layer.w.exp() + 1) if held else (lambda x: x.exp() + 1))
    Counting.calls = 0
    for _ in range(3):
        fn() if held else fn(x)
    assert Counting.calls == 6
    assert any("Counting.__torch_dispatch__" in str(b) for b in fn.breaks)


def test_a_closed_wrapper_says_what_is_missing() -> None:
    fn = lucerne.compile(lambda x: x + 1)
    assert fn(Closed(lucerne.ones(2))).tolist() == [2.0, 2.0]
    assert "__tensor_flatten__" in str(fn.breaks[0])
    whole = lucerne.compile(lambda x: x + 1, fullgraph=True)
    with pytest.raises(Exception, match="handles ops itself"):
        whole(Closed(lucerne.ones(2)))


def test_labels_of_arguments_are_guarded() -> None:
    fn = lucerne.compile(lambda x: x * 2, fullgraph=True)
    for label in ("a", "b", "a"):
        found = fn(labelled(lucerne.ones(2), label))
        assert (type(found), found.label) == (Labelled, label)
    assert len(fn.entries) == 2
    plain = fn(lucerne.ones(2))
    assert type(plain) is lucerne.Tensor


def test_after_a_break_wrappers_go_on() -> None:
    def fn(x: Any) -> Any:
        y = x * 2
        if y.a.sum().item() > 0:
            y = y + 1
        return y

    compiled = lucerne.compile(fn)
    for _ in range(2):
        assert told(compiled(two())) == told(fn(two()))


def test_a_mode_around_a_compiled_call_sees_its_ops() -> None:
    seen: list[str] = []

    class Log(lucerne.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    compiled = lucerne.compile(lambda x, w: (x @ w).exp())
    x = lucerne.ones(2, 2)
    before = compiled(x, x)
    for _ in range(2):
        with Log():
            assert compiled(x, x).tolist() == before.tolist()
    assert seen == ["aten.mm.default", "aten.exp.default"] * 2
    assert compiled.entries[0].calls == 1
    with lucerne.utils.flop_counter.FlopCounterMode(display=False) as counter:
        compiled(x, x)
    assert counter.get_total_flops() == 16
    compiled(x, x)
    assert compiled.entries[0].calls == 2


def test_a_mode_inside_a_compiled_function_is_no_part_of_the_graph() -> None:
    seen: list[str] = []

    class Log(lucerne.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def fn(x: Any) -> Any:
        with Log():
            y = x.exp()
        return y + 1

    compiled = lucerne.compile(fn)
    for _ in range(3):
        compiled(lucerne.ones(2))
    assert seen == ["aten.exp.default"] * 3


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_an_argument_that_keeps_tensors_unsaid_runs_uncompiled(layout: str) -> None:
    fn = lucerne.compile(lambda s, x: s @ x)
    for k in (1.0, 2.0, 3.0):
        s = getattr(lucerne.eye(2) * k, layout)()
        assert fn(s, lucerne.ones(2, 1)).tolist() == [[k], [k]]
    assert "handles ops itself" in str(fn.breaks[0])


def test_a_result_that_keeps_tensors_unsaid_runs_uncompiled() -> None:
    def fn(x: Any) -> Any:
        made = (x * 2).as_subclass(Image)
        made.half = x / 2
        return made

    compiled = lucerne.compile(fn)
    for k in (1.0, 4.0):
        found = compiled(lucerne.full((2,), k))
        assert (type(found), found.tolist(), found.half.tolist()) == (
            Image,
            [2 * k] * 2,
            [k / 2] * 2,
        )
