"""Matrix products: one primitive (a batched product) and the public functions written with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.define import composite, front, structural
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Scalar, Tensor
from lucerne._src.ops.checks import conj_of, need_dtype_of
from lucerne._src.ops.pointwise.arithmetic import addcmul

# ---- the primitive ----------------------------------------------------------------------------


def _product_meta(input: TensorMeta, other: TensorMeta) -> TensorMeta:
    batch = sh.broadcast_shapes(input.shape[:-2], other.shape[:-2])
    return make_meta(input.dtype, (*batch, input.shape[-2], other.shape[-1]), None, input.device)


def transposed(x: Tensor) -> Tensor:
    """The conjugate transpose of the last two dimensions."""
    return conj_of(x).transpose(-2, -1)


@structural(
    internal=True,
    meta=_product_meta,
    vjp={
        "input": lambda g, other: batch_matmul(g, transposed(other)),
        "other": lambda g, input: batch_matmul(transposed(input), g),
    },
    out=False,
    oracle=np.matmul,
    torch="bmm",
    grad_fn=lambda input, other: "MmBackward0" if input.ndim == 2 else "BmmBackward0",
)
def batch_matmul(input: Tensor, other: Tensor) -> Tensor:
    """Products of matrices (..., n, k) and (..., k, m) of one dtype; leading dimensions broadcast.

    Sums run in float32 for the 16-bit floats.
    """


# ---- checks -----------------------------------------------------------------------------------


def refuse_bool(kernel: str, t: dt.dtype) -> None:
    if t.category == dt.BOOL:
        raise NotImplementedError(f"\"{kernel}\" not implemented for 'Bool'")


def _check_mm(input: Tensor, mat2: Tensor) -> None:
    a, b = input.shape, mat2.shape
    if len(a) != 2:
        raise RuntimeError("self must be a matrix")
    if len(b) != 2:
        raise RuntimeError("mat2 must be a matrix")
    if a[1] != b[0]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({a[0]}x{a[1]} and {b[0]}x{b[1]})"
        )
    if input.dtype is not mat2.dtype:
        raise RuntimeError(
            "expected m1 and m2 to have the same dtype, but got: "
            f"{dt.c_name(input.dtype)} != {dt.c_name(mat2.dtype)}"
        )
    refuse_bool("addmm_impl_cpu_", input.dtype)


def _check_bmm(batch1: Tensor, batch2: Tensor, kernel: str = "bmm") -> None:
    a, b = batch1.shape, batch2.shape
    if len(a) != 3:
        raise RuntimeError("batch1 must be a 3D tensor")
    if len(b) != 3:
        raise RuntimeError("batch2 must be a 3D tensor")
    if a[0] != b[0] or a[2] != b[1]:
        raise RuntimeError(
            "Expected size for first two dimensions of batch2 tensor to be: "
            f"[{a[0]}, {a[2]}] but got: [{b[0]}, {b[1]}]."
        )
    need_dtype_of(batch1, batch2)
    refuse_bool(kernel, batch1.dtype)


def _check_dot(input: Tensor, other: Tensor) -> None:
    if input.ndim != 1 or other.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {input.ndim}D and {other.ndim}D tensors")
    if input.dtype is not other.dtype:
        raise RuntimeError(
            "dot : expected both vectors to have same dtype, but found "
            f"{dt.cxx_name(input.dtype)} and {dt.cxx_name(other.dtype)}"
        )
    n, m = input.shape[0], other.shape[0]
    if n != m:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{n}] and src [{m}] to have the same "
            f"number of elements, but got {n} and {m} elements respectively"
        )
    refuse_bool("dot", input.dtype)


def _check_mv(input: Tensor, mat: Tensor, vec: Tensor) -> None:
    if mat.ndim != 2 or vec.ndim != 1 or input.ndim > 1:
        raise RuntimeError(
            f"vector + matrix @ vector expected, got {input.ndim}, {mat.ndim}, {vec.ndim}"
        )
    n, m = mat.shape
    have = input.numel() if hasattr(input, "_storage") else input.numel
    if m != vec.shape[0] or have not in (1, n):
        raise RuntimeError(
            f"size mismatch, got input ({have}), mat ({n}x{m}), vec ({vec.shape[0]})"
        )
    if not input.dtype is mat.dtype is vec.dtype:
        names = [dt.cxx_name(t.dtype) for t in (input, mat, vec)]
        raise RuntimeError(
            "addmv input tensors must have the same dtype, but got "
            f"{names[0]}, {names[1]}, and {names[2]}"
        )
    refuse_bool("addmv_impl_cpu", mat.dtype)


# ---- products ---------------------------------------------------------------------------------


@composite(method=True, out="exact", oracle=np.matmul, autocast="lower")
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """Product of two matrices.

    >>> import lucerne
    >>> lucerne.mm(lucerne.tensor([[1.0, 2.0]]), lucerne.tensor([[3.0], [4.0]]))
    tensor([[11.]])
    """
    _check_mm(input, mat2)
    return batch_matmul(input, mat2)


@composite(
    method=True, out="exact", oracle=np.matmul, samples=[((2, 3, 4), (2, 4, 3))], autocast="lower"
)
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Products of the matrices of two equally long batches."""
    _check_bmm(input, mat2)
    return batch_matmul(input, mat2)


