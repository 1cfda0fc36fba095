"""autocast itself: nesting, state, threads, caching, autograd, training."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import lucerne as lu
from lucerne._src.ir.dispatch import Interpreter
from lucerne.utils.checkpoint import checkpoint


def product(dtype: Any = None) -> Any:
    x = lu.ones(2, 2) if dtype is None else lu.ones(2, 2, dtype=dtype)
    return (x @ x).dtype


class Names(Interpreter):
    def __init__(self, level: str = "kernel") -> None:
        self.level = level
        self.seen: list[str] = []

    def run(self, op: Any, args: Any, out: Any, proceed: Any) -> Any:
        self.seen.append(op.name)
        return proceed(op, args, out)


# ---- where it is on ---------------------------------------------------------------------------


def test_nesting() -> None:
    assert product() is lu.float32
    with lu.autocast("cpu"):
        assert product() is lu.bfloat16
        with lu.autocast("cpu", enabled=False):
            assert product() is lu.float32
            with lu.autocast("cpu", dtype=lu.float16):
                assert product() is lu.float16
            assert product() is lu.float32
        assert product() is lu.bfloat16
        assert product(lu.float64) is lu.float64
    assert product() is lu.float32


def test_state_comes_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), lu.autocast("cpu"):
        _ = 1 / 0
    assert not lu.is_autocast_enabled("cpu")
    assert product() is lu.float32


def test_an_error_inside_an_op_leaves_it_on() -> None:
    with lu.autocast("cpu"):
        with pytest.raises(RuntimeError):
            lu.ones(2, 3) @ lu.ones(2, 3)
        assert product() is lu.bfloat16


def test_decorator() -> None:
    @lu.autocast("cpu")
    def inside(depth: int) -> Any:
        """Doc."""
        return product() if depth == 0 else inside(depth - 1)

    assert inside(2) is lu.bfloat16
    assert product() is lu.float32
    assert (inside.__name__, inside.__doc__) == ("inside", "Doc.")


def test_threads_have_their_own() -> None:
    seen: list[Any] = []
    with lu.autocast("cpu"):
        thread = threading.Thread(target=lambda: seen.append(product()))
        thread.start()
        thread.join()
        assert product() is lu.bfloat16

    def on() -> None:
        with lu.autocast("cpu"):
            seen.append(product())

    thread = threading.Thread(target=on)
    thread.start()
    thread.join()
    assert seen == [lu.float32, lu.bfloat16]
    assert product() is lu.float32


def test_switches() -> None:
    assert lu.get_autocast_dtype("cpu") is lu.bfloat16
    lu.set_autocast_enabled("cpu", True)
    try:
        assert lu.is_autocast_enabled("cpu")
        assert product() is lu.bfloat16
        lu.set_autocast_dtype("cpu", lu.float16)
        assert product() is lu.float16
    finally:
        lu.set_autocast_enabled("cpu", False)
        lu.set_autocast_dtype("cpu", lu.bfloat16)
    assert product() is lu.float32
    with pytest.raises(RuntimeError, match="device string: moon"):
        lu.is_autocast_enabled("moon")


def test_what_is_not_there_is_told() -> None:
    with pytest.warns(UserWarning, match="CUDA is not available"):
        context = lu.autocast("cuda")
    with context:
        assert product() is lu.float32
    with pytest.warns(UserWarning, match="only supports dtypes of torch.bfloat16, torch.float16"):
        lu.autocast("cpu", dtype=lu.float32)
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        lu.autocast(3)
    assert lu.amp.is_autocast_available("cpu")


def test_spellings() -> None:
    assert lu.autocast is lu.amp.autocast
    assert lu.GradScaler is lu.amp.GradScaler
    with pytest.warns(FutureWarning, match=r"lucerne.cpu.amp.autocast|torch.cpu.amp.autocast"):
        context = lu.cpu.amp.autocast()
    with context:
        assert product() is lu.bfloat16


# ---- weights are converted once ---------------------------------------------------------------


class Casts(Interpreter):
    """Counts the conversions of one tensor."""

    level = "kernel"

    def __init__(self, tensor: Any) -> None:
        self.tensor, self.count = tensor, 0

    def run(self, op: Any, args: Any, out: Any, proceed: Any) -> Any:
        self.count += op.name == "cast" and args[0] is self.tensor
        return proceed(op, args, out)


def _casts(tensor: Any, act: Any) -> int:
    with Casts(tensor) as casts:
        act()
    return casts.count


def test_weights_are_converted_once() -> None:
    w, x = lu.ones(3, 3, requires_grad=True), lu.ones(2, 3, dtype=lu.bfloat16)
    with lu.autocast("cpu"):
        assert _casts(w, lambda: (x @ w, x @ w, lu.nn.functional.linear(x, w))) == 1
        with lu.autocast("cpu"):
            assert _casts(w, lambda: x @ w) == 0
        assert _casts(w, lambda: x @ w) == 0
    with lu.autocast("cpu"):
        assert _casts(w, lambda: x @ w) == 1
    with lu.autocast("cpu", cache_enabled=False):
        assert _casts(w, lambda: (x @ w, x @ w)) == 2


def test_a_changed_weight_is_converted_anew() -> None:
    w = lu.ones(2, 2, requires_grad=True)
    with lu.autocast("cpu"):
        before = lu.ones(2, 2) @ w
        with lu.no_grad():
            w.add_(1)
        after = lu.ones(2, 2) @ w
    assert before[0, 0].item() == 2.0
    assert after[0, 0].item() == 4.0


def test_a_weight_first_used_without_gradients_still_gets_one() -> None:
    w = lu.ones(2, 2, requires_grad=True)
    with lu.autocast("cpu"):
        with lu.no_grad():
            lu.ones(2, 2) @ w
        (lu.ones(2, 2) @ w).sum().backward()
    assert w.grad.dtype is lu.float32


def test_gradients_come_in_the_dtype_of_the_weight_and_add_up() -> None:
    w, x = lu.ones(2, 2, requires_grad=True), lu.ones(2, 2, requires_grad=True)
    with lu.autocast("cpu"):
        (x @ w).sum().backward()
        (x @ w).float().pow(2).sum().backward()
    assert w.grad.dtype is lu.float32
    assert x.grad.dtype is lu.float32
    assert w.grad.tolist() == [[10.0, 10.0]] * 2


def test_interpreters_see_converted_ops() -> None:
    with lu.autocast("cpu"), Names("call") as names:
        lu.ones(2, 2) @ lu.ones(2, 2)
    assert "matmul" in names.seen


def test_inference_mode() -> None:
    with lu.autocast("cpu"), lu.inference_mode():
        assert product() is lu.bfloat16


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_are_computed_again_in_the_same_precision(reentrant: bool) -> None:
    w = lu.randn(4, 4, requires_grad=True)
    x = lu.randn(4, 4, requires_grad=True)
    seen: list[Any] = []

    def block(x: Any) -> Any:
        y = x @ w
        seen.append(y.dtype)
        return (y @ w).float().sin()

    with lu.autocast("cpu"):
        plain = block(x).sum()
        again = checkpoint(block, x, use_reentrant=reentrant).sum()
    expected = lu.autograd.grad(plain, (w,))[0]
    again.backward()
    assert seen == [lu.bfloat16] * 3
    assert lu.equal(w.grad, expected)
    assert not lu.is_autocast_enabled("cpu")


# ---- functions of one's own -------------------------------------------------------------------


def _function(**options: Any) -> Any:
    seen: list[Any] = []

    class Own(lu.autograd.Function):
        @staticmethod
        @lu.amp.custom_fwd(device_type="cpu", **options)
        def forward(ctx: Any, x: Any) -> Any:
            seen.append((x.dtype, lu.is_autocast_enabled("cpu")))
            return x * 2

        @staticmethod
        @lu.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: Any) -> Any:
            seen.append((g.dtype, lu.is_autocast_enabled("cpu")))
            return g * 2

    return Own, seen


def test_custom_functions() -> None:
    x = lu.ones(2, dtype=lu.bfloat16, requires_grad=True)
    own, seen = _function(cast_inputs=lu.float32)
    with lu.autocast("cpu"):
        own.apply(x).sum().backward()
    assert seen == [(lu.float32, False), (lu.float32, False)]
    own, seen = _function()
    with lu.autocast("cpu"):
        y = own.apply(x).sum()
    y.backward()
    assert seen == [(lu.bfloat16, True), (lu.bfloat16, True)]
    own, seen = _function(cast_inputs=lu.float32)
    own.apply(x)
    assert seen == [(lu.bfloat16, False)]


# ---- training ---------------------------------------------------------------------------------


def _net(module: Any, rng: np.random.Generator) -> Any:
    nn = module.nn
    net = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    for p in net.parameters():
        p.data.copy_(module.tensor(rng.standard_normal(tuple(p.shape)).astype("f4") * 0.5))
    return net


def _losses(module: Any, scaled: bool = False) -> list[float]:
    rng = np.random.default_rng(0)
    net = _net(module, rng)
    optimizer = module.optim.AdamW(net.parameters(), lr=1e-2)
    scaler = module.amp.GradScaler("cpu", init_scale=64.0, enabled=scaled)
    x = module.tensor(rng.standard_normal((32, 8)).astype("f4"))
    target = module.tensor(rng.integers(0, 4, 32))
    found = []
    for _ in range(12):
        optimizer.zero_grad()
        with module.autocast("cpu"):
            loss = module.nn.functional.cross_entropy(net(x), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert all(str(p.grad.dtype) == "torch.float32" for p in net.parameters())
        found.append(float(loss.detach()))
    return found


@pytest.mark.torch
@pytest.mark.parametrize("scaled", [False, True])
def test_training_follows_torch(scaled: bool) -> None:
    torch = pytest.importorskip("torch")
    mine, theirs = _losses(lu, scaled), _losses(torch, scaled)
    assert mine[-1] < 0.8 * mine[0]
    np.testing.assert_allclose(mine, theirs, 2e-2)
