"""Autograd beyond single ops: accumulation, hooks, views, in-place writes, Function, checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as torch
from lucerne.autograd import Function, grad, gradcheck, gradgradcheck
from lucerne.autograd.function import once_differentiable
from lucerne.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp
from lucerne.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential


def leaf(*values: float, dtype: Any = torch.float64) -> Any:
    return torch.tensor(list(values), dtype=dtype, requires_grad=True)


# ---- backward and grad ---------------------------------------------------------------------------


def test_gradients_accumulate_over_calls_and_uses() -> None:
    x = leaf(1.0, 2.0)
    (x * x + x).sum().backward()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [2 + 1 + 3, 4 + 1 + 3]


@pytest.mark.parametrize("seen", [False, True])
def test_the_last_use_comes_first(seen: bool) -> None:
    """Torch's order, and that of compiled calls: rounding tells it from the others."""
    w = torch.zeros(1, requires_grad=True)
    a, b, c = [(w * x).sum() for x in (1e8, -1e8, 0.25)]
    loss = a + b + c
    assert not seen or loss.grad_fn is not None  # nodes instead of records
    loss.backward()
    assert w.grad.item() == 0.0  # (0.25 - 1e8) + 1e8


def test_a_graph_is_used_up_unless_kept() -> None:
    x = leaf(2.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [8.0]
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_double_backward() -> None:
    x = leaf(2.0)
    (g,) = grad((x**3).sum(), x, create_graph=True)
    (gg,) = grad(g.sum(), x)
    assert gg.tolist() == [12.0]


def test_grad_leaves_dot_grad_alone_and_reports_unused() -> None:
    x, unused = leaf(1.0), leaf(1.0)
    assert grad((x * 2).sum(), x)[0].tolist() == [2.0]
    assert x.grad is None
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        grad((x * 2).sum(), unused)
    assert grad((x * 2).sum(), (x, unused), allow_unused=True)[1] is None
    assert grad((x * 2).sum(), (x, unused), materialize_grads=True)[1].tolist() == [0.0]


def test_backward_only_into_some_inputs() -> None:
    x, y = leaf(1.0), leaf(2.0)
    (x * y).sum().backward(inputs=[y])
    assert x.grad is None
    assert y.grad.tolist() == [1.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: leaf(1.0, 2.0).mul(2).backward(), "only for scalar outputs"),
        (lambda: torch.ones(1).backward(), "does not require grad"),
        (lambda: torch.ones(2, dtype=torch.int64).requires_grad_(), "floating point"),
        (lambda: leaf(1.0).mul(2).requires_grad_(False), "leaf variables"),
        (lambda: leaf(1.0).add_(1), "leaf Variable"),
        (lambda: leaf(1.0, 2.0).view(2, 1).add_(1), "view of a leaf"),
        (lambda: leaf(1.0).numpy(), "requires grad"),
        (lambda: torch.add(leaf(1.0), 1, out=torch.ones(1, dtype=torch.float64)), "out="),
    ],
)
def test_what_is_refused(make: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        make()


def test_no_grad_and_friends() -> None:
    x = leaf(1.0)
    with torch.no_grad():
        assert not (x * 2).requires_grad
        with torch.enable_grad():
            assert (x * 2).requires_grad
    torch.set_grad_enabled(False)
    assert not torch.is_grad_enabled()
    torch.set_grad_enabled(True)

    @torch.no_grad()
    def quiet() -> Any:
        return x * 2

    @torch.no_grad()
    def counting() -> Any:
        for _ in range(2):
            yield torch.is_grad_enabled()

    assert not quiet().requires_grad
    assert list(counting()) == [False, False]
    assert torch.is_grad_enabled()


def test_inference_tensors_stay_out_of_graphs() -> None:
    x = leaf(1.0)
    with torch.inference_mode():
        made = x * 2
    assert made.is_inference()
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
        made * x
    with pytest.raises(RuntimeError, match="outside InferenceMode"):
        made.add_(1)
    assert (made.clone() * x).requires_grad


# ---- hooks ---------------------------------------------------------------------------------------


def test_tensor_hooks_see_and_replace_gradients() -> None:
    x = leaf(1.0)
    y = x * 2
    seen = []
    handle = y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    y.sum().backward(retain_graph=True)
    assert seen == [[1.0]]
    assert x.grad.tolist() == [20.0]
    handle.remove()
    y.sum().backward()
    assert len(seen) == 1


def test_leaf_and_post_accumulate_hooks() -> None:
    x = leaf(1.0)
    order = []
    x.register_hook(lambda g: order.append("grad"))
    x.register_post_accumulate_grad_hook(lambda t: order.append(t.grad.tolist()))
    (x * 3).sum().backward()
    assert order == ["grad", [3.0]]


def test_node_hooks_and_graph_walk() -> None:
    x = leaf(1.0)
    y = (x * 2).sum()
    assert y.grad_fn.name() == "SumBackward0"
    assert y.grad_fn.next_functions[0][0].name() == "MulBackward0"
    log = []
    y.grad_fn.register_prehook(lambda g: log.append("pre"))
    y.grad_fn.register_hook(lambda gi, go: log.append("post"))
    y.backward()
    assert log == ["pre", "post"]


def test_retain_grad() -> None:
    x = leaf(1.0)
    y = x * 2
    y.retain_grad()
    (y * 3).sum().backward()
    assert y.grad.tolist() == [3.0]


def test_multi_grad_hook() -> None:
    x, y = leaf(1.0), leaf(2.0)
    seen = []
    torch.autograd.graph.register_multi_grad_hook(
        (x, y), lambda gs: seen.append([g.item() for g in gs])
    )
    (x * y).sum().backward()
    assert seen == [[2.0, 1.0]]


# ---- views and in-place writes -------------------------------------------------------------------


def test_in_place_through_a_view_moves_the_history_of_the_base() -> None:
    w = leaf(1.0, 2.0, 3.0)
    base = w * 1
    base[1:].mul_(10)
    (base * base).sum().backward()
    assert w.grad.tolist() == [2.0, 2 * 100 * 2.0, 2 * 100 * 3.0]


def test_a_view_follows_when_its_base_is_written() -> None:
    w = leaf(1.0, 2.0)
    base = w * 1
    view = base[0:1]
    base.mul_(5)
    view.sum().backward()
    assert w.grad.tolist() == [5.0, 0.0]


def test_writing_a_tensor_that_requires_grad_into_a_plain_one() -> None:
    w = leaf(3.0)
    x = torch.zeros(2, dtype=torch.float64)
    x[1] = w[0] * 2
    (x * 7).sum().backward()
    assert w.grad.tolist() == [14.0]


def test_in_place_op_that_needs_its_old_value() -> None:
    w = leaf(2.0)
    x = w * 1
    x.pow_(3)
    x.sum().backward()
    assert w.grad.tolist() == [12.0]


def test_stale_saved_tensor_names_both_lines() -> None:
    x = leaf(1.0)
    y = x * 1
    z = y.sin()  # saved here
    y.add_(1)  # written here
    with pytest.raises(RuntimeError) as caught:
        z.sum().backward()
    text = str(caught.value)
    assert "modified by an inplace operation" in text
    code = test_stale_saved_tensor_names_both_lines.__code__
    assert f"saved at:    {__file__}:{code.co_firstlineno + 3}" in text
    assert f"modified at: {__file__}:{code.co_firstlineno + 4}" in text


def test_data_writes_are_not_noticed_and_detached_ones_are() -> None:
    x = leaf(1.0)
    y = x * 1
    z = y.sin()
    y.data.add_(0)
    z.sum().backward(retain_graph=True)
    y.detach().add_(0)
    with pytest.raises(RuntimeError, match="inplace"):
        z.sum().backward()


def test_several_views_may_not_be_written() -> None:
    base = leaf(1.0, 2.0) * 1
    first, _ = base.unbind(0)
    with pytest.raises(RuntimeError, match="multiple views"):
        first.add_(1)


# ---- Function ------------------------------------------------------------------------------------


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 3 * x * x


def test_function_gradients_first_and_second() -> None:
    x = leaf(2.0, -1.0)
    assert gradcheck(Cube.apply, (x,))
    assert gradgradcheck(Cube.apply, (x,))
    assert Cube.apply(x).grad_fn.name() == "CubeBackward"


def test_function_with_setup_context_and_several_outputs() -> None:
    class Both(Function):
        @staticmethod
        def forward(x: Any, scale: float) -> Any:
            return x * scale, x.argmax()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.scale = inputs[1]
            ctx.mark_non_differentiable(output[1])

        @staticmethod
        def backward(ctx: Any, g: Any, _unused: Any) -> Any:
            return g * ctx.scale, None

    x = leaf(1.0, 4.0)
    y, index = Both.apply(x, 3.0)
    assert not index.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_function_marks_dirty() -> None:
    class AddOne(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x.add_(1)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 5

    w = leaf(1.0)
    x = w * 1
    y = AddOne.apply(x)
    assert y is x
    y.sum().backward()
    assert w.grad.tolist() == [5.0]


def test_once_differentiable_refuses_a_second_derivative() -> None:
    class Once(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2 * ctx.saved_tensors[0]

    x = leaf(3.0)
    y = Once.apply(x)
    (g,) = grad((y * y).sum(), x, create_graph=True)
    assert g.tolist() == [108.0]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad(g.sum(), x)


def test_wrong_number_of_gradients_is_named() -> None:
    class Wrong(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x + y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    with pytest.raises(RuntimeError, match="expected 2, got 1"):
        Wrong.apply(leaf(1.0), leaf(2.0)).sum().backward()


# ---- checks, anomaly, saved tensors --------------------------------------------------------------


def test_gradcheck_catches_a_wrong_derivative() -> None:
    class Wrong(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 1.01

    x = leaf(1.0, 2.0)
    assert not gradcheck(Wrong.apply, (x,), raise_exception=False)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(Wrong.apply, (x,))


def test_anomaly_mode_names_the_op_that_made_nan() -> None:
    x = leaf(0.0)
    with torch.autograd.detect_anomaly():
        y = (x.sqrt() * 0).sum()
        with pytest.raises(RuntimeError, match=r"SqrtBackward0.*returned nan"):
            y.backward()


def test_saved_tensor_hooks() -> None:
    x = leaf(2.0)
    packed = []

    def pack(t: Any) -> Any:
        packed.append(t.shape)
        return t.numpy(force=True).copy()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda a: torch.from_numpy(a)):
        y = x * x
    y.sum().backward()
    assert len(packed) == 2
    assert x.grad.tolist() == [4.0]


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint_gives_the_same_gradients(use_reentrant: bool) -> None:
    def block(x: Any) -> Any:
        return (x.sin() * x).exp()

    plain, checked = leaf(0.3, 0.7), leaf(0.3, 0.7)
    block(plain).sum().backward()
    checkpoint(block, checked, use_reentrant=use_reentrant).sum().backward()
    assert checked.grad.tolist() == plain.grad.tolist()
    chained = leaf(0.3, 0.7)
    checkpoint_sequential(
        [torch.sin, torch.exp, torch.cos], 2, chained, use_reentrant=use_reentrant
    ).sum().backward()
    assert chained.grad is not None


def test_checkpoint_replays_the_random_stream() -> None:
    x = torch.ones(64, requires_grad=True)
    y = checkpoint(lambda t: torch.nn.functional.dropout(t * t, 0.5), x, use_reentrant=False)
    y.sum().backward()
    assert x.grad.tolist() == (2 * y.detach()).tolist()


def test_checkpoint_notices_another_program() -> None:
    calls = []

    def fickle(t: Any) -> Any:
        calls.append(1)
        return t.sin() if len(calls) == 1 else t * 2

    y = checkpoint(fickle, leaf(1.0), use_reentrant=False)
    with pytest.raises(CheckpointError, match="different number"):
        y.sum().backward()


# ---- functional ----------------------------------------------------------------------------------


def test_functional_products_agree_with_the_jacobian() -> None:
    def f(x: Any) -> Any:
        return x.sin() * x.sum()

    x = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
    v = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    j = jacobian(f, x)
    assert torch.allclose(vjp(f, x, v)[1], v @ j)
    assert torch.allclose(jvp(f, x, v)[1], j @ v)


def test_hessian_and_its_products() -> None:
    def f(x: Any) -> Any:
        return (x**3).sum() + x[0] * x[1]

    x = torch.tensor([1.0, 2.0], dtype=torch.float64)
    v = torch.tensor([1.0, -1.0], dtype=torch.float64)
    h = hessian(f, x)
    assert h.tolist() == [[6.0, 1.0], [1.0, 12.0]]
    assert torch.allclose(hvp(f, x, v)[1], h @ v)
    assert torch.allclose(vhp(f, x, v)[1], v @ h)
