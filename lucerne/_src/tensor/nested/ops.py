"""What nested tensors answer.

A handler gets the public function, its arguments and keywords. Most call the same function on the
packed tensor (or on each entry, for the strided layout) and wrap the result again.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.base import shape as sh
from lucerne._src.tensor.nested.attention import attention
from lucerne._src.tensor.nested.convert import contiguous, from_padded, to_padded_tensor
from lucerne._src.tensor.nested.kinds import (
    OPS,
    JaggedTensor,
    NestedList,
    NestedTensor,
    make_jagged,
    make_list,
    refuse,
    write,
)
from lucerne._src.tensor.pools import pooled_extreme, pooled_softmax, pooled_sum
from lucerne._src.tensor.subclasses.by_table import flat, name_of, refuse_other_methods
from lucerne._src.tensor.tensor import Tensor

ELEMENTWISE = (
    "add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "pow", "rsub",
    "where", "clamp", "clamp_min", "clamp_max", "clip", "maximum", "minimum", "gelu", "silu",
    "relu", "relu6", "elu", "selu", "celu", "leaky_relu", "softplus", "mish", "hardswish",
    "hardsigmoid", "hardtanh", "logsigmoid", "softsign", "tanhshrink", "threshold", "sigmoid",
    "tanh", "dropout", "masked_fill", "clone", "to", "float", "double", "half", "bfloat16", "long",
    "int", "bool", "type_as", "zeros_like", "ones_like", "empty_like", "full_like", "rand_like",
    "randn_like", "isclose", "nan_to_num", "round", "square", "bernoulli", "lerp", "addcmul",
    "addcdiv", "float_power", "exp", "expm1", "log1p", "erf", "logical_and", "logical_or",
    "logical_xor", "cast", "positive", "conj", "real", "imag", "remainder", "fmod",
    "floor_divide", "alpha_dropout", "native_dropout", "bitwise_and", "bitwise_or", "isfinite",
    "fill_", "zero_", "normal_", "uniform_", "copy_",
)  # fmt: skip


def _first(args: Any) -> Any:
    return next(a for a in flat(args) if isinstance(a, NestedTensor))


# ---- element by element -----------------------------------------------------------------------


def pointwise(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The function on the packed tensors; dense operands are brought to their shape."""
    nested = _first((*args, *kwargs.values()))
    if isinstance(nested, NestedList):
        return _each_entry(func, nested, args, kwargs)
    name = getattr(func, "__name__", "")
    given = [_operand(a, nested, name) for a in args]
    named = {k: _operand(a, nested, name) for k, a in kwargs.items()}
    result = func(*given, **named)
    if isinstance(result, tuple):
        return type(result)(nested.like([r]) for r in result)
    return nested.like([result])


def _operand(a: Any, nested: Any, name: str) -> Any:
    if isinstance(a, JaggedTensor):
        if not a._ragged.same(nested._ragged) or a._at + nested.ndim != nested._at + a.ndim:
            raise RuntimeError(
                f"cannot call binary pointwise function {name} with inputs of shapes "
                f"{tuple(nested.shape)} and {tuple(a.shape)}: only tensors with the same offsets "
                "fit. Hint: nested_tensor_from_jagged(values, x.offsets())"
            )
        return a._packed
    if isinstance(a, Tensor) and a.ndim:
        return _spread(a, nested, name)
    return a


def _spread(dense: Any, nested: Any, name: str) -> Any:
    """A dense operand as it broadcasts: each entry of its batch over the places of an entry."""
    n, at = nested.ndim, nested._at
    shape = (*(1,) * (n - dense.ndim), *dense.shape)
    count = nested._ragged.count
    if len(shape) != n or shape[at] != 1 or shape[0] not in (1, count):
        raise RuntimeError(
            f"cannot call binary pointwise function {name} with inputs of shapes {nested.shape} "
            f"and {dense.shape}"
        )
    whole = dense.reshape(shape)
    if shape[0] == 1 or not nested._ragged.whole:
        if shape[0] != 1:
            refuse(f"{name} with a dense batch, on a tensor with gaps,", nested)
        return whole.squeeze(0)
    rows = whole.squeeze(at)[nested._ragged.entries()]
    return rows.movedim(0, at - 1)


def _each_entry(func: Any, nested: Any, args: Any, kwargs: Any) -> Any:
    def part(a: Any, i: int) -> Any:
        return a.unbind()[i] if isinstance(a, NestedTensor) else a

    found = []
    for i in range(len(nested)):
        named = {k: part(a, i) for k, a in kwargs.items()}
        found.append(func(*[part(a, i) for a in args], **named))
    if found and isinstance(found[0], (tuple, list)):
        return type(found[0])(make_list(column) for column in zip(*found, strict=True))
    return make_list(found)