@composite(
    method=True,
    out="exact",
    oracle=np.dot,
    samples=[((4,), (4,))],
    autocast="as given",
    grad_fn="DotBackward0",
)
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """Sum of the products of two vectors' elements."""
    _check_dot(input, tensor)
    return batch_matmul(input.unsqueeze(0), tensor.unsqueeze(1)).reshape(())


@composite(method=True, out="exact", oracle=np.vdot, samples=[((4,), (4,))], autocast="as given")
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """`dot` with the first vector conjugated."""
    _check_dot(input, other)
    return dot(conj_of(input), other)


@composite(
    method=True,
    out="exact",
    oracle=np.matmul,
    samples=[((2, 3), (3,))],
    autocast="as given",
    grad_fn="MvBackward0",
)
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """Product of a matrix and a vector."""
    first = (
        vec._meta.like(shape=(input.shape[0],)) if input.ndim == 2 else vec._meta.like(shape=(0,))
    )
    _check_mv(first, input, vec)
    return batch_matmul(input, vec.unsqueeze(1)).squeeze(1)


def _fold(input: Tensor, other: Tensor) -> Tensor:
    """(..., n, k) times one matrix or vector: the leading dimensions become rows."""
    rows = input.reshape(-1, input.shape[-1]) if input.numel() else _empty_rows(input)
    if other.ndim == 1:
        return mv(rows, other).reshape(input.shape[:-1])
    return mm(rows, other).reshape((*input.shape[:-1], other.shape[-1]))


def _empty_rows(x: Tensor) -> Tensor:
    return x.reshape(sh.numel(x.shape[:-1]), x.shape[-1])


def _broadcast_product(input: Tensor, other: Tensor) -> Tensor:
    left = input.unsqueeze(0) if input.ndim == 1 else input
    right = other.unsqueeze(1) if other.ndim == 1 else other
    batch = sh.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    if left.shape[-1] != right.shape[-2]:
        n = sh.numel(batch)
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{n}, "
            f"{left.shape[-1]}] but got: [{n}, {right.shape[-2]}]."
        )
    need_dtype_of(left, right)
    refuse_bool("bmm", left.dtype)
    made = batch_matmul(left, right)
    if input.ndim == 1:
        made = made.squeeze(-2)
    return made.squeeze(-1) if other.ndim == 1 else made


