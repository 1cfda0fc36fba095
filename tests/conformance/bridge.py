"""Carry tensors and arguments between torch and a framework with torch's spelling.

Whole storages cross as bytes, so that views keep their strides and offsets, arguments that share
memory share it on the other side too, and dtypes unknown to NumPy pass unharmed. The bridge works
for any module with torch's names; with torch itself it tests the harness (see selfcheck.py).
"""

import dataclasses
import importlib
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from tests.conformance import rebind, tree
from tests.conformance.rebind import Function

# Dtypes that NumPy lacks leave the other framework as integers of the same size.
AS_INTEGERS = {
    torch.bfloat16: "int16",
    torch.complex32: "int32",
    torch.float8_e4m3fn: "uint8",
    torch.float8_e4m3fnuz: "uint8",
    torch.float8_e5m2: "uint8",
    torch.float8_e5m2fnuz: "uint8",
    torch.float8_e8m0fnu: "uint8",
}
CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)
MADE_WITH = "_made_with"  # where a module that is itself an argument keeps its own arguments


class NotCarriedError(Exception):
    """An argument has no counterpart on the other side; the sample fails."""


@dataclass
class Memo:
    """What has crossed already, within one sample. Holds torch's side so that ids stay true."""

    tensors: dict[int, tuple[torch.Tensor, Any]] = field(default_factory=dict)
    storages: dict[int, tuple[torch.UntypedStorage, Any]] = field(default_factory=dict)

    def other(self, t: torch.Tensor) -> Any:
        """The counterpart of a tensor that was carried."""
        return self.tensors[id(t)][1]


@dataclass(frozen=True)
class Carried:
    """The arguments of one sample on the other side."""

    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    memo: Memo


