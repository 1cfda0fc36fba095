"""Recurrent networks as functions: cells, layers, directions, packed sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.ir import dispatch
from lucerne._src.ir.define import front
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy.join import cat, stack
from lucerne._src.ops.creation.ranges import arange
from lucerne._src.ops.linalg.matmul import linear
from lucerne._src.ops.nn.dropout import dropout as drop
from lucerne._src.ops.nn.gates import gru_gates, lstm_gates, sum_relu, sum_tanh
from lucerne._src.ops.nn.recurrence import gru_steps, kept, lstm_steps, plain_steps

Hidden = tuple[Tensor, ...]
"""The state of a cell: one tensor, or (h, c) for an LSTM."""


def _cat(parts: list[Tensor], dim: int = 0) -> Tensor:
    return parts[0] if len(parts) == 1 else cat(parts, dim)


class Weights:
    """Parameters of one layer in one direction."""

    __slots__ = ("b_hh", "b_ih", "w_hh", "w_hr", "w_ih")

    def __init__(self, params: list[Tensor], has_biases: bool, projected: bool) -> None:
        rest = list(params)
        self.w_ih, self.w_hh = rest.pop(0), rest.pop(0)
        self.b_ih: Any = rest.pop(0) if has_biases else None
        self.b_hh: Any = rest.pop(0) if has_biases else None
        self.w_hr = rest.pop(0) if projected else None


Step = Callable[[Tensor, Hidden, Weights], Hidden]
"""From the input's share of the gates and the state before to the state after."""


def _lstm_step(gates: Tensor, state: Hidden, w: Weights) -> Hidden:
    h, c = state
    h, c = lstm_gates(gates, linear(h, w.w_hh, w.b_hh), c)
    return (h if w.w_hr is None else linear(h, w.w_hr, None)), c


def _gru_step(gates: Tensor, state: Hidden, w: Weights) -> Hidden:
    (h,) = state
    return (gru_gates(gates, linear(h, w.w_hh, w.b_hh), h),)


def _tanh_step(gates: Tensor, state: Hidden, w: Weights) -> Hidden:
    return (sum_tanh(gates, linear(state[0], w.w_hh, w.b_hh)),)


def _relu_step(gates: Tensor, state: Hidden, w: Weights) -> Hidden:
    return (sum_relu(gates, linear(state[0], w.w_hh, w.b_hh)),)


# ---- sequences --------------------------------------------------------------------------------


class Packing:
    """Where the rows of packed data stand in (time, batch), and which steps exist."""

    def __init__(self, batch_sizes: Tensor) -> None:
        self.shape = batch_sizes.shape[0], int(batch_sizes[0])
        valid = arange(self.shape[1]) < batch_sizes.unsqueeze(1)
        self.rows = valid.flatten().nonzero().squeeze(1)
        self.complete = self.rows.shape[0] == self.shape[0] * self.shape[1]
        self.valid = None if self.complete else valid.unsqueeze(-1)

    def padded(self, data: Tensor) -> Tensor:
        if not self.complete:
            zeros = data.new_zeros((self.shape[0] * self.shape[1], data.shape[1]))
            data = zeros.index_copy(0, self.rows, data)
        return data.unflatten(0, self.shape)

    def packed(self, padded: Tensor) -> Tensor:
        data: Tensor = padded.flatten(0, 1)
        return data if self.complete else data.index_select(0, self.rows)


def _run(
    step: Step, x: Tensor, packing: Packing | None, state: Hidden, w: Weights, reverse: bool
) -> tuple[Tensor, Hidden]:
    """One direction over (time, batch, features), or over packed rows.

    Packed rows are put in their places for the steps: in a batch whose size does not change every
    step has the same shape, which is worth more than the steps of sequences that have ended.
    """
    gates = linear(x, w.w_ih, w.b_ih)
    if packing is None:
        return _run_steps(step, gates, state, w, None, reverse)
    out, last = _run_steps(step, packing.padded(gates), state, w, packing.valid, reverse)
    return packing.packed(out), last


def _run_steps(
    step: Step, gates: Tensor, state: Hidden, w: Weights, valid: Tensor | None, reverse: bool
) -> tuple[Tensor, Hidden]:
    if w.w_hr is None and _recorded(gates, *state, w.w_hh, w.b_hh):
        return _run_recorded(step, gates, state, w, valid, reverse)
    parts = list(gates.unbind(0))
    exists: Any = [None] * len(parts) if valid is None else list(valid.unbind(0))
    if reverse:
        parts, exists = parts[::-1], exists[::-1]
    outputs = []
    for g, here in zip(parts, exists, strict=True):
        made = step(g, state, w)
        state = tuple(kept(here, new, old) for new, old in zip(made, state, strict=True))
        outputs.append(state[0])
    if reverse:
        outputs.reverse()
    return stack(outputs, 0), state


def _recorded(*tensors: Any) -> bool:
    """Whether gradients are asked for."""
    return dispatch.state.grad_enabled and any(t is not None and t.requires_grad for t in tensors)


def _run_recorded(
    step: Step, gates: Tensor, state: Hidden, w: Weights, valid: Tensor | None, reverse: bool
) -> tuple[Tensor, Hidden]:
    """All steps as one op, whose gradient needs one product for the recurrent weight."""
    last = 0 if reverse else -1
    if step is _lstm_step:
        out, cells, _ = lstm_steps(gates, *state, w.w_hh, w.b_hh, valid, reverse)
        return out, (out[last], cells[last])
    if step is _gru_step:
        out, _ = gru_steps(gates, *state, w.w_hh, w.b_hh, valid, reverse)
    else:
        out = plain_steps(gates, *state, w.w_hh, w.b_hh, valid, step is _relu_step, reverse)
    return out, (out[last],)


