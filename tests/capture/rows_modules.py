"""Rows: modules, what they keep and how they change."""

from __future__ import annotations

from typing import Any

import lucerne as torch
from lucerne import nn
from tests.capture.scene import Row, Scene, collector, data, mlp

ROWS: list[Row] = []
row = collector(ROWS)
BITWISE = {"mode": "bitwise"}
"""Random numbers of compiled functions are eager's in this mode only."""


@row
def a_module() -> Scene:
    model = mlp()
    x = data(5, 3)
    return Scene(model, [(x,)], watched={"m": model}, after=lambda k, r: r.sum().backward())


@row
def train_and_eval() -> Scene:
    model = mlp()

    def after(k: int, r: Any) -> None:
        model.train(k == 1)

    return Scene(model, [(data(5, 3),)], watched={"m": model}, after=after, versions=2)


@row
def batch_norm_without_momentum() -> Scene:
    model = nn.BatchNorm1d(3, momentum=None)
    return Scene(model, [(data(5, 3),)], watched={"m": model})


@row
def dropout_in_training() -> Scene:
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5))
    return Scene(model, [(data(5, 3),)], after=lambda k, r: r.sum().backward(), options=BITWISE)


@row
def a_parameter_is_replaced() -> Scene:
    model = nn.Linear(3, 2)

    def after(k: int, r: Any) -> None:
        if k == 0:
            model.weight = nn.Parameter(data(2, 3))

    return Scene(model, [(data(5, 3),)], watched={"m": model}, after=after, versions=2)


@row
def a_parameter_gets_other_data() -> Scene:
    model = nn.Linear(3, 2)

    def after(k: int, r: Any) -> None:
        model.weight.data = data(2, 3)

    return Scene(model, [(data(5, 3),)], watched={"m": model}, after=after)


@row
def a_parameter_gets_data_of_another_layout() -> Scene:
    model = nn.Linear(3, 2)

    def after(k: int, r: Any) -> None:
        model.weight.data = data(3, 2).t()

    return Scene(model, [(data(5, 3),)], watched={"m": model}, after=after, versions=None)


@row
def a_parameter_gets_data_of_another_dtype() -> Scene:
    model = nn.Linear(3, 2)

    def after(k: int, r: Any) -> None:
        model.double()

    x = data(5, 3)
    return Scene(model, [(x,), (x.double(),)], watched={"m": model}, after=after, versions=None)


@row
def a_parameter_is_frozen() -> Scene:
    model = mlp()

    def after(k: int, r: Any) -> None:
        r.sum().backward()
        model[0].weight.requires_grad_(k == 1)

    return Scene(model, [(data(5, 3),)], watched={"m": model}, after=after, versions=2)


@row
def state_is_loaded() -> Scene:
    model = mlp()
    other = mlp().state_dict()

    def after(k: int, r: Any) -> None:
        model.load_state_dict(other)

    return Scene(model, [(data(5, 3),)], watched={"m": model}, after=after)


@row
def a_submodule_is_replaced() -> Scene:
    model = mlp()

    def after(k: int, r: Any) -> None:
        if k == 0:
            model[1] = nn.Tanh()

    return Scene(model, [(data(5, 3),)], watched={"m": model}, after=after, versions=2)


@row
def an_attribute_of_a_module_changes() -> Scene:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.options = 2.0, {"shift": 1.0}

        def forward(self, x: Any) -> Any:
            return x * self.scale + self.options["shift"]

    model = Scaled()

    def after(k: int, r: Any) -> None:
        if k == 0:
            model.scale = 3.0
        else:
            model.options["shift"] = 4.0

    return Scene(model, [(data(5),)], after=after, versions=3)


@row
def forward_hooks_come_and_go() -> Scene:
    model = nn.Linear(3, 2)
    handles: list[Any] = []

    def after(k: int, r: Any) -> None:
        if k == 0:
            handles.append(model.register_forward_hook(lambda m, args, out: out * 10))
        else:
            handles.pop().remove()

    return Scene(model, [(data(5, 3),)], after=after, versions=2)


@row
def full_backward_hooks() -> Scene:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    model[0].register_full_backward_hook(lambda m, gi, go: tuple(g * 2 for g in gi))
    x = data(5, 3, grad=True)
    return Scene(model, [(x,)], watched={"m": model}, after=lambda k, r: r.sum().backward())


