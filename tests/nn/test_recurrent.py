"""Recurrent layers against torch: values, gradients, initial weights, packed input, errors."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

from tests.nn.agree import assert_agree, assert_equal, trained
from tests.support.both import show

pytestmark = pytest.mark.torch

KINDS = ("RNN", "LSTM", "GRU")
SETTINGS: list[dict[str, Any]] = [
    {},
    {"num_layers": 2},
    {"bidirectional": True},
    {"num_layers": 3, "bidirectional": True, "dropout": 0.4},
    {"bias": False, "batch_first": True},
    {"num_layers": 2, "bidirectional": True, "batch_first": True, "dropout": 0.2},
]
PROJECTED = [{"proj_size": 3}, {"proj_size": 2, "num_layers": 2, "bidirectional": True}]
CASES = [
    *itertools.product(KINDS, SETTINGS),
    *itertools.product(("LSTM",), PROJECTED),
    ("RNN", {"nonlinearity": "relu", "num_layers": 2}),
]


def state_for(torch: Any, layer: Any, batch: int | None) -> Any:
    """A random state for a layer: one tensor, or two for an LSTM."""
    states = layer.num_layers * (2 if layer.bidirectional else 1)
    middle = () if batch is None else (batch,)
    h = torch.randn(states, *middle, layer.proj_size or layer.hidden_size, requires_grad=True)
    if layer.mode != "LSTM":
        return h
    return h, torch.randn(states, *middle, layer.hidden_size, requires_grad=True)


def flat_state(state: Any) -> list[Any]:
    return list(state) if isinstance(state, tuple) else [state]


def weighed(*tensors: Any) -> Any:
    """A number that depends on every entry differently."""
    return sum((t * t.detach().cos() + t.sin()).sum() for t in tensors)


@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_initial_weights_are_equal(kind: str, settings: dict[str, Any]) -> None:
    def case(torch: Any) -> Any:
        layer = getattr(torch.nn, kind)(5, 6, **settings)
        return repr(layer), dict(layer.state_dict()), layer.all_weights

    assert_equal(case)


@pytest.mark.parametrize(("kind", "settings"), CASES)
@pytest.mark.parametrize("given", [False, True])
def test_batched(kind: str, settings: dict[str, Any], given: bool) -> None:
    def case(torch: Any) -> Any:
        layer = getattr(torch.nn, kind)(5, 6, **settings)
        shape = (3, 7, 5) if layer.batch_first else (7, 3, 5)
        x = torch.randn(*shape, requires_grad=True)
        state = state_for(torch, layer, 3) if given else None
        torch.manual_seed(1)
        output, last = layer(x, state)
        grads = trained(layer, weighed(output, *flat_state(last)))
        start = [s.grad for s in flat_state(state)] if given else []
        return output, last, x.grad, grads, start

    assert_agree(case)


@pytest.mark.parametrize(("kind", "settings"), CASES)
@pytest.mark.parametrize("given", [False, True])
def test_unbatched_in_eval(kind: str, settings: dict[str, Any], given: bool) -> None:
    def case(torch: Any) -> Any:
        layer = getattr(torch.nn, kind)(5, 6, **settings).eval()
        x = torch.randn(7, 5, requires_grad=True)
        output, last = layer(x, state_for(torch, layer, None) if given else None)
        return output, last, trained(layer, weighed(output, *flat_state(last))), x.grad

    assert_agree(case)


@pytest.mark.parametrize(("kind", "settings"), CASES)
@pytest.mark.parametrize(
    ("lengths", "given"), [([7, 4, 1], False), ([2, 7, 5], True), ([3, 3, 3], False)], ids=str
)
def test_packed(kind: str, settings: dict[str, Any], lengths: list[int], given: bool) -> None:
    def case(torch: Any) -> Any:
        rnn = torch.nn.utils.rnn
        layer = getattr(torch.nn, kind)(5, 6, **settings)
        x = torch.randn(7, 3, 5, requires_grad=True)
        state = state_for(torch, layer, 3) if given else None
        packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        torch.manual_seed(1)
        output, last = layer(packed, state)
        padded, found = rnn.pad_packed_sequence(output, padding_value=-1.0)
        grads = trained(layer, weighed(output.data, *flat_state(last)))
        return list(output), padded, found, last, x.grad, grads

    assert_agree(case)


CELLS = [
    ("RNNCell", {}),
    ("RNNCell", {"nonlinearity": "relu", "bias": False}),
    ("LSTMCell", {}),
    ("LSTMCell", {"bias": False}),
    ("GRUCell", {}),
    ("GRUCell", {"bias": False}),
]


@pytest.mark.parametrize(("kind", "settings"), CELLS)
@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("given", [False, True])
def test_cells(kind: str, settings: dict[str, Any], batch: int | None, given: bool) -> None:
    def case(torch: Any) -> Any:
        cell = getattr(torch.nn, kind)(5, 6, **settings)
        first = () if batch is None else (batch,)
        x = torch.randn(*first, 5, requires_grad=True)
        h = torch.randn(*first, 6, requires_grad=True)
        state = (h, torch.randn(*first, 6)) if kind == "LSTMCell" else h
        found = flat_state(cell(x, state) if given else cell(x))
        weights = dict(cell.state_dict())
        return repr(cell), weights, found, trained(cell, weighed(*found)), x.grad

    assert_agree(case)


def test_double_and_replaced_weights() -> None:
    def case(torch: Any) -> Any:
        layer = torch.nn.LSTM(3, 4, 2, bidirectional=True)
        twin = copy.deepcopy(layer).double()
        x = torch.randn(2, 1, 3)
        before = layer(x)[0]
        layer.weight_ih_l0 = torch.nn.Parameter(torch.ones(16, 3))
        return before, layer(x)[0], twin(x.double())[0]

    assert_agree(case)


def test_weight_as_plain_tensor_gets_gradient() -> None:
    """Dropping weights: a parameter is replaced by a tensor computed from another."""

    def case(torch: Any) -> Any:
        layer = torch.nn.GRU(3, 4)
        raw = layer.weight_hh_l0
        del layer.weight_hh_l0
        layer.raw = raw
        layer.weight_hh_l0 = raw * 0.5
        output, _ = layer(torch.randn(5, 2, 3))
        output.sum().backward()
        return output, raw.grad

    assert_agree(case)


ERRORS = [
    "torch.nn.RNN(3, 4, nonlinearity='sigmoid')",
    "torch.nn.RNNBase('ABC', 3, 4)",
    "torch.nn.RNN(3, 4, 2, 'relu', False, True, 0.5, True)",
    "torch.nn.LSTM(3, 0)",
    "torch.nn.LSTM(0, 4)",
    "torch.nn.LSTM(3, 4, 0)",
    "torch.nn.LSTM(3, 4.0)",
    "torch.nn.LSTM(3, 4, dropout=2)",
    "torch.nn.LSTM(3, 4, dropout=True)",
    "torch.nn.LSTM(3, 4, proj_size=5)",
    "torch.nn.LSTM(3, 4, proj_size=-1)",
    "torch.nn.GRU(3, 4, proj_size=2)",
    "torch.nn.LSTM(3)",
    "torch.nn.LSTM(3, 4)(torch.zeros(3))",
    "torch.nn.GRU(3, 4)(torch.zeros(1, 2, 3, 4))",
    "torch.nn.RNN(3, 4)(torch.zeros(1, 2, 3, 4))",
    "torch.nn.LSTM(3, 4)(torch.zeros(2, 3, 4))",
    "torch.nn.LSTM(3, 4)(torch.zeros(0, 3, 3))",
    "torch.nn.LSTM(3, 4)(torch.zeros(2, 3, 3, dtype=torch.float64))",
    "torch.nn.LSTM(3, 4)(torch.zeros(2, 3, 3), (torch.zeros(1, 3, 5), torch.zeros(1, 3, 4)))",
    "torch.nn.LSTM(3, 4)(torch.zeros(2, 3, 3), (torch.zeros(1, 3, 4), torch.zeros(1, 3, 5)))",
    "torch.nn.LSTM(3, 4)(torch.zeros(2, 3, 3), (torch.zeros(1, 4), torch.zeros(1, 4)))",
    "torch.nn.LSTM(3, 4)(torch.zeros(2, 3), (torch.zeros(1, 1, 4), torch.zeros(1, 1, 4)))",
    "torch.nn.GRU(3, 4)(torch.zeros(2, 3, 3), torch.zeros(1, 2, 4))",
    "torch.nn.GRU(3, 4)(torch.zeros(2, 3), torch.zeros(1, 1, 4))",
    "torch.nn.RNNBase('LSTM', 3, 4)(torch.zeros(1, 1, 3))",
    "torch.nn.LSTMCell(3, 4)(torch.zeros(1, 2, 3))",
    "torch.nn.GRUCell(3, 4)(torch.zeros(2, 4))",
    "torch.nn.LSTMCell(3, 4)(torch.zeros(2, 3), (torch.zeros(2, 5), torch.zeros(2, 4)))",
    "torch.nn.LSTMCell(3, 4)(torch.zeros(2, 3), (torch.zeros(3, 4), torch.zeros(2, 4)))",
    "torch.nn.LSTMCell(3, 4)(torch.zeros(2, 3), torch.zeros(2, 4))",
    "torch.nn.RNNCell(3, 4)(torch.zeros(2, 3), torch.zeros(1, 2, 4))",
    "torch.nn.RNNCell(3, 4, nonlinearity='x')(torch.zeros(2, 3))",
]


@pytest.mark.parametrize("source", ERRORS)
def test_errors(source: str) -> None:
    torch, lucerne = pytest.importorskip("torch"), pytest.importorskip("lucerne")
    assert show(lucerne, source, errors=True) == show(torch, source, errors=True)


def test_dropout_without_layers_warns() -> None:
    lucerne = pytest.importorskip("lucerne")
    with pytest.warns(UserWarning, match="dropout option adds dropout after all but last"):
        lucerne.nn.LSTM(3, 4, dropout=0.5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reverse", [False, True])
def test_second_derivatives(kind: str, reverse: bool) -> None:
    """A penalty on the gradient: the backward pass of all steps is differentiable itself."""

    def case(torch: Any) -> Any:
        layer = getattr(torch.nn, kind)(3, 4, bidirectional=reverse).double()
        x = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
        output, last = layer(x)
        loss = weighed(output, *flat_state(last))
        (by_input,) = torch.autograd.grad(loss, x, create_graph=True)
        return by_input, trained(layer, by_input.square().sum()), x.grad

    assert_agree(case, 1e-7, 1e-9)


def test_only_some_gradients() -> None:
    """Frozen weights, and a state or an input alone that needs a gradient."""

    def case(torch: Any) -> Any:
        found = []
        for name in KINDS:
            layer = getattr(torch.nn, name)(3, 4)
            for p in layer.parameters():
                p.requires_grad_(False)
            x, state = torch.randn(5, 2, 3), state_for(torch, layer, 2)
            layer(x, state)[0].sum().backward()
            layer.bias_hh_l0.requires_grad_(True)
            layer(x)[0].sum().backward()
            found += [[s.grad for s in flat_state(state)][:1], layer.bias_hh_l0.grad]
        return found

    assert_agree(case)
