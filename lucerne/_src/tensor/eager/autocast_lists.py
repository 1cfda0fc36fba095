"""Which ops run in what precision under autocast on the CPU: PyTorch 2.13's lists, by experiment.

`python -m tests.amp.table` runs every op of PyTorch's own test table under both frameworks and
compares the dtypes of the results. Ops that are in no list run in the dtype they are given, and
composites among them show their parts. Names are those of the op table; several public functions
share one op (`conv` is conv1d, conv2d and conv3d), and some public functions are no ops (FRONTS).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

LOWER = (
    "matmul", "mm", "bmm", "addmm", "baddbmm", "addbmm", "nn.functional.linear",
    "conv", "conv_input", "prelu_kernel", "attend", "flash_attention", "linalg.vecdot",
    "lstm_steps",
)  # fmt: skip
"""In the low precision: products, where it pays."""

FULL = (
    # losses
    "nn.functional.mse_loss", "nn.functional.l1_loss", "nn.functional.smooth_l1_loss",
    "nn.functional.huber_loss", "nn.functional.poisson_nll_loss", "nll_loss",
    "cross_entropy_classes", "cross_entropy_any", "nn.functional.binary_cross_entropy",
    "nn.functional.binary_cross_entropy_with_logits", "nn.functional.kl_div",
    "nn.functional.margin_ranking_loss", "nn.functional.hinge_embedding_loss",
    "nn.functional.soft_margin_loss", "nn.functional.cosine_embedding_loss",
    "nn.functional.multi_margin_loss", "nn.functional.multilabel_margin_loss",
    # sums of many terms, distances, interpolation
    "prod_dim", "trace", "quantile_rows", "pair_distances", "grid_sample_op",
    "stft_frames", "polar_of", "view_as_complex",
    # factorizations and what is made of them
    "cholesky", "cholesky_inverse", "cholesky_solve", "geqrf", "inverse", "lu_solve", "orgqr",
    "ormqr", "qr", "svd", "triangular_solve", "linalg.cholesky", "linalg.cholesky_ex",
    "linalg.cond", "linalg.eig", "linalg.eigvals", "linalg.eigh", "linalg.eigvalsh",
    "linalg.householder_product", "linalg.inv", "linalg.inv_ex", "linalg.lstsq", "linalg.qr",
    "linalg.rank_of", "linalg.solve", "linalg.svd", "linalg.svdvals", "linalg.tensorinv",
    "linalg.tensorsolve", "linalg.lu_factor_ex", "linalg.lu_factor", "pseudo_inverse",
    # Fourier transforms
    "fft.fft", "fft.ifft", "fft.rfft", "fft.irfft", "fft.hfft", "fft.ihfft", "fft.fft2",
    "fft.ifft2", "fft.rfft2", "fft.irfft2", "fft.fftn", "fft.ifftn", "fft.rfftn", "fft.irfftn",
)  # fmt: skip
"""In float32: where the low precision loses too much."""

PROMOTE = ("cat", "index_copy", "lstm_gates", "gru_gates")
"""In the widest precision of their inputs."""

PROMOTE_STATE = ("gru_steps",)
"""In the widest precision of the first two inputs (gates and hidden state)."""

AS_GIVEN = (
    "nn.functional.bilinear", "dot", "vdot", "mv", "addmv", "addr", "kron",
)  # fmt: skip
"""As they are given, inside too: made of products here, but not in PyTorch."""

FRONTS = {
    "lower": (
        "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
        "prelu", "scaled_dot_product_attention",
    ),
    "full": (
        "triplet_margin_loss", "max_unpool1d", "max_unpool2d", "max_unpool3d",
        "fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
        "fractional_max_pool3d_with_indices", "ctc_loss", "stft", "nll_loss", "grid_sample",
        "polar", "quantile", "nanquantile",
    ),
}  # fmt: skip
"""Public functions that are no ops, or look at dtypes before an op sees them."""


def _is_volume(args: tuple[Any, ...]) -> bool:
    return bool(args[0].ndim == 5)


def _sums_products(args: tuple[Any, ...]) -> bool:
    """Whether an einsum has a label that stands in two operands and not in the result."""
    left, arrow, right = args[0].replace(" ", "").partition("->")
    parts = left.split(",")
    shared = {c for c in left if c.isalpha() and sum(c in part for part in parts) > 1}
    return bool(shared - set(right)) if arrow else bool(shared)


def _are_vectors(args: tuple[Any, ...]) -> bool:
    return bool(args[0].ndim == args[1].ndim == 1)


def _loses_by_padding(args: tuple[Any, ...]) -> bool:
    _, sizes, mode = args[:3]
    return mode == "replicate" or (mode == "reflect" and len(sizes) <= 4)


SOMETIMES: dict[str, tuple[str, Callable[[tuple[Any, ...]], bool]]] = {
    "max_pool": ("full", _is_volume),
    "avg_pool": ("full", _is_volume),
    "adaptive_avg_pool": ("full", _is_volume),
    "nn.functional.pad_mode": ("full", _loses_by_padding),
    "einsum_list": ("lower", _sums_products),
    "inner": ("as given", _are_vectors),
}
"""Ops whose list depends on the call: pooling of volumes, padding by mirror or edge, products."""