@composite(method=True, out="exact", oracle=np.matmul, autocast="lower")
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Product of vectors, matrices or batches of matrices; batch dimensions broadcast.

    >>> import lucerne
    >>> lucerne.matmul(lucerne.ones(2, 3, 4), lucerne.ones(4)).shape
    torch.Size([2, 3])
    """
    a, b = input.ndim, other.ndim
    if a == 2 and b == 2:
        return mm(input, other)
    if a == 0 or b == 0:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {a}D and {b}D"
        )
    if a == 1 and b == 1:
        return dot(input, other)
    if a == 2 and b == 1:
        return mv(input, other)
    if a == 1 and b == 2:
        return mm(input.unsqueeze(0), other).squeeze(0)
    if a >= 3 and b <= 2:
        return _fold(input, other)
    return _broadcast_product(input, other)


# ---- sums with products -----------------------------------------------------------------------


def scaled_sum(input: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    """`beta * input + alpha * product`; with beta 0 `input` is not read, so its nans vanish."""
    if product.dtype.category < dt.FLOAT:
        beta, alpha = int(beta), int(alpha)
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    return product + (input if beta == 1 else input * beta)


def _sum_meta(input: TensorMeta, left: TensorMeta, right: TensorMeta) -> TensorMeta:
    return _product_meta(left, right)


@composite(
    internal=True,
    opmath=True,
    out=False,
    meta=_sum_meta,
    vjp={
        "input": lambda g: g,
        "left": lambda g, right: batch_matmul(g, transposed(right)),
        "right": lambda g, left: batch_matmul(transposed(left), g),
    },
    samples=[((3, 5), (3, 4), (4, 5))],
    torch="addmm",
    grad_fn=lambda input, left, right: f"{'Baddb' if left.ndim > 2 else 'Add'}mmBackward0",
)
def add_product(input: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """`input + left @ right` of one dtype, where `input` has the shape of the product."""
    return batch_matmul(left, right) + input


@composite(internal=True, opmath=True, out=False, torch="addmm")
def add_scaled_product(
    input: Tensor, left: Tensor, right: Tensor, beta: Scalar, alpha: Scalar
) -> Tensor:
    """`beta * input + alpha * (left @ right)`."""
    return scaled_sum(input, batch_matmul(left, right), beta, alpha)


def _sum_with_product(input: Tensor, left: Tensor, right: Tensor, beta: Any, alpha: Any) -> Tensor:
    if beta == 1 and alpha == 1:
        return add_product(input, left, right)
    return add_scaled_product(input, left, right, beta, alpha)


def _expanded(input: Tensor, shape: sh.Shape) -> Tensor:
    return input if tuple(input.shape) == shape else input.expand(shape)


def _check_addmm(input: Tensor, mat1: Tensor, mat2: Tensor) -> None:
    for name, m in (("mat1", mat1), ("mat2", mat2)):
        if m.ndim != 2:
            raise RuntimeError(f"{name} must be a matrix, got {m.ndim}-D tensor")
    if mat1.shape[1] == mat2.shape[0] and input.dtype is not mat2.dtype:
        raise RuntimeError(
            "self and mat2 must have the same dtype, but got "
            f"{dt.cxx_name(input.dtype)} and {dt.cxx_name(mat2.dtype)}"
        )
    _check_mm(mat1, mat2)


@composite(
    method=True,
    inplace=True,
    out="exact",
    oracle=lambda input, mat1, mat2, beta, alpha: beta * input + alpha * (mat1 @ mat2),
    autocast="lower",
    grad_fn="AddmmBackward0",
)
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Tensor:
    """`beta * input + alpha * (mat1 @ mat2)`."""
    _check_addmm(input, mat1, mat2)
    start = _expanded(input, (mat1.shape[0], mat2.shape[1]))
    return _sum_with_product(start, mat1, mat2, beta, alpha)


@composite(
    method=True,
    inplace=True,
    out="exact",
    oracle=lambda input, batch1, batch2, beta, alpha: beta * input + alpha * (batch1 @ batch2),
    samples=[((2, 3, 5), (2, 3, 4), (2, 4, 5), 1, 2)],
    autocast="lower",
    expanded="add",
    grad_fn="BaddbmmBackward0",
)
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Tensor:
    """`beta * input + alpha * (batch1 @ batch2)` for each matrix of the batch."""
    _check_bmm(batch1, batch2, "baddbmm")
    start = _expanded(input, (batch1.shape[0], batch1.shape[1], batch2.shape[2]))
    if input.dtype is not batch1.dtype:
        names = [dt.c_name(t.dtype) for t in (input, batch1, batch2)]
        raise RuntimeError(
            f"Input dtypes must be the same, got: input {names[0]}, batch1: {names[1]}, "
            f"batch2: {names[2]}"
        )
    return _sum_with_product(start, batch1, batch2, beta, alpha)


@composite(
    method=True,
    inplace=True,
    opmath=True,
    out="exact",
    oracle=lambda input, batch1, batch2, beta, alpha: (
        beta * input + alpha * np.sum(batch1 @ batch2, 0)
    ),
    samples=[((3, 5), (2, 3, 4), (2, 4, 5), 1, 2)],
    autocast="lower",
    grad_fn="AddbmmBackward0",
)
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Tensor:
    """`beta * input + alpha * sum of batch1[i] @ batch2[i]`."""
    sh.wrap_dim(2, batch1.ndim)
    sh.wrap_dim(2, batch2.ndim)
    a, b = batch1.shape, batch2.shape
    if a[0] != b[0]:
        raise RuntimeError(
            f"batch1 and batch2 must have same number of batches, got {a[0]} and {b[0]}"
        )
    if a[2] != b[1]:
        raise RuntimeError(f"Incompatible matrix sizes for bmm ({a[1]}x{a[2]} and {b[1]}x{b[2]})")
    start = _expanded(input, (a[1], b[2]))
    # The batch joins the summed dimension: one product instead of a sum of many.
    left = batch1.permute(1, 0, 2).reshape(a[1], a[0] * a[2])
    right = batch2.reshape(b[0] * b[1], b[2])
    _check_addmm(start, left, right)
    return scaled_sum(start, batch_matmul(left, right), beta, alpha)


@composite(
    method=True,
    inplace=True,
    opmath=True,
    out="exact",
    oracle=lambda input, mat, vec, beta, alpha: beta * input + alpha * (mat @ vec),
    samples=[((2,), (2, 3), (3,), 1, 2)],
    autocast="as given",
    expanded="add",
    grad_fn="AddmvBackward0",
)
def addmv(
    input: Tensor, mat: Tensor, vec: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Tensor:
    """`beta * input + alpha * (mat @ vec)`."""
    _check_mv(input, mat, vec)
    start = _expanded(input, (mat.shape[0],))
    return scaled_sum(start, batch_matmul(mat, vec.unsqueeze(1)).squeeze(1), beta, alpha)


def _check_addr(input: Tensor, vec1: Tensor, vec2: Tensor, beta: Any, alpha: Any) -> None:
    for name, v in (("vec1", vec1), ("vec2", vec2)):
        if v.ndim != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {name}, but got {v.ndim}-D")
    if all(t.dtype.category < dt.FLOAT for t in (input, vec1, vec2)):
        for name, v in (("beta", beta), ("alpha", alpha)):
            if not isinstance(v, (bool, int)):
                raise RuntimeError(
                    f"For integral input tensors, argument {name} must not be a floating point "
                    "number."
                )


@composite(
    method=True,
    inplace=True,
    opmath=True,
    oracle=lambda input, vec1, vec2, beta, alpha: beta * input + alpha * np.outer(vec1, vec2),
    samples=[((2, 3), (2,), (3,), 1, 2)],
    autocast="as given",
)
def addr(
    input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Tensor:
    """`beta * input + alpha * outer(vec1, vec2)`."""
    _check_addr(input, vec1, vec2, beta, alpha)
    start = _expanded(input, (vec1.shape[0], vec2.shape[0]))
    kind = input.dtype
    if beta == alpha == 1 and kind is vec1.dtype is vec2.dtype and kind.category == dt.FLOAT:
        return addcmul(start, vec1.unsqueeze(1), vec2)
    if input.dtype is vec1.dtype is vec2.dtype is dt.bool_:
        product = vec1.unsqueeze(1) * vec2 & bool(alpha)
        return product | start if beta else product
    scaled = vec1 if alpha == 1 else vec1 * alpha  # first, as torch: 0 times a product that is inf
    return scaled_sum(start, scaled.unsqueeze(1) * vec2, beta, 1)


# ---- outer products and their kin -------------------------------------------------------------


@composite(method=True, aliases=("ger",), oracle=np.outer, samples=[((2,), (3,))])
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """Every product of an element of one vector with one of the other."""
    for name, v in (("self", input), ("vec2", vec2)):
        if v.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {name}, but got {v.ndim}-D")
    return input.unsqueeze(1) * vec2


def _are_vectors(args: tuple[Any, ...]) -> bool:
    return bool(args[0].ndim == args[1].ndim == 1)


@composite(autocast=("as given", _are_vectors), method=True, out="exact", oracle=np.inner)
def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sums of products over the last dimension of both."""
    if input.ndim == 0 or other.ndim == 0:
        return input * other
    if input.dtype is not other.dtype:
        raise RuntimeError("both inputs should have same dtype")
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(input.shape)} and {list(other.shape)}"
        )
    return contract_dims(input, other, (-1,), (-1,))