def packed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Functions of the last dimensions, as they are: linear, layer_norm, embedding."""
    nested = _first((*args, *kwargs.values()))
    if isinstance(nested, NestedList):
        return _each_entry(func, nested, args, kwargs)
    if nested._at == nested.ndim - 1 and name_of(func, OPS) != "embedding":
        refuse(f"{func.__name__} over the ragged dimension", nested)

    def plain(a: Any) -> Any:
        return a._packed if isinstance(a, JaggedTensor) else a

    return nested.like([func(*map(plain, args), **{k: plain(a) for k, a in kwargs.items()})])


# ---- products ---------------------------------------------------------------------------------


def _product(a: Any, b: Any) -> Any:
    return a.matmul(b)


def matmul(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """With one dense matrix: one product of the packed tensor. With a batch: padded."""
    left, right = args[0], args[1]
    if isinstance(_first(args), NestedList):
        return _each_entry(_product, _first(args), args[:2], {})
    both = isinstance(left, NestedTensor) and isinstance(right, NestedTensor)
    if isinstance(left, JaggedTensor) and not both and right.ndim <= 2:
        if left._at == left.ndim - 1:
            refuse("matmul over the ragged dimension with a dense matrix", left)
        made = left._packed.matmul(right)
        return left.like([made])
    if both:
        inside = left._at == left.ndim - 1 and right._at == right.ndim - 2
        if inside and left._ragged.same(right._ragged):  # the ragged dimension disappears
            return to_padded_tensor(left, 0.0).matmul(to_padded_tensor(right, 0.0))
        refuse("matmul of two ragged tensors (its result would be ragged twice)", left)
    if isinstance(left, JaggedTensor):
        return from_padded(to_padded_tensor(left, 0.0).matmul(right), left._ragged, left._at)
    made = left.matmul(to_padded_tensor(right, 0.0))
    return from_padded(made, right._ragged, right._at)


# ---- folds ------------------------------------------------------------------------------------


def _dims(nested: Any, dim: Any) -> tuple[int, ...] | None:
    if dim is None or dim == ():
        return None
    several = dim if isinstance(dim, (tuple, list)) else (dim,)
    return tuple(sorted(sh.wrap_dim(d, nested.ndim) for d in several))


def _fold(name: str) -> Any:
    method = getattr(Tensor, name)

    def handler(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nested, *rest = args
        named = dict(zip(("dim", "keepdim"), rest, strict=False)) | kwargs
        keepdim = named.pop("keepdim", False)
        if name == "max" and isinstance(named.get("dim"), NestedTensor):
            return pointwise(func, args, kwargs)
        dims = _dims(nested, named.pop("dim", None))
        if isinstance(nested, NestedList):
            return _fold_list(nested, method, dims, keepdim, named)
        nested = nested if nested._ragged.whole else contiguous(nested)
        if dims is None:
            return method(nested._packed, **named)
        return _fold_dims(nested, name, dims, keepdim, named)

    return handler


def _fold_dims(nested: Any, name: str, dims: Any, keepdim: bool, named: Any) -> Any:
    method, at = getattr(Tensor, name), nested._at
    if 0 in dims and at not in dims:
        raise RuntimeError(
            f"{name}(): reducing along the batch dimension but not the ragged dimension is not "
            "supported for nested tensors"
        )
    inner = tuple(d - 1 for d in dims if d)
    if 0 in dims:
        made = method(nested._packed, inner, keepdim, **named)
        return made.unsqueeze(0) if keepdim else made
    if at not in dims:
        several = inner if name in ("sum", "mean", "amax", "amin", "any", "all") else inner[0]
        made = method(nested._packed, several, keepdim, **named)
        gone = 0 if keepdim else sum(d < at for d in dims)
        if isinstance(made, tuple):
            return type(made)(*[make_jagged(m, nested._ragged, at - gone) for m in made])
        return make_jagged(made, nested._ragged, at - gone)
    others = [d for d in dims if d != at]
    if others:
        nested = _fold_dims(nested, name, others, True, named)
        made = _fold_ragged(nested, name, True, named)
        return made if keepdim else made.squeeze(dims)
    return _fold_ragged(nested, name, keepdim, named)


def _fold_ragged(nested: Any, name: str, keepdim: bool, named: Any) -> Any:
    """Over the ragged dimension: one row for each entry, a dense tensor."""
    ragged, at = nested._ragged, nested._at
    rows = nested._packed.movedim(at - 1, 0)
    if named.get("dtype") is not None:
        rows = rows.to(named["dtype"])
    entries, count = ragged.entries(), ragged.count
    if name in ("sum", "mean"):
        made = pooled_sum(rows, entries, count)
        if name == "mean":
            shape = (-1, *(1,) * (made.ndim - 1))
            made = made / ragged.length_tensor().reshape(shape).to(made.dtype)
    elif name in ("amax", "amin", "prod"):
        made = pooled_extreme(rows, entries, count, name)
    elif name in ("any", "all"):
        flags = rows != 0
        hits = pooled_sum((flags if name == "any" else ~flags).long(), entries, count)
        made = hits > 0 if name == "any" else hits == 0
    else:
        refuse(f"{name} over the ragged dimension", nested)
    made = made.unsqueeze(1)
    made = made.movedim(1, at)
    return made if keepdim else made.squeeze(at)


def _fold_list(nested: Any, method: Any, dims: Any, keepdim: bool, named: Any) -> Any:
    if dims is None:
        return method(nested.values(), **named)
    if 0 in dims:
        refuse("a fold over the batch", nested)
    inner = tuple(d - 1 for d in dims)
    several = inner if len(inner) > 1 else inner[0]
    return make_list(method(t, several, keepdim, **named) for t in nested.unbind())


def _softmax(name: str) -> Any:
    method = getattr(Tensor, name)

    def handler(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nested, *rest = args
        named = dict(kwargs)
        dim = named.pop("dim", rest[0] if rest else None)
        dtype = named.pop("dtype", None)
        if dim is None:
            raise RuntimeError(f"{name}(): expected a dimension, got None")
        dim = sh.wrap_dim(dim, nested.ndim)
        if not dim:
            raise RuntimeError(f"{name}(): not supported for NestedTensor on dim=0")
        nested = nested if dtype is None else nested.to(dtype)
        if isinstance(nested, NestedList):
            return make_list(method(t, dim - 1) for t in nested.unbind())
        if dim != nested._at:
            return nested.like([method(nested._packed, dim - 1)])
        nested = contiguous(nested)
        rows = nested._packed.movedim(dim - 1, 0)
        ragged = nested._ragged
        made = pooled_softmax(rows, ragged.entries(), ragged.count, name == "log_softmax")
        return nested.like([made.movedim(0, dim - 1)])

    return handler


def _question(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Asked of the first tensor inside: dtype and device alone count."""
    name = func.__name__
    if name == "equal":
        a, b = (x.unbind() for x in args)
        return len(a) == len(b) and all(x.equal(y) for x, y in zip(a, b, strict=True))
    if name == "allclose":
        a, b = (x.unbind() for x in args[:2])
        same = len(a) == len(b) and all(x.shape == y.shape for x, y in zip(a, b, strict=True))
        return same and all(x.allclose(y, *args[2:], **kwargs) for x, y in zip(a, b, strict=True))
    nested = _first(args)
    inside = nested.dense_parts()
    return getattr(inside[0], name)()


