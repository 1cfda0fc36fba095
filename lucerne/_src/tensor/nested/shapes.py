"""Other shapes of nested tensors: all dimensions but the batch and the ragged one are free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lucerne._src.base import shape as sh
from lucerne._src.ops.copy.join import cat as joined
from lucerne._src.tensor.nested.kinds import (
    OPS,
    JaggedTensor,
    NestedInt,
    NestedList,
    NestedTensor,
    make_jagged,
    make_list,
    refuse,
)
from lucerne._src.tensor.tensor import Tensor


def _inner(nested: Any, dim: int, name: str) -> int:
    """The dimension of the packed tensor; the batch and the ragged one can't be meant."""
    d = sh.wrap_dim(dim, nested.ndim)
    if not d:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on dim=0")
    if isinstance(nested, JaggedTensor) and d == nested._at:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on ragged dim")
    return d - 1


Function = TypeVar("Function", bound=Callable[..., Any])


def _read(names: str) -> Callable[[Function], Function]:
    """A handler from a function of the nested tensor and the other arguments, by name."""

    def decorate(function: Function) -> Function:
        def handler(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return function(*args, **kwargs)

        for name in names.split():
            OPS[name] = handler
        return function

    return decorate


@_read("transpose swapaxes swapdims")
def transpose(input: Any, dim0: int, dim1: int) -> Any:
    order = list(range(input.ndim))
    a, b = (sh.wrap_dim(d, input.ndim) for d in (dim0, dim1))
    order[a], order[b] = b, a
    return permute(input, order)


@_read("permute")
def permute(input: Any, *dims: Any) -> Any:
    order = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    order = [sh.wrap_dim(d, input.ndim) for d in order]
    if order[0] != 0:
        raise ValueError(
            "Transpose is not supported on the batch dimension for jagged NT (it stays the first)"
        )
    inner = [d - 1 for d in order[1:]]
    if isinstance(input, NestedList):
        return make_list(t.permute(inner) for t in input.unbind())
    at = order.index(input._at)
    return make_jagged(input._packed.permute(inner), input._ragged, at)


@_read("unsqueeze")
def unsqueeze(input: Any, dim: int) -> Any:
    d = sh.wrap_dim(dim, input.ndim + 1)
    if not d:
        raise RuntimeError("unsqueeze(): not supported for NestedTensor on dim=0")
    if isinstance(input, NestedList):
        return make_list(t.unsqueeze(d - 1) for t in input.unbind())
    return make_jagged(input._packed.unsqueeze(d - 1), input._ragged, input._at + (d <= input._at))


@_read("squeeze")
def squeeze(input: Any, dim: Any = None) -> Any:
    if dim is None:
        refuse("squeeze without a dimension", input)
    d = _inner(input, dim, "squeeze")
    if isinstance(input, NestedList):
        return make_list(t.squeeze(d) for t in input.unbind())
    made = input._packed.squeeze(d)
    gone = made.ndim < input._packed.ndim and d + 1 < input._at
    return make_jagged(made, input._ragged, input._at - gone)


@_read("unflatten")
def unflatten(input: Any, dim: int, sizes: Any) -> Any:
    d = _inner(input, dim, "unflatten")
    if isinstance(input, NestedList):
        return make_list(t.unflatten(d, sizes) for t in input.unbind())
    made = input._packed.unflatten(d, sizes)
    more = (made.ndim - input._packed.ndim) * (d + 1 < input._at)
    return make_jagged(made, input._ragged, input._at + more)


@_read("flatten")
def flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    a, b = (sh.wrap_dim(d, input.ndim) for d in (start_dim, end_dim))
    if a == b:
        return input
    if not a or (isinstance(input, JaggedTensor) and a <= input._at <= b):
        where = "ragged dim" if a else "dim=0"
        raise RuntimeError(f"flatten(): not supported for NestedTensor on {where}")
    if isinstance(input, NestedList):
        return make_list(t.flatten(a - 1, b - 1) for t in input.unbind())
    made = input._packed.flatten(a - 1, b - 1)
    return make_jagged(made, input._ragged, input._at - (b - a) * (b < input._at))


@_read("view reshape")
def reshape(input: Any, *shape: Any) -> Any:
    """Sizes as dense tensors take them; the ragged one is `x.size(d)`, or -1."""
    sizes = list(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
    if sizes[0] not in (-1, input.size(0)):
        raise RuntimeError(
            f"view(): cannot view shape {tuple(input.shape)} as {tuple(sizes)}: the batch stays"
        )
    if isinstance(input, NestedList):
        return make_list(t.reshape(sizes[1:]) for t in input.unbind())
    ragged = [i for i, n in enumerate(sizes) if isinstance(n, NestedInt)]
    ragged = ragged or [i for i, n in enumerate(sizes) if i and n == -1]
    if not ragged:
        raise RuntimeError(
            f"view(): cannot view shape {tuple(input.shape)} as {tuple(sizes)}: the ragged "
            "dimension is missing (write -1 or x.size(1))"
        )
    at = ragged[0]
    inner = list(sizes[1:])
    inner[at - 1] = input._packed.shape[input._at - 1]
    if _before(inner, at) != _before(list(input._packed.shape), input._at):
        raise RuntimeError(
            f"view(): cannot view shape {tuple(input.shape)} as {tuple(sizes)}: the dimensions "
            "before the ragged one may only be split or joined among themselves"
        )
    return make_jagged(input._packed.reshape(inner), input._ragged, at)


def _before(sizes: list[int], at: int) -> int:
    count = 1
    for n in sizes[: at - 1]:
        count *= n
    return count


@_read("expand")
def expand(input: Any, *sizes: Any) -> Any:
    wanted = list(sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes)
    if len(wanted) != input.ndim or wanted[0] not in (-1, input.size(0)):
        raise RuntimeError(f"expand(): cannot expand shape {tuple(input.shape)} -> {tuple(wanted)}")
    inner = [-1 if isinstance(n, NestedInt) else n for n in wanted[1:]]
    if isinstance(input, NestedList):
        return make_list(t.expand(inner) for t in input.unbind())
    return input.like([input._packed.expand(inner)])


# ---- parts ------------------------------------------------------------------------------------


@_read("select")
def select(input: Any, dim: int, index: int) -> Any:
    if sh.wrap_dim(dim, input.ndim) == 0:
        return _entry(input, index)
    d = _inner(input, dim, "select")
    if isinstance(input, NestedList):
        return make_list(t.select(d, index) for t in input.unbind())
    made = input._packed.select(d, index)
    return make_jagged(made, input._ragged, input._at - (d + 1 < input._at))


def _entry(input: Any, index: int) -> Any:
    entries = input.unbind()
    if not -len(entries) <= index < len(entries):
        raise IndexError(f"index {index} is out of bounds for dimension 0 with size {len(entries)}")
    return entries[index]


@_read("narrow")
def narrow(input: Any, dim: int, start: int, length: int) -> Any:
    d = _inner(input, dim, "narrow")
    if isinstance(input, NestedList):
        return make_list(t.narrow(d, start, length) for t in input.unbind())
    return input.like([input._packed.narrow(d, start, length)])


def _pieces(name: str) -> Any:
    method = getattr(Tensor, name)

    def handler(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        input, size, *rest = args if len(args) > 1 else (*args, next(iter(kwargs.values())))
        dim = kwargs.get("dim", rest[0] if rest else 0)
        if sh.wrap_dim(dim, input.ndim) == 0:
            return _batches(input, name, size)
        d = _inner(input, dim, name)
        if isinstance(input, NestedList):
            columns = zip(*(method(t, size, d) for t in input.unbind()), strict=True)
            return tuple(make_list(c) for c in columns)
        return tuple(input.like([p]) for p in method(input._packed, size, d))

    return handler


def _batches(input: Any, name: str, size: Any) -> Any:
    """Along the batch: some entries each."""
    entries = list(input.unbind())
    if name == "chunk":
        size = -(-len(entries) // int(size))
    sizes = list(size) if isinstance(size, (list, tuple)) else [size] * -(-len(entries) // size)
    made, before = [], 0
    for n in sizes:
        some = entries[before : before + n]
        before += n
        made.append(make_list(some) if isinstance(input, NestedList) else _packed(input, some))
    return tuple(made)


def _packed(input: Any, entries: list[Any]) -> Any:
    along = input._at - 1
    lengths = input._ragged.offsets.new_tensor([t.shape[along] for t in entries])
    offsets = lengths.new_zeros((len(entries) + 1,))
    offsets[1:] = lengths.cumsum(0)
    ragged = type(input._ragged)(offsets)
    return make_jagged(joined(entries, along), ragged, input._at)


@_read("cat concat concatenate")
def cat(tensors: Any, dim: int = 0) -> Any:
    """Along a dense dimension: of tensors with the same offsets. Along the batch: all entries."""
    nested = next(t for t in tensors if isinstance(t, NestedTensor))
    if not all(isinstance(t, NestedTensor) for t in tensors):
        raise RuntimeError("cat(): expected nested tensors only, got dense ones among them")
    if sh.wrap_dim(dim, nested.ndim) == 0:
        entries = [e for t in tensors for e in t.unbind()]
        return make_list(entries) if isinstance(nested, NestedList) else _packed(nested, entries)
    d = _inner(nested, dim, "cat")
    if isinstance(nested, NestedList):
        rows = zip(*(t.unbind() for t in tensors), strict=True)
        return make_list(joined(list(row), d) for row in rows)
    assert isinstance(nested, JaggedTensor)
    if not all(t._ragged.same(nested._ragged) and t._at == nested._at for t in tensors):
        raise RuntimeError("cat(): the tensors differ in their offsets or their ragged dimension")
    return nested.like([joined([t._packed for t in tensors], d)])


def item(input: Any, key: Any) -> Any:
    """`x[...]`: a number of the batch, then numbers and slices of dense dimensions."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if Ellipsis in [k for k in keys if not isinstance(k, Tensor)]:
        at = next(i for i, k in enumerate(keys) if k is Ellipsis)
        keys[at : at + 1] = [slice(None)] * (input.ndim - len(keys) + 1)
    if isinstance(keys[0], int):
        found = _entry(input, keys[0])
        return found[tuple(keys[1:])] if keys[1:] else found
    dim = 0
    for k in keys:
        if isinstance(k, slice):
            if k != slice(None):
                d = _inner(input, dim, "slice")
                whole = (*(slice(None),) * d, k)
                parts = [t[whole] for t in input.dense_parts()]
                input = input.like(parts)
            dim += 1
        elif isinstance(k, int):
            input = select(input, dim, k)
        elif k is None:
            input = unsqueeze(input, dim)
            dim += 1
        else:
            refuse(f"indexing with {type(k).__name__}", input)
    return input


OPS.update({name: _pieces(name) for name in ("chunk", "split")})
_methods: Any = NestedTensor
_methods.__getitem__ = item