def _layers(
    step: Step,
    x: Tensor,
    packing: Packing | None,
    hx: Hidden,
    params: Any,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, Hidden]:
    """All layers and directions; `hx` holds (layers * directions, batch, size) tensors."""
    directions = 2 if bidirectional else 1
    projected = len(hx) == 2 and hx[0].shape[2] != hx[1].shape[2]
    each = 2 + 2 * has_biases + projected
    finals: list[Hidden] = []
    for layer in range(num_layers):
        outputs = []
        for d in range(directions):
            at = layer * directions + d
            w = Weights(list(params[at * each : (at + 1) * each]), has_biases, projected)
            start = tuple(h[at] for h in hx)
            out, last = _run(step, x, packing, start, w, d == 1)
            outputs.append(out)
            finals.append(last)
        x = _cat(outputs, -1)
        if dropout and train and layer < num_layers - 1:
            x = drop(x, dropout, True)
    return x, tuple(stack(list(parts), 0) for parts in zip(*finals, strict=True))


_SETTINGS = ("has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")


def _given(first: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**dict(zip((*first, *_SETTINGS), args, strict=False)), **kwargs}


def _network(step: Step, args: tuple[Any, ...], kwargs: dict[str, Any], packed: bool) -> Any:
    """Read torch's two signatures (padded and packed) and run."""
    if packed:
        given = _given(("data", "batch_sizes", "hx", "params"), args, kwargs)
        x, packing = given.pop("data"), Packing(given.pop("batch_sizes"))
    else:
        given = _given(("input", "hx", "params"), args, kwargs)
        x, packing = given.pop("input"), None
    batch_first = given.pop("batch_first", False)
    hx = given.pop("hx")
    state = tuple(hx) if isinstance(hx, (list, tuple)) else (hx,)
    if batch_first:
        x = x.transpose(0, 1)
    result, last = _layers(step, x, packing, state, given.pop("params"), **given)
    return (result.transpose(0, 1) if batch_first else result), *last


def _is_tensor(x: Any) -> bool:
    return hasattr(x, "_meta")


@front()
def lstm(*args: Any, **kwargs: Any) -> Any:
    """An LSTM over whole sequences.

    Takes `(input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
    batch_first)`. The packed form takes `(data, batch_sizes, hx, ...)` and no `batch_first`.
    """
    packed = "batch_sizes" in kwargs or (len(args) > 1 and _is_tensor(args[1]))
    return _network(_lstm_step, args, kwargs, packed)


def _simple(step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    packed = "batch_sizes" in kwargs or (len(args) > 2 and _is_tensor(args[2]))
    return _network(step, args, kwargs, packed)


@front()
def gru(*args: Any, **kwargs: Any) -> Any:
    """A network of gated recurrent units (arguments as for `lstm`, with one hidden tensor)."""
    return _simple(_gru_step, args, kwargs)


@front()
def rnn_tanh(*args: Any, **kwargs: Any) -> Any:
    """A plain recurrent network with tanh (arguments as for `gru`)."""
    return _simple(_tanh_step, args, kwargs)


@front()
def rnn_relu(*args: Any, **kwargs: Any) -> Any:
    """A plain recurrent network with relu (arguments as for `gru`)."""
    return _simple(_relu_step, args, kwargs)


# ---- cells ------------------------------------------------------------------------------------


def _check_cell(input: Tensor, hidden: Hidden, w_ih: Tensor, w_hh: Tensor) -> None:
    if input.shape[-1] != w_ih.shape[1]:
        raise RuntimeError(
            f"input has inconsistent input_size: got {input.shape[-1]} expected {w_ih.shape[1]}"
        )
    for i, h in enumerate(hidden):
        label = f"hidden{i}" if len(hidden) > 1 else "hidden0"
        if h.ndim > 1 and input.shape[0] != h.shape[0]:
            raise RuntimeError(
                f"Input batch size {input.shape[0]} doesn't match {label} batch size {h.shape[0]}"
            )
        if h.shape[-1] != w_hh.shape[1]:
            raise RuntimeError(
                f"{label} has inconsistent hidden_size: got {h.shape[-1]}, expected {w_hh.shape[1]}"
            )


def _cell(step: Step, input: Tensor, hidden: Hidden, *params: Any) -> Hidden:
    w_ih, w_hh, b_ih, b_hh = params
    _check_cell(input, hidden, w_ih, w_hh)
    w = Weights([w_ih, w_hh, b_ih, b_hh], True, False)
    return step(linear(input, w.w_ih, w.b_ih), hidden, w)


@front()
def lstm_cell(
    input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None
) -> Any:
    """One step of an LSTM: the new (h, c)."""
    return _cell(_lstm_step, input, tuple(hx), w_ih, w_hh, b_ih, b_hh)


@front()
def gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None
) -> Tensor:
    """One step of a gated recurrent unit."""
    return _cell(_gru_step, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


@front()
def rnn_tanh_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None
) -> Tensor:
    """One step of a plain recurrent network with tanh."""
    return _cell(_tanh_step, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


@front()
def rnn_relu_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None
) -> Tensor:
    """One step of a plain recurrent network with relu."""
    return _cell(_relu_step, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]
