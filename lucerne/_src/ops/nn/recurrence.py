"""All steps of a recurrent layer as one op, for its backward pass.

Recorded step by step, each step would add its share to the gradient of the recurrent weight. Here
the gradients of all gates are put together first, and the weight's gradient is one product.

`gates` (time, batch, gates) is the input's share of the gates. Steps go in the order of time, or
from the last to the first with `reverse`. Where `valid` (time, batch, 1) is False a sequence has no
such step, and its state stays as it is. An op also returns the state's share of the gates, which
its gradient reads again.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.ir.define import composite
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy.join import cat, stack
from lucerne._src.ops.creation.fills import zeros_like
from lucerne._src.ops.linalg.matmul import linear
from lucerne._src.ops.nn.gates import (
    gru_gates,
    gru_gates_backward,
    lstm_gates,
    lstm_gates_backward,
    sum_relu,
    sum_tanh,
)
from lucerne._src.ops.pointwise.select import choose


def _in_order(parts: list[Tensor], reverse: bool) -> Tensor:
    """Steps in the order they were made, put together in the order of time."""
    return stack(parts[::-1] if reverse else parts, 0)


def _times(x: Tensor, reverse: bool) -> list[Tensor]:
    """A tensor's steps in the order they are made."""
    parts = list(x.unbind(0))
    return parts[::-1] if reverse else parts


def _before(first: Tensor, made: Tensor, reverse: bool) -> Tensor:
    """The state before each step, from the one before all and those after each."""
    first = first.unsqueeze(0)
    return cat([made[1:], first]) if reverse else cat([first, made[:-1]])


def _steps(valid: Tensor | None, count: int, reverse: bool) -> list[Any]:
    """The rows of `valid` in the order steps are made; None for each if all are valid."""
    return [None] * count if valid is None else _times(valid, reverse)


def kept(valid: Any, new: Tensor, old: Tensor) -> Tensor:
    """`new` where there is a step, `old` elsewhere."""
    return new if valid is None else choose(valid, new, old)


def _apart(valid: Any, grad: Tensor) -> tuple[Tensor, Any]:
    """A state's gradient: what goes through the step, and what goes past it."""
    if valid is None:
        return grad.contiguous(), 0.0
    return choose(valid, grad, 0.0), choose(valid, 0.0, grad)


def _asked(g: Any, result: int, reverse: bool) -> list[Tensor] | None:
    """The gradient of one of the results, step by step; None if nobody asked for it (which a
    plain look at `g` would make zeros)."""
    found = tuple.__getitem__(g, result)
    return None if found is None else _times(found, reverse)


def _sum(given: list[Tensor] | None, step: int, later: Any, like: Tensor) -> Tensor:
    """The gradient of a state: what was asked of it, and what comes from later steps."""
    if given is None:
        return zeros_like(like) if later is None else later
    return given[step] if later is None else given[step] + later


def _weight_grads(by_gates: Tensor, before: Tensor, needs: frozenset[str]) -> tuple[Any, Any]:
    """Gradients of recurrent weight and bias from those of the gates of all steps."""
    rows = by_gates.flatten(0, 1)
    weight = rows.t() @ before.flatten(0, 1) if "weight" in needs else None
    return weight, rows.sum(0) if "bias" in needs else None


# ---- LSTM ---------------------------------------------------------------------------------------


def _lstm_vjp(
    g: Any,
    y: Any,
    gates: Tensor,
    hidden: Tensor,
    cell: Tensor,
    weight: Tensor,
    valid: Tensor | None,
    reverse: bool,
    needs: frozenset[str],
) -> Any:
    outs, cells, shares = y
    by_out, by_cell, by_share = (_asked(g, i, not reverse) for i in range(3))
    state = [_times(x, not reverse) for x in (gates, shares, _before(cell, cells, reverse), cells)]
    made_in, made_hidden = [], []
    by_h, by_c, turned = None, None, weight.t()
    here = _steps(valid, len(state[0]), not reverse)
    for t, parts in enumerate(zip(*state, strict=True)):
        h, past_h = _apart(here[t], _sum(by_out, t, by_h, parts[-1]))
        c, past_c = _apart(here[t], _sum(by_cell, t, by_c, parts[-1]))
        by_in, by_c = lstm_gates_backward(*parts, h, c)
        made_in.append(by_in)
        made_hidden.append(by_in if by_share is None else by_in + by_share[t])
        by_h = linear(made_hidden[-1], turned)
        by_h, by_c = (by_h, by_c) if valid is None else (by_h + past_h, by_c + past_c)
    by_gates = _in_order(made_in, not reverse)
    whole = by_gates if by_share is None else _in_order(made_hidden, not reverse)
    weights = _weight_grads(whole, _before(hidden, outs, reverse), needs)
    return by_gates, by_h, by_c, *weights