def _contiguous(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return contiguous(args[0])


OPS.update(dict.fromkeys((*ELEMENTWISE, "pointwise"), pointwise))
OPS.update(dict.fromkeys(("linear", "layer_norm", "rms_norm", "embedding"), packed))
OPS.update(dict.fromkeys(("matmul", "bmm", "mm"), matmul))
OPS.update({name: _fold(name) for name in ("sum", "mean", "amax", "amin", "prod", "any", "all",
                                           "argmax", "argmin", "max", "min", "var", "std",
                                           "logsumexp")})  # fmt: skip
OPS.update({name: _softmax(name) for name in ("softmax", "log_softmax")})
OPS.update(dict.fromkeys(("is_floating_point", "is_complex", "equal", "allclose"), _question))
OPS.update(contiguous=_contiguous, scaled_dot_product_attention=attention)


def _method(name: str) -> Any:
    function, handler = getattr(Tensor, name), OPS[name]

    def method(*args: Any, **kwargs: Any) -> Any:
        return handler(function, args, kwargs)

    method.__name__ = name
    return method


def _over(name: str) -> Any:
    function, handler = getattr(Tensor, name), OPS[name]

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return write(self, handler(function, (self, *args), kwargs))

    method.__name__ = f"{name}_"
    return method


def install() -> None:
    """Methods go to the table and not through the fronts of dense tensors."""
    for name in list(OPS):
        if callable(getattr(Tensor, name, None)):
            setattr(NestedTensor, name, _method(name))
        if callable(getattr(Tensor, name, None)) and hasattr(Tensor, f"{name}_"):
            setattr(NestedTensor, f"{name}_", _over(name))
    refuse_other_methods(NestedTensor, OPS, refuse)
