"""Element by element: functions that keep zero, scaling, sums, powers, types."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import entries
from lucerne._src.ops.copy.join import cat
from lucerne._src.tensor.sparse.convert import sparse_mask
from lucerne._src.tensor.sparse.kinds import (
    OPS,
    CompressedTensor,
    CooTensor,
    SparseTensor,
    become,
    make_compressed,
    make_coo,
    refuse,
)
from lucerne._src.tensor.tensor import Tensor

_SPARSE = [entry for entry in entries() if entry.sparse]
KEEP_ZERO = [entry.name for entry in _SPARSE if not entry.linear]
"""f(0) = 0. Not linear: values of one place must be added first."""
LINEAR = [entry.name for entry in _SPARSE if entry.linear]
_TYPES = {
    "float": dt.float32, "double": dt.float64, "half": dt.float16, "bfloat16": dt.bfloat16,
    "int": dt.int32, "long": dt.int64, "short": dt.int16, "char": dt.int8, "byte": dt.uint8,
    "bool": dt.bool_, "cfloat": dt.complex64, "cdouble": dt.complex128,
}  # fmt: skip


def _on_values(name: str, linear: bool) -> Any:
    method = getattr(Tensor, name)

    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        if not linear and input.is_sparse:
            input = input.coalesce()
        kwargs.pop("memory_format", None)
        return input.with_values(method(input._values(), *args, **kwargs))

    call.__name__ = name
    return call


def _is_number(x: Any) -> bool:
    return not isinstance(x, Tensor) or (not isinstance(x, SparseTensor) and x.ndim == 0)


def _same_shape(a: Any, b: Any) -> None:
    if a.shape != b.shape:
        raise RuntimeError(
            "add: expected 'self' and 'other' to have same size, but self has size "
            f"{list(a.shape)} while other has size {list(b.shape)} (sparse tensors do not "
            "broadcast)"
        )


# ---- sums -------------------------------------------------------------------------------------


def add(input: Any, other: Any, alpha: Any = 1) -> Any:
    """sparse + sparse is sparse, dense + sparse is dense."""
    a, b = input, other
    if not isinstance(a, SparseTensor):
        if not isinstance(a, Tensor):
            raise _no_number("add")
        return add_to_dense(a.clone(), b, alpha=alpha)
    if not isinstance(b, SparseTensor):
        if not isinstance(b, Tensor):
            raise _no_number("add")
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    _same_shape(a, b)
    scaled = b._values() if type(alpha) is int and alpha == 1 else b._values() * alpha
    if a.layout is not b.layout:
        b, scaled = _as_layout(b.with_values(scaled), a)
    if a.same_places(b) and a._sorted:
        return a.with_values(a._values() + scaled)
    if not isinstance(a, CooTensor):
        total = add(a.to_sparse(), b.with_values(scaled).to_sparse())
        return total.coalesce().to_sparse(layout=a.layout, blocksize=getattr(a, "block", None))
    both = dt.promote_types(a.dtype, scaled.dtype)
    values = cat([a._values().to(both), scaled.to(both)])
    index = cat([a._index, b._index], 1)
    made = make_coo(index, values, a.shape, is_sorted=False)
    return made.coalesce() if a._sorted and b._sorted else made


def _as_layout(t: Any, like: Any) -> tuple[Any, Any]:
    made = t.to_sparse(layout=like.layout, blocksize=getattr(like, "block", None))
    return made, made._values()


def _no_number(name: str) -> RuntimeError:
    return RuntimeError(
        f"{name}(sparse, dense) is not supported. Use {name}(dense, sparse) instead. (A number "
        "would have to be added to the elements that are not stored, too: x.to_dense() first.)"
    )


def add_to_dense(target: Any, other: Any, alpha: Any = 1) -> Any:
    """Add a sparse tensor into a dense one, in place: only the elements it stores are touched."""
    if other.is_sparse and other.sparse_dim() and target.shape == other.shape:
        values = other._values()
        if not (type(alpha) is int and alpha == 1):
            values = values * alpha
        values = values.to(target.dtype)
        return target.index_put_(other.coordinates(), values, accumulate=True)
    return target.add_(other.to_dense(), alpha=alpha)


def sub(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    return add(input, other, alpha=-alpha)


# ---- products ---------------------------------------------------------------------------------


def mul(input: Any, other: Any) -> Any:
    """By a number, by a dense tensor (only stored elements count), by a sparse one."""
    a, b = (input, other) if isinstance(input, SparseTensor) else (other, input)
    if _is_number(b):
        return a.with_values(a._values() * b)
    if not isinstance(b, SparseTensor):
        picked = sparse_mask(b.broadcast_to(a.shape), a)
        return a.with_values(a._values() * picked._values())
    if a.layout is b.layout and isinstance(a, CompressedTensor):
        if a.same_places(b):
            return a.with_values(a._values() * b._values())
        common = mul(a.to_sparse(), b.to_sparse())
        return common.to_sparse(layout=a.layout, blocksize=a.block)
    if a.layout is not b.layout:
        raise RuntimeError(
            f"mul(sparse, sparse): expected two tensors of one layout, got {a.layout} and "
            f"{b.layout}"
        )
    return _common(a, b)


def _common(a: Any, b: Any) -> Any:
    """The product of two COO tensors: places that both store."""
    _same_shape(a, b)
    a, b = a.coalesce(), b.coalesce()
    marks = b.detach().with_values(b._vals.new_ones((b._nnz(),)))
    flags = a.detach().with_values(a._vals.new_ones((a._nnz(),)))
    if marks.shape != flags.shape:
        raise RuntimeError("mul(sparse, sparse): the sparse dimensions differ")
    both = sparse_mask(marks, flags)._vals != 0
    kept = both.nonzero().reshape(-1)
    shared = make_coo(a._index[:, kept], a._values()[kept], a.shape, is_sorted=True)
    return shared.with_values(shared._values() * sparse_mask(b, shared)._values())


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    if not isinstance(input, SparseTensor) or not _is_number(other):
        raise RuntimeError("Sparse division requires a scalar or zero-dim dense tensor divisor")
    if rounding_mode is not None:
        input = input.coalesce() if input.is_sparse else input
    return input.with_values(input._values().div(other, rounding_mode=rounding_mode))


def pow(input: Any, exponent: Any) -> Any:
    """A power; an exponent of zero would make every element one."""
    if not isinstance(input, SparseTensor) or not _is_number(exponent):
        refuse("pow with a sparse exponent", input if isinstance(input, SparseTensor) else exponent)
    if float(exponent) <= 0:
        raise RuntimeError(f"pow: a sparse tensor to the power {exponent} is not sparse")
    input = input.coalesce() if input.is_sparse else input
    return input.with_values(input._values() ** exponent)


# ---- types and devices ------------------------------------------------------------------------


def to(input: Any, *args: Any, **kwargs: Any) -> Any:
    """Another dtype or device; the layout stays."""
    if not isinstance(input, SparseTensor):  # dense.to(a sparse tensor): its dtype and device
        other = args[0]
        return input.to(other.device, other.dtype, *args[1:], **kwargs)
    values = input._values().to(*args, **kwargs)
    if values is input._vals:
        return input
    if values.device == input.device:
        return input.with_values(values)
    parts = [p.to(values.device) for p in input._parts()[:-1]]
    if input.is_sparse:
        return make_coo(parts[0], values, input.shape, input._sorted)
    return make_compressed(parts[0], parts[1], values, input.shape, input.layout)


def _typed(dtype: Any) -> Any:
    return lambda input: to(input, dtype)


def type_as(input: Any, other: Any) -> Any:
    return to(input, other.dtype)


def zeros_like(
    input: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """A sparse tensor of that shape that stores nothing."""
    return _option(_nothing_like(input, dtype), device, requires_grad)


def _option(made: Any, device: Any, requires_grad: bool) -> Any:
    return (made if device is None else to(made, device)).requires_grad_(requires_grad)


def _nothing_like(input: Any, dtype: Any) -> Any:
    values = input._vals.new_zeros((0, *input._vals.shape[1:]), dtype=dtype or input.dtype)
    if input.is_sparse:
        index = input._index.new_zeros((input.sparse_dim(), 0))
        return make_coo(index, values, input.shape, is_sorted=True)
    b = input.batch_dims
    tail = input._vals.shape[b + 1 :]
    values = input._vals.new_zeros((*input.shape[:b], 0, *tail), dtype=dtype or input.dtype)
    places = input._places.new_zeros((*input.shape[:b], 0))
    return make_compressed(input._starts * 0, places, values, input.shape, input.layout)


def zero(input: Any) -> Any:
    return zeros_like(input)


def copy_(input: Any, src: Any, non_blocking: bool = False) -> Any:
    """The elements of `src`, in this tensor's dtype."""
    if not isinstance(input, SparseTensor):
        return input.copy_(src.to_dense())
    if not isinstance(src, SparseTensor) or src.layout is not input.layout:
        raise RuntimeError(
            "copy_() between dense and sparse Tensors is not implemented! Found self type = "
            f"{input.type()} and src type = {src.type()}"
        )
    _same_shape(input, src)
    return become(input, to(src.detach(), input.dtype, copy=True))


