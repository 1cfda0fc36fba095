"""What events are called: PyTorch's name where it has one for the same thing.

An op of PyTorch's is `aten::name`. The table has ops of its own (kernels of several kinds under one
public name, parts of formulas): those that are what PyTorch calls by another name are listed here,
the others are `lucerne::name`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from lucerne._src.ir.define import fronts
from lucerne._src.ir.dispatch import InPlace
from lucerne._src.ir.op import Op, table

_PREFIXED = ("linalg", "special", "fft")
"""Namespaces whose ops have them in their name: `aten::linalg_norm`."""

TRANSPARENT = frozenset(
    {
        "broadcast_shapes", "is_complex", "is_conj", "is_floating_point", "is_neg", "is_nonzero",
        "is_same_size", "is_signed", "masked._input_mask", "masked._output_mask", "result_type",
        "nn.functional.affine_grid", "nn.functional.gumbel_softmax", "nn.functional.interpolate",
        "nn.functional.linear_cross_entropy", "nn.functional.lp_pool1d", "nn.functional.lp_pool2d",
        "nn.functional.lp_pool3d", "nn.functional.max_unpool1d", "nn.functional.softsign",
        "nn.functional.multi_head_attention_forward", "nn.functional.normalize",
        "nn.functional.softmin", "nn.functional.tanhshrink", "nn.functional.upsample",
        "nn.functional.upsample_bilinear", "nn.functional.upsample_nearest", "svd_lowrank",
        "nn.functional.triplet_margin_with_distance_loss", "nn.functional.gaussian_nll_loss",
        "nn.functional.local_response_norm", "nn.functional.multilabel_soft_margin_loss",
        "nn.functional.pad_mode", "pca_lowrank", "unravel_index",
    }
)  # fmt: skip
"""Functions written in Python in PyTorch as well: what they call has names, they don't."""

_RENAMED = {
    "nn.functional.cross_entropy": "cross_entropy_loss",
    "nn.functional.grid_sample": "grid_sampler",
    "nn.functional.fold": "col2im",
    "nn.functional.nll_loss": "nll_loss_nd",
    "norm": "linalg_vector_norm",
    "p_norm": "linalg_vector_norm",
    "unique": "_unique2",
    "nn.functional.unfold": "im2col",
    "nn.functional.logsigmoid": "log_sigmoid",
    "nn.functional.dropout1d": "feature_dropout",
    "nn.functional.dropout2d": "feature_dropout",
    "nn.functional.dropout3d": "feature_dropout",
    "add2": "add", "add_scaled": "add", "sub2": "sub", "true_divide": "div", "div_trunc": "div",
    "div_floor": "div", "choose": "where", "clamp_between": "clamp", "pow2": "pow",
    "sqrt_power": "pow", "rsqrt_power": "pow", "batch_matmul": "bmm", "add_product": "addmm",
    "add_scaled_product": "addmm", "cast": "_to_copy", "clone_as": "clone", "copied": "clone",
    "filled": "full", "uninitialized": "empty", "counted": "arange", "conv": "convolution",
    "conv_input": "convolution_backward", "conv_weight": "convolution_backward",
    "padded": "constant_pad_nd", "max_pool": "max_pool2d_with_indices", "avg_pool": "avg_pool2d",
    "adaptive_avg_pool": "_adaptive_avg_pool2d", "lerp_tensor": "lerp", "lerp_number": "lerp",
    "prod_dim": "prod", "any_dims": "any", "all_dims": "all", "nansum_dims": "nansum",
    "nanmean_dims": "nanmean", "view_dtype": "view", "round_even": "round",
    "round_decimals": "round", "polygamma_of": "polygamma", "layer_norm_backward":
    "native_layer_norm_backward", "layer_norm_rows": "native_layer_norm", "attend":
    "_scaled_dot_product_flash_attention_for_cpu", "flash_attention":
    "_scaled_dot_product_flash_attention_for_cpu", "channel_norm": "native_batch_norm",
    "channel_norm_backward": "native_batch_norm_backward", "tensordot_dims": "tensordot",
    "squared_error": "mse_loss", "cross_entropy_classes": "cross_entropy_loss",
    "cross_entropy_any": "cross_entropy_loss", "binary_cross_entropy_elements":
    "binary_cross_entropy", "isclose_within": "isclose", "real_part": "real", "imag_part": "imag",
    "complex_of": "complex", "polar_of": "polar", "conjugate": "conj_physical",
    "flip_view": "conj", "view_copy_dtype": "view_copy", "max_all": "max", "min_all": "min",
    "max_dim": "max", "min_dim": "min",
    "aminmax_dim": "aminmax", "sort_along": "sort", "order_along": "argsort", "top_positions":
    "topk", "binary_search": "searchsorted", "search_rows": "searchsorted", "contained": "isin",
    "cholesky_factor": "linalg_cholesky_ex", "lu_packed": "linalg_lu_factor_ex", "qr_factors":
    "linalg_qr", "eigh_factors": "linalg_eigh", "eig_factors": "linalg_eig", "svd_factors":
    "linalg_svd", "tri_solve": "linalg_solve_triangular", "solve_unchecked": "linalg_solve_ex",
    "cholesky_solved": "cholesky_solve",
    "solve_checked": "linalg_solve_ex", "inverse_checked": "linalg_inv_ex",
    "cholesky_checked": "linalg_cholesky_ex", "lu_checked": "linalg_lu_factor_ex",
    "inverse_unchecked": "linalg_inv_ex", "pair_distances": "cdist", "renormed": "renorm",
    "einsum_list": "einsum", "embedding_bag_rows": "embedding_bag", "grid_sample_op":
    "grid_sampler_2d", "median_dim": "median", "median_all": "median", "nanmedian_dim":
    "nanmedian", "nanmedian_all": "nanmedian", "running_sum": "cumsum", "running_product":
    "cumprod", "variance": "var", "deviation": "std", "to_device": "_to_copy", "put_region":
    "slice_scatter", "lstm_gates": "_thnn_fused_lstm_cell", "gru_gates": "_thnn_fused_gru_cell",
    "tanh_gradient": "tanh_backward", "sigmoid_gradient": "sigmoid_backward", "relu_gradient":
    "threshold_backward", "gelu_gradient": "gelu_backward", "silu_gradient": "silu_backward",
    "leaky_relu_gradient": "leaky_relu_backward", "hardtanh_gradient": "hardtanh_backward",
    "elu_gradient": "elu_backward", "mish_gradient": "mish_backward", "softplus_gradient":
    "softplus_backward", "logsigmoid_gradient": "log_sigmoid_backward", "hardsigmoid_gradient":
    "hardsigmoid_backward", "hardswish_gradient": "hardswish_backward", "smooth_error":
    "smooth_l1_loss", "huber_error": "huber_loss",
    "stft_frames": "stft", "istft_signal": "istft", "histogram_over": "histogram",
    "draw": "uniform_", "draw_each": "bernoulli_", "draw_categories": "multinomial",
    "gamma_of": "_standard_gamma", "dirichlet_of": "_sample_dirichlet", "normal_around": "normal",
    "quantile_rows": "quantile",
    "adam_update": "_fused_adam_", "sgd_update": "_fused_sgd_", "counted_up": "_foreach_add_",
    "adagrad_update": "_fused_adagrad_",
    "flash_attention_backward": "_scaled_dot_product_flash_attention_for_cpu_backward",
    "logsigmoid_op": "log_sigmoid", "prelu_kernel": "_prelu_kernel", "fft_c2c": "_fft_c2c",
    "fft_r2c": "_fft_r2c", "fft_c2r": "_fft_c2r",
    "lstm_steps": "lstm", "gru_steps": "gru", "plain_steps": "rnn_tanh",
}  # fmt: skip
"""Ours (by qualified name) to PyTorch's name, without the prefix."""