@composite(method=True, oracle=np.kron, autocast="as given")
def kron(input: Tensor, other: Tensor) -> Tensor:
    """Kronecker product: each element of `input` times all of `other`."""
    n = max(input.ndim, other.ndim)
    a = (1,) * (n - input.ndim) + tuple(input.shape)
    b = (1,) * (n - other.ndim) + tuple(other.shape)
    left = input.reshape([size for m in a for size in (m, 1)])
    right = other.reshape([size for m in b for size in (1, m)])
    return (left * right).reshape([p * q for p, q in zip(a, b, strict=True)])


def contract_dims(a: Tensor, b: Tensor, dims_a: sh.Shape, dims_b: sh.Shape) -> Tensor:
    """Sum of products over pairs of dimensions, by one matrix product."""
    in_a, in_b = sh.wrap_dims(dims_a, a.ndim), sh.wrap_dims(dims_b, b.ndim)
    a, b = _sum_single(a, b, in_a, in_b)
    for i, j, given, wanted in zip(in_a, in_b, dims_a, dims_b, strict=True):
        if a.shape[i] != b.shape[j]:
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {a.shape[i]} in dim "
                f"{given} and second has size {b.shape[j]} in dim {wanted}"
            )
    rest_a = [d for d in range(a.ndim) if d not in in_a]
    rest_b = [d for d in range(b.ndim) if d not in in_b]
    rows, columns = [a.shape[d] for d in rest_a], [b.shape[d] for d in rest_b]
    k = sh.numel([a.shape[d] for d in in_a])
    left = a.permute(*rest_a, *in_a).reshape(sh.numel(rows), k)
    right = b.permute(*in_b, *rest_b).reshape(k, sh.numel(columns))
    return mm(left, right).reshape([*rows, *columns])


