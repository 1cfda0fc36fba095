"""Records of calls with several results, with lists, and graphs of records and nodes together."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
import lucerne.nn.functional as F
from lucerne._src.ir import dispatch
from lucerne._src.tensor.autograd import records
from lucerne._src.tensor.storage import FAST

pytestmark = pytest.mark.skipif(FAST is None, reason="records are written by machine code only")


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


def batch_norm(x: Any, w: Any) -> Any:
    return F.batch_norm(x, None, None, w, w, training=True)


def attention(x: Any, w: Any) -> Any:
    q = x.unsqueeze(0)
    return F.scaled_dot_product_attention(q, q * w, q).squeeze(0)


def written_over(x: Any, w: Any) -> Any:
    y = x * w
    y.mul_(w)
    return y.relu_()


def written_part(x: Any, w: Any) -> Any:
    y = x * 1.0
    y[1:3] = w
    return y


def pooled(x: Any, w: Any) -> Any:
    return x * F.max_pool1d(x, 2).sum() + w


def hooked(x: Any, w: Any) -> Any:
    y = x * w
    y.register_hook(lambda g: g * 0.5)
    return y


STEPS: list[Callable[[Any, Any], Any]] = [
    lambda x, w: x * w + x,
    lambda x, w: x.chunk(2, 0)[0].sum() * x + w,
    lambda x, w: torch.cat([p * w[:1] for p in x.split(1, 0)], 0),
    lambda x, w: torch.stack([x, x * w, x]).sum(0),
    lambda x, w: x.max(1)[0].unsqueeze(1) * x * w,
    lambda x, w: F.layer_norm(x, (4,), w, w),
    lambda x, w: F.linear(x, w.expand(4, 4), w).tanh(),
    lambda x, w: torch.stack([r * s for r, s in zip(x.unbind(1), w.unbind(0), strict=True)], 1),
    lambda x, w: x.detach() * w + x,
    lambda x, w: Twice.apply(x) * w,
    batch_norm, attention, written_over, written_part, pooled, hooked,
]  # fmt: skip


def program(seed: int, look: bool, given: list[Any]) -> Any:
    """A random chain with branches; with `look` some results show their node on the way."""
    pick = random.Random(seed)
    x, *ws = given
    made = [x]
    for _ in range(pick.randint(3, 8)):
        step, source, w = pick.choice(STEPS), pick.choice(made[-3:]), pick.choice(ws)
        y = step(source, w)
        if pick.random() < 0.3:
            y = y + pick.choice(made)
        peek = pick.random() < 0.15
        if look and peek:
            assert y.requires_grad is (y.grad_fn is not None)
        made.append(y)
    return made[-1].sum() + made[len(made) // 2].square().mean()


def fresh() -> list[Any]:
    torch.manual_seed(5)
    return [torch.randn(*s).requires_grad_() for s in ((4, 4), (4,), (4,))]


def gradients(seed: int, peek: bool, at_end: bool, given: list[Any]) -> list[Any]:
    for t in given:
        t.grad = None
    loss = program(seed, peek, given)
    if not loss.requires_grad:
        return []
    if at_end:
        assert loss.grad_fn is not None  # from here on all of it is nodes
    loss.backward()
    return [None if t.grad is None else t.grad.clone() for t in given]


def same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) and a.stride() == b.stride()


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("peek", [False, True])
def test_random_graphs_give_the_bits_of_the_engine(seed: int, peek: bool) -> None:
    given = fresh()
    for _ in range(2):
        program(seed, False, given)  # teaches machine code the calls
    found = gradients(seed, peek, False, given)
    wanted = gradients(seed, peek, True, given)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert same(a, b)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("share", [0.4, 1.0])
def test_calls_that_machine_code_does_not_know_leave_the_bits(
    seed: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of known calls is finite and its places depend on addresses: which calls are in it
    must not show in a gradient, or two runs of one program would differ."""
    pick = random.Random(seed)

    def sent_around(step: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def run(x: Any, w: Any) -> Any:
            around = pick.random() < share
            dispatch.state.add_special(around)
            try:
                return step(x, w)
            finally:
                dispatch.state.add_special(-around)

        return run

    given = fresh()
    for _ in range(2):
        program(seed, False, given)
    wanted = gradients(seed, False, True, given)
    monkeypatch.setattr(f"{__name__}.STEPS", [sent_around(step) for step in STEPS])
    for at_end in (False, True):
        found = gradients(seed, False, at_end, given)
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            assert same(a, b)


def taken(make: Callable[[], Any]) -> Any:
    for _ in range(3):
        loss = make()
    assert loss._record is not None
    flow = records.plan(loss._record)
    assert flow is not None
    return flow


@pytest.mark.parametrize("make", [batch_norm, attention, pooled, STEPS[2], STEPS[3], STEPS[4]])
def test_several_results_and_lists_are_records(make: Callable[..., Any]) -> None:
    x, w, _ = fresh()
    assert not taken(lambda: make(x, w).sum()).edges


def test_a_graph_with_nodes_below_is_half_taken() -> None:
    x, w, _ = fresh()
    flow = taken(lambda: (written_over(x, w) * 2).sum())
    assert flow.edges
    assert len(flow.order) == 2


def test_a_leaf_of_records_and_nodes_is_added_to_once() -> None:
    x, w, _ = fresh()
    seen: list[Any] = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
    for _ in range(3):
        x.grad = None
        (written_over(x, w) * x * x).sum().backward()
    assert len(seen) == 3
    plain = x.detach().requires_grad_()
    (plain * w * w).relu().mul(plain * plain).sum().backward()
    assert torch.allclose(seen[-1], plain.grad)


def test_a_second_pass_is_refused() -> None:
    x, w, _ = fresh()
    for make in (batch_norm, attention, written_over):
        for _ in range(3):
            loss = (make(x, w) * w).sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()


def test_a_kept_graph_serves_twice() -> None:
    x, w, _ = fresh()
    for make in (batch_norm, attention, written_over, STEPS[2]):
        for _ in range(3):
            x.grad = w.grad = None
            loss = (make(x, w) * w).sum()
            loss.backward(retain_graph=True)
        once = [x.grad.clone(), w.grad.clone()]
        loss.backward()
        assert all(torch.equal(t.grad, g + g) for t, g in zip((x, w), once, strict=True))


def test_results_that_nothing_uses() -> None:
    x, _, _ = fresh()
    for _ in range(3):
        x.grad = None
        a, _b, c = (x * 2).split([1, 2, 1])
        (a * c).sum().backward()
    assert torch.equal(x.grad[1:3], torch.zeros(2, 4))
    values, indices = (x * 2).sort(1)
    assert values.requires_grad
    assert not indices.requires_grad


def test_parts_of_one_call_have_one_node() -> None:
    x, _, _ = fresh()
    for _ in range(3):
        a, b = (x * 2).chunk(2)
    assert a.grad_fn is b.grad_fn
    assert (a.grad_fn.name(), a.output_nr, b.output_nr) == ("SplitBackward0", 0, 1)
    assert b._is_view()
    with pytest.raises(RuntimeError, match="multiple views"):
        a.add_(1)


def test_a_write_to_a_saved_result_is_noticed() -> None:
    x, w, _ = fresh()
    for _ in range(3):
        made = torch.max(x * w, 1)
        loss = (made.values * made.values).sum()
    made.indices.add_(0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_composite_names_its_node() -> None:
    x, w, _ = fresh()
    for _ in range(3):
        loss = F.smooth_l1_loss(x * w, w.detach().expand(4, 4))
    assert loss.grad_fn.name() == "SmoothL1LossBackward0"


def test_saved_tensor_hooks_see_calls_of_python() -> None:
    x, w, _ = fresh()
    packed: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: packed.append(t) or t,
        lambda t: t,  # type: ignore[func-returns-value]
    ):
        loss = torch.cat([x * w, x], 0).sum()
    assert packed
    loss.backward()


def test_memory_is_freed_without_the_collector() -> None:
    x, w, _ = fresh()

    def step() -> Any:
        y = batch_norm(torch.cat([p * w for p in x.split(2)], 0), w)
        return torch.max(y, 1).values.sum()

    for _ in range(3):
        step()
    gc.disable()
    try:
        before = torch.memory_stats()["allocated_bytes"]
        for _ in range(20):
            step()
        assert torch.memory_stats()["allocated_bytes"] == before
    finally:
        gc.enable()