_SAME = frozenset({"copy", "view", "expand", "alias", "index", "nll_loss", "im2col", "col2im"})
"""Internal ops that are what PyTorch has under the same name, as those that end in `_op` are. All
other internal ops that are not listed above have no name there."""

_CASTS = frozenset(
    f"Tensor.{name}"
    for name in (
        "float", "double", "half", "bfloat16", "long", "int", "short", "char", "byte", "bool",
        "cfloat", "cdouble", "chalf", "type_as",
    )
)  # fmt: skip

_found: dict[str, str | None] = {}


def spelled(qualified: str) -> str | None:
    """The name of an op or a front of the table; None: it shows by what it calls."""
    if qualified not in _found:
        _found[qualified] = _spell(qualified)
    return _found[qualified]


def _spell(qualified: str) -> str | None:
    if qualified in TRANSPARENT:
        return None
    if "::" in qualified:  # a custom op
        return qualified
    if qualified in _CASTS:
        return "aten::to"
    if qualified in _RENAMED:
        return f"aten::{_RENAMED[qualified]}"
    op = table().get(qualified)
    if op is not None and op.internal and not (qualified in _SAME or qualified.endswith("_op")):
        return f"lucerne::{qualified}"
    namespace, _, name = qualified.rpartition(".")
    if namespace in _PREFIXED:
        return f"aten::{namespace}_{name}"
    return f"aten::{name.removesuffix('_op')}"


@cache
def of_function(function: Any) -> str | None:
    """The qualified name of a public function or a method of tensors; None: it calls nothing but
    one op, or none at all."""
    run = function.__wrapped__
    if getattr(function, "op", None) is not None or getattr(run, "op", None) is not None:
        return None
    for front in fronts().values():
        if front.function in (run, getattr(run, "__wrapped__", None)):
            return f"{front.namespace}.{front.name}" if front.namespace else front.name
    if run.__qualname__ == f"Tensor.{run.__name__}" and run.__name__.endswith("_"):
        return str(run.__name__)
    return None


def of_call(op: Op, first: Any, out: Any = None) -> str | None:
    """The name of a call of an op whose first argument has this meta (if it is a tensor); in place
    it ends in an underscore, as PyTorch's does."""
    name = spelled(op.qualified)
    if name == "aten::bmm" and first is not None and len(first.shape) == 2:
        name = "aten::mm"
    if name is None or type(out) is not InPlace or name.endswith("_"):
        return name
    return f"{name}_"
