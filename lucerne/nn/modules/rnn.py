"""Recurrent layers: whole sequences (`RNN`, `LSTM`, `GRU`) and single steps (the cells)."""

from __future__ import annotations

import math
import numbers
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.tensor import api as lu
from lucerne.nn import init
from lucerne.nn.modules.module import Module
from lucerne.nn.parameter import Parameter
from lucerne.nn.utils.rnn import PackedSequence

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def apply_permutation(tensor: lu.Tensor, permutation: lu.Tensor, dim: int = 1) -> lu.Tensor:
    """`tensor` with its batch reordered."""
    notices.warn(
        "apply_permutation is deprecated, please use tensor.index_select(dim, permutation) instead",
        FutureWarning,
    )
    return _permuted(tensor, permutation, dim)


def _permuted(x: lu.Tensor, order: lu.Tensor | None, dim: int = 1) -> lu.Tensor:
    if order is None:
        return x
    found: lu.Tensor = x.index_select(dim, order)
    return found


class RNNBase(Module):
    """What RNN, LSTM and GRU have in common: parameters, checks, packed and unbatched input.

    The parameters of layer k are `weight_ih_lk`, `weight_hh_lk`, `bias_ih_lk`, `bias_hh_lk` and,
    with `proj_size`, `weight_hr_lk`; those of the other direction end in `_reverse`.
    """

    __constants__ = [
        "mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout",
        "bidirectional", "proj_size",
    ]  # fmt: skip

    mode: str
    input_size: int
    hidden_size: int
    num_layers: int
    bias: bool
    batch_first: bool
    dropout: float
    bidirectional: bool
    proj_size: int

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._check_settings(dropout)
        self._all_weights = []
        for layer in range(num_layers):
            for suffix in ("", "_reverse")[: 2 if bidirectional else 1]:
                self._all_weights.append(self._add_weights(layer, suffix, device, dtype))
        self._flat_weights_names = [name for names in self._all_weights for name in names]
        self.reset_parameters()

    def _check_settings(self, dropout: Any) -> None:
        rate = isinstance(dropout, numbers.Number) and not isinstance(dropout, bool)
        if not rate or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an "
                "element being zeroed"
            )
        if dropout > 0 and self.num_layers == 1:
            notices.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero "
                f"dropout expects num_layers greater than 1, but got dropout={dropout} and "
                f"num_layers={self.num_layers}"
            )
        self._check_type("bias", bool)
        self._check_type("batch_first", bool)
        for name in ("input_size", "hidden_size", "num_layers"):
            if name != "num_layers":
                self._check_type(name, int)
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than zero")
        if self.proj_size < 0:
            raise ValueError(
                "proj_size should be a positive integer or zero to disable projections"
            )
        if self.proj_size >= self.hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if self.mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + self.mode)

    def _check_type(self, name: str, kind: type) -> None:
        got = getattr(self, name)
        if not isinstance(got, kind):
            raise TypeError(f"{name} should be of type {kind.__name__}, got: {type(got).__name__}")

    def _add_weights(self, layer: int, suffix: str, device: Any, dtype: Any) -> list[str]:
        """Make the parameters of one layer in one direction; their names."""
        gates = _GATES[self.mode] * self.hidden_size
        shown = self.proj_size or self.hidden_size
        below = self.input_size if layer == 0 else shown * (2 if self.bidirectional else 1)
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (gates, below),
            "weight_hh": (gates, shown),
        }
        if self.bias:
            shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        names = []
        for kind, shape in shapes.items():
            names.append(f"{kind}_l{layer}{suffix}")
            setattr(self, names[-1], Parameter(lu.empty(shape, device=device, dtype=dtype)))
        return names

    @property
    def _flat_weights(self) -> list[Any]:
        """All weights in the order `lu.lstm` takes them, as they are now."""
        return [getattr(self, name, None) for name in self._flat_weights_names]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The weights of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def reset_parameters(self) -> None:
        """Draw everything from the same uniform distribution, narrower the larger the layer."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing to do: cuDNN wants the weights in one block of memory, nobody else does."""

    def extra_repr(self) -> str:
        """The settings that differ from their defaults."""
        shown = f"{self.input_size}, {self.hidden_size}"
        defaults: dict[str, Any] = {
            "proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0,
            "bidirectional": False,
        }  # fmt: skip
        for name, usual in defaults.items():
            value = getattr(self, name)
            if (value is not usual) if isinstance(usual, bool) else value != usual:
                shown += f", {name}={value}"
        return shown

    def __getstate__(self) -> dict[str, Any]:
        """With the list of weights that torch's own layers look for in a file."""
        return {**self.__dict__, "_flat_weights": self._flat_weights}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({k: v for k, v in state.items() if k != "_flat_weights"})
        self.__dict__.setdefault("proj_size", 0)

    # ---- checks ---------------------------------------------------------------------------------

    def check_input(self, input: lu.Tensor, batch_sizes: lu.Tensor | None) -> None:
        """The input must have the weights' dtype and `input_size` features."""
        weight = getattr(self, self._flat_weights_names[0])
        if input.dtype != weight.dtype and not lu.is_autocast_enabled("cpu"):
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model: "
                f"model.to({input.dtype})"
            )
        wanted = 2 if batch_sizes is not None else 3
        if input.dim() != wanted:
            raise RuntimeError(f"input must have {wanted} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. "
                f"Expected {self.input_size}, got {input.size(-1)}"
            )
        if batch_sizes is None and input.size(1 if self.batch_first else 0) == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")

    def _batch(self, input: lu.Tensor, batch_sizes: lu.Tensor | None) -> int:
        if batch_sizes is not None:
            return int(batch_sizes[0])
        return input.size(0 if self.batch_first else 1)

    def get_expected_hidden_size(
        self, input: lu.Tensor, batch_sizes: lu.Tensor | None
    ) -> tuple[int, int, int]:
        """The shape of the hidden state that goes with this input."""
        states = self.num_layers * (2 if self.bidirectional else 1)
        return states, self._batch(input, batch_sizes), self.proj_size or self.hidden_size

    def check_hidden_size(
        self,
        hx: lu.Tensor,
        expected_hidden_size: tuple[int, int, int],
        msg: str = "Expected hidden size {}, got {}",
    ) -> None:
        """The state must have the expected shape."""
        if tuple(hx.size()) != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.size())))

    def check_forward_args(
        self, input: lu.Tensor, hidden: Any, batch_sizes: lu.Tensor | None
    ) -> None:
        """Input and state must fit the layer and each other."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: lu.Tensor | None) -> Any:
        """The state with its batch in another order."""
        return _permuted(hx, permutation)

    # ---- running --------------------------------------------------------------------------------

    def _initial(self, input: lu.Tensor, batch_sizes: lu.Tensor | None) -> Any:
        shape = self.get_expected_hidden_size(input, batch_sizes)
        return lu.zeros(shape, dtype=input.dtype, device=input.device)

    def _check_dimensions(self, input: lu.Tensor, hx: Any) -> None:
        """A batch of input goes with a batch of states, one sequence with one state."""
        label = "For batched 3-D" if input.dim() == 3 else "For unbatched 2-D"
        if hx is not None and hx.dim() != input.dim():
            raise RuntimeError(
                f"{label} input, hx should also be {input.dim()}-D but got {hx.dim()}-D tensor"
            )

    def _widened(self, hx: Any) -> Any:
        return hx.unsqueeze(1)

    def _narrowed(self, hx: Any) -> Any:
        return hx.squeeze(1)

    def _run(self, input: lu.Tensor, hx: Any, batch_sizes: lu.Tensor | None) -> tuple[Any, Any]:
        """(output, state) from checked arguments."""
        function = {"GRU": lu.gru, "RNN_TANH": lu.rnn_tanh, "RNN_RELU": lu.rnn_relu}[self.mode]
        found: tuple[Any, Any] = function(*self._arguments(input, hx, batch_sizes))
        return found

    def _arguments(self, input: lu.Tensor, hx: Any, batch_sizes: lu.Tensor | None) -> list[Any]:
        settings = [
            self._flat_weights, self.bias, self.num_layers, self.dropout, self.training,
            self.bidirectional,
        ]  # fmt: skip
        if batch_sizes is not None:
            return [input, batch_sizes, hx, *settings]
        return [input, hx, *settings, self.batch_first]

    def _forward_packed(self, packed: Any, hx: Any) -> tuple[Any, Any]:
        data, batch_sizes, order, back = packed
        if hx is None:
            hx = self._initial(data, batch_sizes)
        else:
            hx = self.permute_hidden(hx, order)
        self.check_forward_args(data, hx, batch_sizes)
        output, state = self._run(data, hx, batch_sizes)
        return PackedSequence(output, batch_sizes, order, back), self.permute_hidden(state, back)

    def _forward(self, input: Any, hx: Any) -> tuple[Any, Any]:
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if input.dim() not in (2, 3):
            kind = "tensor " if self.mode.startswith("RNN") else ""
            raise ValueError(
                f"{self.mode[:3] if kind else self.mode}: Expected input to be 2D or 3D, "
                f"got {input.dim()}D {kind}instead"
            )
        self._check_dimensions(input, hx)
        batched, dim = input.dim() == 3, 0 if self.batch_first else 1
        if not batched:
            input = input.unsqueeze(dim)
            hx = None if hx is None else self._widened(hx)
        if hx is None:
            hx = self._initial(input, None)
        self.check_forward_args(input, hx, None)
        output, state = self._run(input, hx, None)
        return (output, state) if batched else (output.squeeze(dim), self._narrowed(state))


class RNN(RNNBase):
    """`h = tanh(x W_ih' + b_ih + h W_hh' + b_hh)` along a sequence, in one or more layers.

    >>> import lucerne as torch
    >>> rnn = torch.nn.RNN(10, 20, num_layers=2)
    >>> output, h_n = rnn(torch.randn(5, 3, 10))  # (time, batch, features)
    >>> output.shape, h_n.shape
    (torch.Size([5, 3, 20]), torch.Size([2, 3, 20]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if len(args) > 3:
            self.nonlinearity = args[3]
            args = args[:3] + args[4:]
        else:
            self.nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if self.nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"Unknown nonlinearity '{self.nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        super().__init__(f"RNN_{self.nonlinearity.upper()}", *args, **kwargs)

    def forward(self, input: Any, hx: lu.Tensor | None = None) -> Any:
        """The outputs of the last layer for all steps, and the last state of every layer."""
        return self._forward(input, hx)


class GRU(RNNBase):
    """A network of gated recurrent units.

    >>> import lucerne as torch
    >>> rnn = torch.nn.GRU(10, 20, bidirectional=True, batch_first=True)
    >>> output, h_n = rnn(torch.randn(3, 5, 10))
    >>> output.shape, h_n.shape
    (torch.Size([3, 5, 40]), torch.Size([2, 3, 20]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)

    def forward(self, input: Any, hx: lu.Tensor | None = None) -> Any:
        """The outputs of the last layer for all steps, and the last state of every layer."""
        return self._forward(input, hx)


class LSTM(RNNBase):
    """Long short-term memory; the state is a pair (hidden, cell).

    With `proj_size` the hidden state is projected to that size, the cell keeps `hidden_size`.

    >>> import lucerne as torch
    >>> rnn = torch.nn.LSTM(10, 20, num_layers=2)
    >>> output, (h_n, c_n) = rnn(torch.randn(5, 3, 10))
    >>> output.shape, c_n.shape
    (torch.Size([5, 3, 20]), torch.Size([2, 3, 20]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(
        self, input: lu.Tensor, batch_sizes: lu.Tensor | None
    ) -> tuple[int, int, int]:
        """The shape of the cell state that goes with this input."""
        states = self.num_layers * (2 if self.bidirectional else 1)
        return states, self._batch(input, batch_sizes), self.hidden_size

    def check_forward_args(
        self, input: lu.Tensor, hidden: Any, batch_sizes: lu.Tensor | None
    ) -> None:
        """Input and both states must fit the layer and each other."""
        self.check_input(input, batch_sizes)
        wanted = self.get_expected_hidden_size(input, batch_sizes)
        self.check_hidden_size(hidden[0], wanted, "Expected hidden[0] size {}, got {}")
        wanted = self.get_expected_cell_size(input, batch_sizes)
        self.check_hidden_size(hidden[1], wanted, "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx: Any, permutation: lu.Tensor | None) -> Any:
        """Both states with their batch in another order."""
        return _permuted(hx[0], permutation), _permuted(hx[1], permutation)

    def _initial(self, input: lu.Tensor, batch_sizes: lu.Tensor | None) -> Any:
        cell = self.get_expected_cell_size(input, batch_sizes)
        return super()._initial(input, batch_sizes), lu.zeros(
            cell, dtype=input.dtype, device=input.device
        )

    def _check_dimensions(self, input: lu.Tensor, hx: Any) -> None:
        label = "For batched 3-D" if input.dim() == 3 else "For unbatched 2-D"
        if hx is not None and (hx[0].dim() != input.dim() or hx[1].dim() != input.dim()):
            raise RuntimeError(
                f"{label} input, hx and cx should also be {input.dim()}-D but got "
                f"({hx[0].dim()}-D, {hx[1].dim()}-D) tensors"
            )

    def _widened(self, hx: Any) -> Any:
        return hx[0].unsqueeze(1), hx[1].unsqueeze(1)

    def _narrowed(self, hx: Any) -> Any:
        return hx[0].squeeze(1), hx[1].squeeze(1)

    def _run(self, input: lu.Tensor, hx: Any, batch_sizes: lu.Tensor | None) -> tuple[Any, Any]:
        output, h, c = lu.lstm(*self._arguments(input, hx, batch_sizes))
        return output, (h, c)

    def forward(self, input: Any, hx: tuple[lu.Tensor, lu.Tensor] | None = None) -> Any:
        """The outputs of the last layer for all steps, and every layer's last (hidden, cell)."""
        return self._forward(input, hx)


# ---- cells ------------------------------------------------------------------------------------


class RNNCellBase(Module):
    """Weights and checks of the cells."""

    __constants__ = ["input_size", "hidden_size", "bias"]

    input_size: int
    hidden_size: int
    bias: bool
    weight_ih: lu.Tensor
    weight_hh: lu.Tensor
    bias_ih: Any
    bias_hh: Any

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        gates = num_chunks * hidden_size
        shapes: dict[str, Any] = {"weight_ih": (gates, input_size)}
        shapes["weight_hh"] = (gates, hidden_size)
        shapes["bias_ih"] = shapes["bias_hh"] = (gates,) if bias else None
        for name, shape in shapes.items():
            made = None
            if shape is not None:
                made = Parameter(lu.empty(shape, device=device, dtype=dtype))
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw everything from the same uniform distribution, narrower the larger the cell."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        """The settings that differ from their defaults."""
        shown = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            shown += f", bias={self.bias}"
        if self.__dict__.get("nonlinearity", "tanh") != "tanh":
            shown += f", nonlinearity={self.nonlinearity}"
        return shown

    def _check(self, x: lu.Tensor, label: str) -> None:
        if x.dim() not in (1, 2):
            raise ValueError(
                f"{type(self).__name__}: Expected {label} to be 1D or 2D, got {x.dim()}D instead"
            )

    def _zeros(self, input: lu.Tensor) -> lu.Tensor:
        shape = (input.size(0), self.hidden_size)
        zeros: lu.Tensor = lu.zeros(shape, dtype=input.dtype, device=input.device)
        return zeros

    def _weights(self) -> tuple[Any, ...]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def _step(self, function: Any, input: lu.Tensor, hx: lu.Tensor | None) -> lu.Tensor:
        """One step of a cell whose state is one tensor."""
        self._check(input, "input")
        if hx is not None:
            self._check(hx, "hidden")
        batched = input.dim() == 2
        input = input if batched else input.unsqueeze(0)
        if hx is None:
            hx = self._zeros(input)
        elif not batched:
            hx = hx.unsqueeze(0)
        result: lu.Tensor = function(input, hx, *self._weights())
        return result if batched else result.squeeze(0)


class RNNCell(RNNCellBase):
    """One step of a plain recurrent network.

    >>> import lucerne as torch
    >>> cell = torch.nn.RNNCell(10, 20)
    >>> cell(torch.randn(3, 10)).shape
    torch.Size([3, 20])
    """

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]
    nonlinearity: str

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: lu.Tensor, hx: lu.Tensor | None = None) -> lu.Tensor:
        """The new hidden state."""
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        function = lu.rnn_tanh_cell if self.nonlinearity == "tanh" else lu.rnn_relu_cell
        return self._step(function, input, hx)


class LSTMCell(RNNCellBase):
    """One step of long short-term memory.

    >>> import lucerne as torch
    >>> cell = torch.nn.LSTMCell(10, 20)
    >>> h, c = cell(torch.randn(3, 10))
    >>> h.shape, c.shape
    (torch.Size([3, 20]), torch.Size([3, 20]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(
        self, input: lu.Tensor, hx: tuple[lu.Tensor, lu.Tensor] | None = None
    ) -> tuple[lu.Tensor, lu.Tensor]:
        """The new (hidden, cell)."""
        self._check(input, "input")
        if isinstance(hx, lu.Tensor):
            raise TypeError(
                "lstm_cell(): argument 'hx' (position 2) must be tuple of Tensors, not Tensor"
            )
        for i, state in enumerate(hx or ()):
            self._check(state, f"hx[{i}]")
        batched = input.dim() == 2
        input = input if batched else input.unsqueeze(0)
        if hx is None:
            zeros = self._zeros(input)
            hx = zeros, zeros
        elif not batched:
            hx = hx[0].unsqueeze(0), hx[1].unsqueeze(0)
        h, c = lu.lstm_cell(input, hx, *self._weights())
        return (h, c) if batched else (h.squeeze(0), c.squeeze(0))


class GRUCell(RNNCellBase):
    """One step of a gated recurrent unit.

    >>> import lucerne as torch
    >>> cell = torch.nn.GRUCell(10, 20)
    >>> cell(torch.randn(3, 10), torch.zeros(3, 20)).shape
    torch.Size([3, 20])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: lu.Tensor, hx: lu.Tensor | None = None) -> lu.Tensor:
        """The new hidden state."""
        return self._step(lu.gru_cell, input, hx)
