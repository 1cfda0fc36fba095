"""Rows: optimizers and all else that a training step does."""

from __future__ import annotations

import copy
from typing import Any

import lucerne as torch
from lucerne import nn
from lucerne.nn import functional as F
from tests.capture.scene import Row, Scene, collector, data, mlp

ROWS: list[Row] = []
row = collector(ROWS)


def step_of(model: Any, opt: Any, **options: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if options.get("clip"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        opt.step()
        return loss

    return step


def training(make: Any, **options: Any) -> Scene:
    model = mlp()
    opt = make(model.parameters())
    calls = [(data(5, 3), torch.tensor([0, 1, 1, 0, 1])) for _ in range(3)]
    step = step_of(model, opt, **options)
    return Scene(step, calls, watched={"m": model, "o": opt}, versions=None)


@row
def sgd() -> Scene:
    return training(lambda p: torch.optim.SGD(p, 0.1))


@row
def sgd_with_momentum() -> Scene:
    return training(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True))


@row
def adam() -> Scene:
    return training(lambda p: torch.optim.Adam(p, 0.01))


@row
def adamw_with_clipping() -> Scene:
    return training(lambda p: torch.optim.AdamW(p, 0.01), clip=True)


@row
def adamw_amsgrad() -> Scene:
    return training(lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True))


@row
def adagrad() -> Scene:
    return training(lambda p: torch.optim.Adagrad(p, 0.01))


@row
def rmsprop() -> Scene:
    return training(lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.5))


@row
def a_schedule() -> Scene:
    scene = training(lambda p: torch.optim.AdamW(p, 0.01))
    opt = scene.watched["o"]
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: 1 / (k + 1))
    scene.after = lambda k, r: schedule.step()
    return scene


@row
def a_learning_rate_is_set() -> Scene:
    scene = training(lambda p: torch.optim.SGD(p, 0.01))

    def after(k: int, r: Any) -> None:
        scene.watched["o"].param_groups[0]["lr"] *= 0.5

    scene.after = after
    return scene


@row
def optimizer_state_is_loaded() -> Scene:
    scene = training(lambda p: torch.optim.Adam(p, 0.01))
    opt = scene.watched["o"]
    saved: list[Any] = []

    def after(k: int, r: Any) -> None:
        if k == 0:
            saved.append(copy.deepcopy(opt.state_dict()))
        else:
            opt.load_state_dict(saved[0])

    scene.after = after
    return scene


@row
def only_every_second_call_steps() -> Scene:
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.1)

    def fn(x: Any, y: Any, steps: bool) -> Any:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if steps:
            opt.step()
            opt.zero_grad()
        return loss

    x, y = data(5, 3), torch.tensor([0, 1, 1, 0, 1])
    calls = [(x, y, False), (x, y, True), (x, y, False)]
    return Scene(fn, calls, watched={"m": model, "o": opt}, versions=None)


@row
def the_optimizer_outside() -> Scene:
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 0.01)

    def after(k: int, loss: Any) -> None:
        loss.backward()
        opt.step()
        opt.zero_grad()

    fn = lambda x: model(x).square().mean()  # noqa: E731
    return Scene(fn, [(data(5, 3),)], watched={"m": model, "o": opt}, after=after)


@row
def an_average_of_the_weights() -> Scene:
    model, average = nn.Linear(3, 2), nn.Linear(3, 2)
    opt = torch.optim.SGD(model.parameters(), 0.1)

    def fn(x: Any) -> Any:
        opt.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for p, q in zip(average.parameters(), model.parameters(), strict=True):
                p.lerp_(q, 0.1)
        return loss

    return Scene(fn, [(data(5, 3),)], watched={"m": model, "a": average}, versions=None)


@row
def autocast_in_a_step() -> Scene:
    model = nn.Linear(3, 2)
    opt = torch.optim.SGD(model.parameters(), 0.1)

    def fn(x: Any) -> Any:
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).float().square().mean()
        loss.backward()
        opt.step()
        return loss

    return Scene(fn, [(data(5, 3),)], watched={"m": model}, versions=None)


