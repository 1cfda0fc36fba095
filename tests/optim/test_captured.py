"""Optimizer steps inside captured functions: recorded once, they go on like eager ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucerne as lu
from lucerne._src.capture.trace.fake import CaptureError
from lucerne.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR
from tests.optim.replay import Replayed

O = lu.optim
Make = Callable[[list[Any]], Any]
STEPS = 5

CASES: dict[str, Make] = {
    "SGD": lambda p: O.SGD(p, lr=0.1),
    "SGD momentum": lambda p: O.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "SGD nesterov": lambda p: O.SGD(p, lr=0.1, momentum=0.9, nesterov=True, maximize=True),
    "Adam": lambda p: O.Adam(p, lr=0.01),
    "Adam amsgrad": lambda p: O.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.1),
    "Adam fused": lambda p: O.Adam(p, lr=0.01, fused=True),
    "AdamW": lambda p: O.AdamW(p, lr=0.01),
    "AdamW tensor": lambda p: O.AdamW(p, lr=lu.tensor(0.01)),
    "Adamax": lambda p: O.Adamax(p, lr=0.01, weight_decay=0.01),
    "NAdam": lambda p: O.NAdam(p, lr=0.01, weight_decay=0.01),
    "NAdam decoupled": lambda p: O.NAdam(
        p, lr=0.01, weight_decay=0.01, decoupled_weight_decay=True
    ),
    "RAdam": lambda p: O.RAdam(p, lr=0.01, betas=(0.9, 0.6)),
    "RAdam long": lambda p: O.RAdam(p, lr=0.01, weight_decay=0.01),
    "Adagrad": lambda p: O.Adagrad(p, lr=0.1, lr_decay=0.01),
    "Adadelta": lambda p: O.Adadelta(p, lr=0.5, weight_decay=0.01),
    "Adafactor": lambda p: O.Adafactor(p, lr=0.1, weight_decay=0.01),
    "ASGD": lambda p: O.ASGD(p, lr=0.1, t0=2, weight_decay=0.01),
    "RMSprop": lambda p: O.RMSprop(p, lr=0.01),
    "RMSprop centered": lambda p: O.RMSprop(p, lr=0.01, centered=True, momentum=0.9),
    "Rprop": lambda p: O.Rprop(p, lr=0.01),
    "Muon": lambda p: O.Muon([x for x in p if x.ndim == 2], lr=0.1),
}


def small_params() -> list[Any]:
    lu.manual_seed(3)
    shapes = [(4, 5), (5,), (3, 4)]
    return [(lu.randn(s) * 0.5).requires_grad_() for s in shapes]


def loss_of(params: list[Any]) -> Any:
    w, b, v = params
    return ((v @ w + b).tanh() ** 2).mean() + (v * v).sum() * 0.1


def make_step(params: list[Any], optimizer: Any) -> Callable[[], Any]:
    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of(params)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def values(params: list[Any]) -> list[Any]:
    return [p.detach().numpy().copy() for p in params]


def states(optimizer: Any) -> list[Any]:
    found = [x for s in optimizer.state.values() for x in s.values() if isinstance(x, lu.Tensor)]
    return [x.numpy().copy() for x in found]


def assert_all_close(got: list[Any], want: list[Any], tolerance: float = 1e-6) -> None:
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_the_helper_fails() -> None:
    with pytest.raises(AssertionError):
        assert_all_close([np.ones(2)], [np.array([1.0, 1.1])])


@pytest.mark.parametrize("name", CASES)
def test_captured_steps_are_eager_steps(name: str) -> None:
    mine, theirs = small_params(), small_params()
    captured, eager = CASES[name](mine), CASES[name](theirs)
    replayed = Replayed(make_step(mine, captured), mine)
    assert_all_close(values(mine), values(theirs))  # capturing changes nothing
    plain = make_step(theirs, eager)
    for _ in range(STEPS):
        assert_all_close([replayed().numpy()], [plain().numpy()])
        assert replayed.holds(), replayed.uses
    assert_all_close(values(mine), values(theirs))
    assert_all_close(states(captured), states(eager))


@pytest.mark.parametrize("name", CASES)
def test_compiled_steps_are_eager_steps(name: str) -> None:
    """With a scheduler, whose learning rates cause no new capture."""
    mine, theirs = small_params(), small_params()
    compiled, eager = CASES[name](mine), CASES[name](theirs)
    schedules = [CosineAnnealingLR(o, T_max=STEPS + 1) for o in (compiled, eager)]
    step, plain = lu.compile(make_step(mine, compiled)), make_step(theirs, eager)
    for _ in range(STEPS):
        assert_all_close([step().numpy()], [plain().numpy()])
        for schedule in schedules:
            schedule.step()
    assert_all_close(values(mine), values(theirs))
    assert_all_close(states(compiled), states(eager))
    assert step.given_up is None
    # Muon leaves the bias to others: its gradient is None before the first call alone.
    assert len(step.entries) == (2 if name == "Muon" else 1)


@pytest.mark.parametrize("name", ["NAdam", "RAdam long", "Adagrad", "Adafactor", "ASGD", "Adam"])
def test_numbers_do_not_decide_the_type_of_a_step(name: str) -> None:
    """Parameters without dimensions, beside the numbers of a captured step, keep eager's bits."""

    def trained(compiled: bool) -> list[Any]:
        lu.manual_seed(0)
        params = [lu.randn(()).requires_grad_() for _ in range(8)] + [lu.randn(3).requires_grad_()]
        optimizer = CASES[name](params)

        def step(x: Any) -> None:
            optimizer.zero_grad()
            sum((p * p * x).sum() for p in params).backward()
            optimizer.step()

        run = lu.compile(step, mode="bitwise") if compiled else step
        for k in range(12):
            lu.manual_seed(k)
            run(lu.randn(()))
        states = [v for p in params for v in optimizer.state[p].values() if lu.is_tensor(v)]
        return [t.detach().numpy() for t in [*params, *states]]

    for a, b in zip(trained(False), trained(True), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["SGD momentum", "Adam amsgrad", "RMSprop"])