class Bridge:
    """The other framework as the harness sees it."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.name: str = module.__name__

    # Callables

    def resolve(self, entry: Any) -> Function:
        """The other framework's function for an op_db entry; raises `rebind.MissingError`."""
        return rebind.resolve(self.module, entry.op.name, entry.op.op)

    def resolve_inplace(self, entry: Any) -> Function:
        return rebind.resolve(self.module, entry.op.name, entry.op.inplace_variant)

    def rebind(self, function: Function) -> Function:
        """A helper of torch's test code, for use with the other framework's tensors."""
        return rebind.rebind(function, self.module)

    def grad(self, outs: list[Any], ins: list[Any], cotangents: list[Any], **kwargs: Any) -> Any:
        return self.module.autograd.grad(outs, ins, cotangents, allow_unused=True, **kwargs)

    def seed(self, seed: int) -> None:
        self.module.manual_seed(seed)

    # Tensors

    def is_tensor(self, x: Any) -> bool:
        return isinstance(x, self.module.Tensor)

    def carry(self, x: Any, memo: Memo) -> Any:
        """Any nest of arguments, to the other side."""
        return tree.map_leaves(lambda leaf: self._carry_leaf(leaf, memo), x)

    def carry_sample(self, sample: Any) -> Carried:
        memo = Memo()
        first = self.carry(sample.input, memo)
        args = tuple(self.carry(list(sample.args), memo))
        return Carried(first, args, self.carry(sample.kwargs, memo), memo)

    def to_other(self, t: torch.Tensor, memo: Memo) -> Any:
        """One tensor, with its strides, offset, dtype and requires_grad."""
        if t.layout != torch.strided:
            return self._to_other_sparse(t, memo)
        if t.device.type == "meta":
            return self._to_other_meta(t)
        plain = t.detach().resolve_conj().resolve_neg()
        flat = self._flat(plain, memo)
        size, stride = tuple(plain.shape), plain.stride()
        other = flat.as_strided(size, stride, plain.storage_offset())
        return other.requires_grad_() if t.requires_grad else other

    def from_other(self, x: Any) -> torch.Tensor:
        """The values of one of the other side's tensors, dense and contiguous."""
        x = x.detach()
        if str(x.layout) != "torch.strided":
            x = x.to_dense()
        for bit, resolve in (("is_conj", "resolve_conj"), ("is_neg", "resolve_neg")):
            if hasattr(x, bit) and getattr(x, bit)():
                x = getattr(x, resolve)()
        dtype = self.torch_dtype(x)
        if getattr(x, "_is_zerotensor", bool)():  # torch's zeros without memory
            return torch.zeros(tuple(x.shape), dtype=dtype)
        if dtype in AS_INTEGERS:
            integers = x.view(getattr(self.module, AS_INTEGERS[dtype]))
            return torch.from_numpy(integers.numpy().copy()).view(dtype)
        return torch.from_numpy(x.numpy().copy())

    def torch_dtype(self, x: Any) -> torch.dtype:
        """torch's dtype of the same name."""
        dtype: torch.dtype = getattr(torch, str(x.dtype).removeprefix("torch."))
        return dtype

    def storage_id(self, x: Any) -> int | None:
        """Where a tensor's memory begins; None if that says nothing (sparse or empty)."""
        if str(x.layout) != "torch.strided" or x.numel() == 0:
            return None
        return int(x.untyped_storage().data_ptr())

    # Everything else

    def convert(self, x: Any) -> Any:
        """The counterpart of an argument or result that is not a tensor."""
        if isinstance(x, CONSTANTS):
            return self._constant(x)
        if isinstance(x, torch.device):
            return self.module.device(str(x))
        if isinstance(x, torch.Size):
            return self.module.Size(tuple(x))
        if isinstance(x, torch.Generator):
            return self.module.Generator().manual_seed(x.initial_seed())
        if isinstance(x, torch.nn.Module):
            return self.carry_module(x)
        if dataclasses.is_dataclass(x) and type(x).__module__.startswith("torch."):
            options = dataclasses.asdict(cast(Any, x))
            return rebind.lookup(self.module.nn, type(x).__name__)(**options)
        if callable(x) and str(getattr(x, "__module__", "")).startswith("torch"):
            return rebind.resolve(self.module, x.__name__, x)
        return x

    def carry_module(self, x: torch.nn.Module) -> Any:
        """A module of the same class with the same values; see `modules.samples.recorded`."""
        args, kwargs = getattr(x, MADE_WITH, ((), {}))
        make = rebind.lookup(self.module.nn, type(x).__name__)
        made = make(*self.carry(list(args), Memo()), **self.carry(kwargs, Memo()))
        if x.state_dict():
            made.load_state_dict(self.carry(dict(x.state_dict()), Memo()))
        return made

    def _carry_leaf(self, x: Any, memo: Memo) -> Any:
        if not isinstance(x, torch.Tensor):
            return self.convert(x)
        if id(x) not in memo.tensors:
            memo.tensors[id(x)] = (x, self.to_other(x, memo))
        return memo.other(x)

    def _constant(self, x: Any) -> Any:
        return rebind.lookup(self.module, str(x).removeprefix("torch."))

    def _flat(self, t: torch.Tensor, memo: Memo) -> Any:
        """The whole storage under `t` as a flat tensor of its dtype, on memory of its own."""
        storage = t.untyped_storage()
        key = storage._cdata
        if key not in memo.storages:
            memo.storages[key] = (storage, self._bytes(storage))
        count = storage.nbytes() // t.element_size()
        dtype = self._constant(t.dtype)
        if count == 0:
            return self.module.empty(0, dtype=dtype)
        _, flat = memo.storages[key]
        return flat[: count * t.element_size()].view(dtype)

    def _bytes(self, storage: torch.UntypedStorage) -> Any:
        if storage.nbytes() == 0:
            return None
        raw = torch.empty(0, dtype=torch.uint8).set_(storage)
        buffer = bytearray(raw.numpy().tobytes())
        return self.module.frombuffer(buffer, dtype=self.module.uint8).clone()

    def _to_other_sparse(self, t: torch.Tensor, memo: Memo) -> Any:
        build = getattr(self.module, f"{str(t.layout).removeprefix('torch.')}_tensor", None)
        if build is None:
            raise NotCarriedError(f"{self.name} has no {t.layout}")
        plain = t.detach()
        if t.layout == torch.sparse_coo:
            parts = [plain._indices(), plain._values()]
        elif t.layout in (torch.sparse_csr, torch.sparse_bsr):
            parts = [plain.crow_indices(), plain.col_indices(), plain.values()]
        else:
            parts = [plain.ccol_indices(), plain.row_indices(), plain.values()]
        other = build(*(self.to_other(part, memo) for part in parts), tuple(t.shape))
        return other.requires_grad_() if t.requires_grad else other

    def _to_other_meta(self, t: torch.Tensor) -> Any:
        dtype = self._constant(t.dtype)
        return self.module.empty_strided(tuple(t.shape), t.stride(), dtype=dtype, device="meta")


def lucerne_bridge() -> Bridge:
    """The bridge to Lucerne; imports it."""
    return Bridge(importlib.import_module("lucerne"))


def torch_bridge() -> Bridge:
    """torch as the other side: the harness must find nothing."""
    return Bridge(torch)