def _sum_single(a: Tensor, b: Tensor, in_a: sh.Shape, in_b: sh.Shape) -> tuple[Tensor, Tensor]:
    """A contracted dimension of size one on one side broadcasts: sum the other side first."""
    for i, j in zip(in_a, in_b, strict=True):
        if b.shape[j] == 1 and a.shape[i] != 1:
            a = a.sum(i, keepdim=True, dtype=a.dtype)
        elif a.shape[i] == 1 and b.shape[j] != 1:
            b = b.sum(j, keepdim=True, dtype=b.dtype)
    return a, b


@composite(internal=True, name="tensordot_dims", out="exact", torch="tensordot")
def tensordot_dims(a: Tensor, b: Tensor, dims_a: Any, dims_b: Any) -> Tensor:
    """`tensordot` with both lists of dimensions given."""
    if len(dims_a) != len(dims_b):
        raise RuntimeError("both dimension lists should have same length")
    if a.dtype is not b.dtype:
        raise RuntimeError("both inputs should have same dtype")
    return contract_dims(a, b, dims_a, dims_b)


@front()
def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Any = None) -> Tensor:
    """Sum of products over the last dims of `a` and the first of `b`, or over the pairs given.

    >>> import lucerne
    >>> lucerne.tensordot(lucerne.ones(2, 3), lucerne.ones(3, 4), dims=1).shape
    torch.Size([2, 4])
    """
    if hasattr(dims, "tolist"):
        dims = dims.tolist()
    if isinstance(dims, (list, tuple)):
        first, second = dims
        pair = [(x,) if isinstance(x, int) else tuple(x) for x in (first, second)]
        return tensordot_dims(a, b, pair[0], pair[1], out=out)
    if dims < 0:
        raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
    if dims > min(a.ndim, b.ndim):
        raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
    return tensordot_dims(a, b, tuple(range(-dims, 0)), tuple(range(dims)), out=out)