@row
def the_same_gradient_for_two_leaves() -> Scene:
    a, b = data(3, grad=True), data(3, grad=True)

    def after(k: int, r: Any) -> Any:
        r.backward()
        a.grad.mul_(2)  # must not change the other one
        return b.grad

    return Scene(lambda x: (a + b + x).sum(), [(data(3),)], watched={"a": a}, after=after)


@row
def the_same_gradient_for_two_leaves_inside() -> Scene:
    a, b = data(3, grad=True), data(3, grad=True)

    def fn(x: Any) -> None:
        a.grad = b.grad = None
        ((a + b) * x).sum().backward()

    def after(k: int, r: Any) -> Any:
        a.grad.mul_(2)
        return b.grad

    return Scene(fn, [(data(3),)], watched={"a": a, "b": b}, after=after)


@row
def an_optimizer_made_later() -> Scene:
    model = mlp()
    holder: dict[str, Any] = {}

    def fn(x: Any) -> Any:
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        if "opt" in holder:
            holder["opt"].step()
        return loss

    def after(k: int, r: Any) -> None:
        if k == 0:
            holder["opt"] = torch.optim.SGD(model.parameters(), 0.1)

    return Scene(fn, [(data(5, 3),)], watched={"m": model}, after=after, versions=None)


@row
def a_group_is_added() -> Scene:
    model, more = nn.Linear(3, 2), nn.Linear(3, 2)
    opt = torch.optim.SGD(model.parameters(), 0.1)

    def fn(x: Any) -> Any:
        opt.zero_grad()
        loss = (model(x) * more(x)).square().mean()
        loss.backward()
        opt.step()
        return loss

    def after(k: int, r: Any) -> None:
        if k == 0:
            opt.add_param_group({"params": list(more.parameters()), "lr": 0.01})

    scene = Scene(fn, [(data(5, 3),)], watched={"m": model, "more": more}, after=after)
    scene.versions = None
    return scene


@row
def a_scaler_outside() -> Scene:
    model = nn.Linear(3, 2)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def after(k: int, loss: Any) -> Any:
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        return scaler.get_scale()

    fn = lambda x: model(x).square().mean()  # noqa: E731
    return Scene(fn, [(data(5, 3),)], watched={"m": model}, after=after)


@row
def an_averaged_model() -> Scene:
    model = nn.Linear(3, 2)
    average = torch.optim.swa_utils.AveragedModel(model)

    def after(k: int, r: Any) -> None:
        with torch.no_grad():
            for p in model.parameters():
                p.add_(1)
        average.update_parameters(model)

    fn = lambda x: (model(x), average(x))  # noqa: E731
    return Scene(fn, [(data(5, 3),)], watched={"a": average}, after=after)


@row
def a_lazy_module() -> Scene:
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU())
    return Scene(model, [(data(5, 3),)], watched={"m": model}, versions=None)


@row
def weight_norm() -> Scene:
    model = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    x = data(5, 3)
    return Scene(model, [(x,)], watched={"m": model}, after=lambda k, r: r.sum().backward())


@row
def spectral_norm() -> Scene:
    model = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
    x = data(5, 3)
    return Scene(model, [(x,)], watched={"m": model}, after=lambda k, r: r.sum().backward())


@row
def an_lstm_with_a_state() -> Scene:
    model = nn.LSTM(3, 4, batch_first=True)
    state = (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4))

    def after(k: int, r: Any) -> None:
        r[0].sum().backward()

    return Scene(model, [(data(2, 5, 3), state)], watched={"m": model}, after=after)


@row
def clipping_by_value_and_norm_inside() -> Scene:
    model = mlp()

    def fn(x: Any) -> Any:
        model.zero_grad()
        model(x).square().sum().backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        return nn.utils.clip_grad_norm_(model.parameters(), 0.1)

    return Scene(fn, [(data(5, 3),)], watched={"m": model})


@row
def two_steps_in_one_call() -> Scene:
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 0.01)

    def fn(xs: Any) -> Any:
        losses = []
        for x in xs:
            opt.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        return torch.stack(losses)

    calls = [([data(5, 3), data(5, 3)],)]
    return Scene(fn, calls, watched={"m": model, "o": opt}, versions=None)
