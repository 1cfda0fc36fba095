"""What a backward node is called: torch's names, as programs print and compare them.

Most names follow from the op's own ("exp" gives ExpBackward0). Listed here are ops that torch
spells or numbers otherwise, and composites whose last node goes by the composite's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op

_SPELLED = {
    "add2": "Add0", "add_scaled": "Add0", "sub2": "Sub0", "true_divide": "Div0", "div_trunc":
    "Div1", "div_floor": "Div1", "view_dtype": "View0", "clone_as": "Clone0", "cast": "ToCopy0",
    "choose": "Where0", "max_all": "Max1", "max_dim": "Max0", "min_all": "Min1", "min_dim": "Min0",
    "median_all": "Median0", "median_dim": "Median1", "nanmedian_all": "Nanmedian0",
    "nanmedian_dim": "Nanmedian1", "p_norm": "LinalgVectorNorm0", "deviation": "Std0", "variance":
    "Var0", "sort_along": "Sort0", "imag_part": "Select0", "real_part": "Select0", "padded":
    "ConstantPadNd0", "conv": "Convolution0", "lerp_number": "Lerp0", "lerp_tensor": "Lerp1",
    "split_with_sizes": "Split0", "complex_of": "Complex0", "round_even": "Round0",
    "round_decimals": "Round1", "nn.functional.one_hot": "OneHot0", "polygamma_of": "Polygamma0",
    "conjugate": "ConjPhysical0", "flip_view": "Conj0", "ops.aten.slice": "Slice0",
    "solve_unchecked": "LinalgSolveEx0",
    "solve_checked": "LinalgSolveEx0", "inverse_checked": "LinalgInvEx0",
    "cholesky_checked": "LinalgCholeskyEx0", "lu_checked": "LinalgLuFactorEx0",
    "cholesky_solved": "CholeskySolve0",
    "inverse_unchecked": "LinalgInvEx0", "cholesky_factor": "LinalgCholeskyEx0", "svd_factors":
    "LinalgSvd0", "eigh_factors": "LinalgEigh0", "eig_factors": "LinalgEig0", "tri_solve":
    "LinalgSolveTriangular0", "pow2": "Pow0", "cross_entropy_classes": "NllLoss0",
    "layer_norm_rows": "NativeLayerNorm0", "channel_norm": "NativeBatchNorm0",
    "running_sum": "Cumsum0", "squared_error": "MseLoss0", "less_tanh": "Sub0",
}  # fmt: skip


def _is_tensor(x: Any) -> bool:
    return isinstance(x, TensorMeta)


def _by_dim(plain: Sequence[Any]) -> int:
    """Overloads with dimensions come after those without."""
    return 0 if plain[1] is None or plain[1] == () else 1


def _pooled(name: str, tail: str) -> Callable[[Sequence[Any]], str]:
    return lambda plain: f"{name}{plain[0].ndim - 2}D{tail}0"


_BY_ARGUMENTS: dict[str, Callable[[Sequence[Any]], str]] = {
    "sum": lambda plain: f"Sum{_by_dim(plain)}",
    "mean": lambda plain: f"Mean{_by_dim(plain)}",
    "prod_dim": lambda plain: f"Prod{_by_dim(plain)}",
    "pow2": lambda plain: (
        f"Pow{0 if not _is_tensor(plain[1]) else 1 if _is_tensor(plain[0]) else 2}"
    ),
    "clamp_between": lambda plain: f"Clamp{0 if any(map(_is_tensor, plain[1:])) else 1}",
    "batch_matmul": lambda plain: "Mm0" if plain[0].ndim == 2 else "Bmm0",
    "nn.functional.linear": lambda plain: (
        "View0" if plain[0].ndim > 2 else "Mm0" if plain[2] is None else "Addmm0"
    ),
    "add_product": lambda plain: "Addmm0" if plain[1].ndim == 2 else "Baddbmm0",
    "sub2": lambda plain: "Sub0" if _is_tensor(plain[0]) else "Rsub1",
    "max_pool": _pooled("MaxPool", "WithIndices"),
    "avg_pool": _pooled("AvgPool", ""),
}

_COMPOSITES = {
    "addmm": "Addmm0", "baddbmm": "Baddbmm0", "addbmm": "Addbmm0", "addmv": "Addmv0", "dot":
    "Dot0", "mv": "Mv0", "trace": "Trace0", "topk": "Topk0", "masked_fill": "MaskedFill0",
    "square": "Pow0", "index_select": "IndexSelect0", "mse_loss": "MseLoss0", "nll_loss":
    "NllLoss0", "cross_entropy_any": "NllLoss0", "smooth_l1_loss": "SmoothL1Loss0", "huber_loss":
    "HuberLoss0", "binary_cross_entropy": "BinaryCrossEntropy0", "group_norm": "NativeGroupNorm0",
    "binary_cross_entropy_with_logits": "BinaryCrossEntropyWithLogits0", "linear": "Addmm0",
}  # fmt: skip


def is_named(op: Op) -> bool:
    """Whether a composite gives its last node a name that the op it ends with has not."""
    return op.name in _COMPOSITES and op.name != "mse_loss"


def label_of(op: Op, args: tuple[Any, ...]) -> str | None:
    """The name that a composite gives its last node, where torch has one."""
    found = _COMPOSITES.get(op.name)
    if found is None or (op.name == "linear" and (args[2] is None or args[0].ndim > 2)):
        return None
    return f"{found[:-1]}Backward{found[-1]}"


def grad_name(op: Op, plain: Sequence[Any] = ()) -> str:
    """torch's name of the backward node of a call: AddBackward0, SumBackward1, ..."""
    if op.qualified == "copy":
        return "CopyBackwards"
    chosen = _BY_ARGUMENTS.get(op.qualified)
    if chosen is not None and plain:
        found = chosen(plain)
    else:
        found = _SPELLED.get(op.qualified) or _derived(op.name)
    return f"{found[:-1]}Backward{found[-1]}"


def _derived(name: str) -> str:
    words = name.removesuffix("_op").split("_")
    return "".join(w[:1].upper() + w[1:] for w in words) + "0"
