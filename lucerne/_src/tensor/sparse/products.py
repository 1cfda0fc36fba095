"""Matrix products: sparse with dense, dense with sparse, sparse with sparse, and sampled ones."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.ir.dispatch import state as _state
from lucerne._src.ops.copy.join import stack
from lucerne._src.ops.linalg.sparse_products import csr_times_dense, row_numbers, sampled_products
from lucerne._src.tensor.autograd.node import GradientNode, gradient_edge
from lucerne._src.tensor.autograd.state import AutogradState, requires_grad
from lucerne._src.tensor.sparse.convert import coo_to_compressed, line_starts, sparse_mask
from lucerne._src.tensor.sparse.elementwise import add
from lucerne._src.tensor.sparse.kinds import OPS, SHOWN, SparseTensor, become, make_coo, refuse
from lucerne._src.tensor.sparse.shapes import transposed

_LOW = (dt.float16, dt.bfloat16)


def _check(a: Any, b: Any) -> None:
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({'x'.join(map(str, a.shape))} and "
            f"{'x'.join(map(str, b.shape))})"
        )


def rows_of(t: Any) -> tuple[Any, Any, Any]:
    """A sparse matrix by compressed rows: starts, columns, values."""
    if t.layout is lo.sparse_csr:
        found = t
    elif t.is_sparse:
        if t.dense_dim():
            refuse("mm of a matrix with dense dimensions", t)
        done = t.coalesce()
        row, column = done._index.unbind(0)
        return line_starts(row, t.shape[0]), column.contiguous(), done._values()
    else:
        found = coo_to_compressed(t.to_sparse(), lo.sparse_csr, None)
    return found._starts.to(dt.int64), found._places.to(dt.int64), found._values()


def mm(input: Any, mat2: Any, reduce: str = "sum") -> Any:
    """The product of two matrices of which at least one is sparse; two sparse ones make a sparse
    one. `reduce` (with compressed rows) says how the products of a row are joined.

    >>> import lucerne
    >>> lucerne.sparse.mm(lucerne.eye(2).to_sparse(), lucerne.ones(2, 1))
    tensor([[1.],
            [1.]])
    """
    if not isinstance(input, SparseTensor):
        _check(input, mat2)
        if not isinstance(mat2, SparseTensor):
            return input.mm(mat2)
        return mm(transposed(mat2, 0, 1), input.t()).t()
    _check(input, mat2)
    if input.dtype is not mat2.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {input.dtype} != {mat2.dtype}"
        )
    if isinstance(mat2, SparseTensor):
        return _sparse_times_sparse(input, mat2)
    starts, columns, values = rows_of(input)
    wide = mat2
    if values.dtype in _LOW:
        values, wide = values.to(dt.float32), wide.to(dt.float32)
    if reduce == "sum":
        return csr_times_dense(starts, columns, values, wide).to(input.dtype)
    if reduce not in ("mean", "amax", "amin"):
        raise ValueError(f"sparse.mm: expected reduce sum, mean, amax or amin, got {reduce!r}")
    products = values.unsqueeze(1) * wide[columns]
    zeros = products.new_zeros((input.shape[0], mat2.shape[1]))
    rows = row_numbers(starts, columns.shape[0])
    return zeros.index_reduce(0, rows, products, reduce, include_self=False).to(input.dtype)


def _sparse_times_sparse(a: Any, b: Any) -> Any:
    """Each entry (i, k) of `a` meets row k of `b`: all pairs, added up by their place."""
    left_starts, left_columns, left = rows_of(a)
    starts, columns, right = rows_of(b)
    lengths = (starts[1:] - starts[:-1])[left_columns]
    ends = lengths.cumsum(0)
    count = int(ends[-1]) if ends.numel() else 0
    every = starts.new_ones((count,)).cumsum(0) - 1
    entry = (starts.new_ones((lengths.numel(),)).cumsum(0) - 1).repeat_interleave(lengths)
    at = every - (ends - lengths)[entry] + starts[left_columns[entry]]
    row = row_numbers(left_starts, left_columns.shape[0])[entry]
    index = stack([row, columns[at]])
    values = left[entry] * right[at]
    made = make_coo(index, values, (a.shape[0], b.shape[1]), is_sorted=False).coalesce()
    return made if a.is_sparse else coo_to_compressed(made, lo.sparse_csr, None)


def matmul(input: Any, other: Any) -> Any:
    """`@` with a sparse operand."""
    if input.ndim == 2 and other.ndim == 1:
        return mv(input, other)
    if input.ndim == 1 and other.ndim == 2:
        return mv(transposed(other, 0, 1), input)
    if input.ndim == 3 and other.ndim == 3:
        return bmm(input, other)
    return mm(input, other)


def mv(input: Any, vec: Any) -> Any:
    """A sparse matrix times a vector."""
    if isinstance(vec, SparseTensor):
        refuse("mv with a sparse vector", vec)
    if input.ndim != 2 or vec.ndim != 1 or input.shape[1] != vec.shape[0]:
        raise RuntimeError(
            f"mv: Expected self.size(-1) == vec.size(-1), got {list(input.shape)} and "
            f"{list(vec.shape)}"
        )
    return mm(input, vec.unsqueeze(1)).squeeze(1)


def bmm(input: Any, mat2: Any) -> Any:
    """A batch of products, done as one: batch `b` stands in rows and columns of its own."""
    if not isinstance(input, SparseTensor) or isinstance(mat2, SparseTensor):
        refuse("bmm(dense, sparse)", mat2)
    if input.ndim != 3 or mat2.ndim != 3 or input.shape[0] != mat2.shape[0]:
        raise RuntimeError("bmm: expected two batches of matrices of the same length")
    sparse: Any = input if input.is_sparse else input.to_sparse()
    count, rows, inner = input.shape
    if sparse.dense_dim() or mat2.shape[1] != inner:
        raise RuntimeError(
            f"bmm: the shapes {list(input.shape)} and {list(mat2.shape)} don't fit, or the batch "
            "has dense dimensions"
        )
    batch, row, column = sparse._index.unbind(0)
    index = stack([batch * rows + row, batch * inner + column])
    shape = (count * rows, count * inner)
    blocks = make_coo(index, sparse._values(), shape, sparse._sorted)
    product = mm(blocks, mat2.reshape(count * inner, mat2.shape[2]))
    return product.reshape(count, rows, mat2.shape[2])


def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """`beta * input + alpha * (mat1 @ mat2)` with a sparse factor."""
    product = mm(mat1, mat2)
    product = product if alpha == 1 else product * alpha
    if isinstance(input, SparseTensor) and not isinstance(product, SparseTensor):
        return add(product, input, alpha=beta)
    if isinstance(product, SparseTensor) and not isinstance(input, SparseTensor):
        return add(input if beta == 1 else input * beta, product)
    return (input if beta == 1 else input * beta) + product


def addmv(input: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return input * beta + mv(mat, vec) * alpha


def sampled_addmm(
    input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1, out: Any = None
) -> Any:
    """`mat1 @ mat2` only where `input` stores something, plus `beta * input`.

    >>> import lucerne
    >>> at = lucerne.eye(2).to_sparse_csr()
    >>> lucerne.sparse.sampled_addmm(at, lucerne.ones(2, 3), lucerne.ones(3, 2)).values()
    tensor([4., 4.])
    """
    if input.is_sparse:
        refuse("sparse_sampled_addmm", input)
    for t, what in ((out, "result"), (input, "self")):
        if t is not None and t.layout is not lo.sparse_csr:
            raise RuntimeError(
                f"sampled_addmm: Expected {what} to have sparse csr layout, but got "
                f"{SHOWN[t.layout]}"
            )
    if input.ndim > 2 or mat1.ndim > 2:
        refuse("sampled_addmm of batches", input)
    products = sampled_products(input._starts, input._places, mat1, mat2.t().contiguous())
    made = _sampled(input, products * alpha, beta)
    if out is None:
        return made
    out._starts, out._places, out._vals = made._starts, made._places, made._vals
    return out


def _sampled(input: Any, products: Any, beta: Any) -> Any:
    """`beta * input` plus products at its places."""
    made = input.detach().with_values(input._vals * beta + products.detach())
    if _state.grad_enabled and (requires_grad(input) or requires_grad(products)):
        made._auto = AutogradState(_Sampled(made, input, products, beta), 0, requires_grad=True)
    return made


class _Sampled(GradientNode):
    """The gradient of `input` is that of the result, in whatever layout it comes, as in torch."""

    __slots__ = ("beta", "pattern")

    def __init__(self, made: Any, input: Any, products: Any, beta: Any) -> None:
        edges = [gradient_edge(t) if requires_grad(t) else None for t in (input, products)]
        super().__init__(edges, (made._meta,))
        self.pattern, self.beta = made.detach(), beta

    def name(self) -> str:
        return "SparseSampledAddmmBackward0"

    def apply(self, grads: Any) -> list[Any]:
        g = grads[0]
        if g is None:
            return [None, None]
        beta = self.beta.conjugate() if isinstance(self.beta, complex) else self.beta
        return [g * beta, sparse_mask(g, self.pattern)._values()]


# ---- old names --------------------------------------------------------------------------------


def sspaddmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """`beta * input + alpha * (mat1 @ mat2)`, where all but `mat2` is sparse, the result too."""
    return add(smm(mat1, mat2) * alpha, input * beta).coalesce()


def smm(input: Any, mat: Any) -> Any:
    """A sparse matrix times a dense one, as a sparse matrix."""
    return mm(input, mat).to_sparse()


def hspmm(mat1: Any, mat2: Any, *, out: Any = None) -> Any:
    """A sparse matrix times a dense one, as a COO tensor of whole rows: those that `mat1` has."""
    if not mat1.is_sparse:
        raise RuntimeError("hspmm: expected 'mat1' to have the layout torch.sparse_coo")
    rows = mat1.coalesce()._index[0].unique()
    made = make_coo(
        rows.unsqueeze(0), mm(mat1, mat2)[rows], (mat1.shape[0], mat2.shape[1]), is_sorted=True
    )
    return made if out is None else become(out, made)


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """A layer with a sparse weight (or sparse inputs)."""
    if isinstance(weight, SparseTensor):
        flat = input.reshape(-1, input.shape[-1])
        made = mm(weight, flat.t()).t().reshape(*input.shape[:-1], weight.shape[0])
    else:
        made = mm(input, weight.t())
    return made if bias is None else made + bias


OPS.update({
    "mm": mm, "matmul": matmul, "mv": mv, "bmm": bmm, "addmm": addmm, "addmv": addmv,
    "linear": linear, "smm": smm, "sspaddmm": sspaddmm, "hspmm": hspmm, "batch_matmul": matmul,
    "add_product": lambda input, mat1, mat2, beta=1, alpha=1: addmm(
        input, mat1, mat2, beta=beta, alpha=alpha
    ),
})  # fmt: skip
