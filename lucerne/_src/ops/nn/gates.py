"""What recurrent cells do after their matrix products: element-wise, one op forward and one back.

`input_gates` and `hidden_gates` are the products with the input and with the state, their parts
side by side in the last dimension.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.ir.define import composite, pointwise
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.scalar.protocol import s
from lucerne._src.ops.copy.join import cat
from lucerne._src.ops.pointwise.select import choose

# ---- LSTM ---------------------------------------------------------------------------------------


def _lstm_meta(
    input_gates: TensorMeta, hidden_gates: TensorMeta, cell: TensorMeta
) -> tuple[TensorMeta, ...]:
    made = cell.like(tuple(cell.shape))
    return made, made


def _lstm_back_meta(input_gates: TensorMeta, *rest: TensorMeta) -> tuple[TensorMeta, ...]:
    cell = rest[1]
    return input_gates.like(tuple(input_gates.shape)), cell.like(tuple(cell.shape))


@composite(internal=True, out=False, opmath=True, meta=_lstm_back_meta)
def lstm_gates_backward(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cell: Tensor,
    new_cell: Tensor,
    grad_hidden: Tensor,
    grad_cell: Tensor,
) -> tuple[Tensor, Tensor]:
    """Gradients of `lstm_gates`: of either product (they are the same), and of the cell before."""
    i, f, g, o = (input_gates + hidden_gates).chunk(4, -1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    shown = new_cell.tanh()
    by_cell = grad_cell + grad_hidden * o * (1 - shown * shown)
    gates = [
        by_cell * g * i * (1 - i),
        by_cell * cell * f * (1 - f),
        by_cell * i * (1 - g * g),
        grad_hidden * shown * o * (1 - o),
    ]
    return cat(gates, -1), by_cell * f


def _lstm_vjp(g: Any, y1: Tensor, input_gates: Tensor, hidden_gates: Tensor, cell: Tensor) -> Any:
    # The gradient of a sum has strides of zero.
    grads = [x.contiguous() for x in g]
    gates, before = lstm_gates_backward(input_gates, hidden_gates, cell, y1, *grads)
    return gates, gates, before


@composite(
    internal=True,
    out=False,
    opmath=True,
    meta=_lstm_meta,
    vjp={("input_gates", "hidden_gates", "cell"): _lstm_vjp},
    autocast="promote",
    torch="_thnn_fused_lstm_cell",
)
def lstm_gates(input_gates: Tensor, hidden_gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """The new (hidden, cell) of an LSTM; parts: input, forget, new, output."""
    i, f, g, o = (input_gates + hidden_gates).chunk(4, -1)
    new = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * new.tanh(), new


# ---- GRU ----------------------------------------------------------------------------------------


def _gru_meta(input_gates: TensorMeta, hidden_gates: TensorMeta, hidden: TensorMeta) -> TensorMeta:
    return hidden.like(tuple(hidden.shape))


def _gru_back_meta(*metas: TensorMeta) -> tuple[TensorMeta, ...]:
    return tuple(m.like(tuple(m.shape)) for m in metas[:3])


@composite(internal=True, out=False, opmath=True, meta=_gru_back_meta)
def gru_gates_backward(
    input_gates: Tensor, hidden_gates: Tensor, hidden: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `gru_gates`."""
    i_reset, i_update, i_new = input_gates.chunk(3, -1)
    h_reset, h_update, h_new = hidden_gates.chunk(3, -1)
    reset, update = (i_reset + h_reset).sigmoid(), (i_update + h_update).sigmoid()
    new = (i_new + reset * h_new).tanh()
    by_new = grad * (1 - update) * (1 - new * new)
    by_update = grad * (hidden - new) * update * (1 - update)
    by_reset = by_new * h_new * reset * (1 - reset)
    return (
        cat([by_reset, by_update, by_new], -1),
        cat([by_reset, by_update, by_new * reset], -1),
        grad * update,
    )


def _gru_vjp(g: Tensor, input_gates: Tensor, hidden_gates: Tensor, hidden: Tensor) -> Any:
    return gru_gates_backward(input_gates, hidden_gates, hidden, g.contiguous())


@composite(
    internal=True,
    out=False,
    opmath=True,
    meta=_gru_meta,
    vjp={("input_gates", "hidden_gates", "hidden"): _gru_vjp},
    autocast="promote",
    torch="_thnn_fused_gru_cell",
)
def gru_gates(input_gates: Tensor, hidden_gates: Tensor, hidden: Tensor) -> Tensor:
    """The new state of a gated recurrent unit; parts: reset, update, new."""
    i_reset, i_update, i_new = input_gates.chunk(3, -1)
    h_reset, h_update, h_new = hidden_gates.chunk(3, -1)
    new = (i_new + (i_reset + h_reset).sigmoid() * h_new).tanh()
    return (hidden - new) * (i_update + h_update).sigmoid() + new


# ---- plain --------------------------------------------------------------------------------------


@pointwise(
    internal=True,
    out=False,
    vjp={
        "input": lambda g, y: g * (1 - y * y),
        "other": lambda g, y: g * (1 - y * y),
    },
)
def sum_tanh(input: Tensor, other: Tensor) -> Tensor:
    """`tanh(input + other)`."""
    return s.tanh(input + other)


@pointwise(
    internal=True,
    out=False,
    vjp={
        "input": lambda g, y: choose(y > 0, g, 0),
        "other": lambda g, y: choose(y > 0, g, 0),
    },
)
def sum_relu(input: Tensor, other: Tensor) -> Tensor:
    """`relu(input + other)`."""
    return s.maximum(input + other, 0)
