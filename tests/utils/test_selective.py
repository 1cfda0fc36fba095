"""Selective checkpoints, hooks and the small names of `lucerne.utils`."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import lucerne
from lucerne._src.ir.dispatch import Interpreter
from lucerne.utils import checkpoint as cp
from lucerne.utils import hooks


class Count(Interpreter):
    """How often each kernel runs."""

    level = "kernel"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def run(self, op: Any, args: Any, out: Any, proceed: Any) -> Any:
        self.seen.append(op.name)
        return proceed(op, args, out)


def model(x: Any) -> Any:
    return ((x @ x).exp() @ x).softmax(-1).sin()


def _save_all(context: Any, op: Any, *args: Any) -> Any:
    return cp.CheckpointPolicy.MUST_SAVE


def _save_products(context: Any, op: Any, *args: Any) -> bool:
    return bool(op.name == "matmul")


POLICIES = [
    ([], 6, 1),
    ([lucerne.matmul], 4, 1),
    ([lucerne.exp], 6, 0),
    (_save_products, 4, 1),
    (_save_all, 4, 0),
]


@pytest.mark.parametrize(("policy", "products", "exps"), POLICIES)
def test_kept_calls_run_once(policy: Any, products: int, exps: int) -> None:
    """Backward has four products of its own; what is kept is not computed again."""
    x = lucerne.randn(4, 4, generator=lucerne.Generator().manual_seed(3)).requires_grad_()
    (expected,) = lucerne.autograd.grad(model(x).sum(), x)
    contexts = functools.partial(cp.create_selective_checkpoint_contexts, policy)
    y = cp.checkpoint(model, x, use_reentrant=False, context_fn=contexts)
    with Count() as count:
        (found,) = lucerne.autograd.grad(y.sum(), x)
    assert lucerne.equal(found, expected)
    assert count.seen.count("batch_matmul") == products
    softmax = 1  # which has an exp of its own
    assert count.seen.count("exp") - softmax * (policy is not _save_all) == exps


def test_policies_are_checked() -> None:
    with pytest.raises(TypeError, match="either a function or a list of ops"):
        cp.create_selective_checkpoint_contexts(3)
    with pytest.raises(ValueError, match="Expected op in `op_list`"):
        cp.create_selective_checkpoint_contexts([3])


def test_debug_names_the_ops() -> None:
    calls = []

    def changing(x: Any) -> Any:
        calls.append(x)
        return x.exp().sin() if len(calls) == 1 else x.exp()

    x = lucerne.ones(2, requires_grad=True)
    y = cp.checkpoint(changing, x, use_reentrant=False)
    with pytest.raises(cp.CheckpointError) as plain:
        y.sum().backward()
    assert "ops of the" not in str(plain.value)
    calls.clear()
    with cp.set_checkpoint_debug_enabled(True):
        y = cp.checkpoint(changing, x, use_reentrant=False)
    with pytest.raises(cp.CheckpointError, match="recomputation: exp\n") as told:
        y.sum().backward()
    assert "ops of the forward pass: exp sin\n" in str(told.value)


def test_group_computes_again_once() -> None:
    calls = []

    def watched(x: Any) -> Any:
        calls.append(1)
        return x.exp().exp()

    x = lucerne.ones(2, requires_grad=True)
    y = cp.checkpoint(watched, x, use_reentrant=False)
    with cp.GraphExecGroup():
        y.sum().backward(retain_graph=True)
        y.sum().backward()
    assert len(calls) == 2
    assert cp.GraphExecGroup._get_current_group() is None


def test_device_states() -> None:
    assert cp.get_device_states(lucerne.ones(1)) == ([], [])
    cp.set_device_states([], [])
    with pytest.raises(RuntimeError, match="no generator of cpu devices"):
        cp.set_device_states([0], [None])
    before = cp.DefaultDeviceType.get_device_type()
    cp.DefaultDeviceType.set_device_type("xpu")
    assert cp.DefaultDeviceType.get_device_type() == "xpu"
    cp.DefaultDeviceType.set_device_type(before)


def test_hooks_that_saving_loses() -> None:
    x = lucerne.ones(1, requires_grad=True)
    hooks.warn_if_has_hooks(x)
    x.register_hook(hooks.unserializable_hook(lambda g: g))
    hooks.warn_if_has_hooks(x)
    x.register_hook(lambda g: g)
    with pytest.warns(UserWarning, match="on tensor will not be serialized"):
        hooks.warn_if_has_hooks(x)


def test_the_default_generator_is_safe_everywhere() -> None:
    assert lucerne.random.thread_safe_generator() is None