@row
def functional_call() -> Scene:
    model = nn.Linear(3, 2)

    def fn(params: Any, x: Any) -> Any:
        return torch.func.functional_call(model, params, (x,))

    params = {"weight": data(2, 3, grad=True), "bias": data(2, grad=True)}
    scene = Scene(fn, [(params, data(5, 3))], watched={"m": model, "p": params})
    scene.after = lambda k, r: r.sum().backward()
    return scene


@row
def tied_weights() -> Scene:
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)
    b.weight = a.weight
    model = nn.Sequential(a, b)
    x = data(5, 3)
    return Scene(model, [(x,)], watched={"m": model}, after=lambda k, r: r.sum().backward())


@row
def a_module_given_as_an_argument() -> Scene:
    model = mlp()
    return Scene(lambda m, x: m(x), [(model, data(5, 3))], watched={"m": model})


@row
def another_module_given_as_an_argument() -> Scene:
    a, b, x = nn.Linear(3, 2), nn.Linear(3, 2), data(5, 3)
    return Scene(lambda m, x: m(x), [(a, x), (b, x), (a, x)], versions=2)


class Remembers(nn.Module):
    """Keeps what it saw."""

    def __init__(self, first: Any) -> None:
        super().__init__()
        self.h = first

    def forward(self, x: Any) -> Any:
        self.h = x if self.h is None else torch.tanh(self.h + x)
        return self.h * 2


@row
def an_attribute_is_assigned() -> Scene:
    model = Remembers(data(3))
    return Scene(model, [(data(3),)], watched={"m": model})


@row
def an_attribute_is_assigned_first_none() -> Scene:
    model = Remembers(None)
    return Scene(model, [(data(3),)], watched={"m": model}, versions=3)


@row
def a_buffer_is_assigned() -> Scene:
    class Average(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            self.mean = 0.9 * self.mean + 0.1 * x
            return x - self.mean

    model = Average()
    return Scene(model, [(data(3),)], watched={"m": model})


@row
def a_state_of_several_tensors() -> Scene:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTMCell(3, 4)
            self.state = (torch.zeros(2, 4), torch.zeros(2, 4))

        def forward(self, x: Any) -> Any:
            h, c = self.cell(x, self.state)
            self.state = (h.detach(), c.detach())
            return h

    model = Cell()
    x = data(2, 3)
    scene = Scene(model, [(x,)], watched={"m": model, "state": model.state})
    scene.after = lambda k, r: r.sum().backward()
    return scene


@row
def a_kept_tensor_has_history() -> Scene:
    w = data(3, grad=True)
    kept: dict[str, Any] = {"h": torch.zeros(3)}

    def fn(x: Any) -> Any:
        kept["h"] = x * w
        return x + 1

    def after(k: int, r: Any) -> None:
        kept["h"].sum().backward()

    return Scene(fn, [(data(3),)], watched={"w": w, "kept": kept}, after=after, versions=2)


@row
def a_dict_keeps_a_tensor() -> Scene:
    kept: dict[str, Any] = {}

    def fn(x: Any) -> Any:
        kept["last"] = x * 2
        return x + 1

    return Scene(fn, [(data(3),)], watched={"kept": kept}, versions=2)


@row
def a_variable_keeps_a_tensor() -> Scene:
    h = torch.zeros(3)

    def fn(x: Any) -> Any:
        nonlocal h
        h = h + x
        return h * 2

    return Scene(fn, [(data(3),)], after=lambda k, r: h)


@row
def a_list_item_is_replaced() -> Scene:
    kept = [torch.zeros(3), torch.ones(3)]

    def fn(x: Any) -> Any:
        kept[0] = kept[0] + x
        return kept[0] * kept[1]

    return Scene(fn, [(data(3),)], watched={"kept": kept})


@row
def two_slots_swap() -> Scene:
    kept = {"a": torch.zeros(3), "b": torch.ones(3)}

    def fn(x: Any) -> Any:
        kept["a"], kept["b"] = kept["b"], kept["a"] + x
        return kept["a"] * 1

    return Scene(fn, [(data(3),)], watched={"kept": kept})