def new_zeros(
    input: Any, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """A COO tensor of that shape that stores nothing."""
    shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    values = input._vals.new_zeros((0,), dtype=dtype or input.dtype)
    index = input._parts()[0].new_zeros((len(shape), 0), dtype=dt.int64)
    made = make_coo(index, values, tuple(shape), is_sorted=True)
    return _option(made, device, requires_grad)


def equal(input: Any, other: Any) -> bool:
    """Whether both hold the same elements."""
    if not (isinstance(input, SparseTensor) and isinstance(other, SparseTensor)):
        refuse("equal with a dense tensor", input if isinstance(input, SparseTensor) else other)
    if input.shape != other.shape or input.layout is not other.layout:
        return False
    a, b = (x.coalesce() if isinstance(x, CooTensor) else x for x in (input, other))
    return a.same_places(b) and bool((a._vals == b._vals).all())


OPS.update({name: _on_values(name, linear=False) for name in KEEP_ZERO})
OPS.update({name: _on_values(name, linear=True) for name in LINEAR})
OPS.update({alias: OPS[entry.name] for entry in _SPARSE for alias in entry.aliases})
OPS.update({name: _typed(dtype) for name, dtype in _TYPES.items()})
OPS.update({
    "add": add, "add2": add, "add_scaled": add, "sub": sub, "sub2": sub, "subtract": sub,
    "mul": mul, "multiply": mul, "div": div, "true_divide": div, "divide": div, "pow": pow,
    "to": to, "type_as": type_as, "zeros_like": zeros_like, "empty_like": zeros_like, "zero": zero,
    "copy_": copy_, "equal": equal, "new_zeros": new_zeros, "new_empty": new_zeros,
    "pow2": pow, "sqrt_power": OPS["sqrt"],
    "floor_divide": lambda input, other: div(input, other, rounding_mode="floor"),
})  # fmt: skip
