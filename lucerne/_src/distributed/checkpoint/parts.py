"""State as flat names: nested dicts and lists taken apart, and tensors that are parts of larger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.distributed.mesh.dtensor import blocks, layout_of, part_at
from lucerne._src.distributed.mesh.processes import shares
from lucerne._src.tensor import api as lu


class TensorPart:
    """The block of a large tensor that this rank holds.

    >>> import lucerne as torch
    >>> part = TensorPart(torch.ones(2, 3), shape=(4, 3), offsets=(2, 0))
    >>> part.sizes
    [2, 3]
    """

    def __init__(self, tensor: Any, shape: Sequence[int], offsets: Sequence[int]) -> None:
        self.tensor, self.shape = tensor, [int(n) for n in shape]
        self.offsets, self.sizes = [int(n) for n in offsets], [int(n) for n in tensor.shape]
        fits = len(self.shape) == len(self.offsets) == len(self.sizes) and all(
            a >= 0 and a + n <= total
            for a, n, total in zip(self.offsets, self.sizes, self.shape, strict=True)
        )
        if not fits:
            raise ValueError(
                f"a block of {self.sizes} at {self.offsets} is not inside of {self.shape}"
            )


class RankParts:
    """The blocks of a tensor that lie on this rank's devices, and on no earlier one's: of a mesh
    that several processes drive."""

    def __init__(self, tensor: Any) -> None:
        layout = layout_of(tensor)
        if layout is None or layout.is_partial:
            raise NotImplementedError(f"a checkpoint of terms of a sum ({layout}): redistribute it")
        t, self.shape = tensor.detach(), [int(n) for n in tensor.shape]
        self.parts = [
            TensorPart(part_at(t, layout, at), t.shape, first)
            for first, _, at in blocks(t, own=True)
        ]
        self.dtype = t.dtype


def whole(tensor: Any) -> TensorPart:
    """A tensor as the only part of itself."""
    return TensorPart(tensor, tensor.shape, [0] * tensor.dim())


def is_shared(value: Any) -> bool:
    """Whether processes have parts of a tensor, each its own."""
    shared = isinstance(value, lu.Tensor) and shares(value.device.type)
    return shared and layout_of(value) is not None


def flatten(state: Any, prefix: str = "") -> dict[str, Any]:
    """Values by path: `{"a": {"b": [x]}}` is `{"a.b.0": x}`.

    >>> flatten({"a": {"b": [1, 2]}, "c": {}})
    {'a.b.0': 1, 'a.b.1': 2, 'c': {}}
    """
    if hasattr(state, "state_dict") and hasattr(state, "load_state_dict"):
        state = state.state_dict()
    if isinstance(state, dict) and state:
        pairs: Any = state.items()
    elif isinstance(state, list) and state:
        pairs = enumerate(state)
    else:
        return {prefix: state}
    found: dict[str, Any] = {}
    for key, value in pairs:
        path = f"{prefix}.{key}" if prefix else str(key)
        for name, leaf in flatten(value, path).items():
            if name in found:
                raise ValueError(
                    f"two values of the state are named {name!r}: rename one of the keys"
                )
            found[name] = leaf
    return found


def refill(state: Any, values: dict[str, Any], prefix: str = "") -> Any:
    """The state with values by path put in; tensors stay, they were filled in place."""
    if hasattr(state, "state_dict") and hasattr(state, "load_state_dict"):
        state.load_state_dict(refill(state.state_dict(), values, prefix))
        return state
    if isinstance(state, dict) and state:
        for key in list(state):
            state[key] = refill(state[key], values, f"{prefix}.{key}" if prefix else str(key))
        return state
    if isinstance(state, list) and state:
        state[:] = [
            refill(v, values, f"{prefix}.{k}" if prefix else str(k)) for k, v in enumerate(state)
        ]
        return state
    if isinstance(state, lu.Tensor | TensorPart):
        return state
    return values[prefix]