@composite(
    internal=True,
    out=False,
    vjp={("gates", "hidden", "cell", "weight", "bias"): _lstm_vjp},
    autocast="lower",
    torch="lstm",
)
def lstm_steps(
    gates: Tensor,
    hidden: Tensor,
    cell: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    valid: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states and cells after each step, and the hidden states' shares of the gates."""
    outs, cells, shares = [], [], []
    steps = _times(gates, reverse)
    for g, here in zip(steps, _steps(valid, len(steps), reverse), strict=True):
        shares.append(linear(hidden, weight, bias))
        new_hidden, new_cell = lstm_gates(g, shares[-1], cell)
        hidden, cell = kept(here, new_hidden, hidden), kept(here, new_cell, cell)
        outs.append(hidden)
        cells.append(cell)
    return _in_order(outs, reverse), _in_order(cells, reverse), _in_order(shares, reverse)


# ---- GRU ----------------------------------------------------------------------------------------


def _gru_vjp(
    g: Any,
    y: Any,
    gates: Tensor,
    hidden: Tensor,
    weight: Tensor,
    valid: Tensor | None,
    reverse: bool,
    needs: frozenset[str],
) -> Any:
    outs, shares = y
    by_out, by_share = (_asked(g, i, not reverse) for i in range(2))
    before = _before(hidden, outs, reverse)
    state = [_times(x, not reverse) for x in (gates, shares, before)]
    made_in, made_hidden = [], []
    by_h, turned = None, weight.t()
    here = _steps(valid, len(state[0]), not reverse)
    for t, parts in enumerate(zip(*state, strict=True)):
        h, past = _apart(here[t], _sum(by_out, t, by_h, parts[-1]))
        by_in, by_state, direct = gru_gates_backward(*parts, h)
        made_in.append(by_in)
        made_hidden.append(by_state if by_share is None else by_state + by_share[t])
        by_h = direct + linear(made_hidden[-1], turned)
        by_h = by_h if valid is None else by_h + past
    whole = _in_order(made_hidden, not reverse)
    weights = _weight_grads(whole, before, needs)
    return _in_order(made_in, not reverse), by_h, *weights


@composite(
    internal=True,
    out=False,
    vjp={("gates", "hidden", "weight", "bias"): _gru_vjp},
    autocast="promote state",
    torch="gru",
)
def gru_steps(
    gates: Tensor,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    valid: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """Hidden states after each step, and their shares of the gates."""
    outs, shares = [], []
    steps = _times(gates, reverse)
    for g, here in zip(steps, _steps(valid, len(steps), reverse), strict=True):
        shares.append(linear(hidden, weight, bias))
        hidden = kept(here, gru_gates(g, shares[-1], hidden), hidden)
        outs.append(hidden)
    return _in_order(outs, reverse), _in_order(shares, reverse)


# ---- plain --------------------------------------------------------------------------------------


def _plain_vjp(
    g: Tensor,
    y: Tensor,
    hidden: Tensor,
    weight: Tensor,
    valid: Tensor | None,
    relu: bool,
    reverse: bool,
    needs: frozenset[str],
) -> Any:
    by_out, outs = _times(g, not reverse), _times(y, not reverse)
    made: list[Tensor] = []
    by_h: Any = 0.0
    for by, h, here in zip(by_out, outs, _steps(valid, len(outs), not reverse), strict=True):
        by, past = _apart(here, by + by_h)
        made.append(choose(h > 0, by, 0) if relu else by * (1 - h * h))
        by_h = made[-1] @ weight
        by_h = by_h if valid is None else by_h + past
    whole = _in_order(made, not reverse)
    return whole, by_h, *_weight_grads(whole, _before(hidden, y, reverse), needs)


@composite(
    internal=True,
    out=False,
    vjp={("gates", "hidden", "weight", "bias"): _plain_vjp},
    torch="rnn_tanh",
)
def plain_steps(
    gates: Tensor,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    valid: Tensor | None,
    relu: bool,
    reverse: bool,
) -> Tensor:
    """Hidden states after each step of a network with tanh or relu."""
    step, outs = sum_relu if relu else sum_tanh, []
    steps = _times(gates, reverse)
    for g, here in zip(steps, _steps(valid, len(steps), reverse), strict=True):
        hidden = kept(here, step(g, linear(hidden, weight, bias)), hidden)
        outs.append(hidden)
    return _in_order(outs, reverse)