def _linear_meta(
    input: TensorMeta, weight: TensorMeta, bias: TensorMeta | None
) -> TensorMeta | None:
    """Of the usual case, which backends may take as one kernel; None: the body says."""
    if weight.ndim != 2 or input.ndim < 2 or input.shape[-1] != weight.shape[1]:
        return None
    same = input.dtype is weight.dtype and (bias is None or bias.dtype is weight.dtype)
    if not same or input.dtype.category == dt.BOOL:
        return None
    n = weight.shape[0]
    if bias is not None and tuple(bias.shape) != (n,):
        return None
    return make_meta(input.dtype, (*input.shape[:-1], n), None, input.device)


def _is_usual_row(input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether a vector can go the way of matrices, as the only row of one."""
    if input.dtype is not weight.dtype or input.dtype.category == dt.BOOL:
        return False
    if tuple(input.shape) != (weight.shape[1],):
        return False
    return bias is None or (bias.dtype is weight.dtype and tuple(bias.shape) == (weight.shape[0],))


def _as_rows(x: Tensor, width: int) -> Tensor:
    """All but the last dimension as one; a result of `linear` with a vector has no last one."""
    if x.ndim == 2:
        return x
    return x.reshape(x.numel() // width if width else sh.numel(x.shape[:-1]), width)


def _linear_input_vjp(g: Tensor, weight: Tensor, input_meta: TensorMeta) -> Tensor:
    if input_meta.ndim == 1 and weight.ndim == 2:
        return linear(g, conj_of(weight).transpose(0, 1))
    flat = conj_of(weight).reshape(-1, weight.shape[-1]) if weight.ndim == 1 else conj_of(weight)
    found = batch_matmul(_as_rows(g, flat.shape[0]), flat)
    return found if input_meta.ndim == 2 else found.reshape(input_meta.shape)


def _linear_weight_vjp(g: Tensor, input: Tensor, weight_meta: TensorMeta) -> Tensor:
    if input.ndim == 1 and weight_meta.ndim == 2:
        return g.unsqueeze(1) * conj_of(input)
    outputs = weight_meta.shape[0] if weight_meta.ndim == 2 else 1
    rows = _as_rows(conj_of(input), weight_meta.shape[-1])
    found = batch_matmul(_as_rows(g, outputs).transpose(0, 1), rows)
    return found if weight_meta.ndim == 2 else found.reshape(weight_meta.shape)


def _linear_node(input: Any, weight: Any, bias: Any) -> str:
    product = "Mm" if bias is None else "Addmm"
    return f"{'View' if input.ndim > 2 else product}Backward0"


@composite(
    namespace="nn.functional",
    opmath=True,
    out="exact",
    meta=_linear_meta,
    vjp={"input": _linear_input_vjp, "weight": _linear_weight_vjp, "bias": lambda g: g},
    oracle=lambda input, weight, bias: input @ weight.T + (0 if bias is None else bias),
    autocast="lower",
    grad_fn=_linear_node,
)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`input @ weight.T + bias`, the affine map of a fully connected layer."""
    if weight.ndim == 1:
        if bias is not None:
            raise RuntimeError("mat2 must be a matrix, got 1-D tensor")
        return matmul(input, weight)
    if input.ndim == 1 and _is_usual_row(input, weight, bias):
        return linear(input.unsqueeze(0), weight, bias).squeeze(0)
    turned = weight.transpose(0, 1)
    if bias is None:
        return matmul(input, turned)
    if input.dtype is not weight.dtype:
        names = dt.cxx_name(input.dtype), dt.cxx_name(weight.dtype)
        raise RuntimeError(
            f"mat1 and mat2 must have the same dtype, but got {names[0]} and {names[1]}"
        )
    if input.ndim == 2:
        return addmm(bias, input, turned)
    return matmul(input, turned) + bias