def test_capture_after_eager_steps(name: str) -> None:
    mine, theirs = small_params(), small_params()
    captured, eager = CASES[name](mine), CASES[name](theirs)
    first, plain = make_step(mine, captured), make_step(theirs, eager)
    for _ in range(2):
        first(), plain()
    replayed = Replayed(first, mine)
    for _ in range(2):
        replayed(), plain()
    first(), plain()  # and eager again
    assert_all_close(values(mine), values(theirs))


def test_adam_is_two_nodes() -> None:
    params = small_params()
    optimizer = O.AdamW(params)
    names = Replayed(make_step(params, optimizer), params).names
    after = names[names.index("counted_up") :]
    assert after == ["counted_up", *["copy"] * 3, "adam_update", *["copy"] * 9]


def test_sgd_is_one_node() -> None:
    params = small_params()
    names = Replayed(make_step(params, O.SGD(params, momentum=0.9)), params).names
    assert names[names.index("sgd_update") :] == ["sgd_update", *["copy"] * 6]


SCHEDULED = ["SGD", "SGD momentum", "Adam", "AdamW", "RMSprop", "NAdam", "RAdam", "Adagrad"]


@pytest.mark.parametrize("name", SCHEDULED)
def test_a_scheduler_needs_no_new_capture(name: str) -> None:
    mine, theirs = small_params(), small_params()
    captured, eager = CASES[name](mine), CASES[name](theirs)
    schedules = [CosineAnnealingLR(o, T_max=STEPS + 1) for o in (captured, eager)]
    replayed, plain = Replayed(make_step(mine, captured), mine), make_step(theirs, eager)
    for _ in range(STEPS):
        assert replayed.holds(), replayed.uses
        replayed(), plain()
        for schedule in schedules:
            schedule.step()
    assert_all_close(values(mine), values(theirs))


def test_momentum_and_betas_may_change_too() -> None:
    for name in ("SGD momentum", "Adam"):
        mine, theirs = small_params(), small_params()
        captured, eager = CASES[name](mine), CASES[name](theirs)
        schedules = [OneCycleLR(o, max_lr=0.1, total_steps=8) for o in (captured, eager)]
        replayed, plain = Replayed(make_step(mine, captured), mine), make_step(theirs, eager)
        for _ in range(STEPS):
            assert replayed.holds(), replayed.uses
            replayed(), plain()
            for schedule in schedules:
                schedule.step()
        assert_all_close(values(mine), values(theirs))


