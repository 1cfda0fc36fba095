"""What all optimizers share: groups, hooks, state dicts, copies, and steps kept ready."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest

import lucerne as lu
from lucerne.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)


def param(*shape: int, value: float = 1.0) -> Any:
    p = lu.full(shape, value).requires_grad_()
    p.grad = lu.ones(*shape)
    return p


# ---- groups -----------------------------------------------------------------------------------


def test_groups_have_options_of_their_own() -> None:
    a, b = param(2), param(3)
    optimizer = lu.optim.SGD([{"params": [a], "lr": 0.5}, {"params": b}], lr=0.1)
    optimizer.step()
    assert a.tolist() == [0.5, 0.5]
    assert b.detach().tolist() == pytest.approx([0.9] * 3)
    optimizer.add_param_group({"params": [param(1)], "momentum": 0.9})
    assert [g["lr"] for g in optimizer.param_groups] == [0.5, 0.1, 0.1]


def test_named_parameters() -> None:
    model = lu.nn.Linear(2, 1)
    optimizer = lu.optim.Adam(model.named_parameters())
    group = optimizer.param_groups[0]
    assert list(group)[:2] == ["params", "param_names"]
    assert group["param_names"] == ["weight", "bias"]
    fresh = lu.optim.Adam(model.parameters())
    fresh.load_state_dict(optimizer.state_dict())
    assert fresh.param_groups[0]["param_names"] == ["weight", "bias"]


BAD: list[tuple[Any, type[Exception], str]] = [
    (lambda p: p, TypeError, "iterable of Tensors or dicts, but got torch.FloatTensor"),
    (lambda p: [], ValueError, "optimizer got an empty parameter list"),
    (lambda p: [{"params": [p]}, p], TypeError, "param_group must be a dict, but got"),
    (lambda p: [{"params": {p}}], TypeError, "ordered collections"),
    (lambda p: [1], TypeError, "can only optimize Tensors, but one of the params is int"),
    (lambda p: [p * 2], ValueError, "can't optimize a non-leaf Tensor"),
    (lambda p: [{"params": [p]}, {"params": [p]}], ValueError, "more than one parameter group"),
    (lambda p: [("w", p), param(1)], ValueError, "Some param names are missing"),
    (
        lambda p: [{"params": [("w", p)]}, {"params": [param(1)]}],
        ValueError,
        "cannot add param group without names",
    ),
]


@pytest.mark.parametrize(("params", "kind", "message"), BAD)
def test_bad_parameters(params: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        lu.optim.SGD(params(param(2)), lr=0.1)


def test_a_parameter_given_twice_is_noticed() -> None:
    p = param(2)
    with pytest.warns(UserWarning, match="duplicate parameters"):
        lu.optim.SGD([p, p], lr=0.1)


def test_zero_grad() -> None:
    p, bare = param(2), lu.ones(1, requires_grad=True)
    optimizer = lu.optim.SGD([p, bare], lr=0.1)
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert p.grad is None
    assert bare.grad is None


# ---- hooks ------------------------------------------------------------------------------------


def test_step_hooks_in_their_order() -> None:
    seen: list[str] = []
    optimizer = lu.optim.Adam([param(1)])
    handles = [
        register_optimizer_step_pre_hook(lambda o, a, k: seen.append("global before")),
        optimizer.register_step_pre_hook(lambda o, a, k: seen.append("before")),
        optimizer.register_step_post_hook(lambda o, a, k: seen.append("after")),
        register_optimizer_step_post_hook(lambda o, a, k: seen.append("global after")),
    ]
    optimizer.step()
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert seen == ["global before", "before", "after", "global after"]


def test_a_pre_hook_may_change_the_arguments() -> None:
    optimizer = lu.optim.SGD([param(1)], lr=0.1)
    optimizer.register_step_pre_hook(lambda o, args, kwargs: (args, {"closure": lambda: 7}))
    assert optimizer.step() == 7
    optimizer.register_step_pre_hook(lambda o, args, kwargs: (1,))
    with pytest.raises(RuntimeError, match="must return None or a tuple"):
        optimizer.step()


def test_state_dict_hooks() -> None:
    seen: list[str] = []
    optimizer = lu.optim.SGD([param(1)], lr=0.1)
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("a"))
    optimizer.register_state_dict_post_hook(lambda o, d: {**d, "more": 1})
    optimizer.register_load_state_dict_pre_hook(lambda o, d: seen.append("b"))
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append("c"))
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append("first"), prepend=True)
    saved = optimizer.state_dict()
    assert saved["more"] == 1
    optimizer.load_state_dict(saved)
    assert seen == ["a", "b", "first", "c"]


def test_hooks_reach_a_step_of_somebody_else() -> None:
    class Own(Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {"lr": 1.0})

        def step(self, closure: Any = None) -> str:
            return "stepped"

    seen: list[str] = []
    optimizer = Own([param(1)])
    optimizer.register_step_post_hook(lambda o, a, k: seen.append("after"))
    assert optimizer.step() == "stepped"
    assert seen == ["after"]


# ---- state dicts ------------------------------------------------------------------------------


def test_loading_checks_the_groups() -> None:
    optimizer = lu.optim.SGD([param(1)], lr=0.1)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optimizer.load_state_dict({"state": {}, "param_groups": []})
    with pytest.raises(ValueError, match="doesn't match the size"):
        optimizer.load_state_dict({"state": {}, "param_groups": [{"params": [0, 1]}]})


def test_loaded_states_take_the_parameters_dtype() -> None:
    p = param(2)
    first = lu.optim.Adam([p])
    first.step()
    q = lu.ones(2, dtype=lu.float64, requires_grad=True)
    second = lu.optim.Adam([q])
    second.load_state_dict(first.state_dict())
    assert second.state[q]["exp_avg"].dtype is lu.float64
    assert second.state[q]["step"].dtype is lu.float32


def test_old_states_are_completed() -> None:
    p = param(2)
    optimizer = lu.optim.Adam([p])
    optimizer.step()
    saved = optimizer.state_dict()
    del saved["param_groups"][0]["maximize"]
    saved["state"][0]["step"] = 3
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["maximize"] is False
    assert optimizer.state[p]["step"].item() == 3.0
    optimizer.step()


def _trained(optimizer: Any, params: list[Any], steps: int) -> list[Any]:
    for k in range(steps):
        for p in params:
            p.grad = lu.full_like(p, 0.5 + k)
        optimizer.step()
    return [p.detach().clone() for p in params]


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
@pytest.mark.parametrize("name", ["Adam", "SGD", "RMSprop", "LBFGS"])
def test_copies_go_on_alone(name: str, way: str) -> None:
    if name == "LBFGS":
        optimizer: Any = lu.optim.LBFGS([param(2)])
    else:
        optimizer = getattr(lu.optim, name)([param(2)], lr=0.1)
        _trained(optimizer, optimizer.param_groups[0]["params"], 2)
    if way == "deepcopy":
        twin = copy.deepcopy(optimizer)
    else:
        twin = pickle.load(io.BytesIO(pickle.dumps(optimizer)))
    assert repr(twin) == repr(optimizer)
    (mine,), (theirs,) = (o.param_groups[0]["params"] for o in (optimizer, twin))
    assert mine is not theirs
    if name != "LBFGS":
        a, b = _trained(optimizer, [mine], 1), _trained(twin, [theirs], 1)
        assert lu.equal(a[0], b[0])


# ---- steps kept ready: whatever is exchanged must be noticed ------------------------------------


def _plain(kind: str, params: list[Any], grads: list[list[Any]]) -> list[Any]:
    """The same steps, each by a fresh optimizer that loads the state: nothing is kept."""
    values = [p.detach().clone().requires_grad_() for p in params]
    saved: Any = None
    for step in grads:
        optimizer = _make(kind, values)
        if saved is not None:
            optimizer.load_state_dict(saved)
        for p, g in zip(values, step, strict=True):
            p.grad = None if g is None else g.clone()
        optimizer.step()
        saved = optimizer.state_dict()
    return values


def _make(kind: str, params: list[Any]) -> Any:
    if kind == "Adam":
        return lu.optim.Adam(params, lr=0.1, amsgrad=True)
    return lu.optim.SGD(params, lr=0.1, momentum=0.9)


@pytest.mark.parametrize("kind", ["Adam", "SGD"])
@pytest.mark.parametrize(
    "present",
    [
        [(1, 1, 1), (1, 1, 1), (1, 1, 1)],
        [(1, 0, 1), (1, 0, 1), (1, 0, 1)],
        [(1, 0, 1), (1, 1, 1), (1, 0, 1)],
        [(1, 1, 1), (0, 0, 1), (1, 1, 1)],
        [(0, 0, 0), (1, 0, 0), (0, 0, 1)],
    ],
)
def test_gradients_that_come_and_go(kind: str, present: list[tuple[int, ...]]) -> None:
    lu.manual_seed(0)
    params = [lu.randn(s).requires_grad_() for s in (3, 4, 5)]
    grads = [
        [lu.randn_like(p) if here else None for p, here in zip(params, row, strict=True)]
        for row in present
    ]
    wanted = _plain(kind, params, grads)
    optimizer = _make(kind, params)
    for step in grads:
        for p, g in zip(params, step, strict=True):
            p.grad = None if g is None else g.clone()
        optimizer.step()
    for a, b in zip(params, wanted, strict=True):
        assert lu.allclose(a, b)


def test_mixed_dtypes_and_layouts() -> None:
    lu.manual_seed(0)
    a = lu.randn(3, 4).requires_grad_()
    b = lu.randn(2, dtype=lu.float64).requires_grad_()
    c = lu.randn(4, 3).T.detach().requires_grad_()
    made = [lu.optim.Adam([p], lr=0.1) for p in (a.detach().clone().requires_grad_(),)]
    together = lu.optim.Adam([a, b, c], lr=0.1)
    for _ in range(3):
        for p in (a, b, c):
            p.grad = lu.ones(p.shape, dtype=p.dtype)
        alone = made[0].param_groups[0]["params"][0]
        alone.grad = lu.ones(3, 4)
        together.step()
        made[0].step()
    assert lu.equal(a, made[0].param_groups[0]["params"][0])
    assert b.dtype is lu.float64
    assert c.stride() == (1, 3)


def test_exchanged_data_state_and_options_are_noticed() -> None:
    p = param(2)
    optimizer = lu.optim.Adam([p], lr=0.1)
    optimizer.step()
    optimizer.step()
    p.data = lu.full((2,), 5.0)
    optimizer.step()
    assert p.tolist() == pytest.approx([4.9, 4.9])
    optimizer.state[p] = {}
    optimizer.step()
    assert optimizer.state[p]["step"].item() == 1.0
    optimizer.state[p]["exp_avg"] = lu.zeros(2)
    optimizer.state[p]["exp_avg_sq"] = lu.full((2,), 1e6)
    before = p.detach().clone()
    optimizer.step()
    assert float((p - before).abs().max()) < 1e-2
    optimizer.param_groups[0]["lr"] = 0.0
    before = p.detach().clone()
    optimizer.step()
    assert lu.equal(p, before)
    other = param(2, value=3.0)
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.param_groups[0]["params"][0] = other
    optimizer.step()
    assert lu.equal(p, before)
    assert other.tolist() == pytest.approx([2.9, 2.9])


def test_a_step_counts_as_a_write() -> None:
    p = param(2)
    y = (p * p).sum()
    optimizer = lu.optim.SGD([p], lr=0.1)
    for _ in range(2):
        version = p._version
        optimizer.step()
        assert p._version == version + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_closure_is_recorded() -> None:
    p = lu.ones(1, requires_grad=True)
    optimizer = lu.optim.SGD([p], lr=0.25)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 1.0
    assert p.item() == 0.5