def set_option(key: str, value: Any) -> Callable[[Any], None]:
    def change(optimizer: Any) -> None:
        optimizer.param_groups[0][key] = value

    return change


BROKEN: dict[str, tuple[str, Callable[[Any], None]]] = {
    "weight decay appears": ("SGD", set_option("momentum", 0.5)),
    "maximize": ("Adam", set_option("maximize", True)),
    "an option of another optimizer": ("RMSprop", set_option("alpha", 0.5)),
    "a loaded state": ("Adam", lambda o: o.load_state_dict(o.state_dict())),
    "one more parameter": (
        "Adam",
        lambda o: o.add_param_group({"params": [lu.zeros(2, requires_grad=True)]}),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_a_capture(name: str) -> None:
    which, change = BROKEN[name]
    params = small_params()
    optimizer = CASES[which](params)
    replayed = Replayed(make_step(params, optimizer), params)
    assert replayed.holds()
    change(optimizer)
    assert not replayed.holds()


def test_options_are_plain_again_after_the_capture() -> None:
    params = small_params()
    optimizer = CASES["Adam"](params)
    Replayed(make_step(params, optimizer), params)
    group = optimizer.param_groups[0]
    assert type(group["lr"]) is float
    assert [type(b) for b in group["betas"]] == [float, float]


def test_an_optimizer_from_elsewhere_is_guarded_by_value() -> None:
    class Plain(O.Optimizer):  # type: ignore[misc, name-defined]
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr})

        @lu.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad, alpha=-group["lr"])

    params = small_params()
    optimizer = Plain(params, 0.1)
    replayed = Replayed(make_step(params, optimizer), params)
    assert replayed.holds()
    optimizer.param_groups[0]["lr"] = 0.2
    assert not replayed.holds()


def test_first_step_with_dampening_is_refused() -> None:
    params = small_params()
    optimizer = O.SGD(params, momentum=0.9, dampening=0.5)
    step = make_step(params, optimizer)
    with pytest.raises(CaptureError, match="first step"):
        Replayed(step, params)
    for p in params:
        p.grad = None
    assert not any(s.get("momentum_buffer") is not None for s in optimizer.state.values())


def test_gradients_are_clipped() -> None:
    mine, theirs = small_params(), small_params()

    def clipped(params: list[Any], optimizer: Any) -> Callable[[], Any]:
        def step() -> Any:
            optimizer.zero_grad()
            loss_of(params).backward()
            norm = lu.nn.utils.clip_grad_norm_(params, 0.01)
            lu.nn.utils.clip_grad_value_(params, 0.004)
            optimizer.step()
            return norm

        return step

    replayed = Replayed(clipped(mine, CASES["SGD"](mine)), mine)
    plain = clipped(theirs, CASES["SGD"](theirs))
    for _ in range(3):
        assert_all_close([replayed().numpy()], [plain().numpy()])
    assert_all_close(values(mine), values(theirs))


@pytest.mark.parametrize("name", ["SGD momentum", "Adam", "Adam fused", "RMSprop"])
def test_a_scaler_skips_bad_steps(name: str) -> None:
    def scaled(params: list[Any], make: Make, factor: Any) -> tuple[Callable[[], Any], Any]:
        optimizer = make(params)
        scaler = lu.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

        def step() -> Any:
            optimizer.zero_grad()
            scaler.scale(loss_of(params) * factor).backward()
            scaler.step(optimizer)
            scaler.update()

        return step, scaler

    mine, theirs = small_params(), small_params()
    factors = lu.ones(()), lu.ones(())
    step, my_scaler = scaled(mine, CASES[name], factors[0])
    replayed = Replayed(step, mine)
    plain, their_scaler = scaled(theirs, CASES[name], factors[1])
    for factor in (1.0, 2.0, float("inf"), 1.0, float("nan"), 3.0, 1.0, 1.0):
        for f in factors:
            f.fill_(factor)
        replayed(), plain()
        assert my_scaler.get_scale() == their_scaler.get_scale()
        assert my_scaler._get_growth_tracker() == their_scaler._get_growth_tracker()
        assert_all_close(values(mine), values(theirs))
