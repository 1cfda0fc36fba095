"""The realistic call of each op: some 1e5 to 1e6 elements, shapes as models and scripts have them.

Element-wise ops and reductions get one shape each by their class in torch's op database; all others
have a row here, by the entry's full name or else its name. An op without a row (views, creation of
small things) is timed on the database's own sample alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Call = tuple[tuple[Any, ...], dict[str, Any]]
PLANE = (512, 1024)
INTEGERS = 1000
"""Integer operands lie below this."""


def call(*args: Any, **kwargs: Any) -> Call:
    return args, kwargs


def f(*shape: int) -> torch.Tensor:
    """Normal numbers that want a gradient."""
    return torch.randn(shape)


def u(*shape: int) -> torch.Tensor:
    """Numbers between 0.05 and 0.95."""
    return torch.rand(shape) * 0.9 + 0.05


def i(high: int, *shape: int) -> torch.Tensor:
    """Integers from 0 to below `high`."""
    return torch.randint(0, high, shape)


def b(*shape: int) -> torch.Tensor:
    """Half of them true."""
    return torch.rand(shape) < 0.5


def well(n: int, *batch: int) -> torch.Tensor:
    """A matrix that is far from singular."""
    return torch.randn(*batch, n, n) + 2 * n**0.5 * torch.eye(n)


def positive(n: int, *batch: int) -> torch.Tensor:
    """A positive definite matrix."""
    a = torch.randn(*batch, n, n)
    return a @ a.mT + n * torch.eye(n)


def spread(*shape: int) -> torch.Tensor:
    """Positive rows that sum to 1."""
    return torch.rand(shape).softmax(-1)


IMAGES = (8, 32, 56, 56)


def images() -> torch.Tensor:
    return f(*IMAGES)


def grid(*shape: int) -> torch.Tensor:
    return torch.rand(shape) * 2.2 - 1.1


def _ctc() -> Call:
    t, n, c, s = 100, 16, 40, 30
    logs = f(t, n, c).log_softmax(-1)
    targets = torch.randint(1, c, (n, s))
    return call(logs, targets, torch.full((n,), t), torch.randint(10, s, (n,)))


def _unpool() -> Call:
    y, at = torch.nn.functional.max_pool2d(images(), 2, return_indices=True)
    return call(y, at, 2)


def _sparse() -> torch.Tensor:
    return (f(512, 512) * (torch.rand(512, 512) < 0.05)).to_sparse_csr()


def _bag() -> Call:
    return call(f(5000, 64), i(5000, 8192), offsets=torch.arange(0, 8192, 8))


def _mha() -> Call:
    e, h = 128, 8
    x = f(64, 8, e)
    rest = (f(3 * e, e), f(3 * e), None, None, False, 0.0, f(e, e), f(e))
    return call(x, x.clone(), x.clone(), e, h, *rest)


Row = Callable[[], Call]

INDEXING: dict[str, Row] = (
    {
        "__getitem__": lambda: call(f(2000, 256), (i(2000, 4000),)),
        "argwhere": lambda: call(f(*PLANE) * b(*PLANE)),
        "bincount": lambda: call(i(1000, 500_000)),
        "bucketize": lambda: call(f(*PLANE), torch.linspace(-3, 3, 100)),
        "count_nonzero": lambda: call(f(*PLANE) * b(*PLANE)),
        "gather": lambda: call(f(*PLANE), 1, i(1024, *PLANE)),
        "histc": lambda: call(f(500_000), 100, -3, 3),
        "histogram": lambda: call(f(500_000), 100, range=(-3.0, 3.0)),
        "histogramdd": lambda: call(f(50_000, 3), [10, 10, 10]),
        "index_add": lambda: call(f(2000, 256), 0, i(2000, 4000), f(4000, 256)),
        "index_copy": lambda: call(f(2000, 256), 0, torch.randperm(2000)[:1000], f(1000, 256)),
        "index_fill": lambda: call(f(2000, 256), 0, i(2000, 1000), 1.0),
        "index_put": lambda: call(f(2000, 256), (i(2000, 1000),), f(1000, 256)),
        "index_select": lambda: call(f(2000, 256), 0, i(2000, 4000)),
        "isin": lambda: call(f(200_000), f(1000)),
        "kthvalue": lambda: call(f(*PLANE), 100),
        "masked_fill": lambda: call(f(*PLANE), b(*PLANE), 1.0),
        "masked_scatter": lambda: call(f(*PLANE), b(*PLANE), f(*PLANE)),
        "masked_select": lambda: call(f(*PLANE), b(*PLANE)),
        "median": lambda: call(f(*PLANE), 1),
        "mode": lambda: call(f(128, 256).round(), 1),
        "msort": lambda: call(f(1024, 256)),
        "nanmedian": lambda: call(f(*PLANE), 1),
        "nanquantile": lambda: call(f(*PLANE), 0.3, 1),
        "nonzero": lambda: call(f(*PLANE) * b(*PLANE)),
        "nonzero_static": lambda: call(f(*PLANE) * b(*PLANE), size=200_000),
        "put": lambda: call(f(500_000), i(500_000, 100_000), f(100_000)),
        "quantile": lambda: call(f(*PLANE), 0.3, 1),
        "renorm": lambda: call(f(*PLANE), 2, 0, 5.0),
        "repeat_interleave": lambda: call(f(2000, 64), 4, 0),
        "scatter": lambda: call(f(*PLANE), 1, i(1024, *PLANE), f(*PLANE)),
        "scatter_add": lambda: call(f(*PLANE), 1, i(1024, *PLANE), f(*PLANE)),
        "searchsorted": lambda: call(f(10_000).sort().values, f(200_000)),
        "sort": lambda: call(f(*PLANE)),
        "argsort": lambda: call(f(*PLANE)),
        "take": lambda: call(f(*PLANE), i(500_000, 500_000)),
        "take_along_dim": lambda: call(f(*PLANE), i(1024, *PLANE), 1),
        "topk": lambda: call(f(*PLANE), 10),
        "unique": lambda: call(i(1000, 200_000).float()),
        "unique_consecutive": lambda: call(i(4, 200_000).float()),
        "unravel_index": lambda: call(i(500_000, 100_000), PLANE),
        "as_strided_scatter": lambda: call(f(*PLANE), f(256, 512), (256, 512), (1024, 1), 0),
        "diagonal_scatter": lambda: call(f(1024, 1024), f(1024)),
        "select_scatter": lambda: call(f(*PLANE), f(1024), 0, 3),
        "slice_scatter": lambda: call(f(*PLANE), f(256, 1024), 0, 0, 256),
        "_unsafe_masked_index": lambda: call(
            f(*PLANE), b(1000), (i(512, 1000), i(1024, 1000)), 0.0
        ),
    }
    | {
        f"scatter_reduce.{how}": lambda how=how: call(
            f(*PLANE), 1, i(1024, *PLANE), f(*PLANE), reduce=how
        )
        for how in ("amax", "amin", "mean", "prod", "sum")
    }
    | {
        f"index_reduce.{how}": lambda how=how: call(
            f(2000, 256), 0, i(2000, 4000), f(4000, 256), how
        )
        for how in ("amax", "amin", "mean", "prod")
    }
)

MOVING: dict[str, Row] = (
    {
        "block_diag": lambda: call(*(f(64, 64) for _ in range(8))),
        "broadcast_tensors": lambda: call(f(512, 1), f(1, 1024)),
        "cartesian_prod": lambda: call(f(500), f(500)),
        "cat": lambda: call([f(*PLANE), f(*PLANE)], 1),
        "column_stack": lambda: call([f(*PLANE), f(*PLANE)]),
        "combinations": lambda: call(f(400)),
        "constant_pad_nd": lambda: call(images(), (1, 1, 1, 1)),
        "contiguous": lambda: call(f(*PLANE).t()),
        "clone": lambda: call(f(*PLANE)),
        "diag": lambda: call(f(800)),
        "diag_embed": lambda: call(f(64, 80)),
        "diff": lambda: call(f(*PLANE)),
        "dstack": lambda: call([f(*PLANE), f(*PLANE)]),
        "hstack": lambda: call([f(*PLANE), f(*PLANE)]),
        "vstack": lambda: call([f(*PLANE), f(*PLANE)]),
        "stack": lambda: call([f(*PLANE), f(*PLANE)], 1),
        "fft.fftshift": lambda: call(f(*PLANE)),
        "fft.ifftshift": lambda: call(f(*PLANE)),
        "flip": lambda: call(f(*PLANE), (1,)),
        "fliplr": lambda: call(f(*PLANE)),
        "flipud": lambda: call(f(*PLANE)),
        "full": lambda: call(PLANE, 3.0),
        "full_like": lambda: call(f(*PLANE), 3.0),
        "zeros_like": lambda: call(f(*PLANE)),
        "ones_like": lambda: call(f(*PLANE)),
        "zeros": lambda: call(PLANE),
        "ones": lambda: call(PLANE),
        "zero_": lambda: call(f(*PLANE)),
        "eye": lambda: call(1000),
        "arange": lambda: call(0, 500_000),
        "linspace": lambda: call(0.0, 1.0, 500_000),
        "logspace": lambda: call(0.0, 1.0, 500_000),
        "kron": lambda: call(f(32, 32), f(24, 24)),
        "meshgrid.list_of_tensors": lambda: call([f(512), f(1024)]),
        "nn.functional.channel_shuffle": lambda: call(images(), 4),
        "nn.functional.pad.circular": lambda: call(images(), (2, 2, 2, 2)),
        "nn.functional.pad.constant": lambda: call(images(), (2, 2, 2, 2)),
        "nn.functional.pad.reflect": lambda: call(images(), (2, 2, 2, 2)),
        "nn.functional.pad.replicate": lambda: call(images(), (2, 2, 2, 2)),
        "nn.functional.pad.replicate_negative": lambda: call(images(), (-2, 2, 2, -2)),
        "nn.functional.pixel_shuffle": lambda: call(images(), 2),
        "nn.functional.pixel_unshuffle": lambda: call(images(), 2),
        "nn.functional.unfold": lambda: call(images(), 3),
        "nn.functional.one_hot": lambda: call(i(100, 5000), 100),
        "repeat": lambda: call(f(512, 256), (2, 2)),
        "tile": lambda: call(f(512, 256), (2, 2)),
        "roll": lambda: call(f(*PLANE), 3, 1),
        "rot90": lambda: call(f(*PLANE)),
        "to": lambda: call(f(*PLANE), torch.float64),
        "tril": lambda: call(f(800, 800)),
        "triu": lambda: call(f(800, 800)),
        "tril_indices": lambda: call(600, 600),
        "triu_indices": lambda: call(600, 600),
        "unfold_copy": lambda: call(f(*PLANE), 1, 8, 4),
        "where": lambda: call(f(*PLANE), b(*PLANE), f(*PLANE)),
        "equal": lambda: (lambda x: call(x, x.clone()))(f(*PLANE)),
        "allclose": lambda: (lambda x: call(x, x.clone()))(f(*PLANE)),
        "isclose": lambda: (lambda x: call(x, x.clone()))(f(*PLANE)),
        "to_sparse": lambda: call(f(*PLANE) * (u(*PLANE) < 0.1)),
    }
    | {
        name: lambda: call(f(*PLANE))
        for name in ("alias_copy", "t_copy", "resolve_conj", "resolve_neg")
    }
    | {
        "permute_copy": lambda: call(f(*PLANE), (1, 0)),
        "transpose_copy": lambda: call(f(*PLANE), 0, 1),
        "expand_copy": lambda: call(f(512, 1), PLANE),
        "narrow_copy": lambda: call(f(*PLANE), 0, 0, 256),
        "split_with_sizes_copy": lambda: call(f(*PLANE), (200, 312)),
        "unbind_copy": lambda: call(f(4, 256, 512)),
        "view_copy": lambda: call(f(*PLANE), (1024, 512)),
        "diagonal_copy": lambda: call(f(1024, 1024)),
        "_chunk_cat": lambda: call([f(*PLANE), f(*PLANE)], 1, 4),
    }
)

REDUCING: dict[str, Row] = {
    "aminmax": lambda: call(f(*PLANE), dim=1),
    "corrcoef": lambda: call(f(64, 4096)),
    "cov": lambda: call(f(64, 4096)),
    "cummax": lambda: call(f(*PLANE), 1),
    "cummin": lambda: call(f(*PLANE), 1),
    "cumprod": lambda: call(u(*PLANE) + 0.5, 1),
    "cumsum": lambda: call(f(*PLANE), 1),
    "logcumsumexp": lambda: call(f(*PLANE), 1),
    "cumulative_trapezoid": lambda: call(f(*PLANE)),
    "trapezoid": lambda: call(f(*PLANE)),
    "trapz": lambda: call(f(*PLANE)),
    "gradient": lambda: call(f(*PLANE)),
    "dist": lambda: call(f(*PLANE), f(*PLANE)),
    "log_softmax": lambda: call(f(*PLANE), 1),
    "softmax": lambda: call(f(*PLANE), 1),
    "log_softmax.with_dtype": lambda: call(f(*PLANE), 1, dtype=torch.float64),
    "softmax.with_dtype": lambda: call(f(*PLANE), 1, dtype=torch.float64),
    "logsumexp": lambda: call(f(*PLANE), 1),
    "max.reduction_no_dim": lambda: call(f(*PLANE)),
    "max.reduction_with_dim": lambda: call(f(*PLANE), 1),
    "min.reduction_no_dim": lambda: call(f(*PLANE)),
    "min.reduction_with_dim": lambda: call(f(*PLANE), 1),
    "norm": lambda: call(f(*PLANE)),
    "norm.fro": lambda: call(f(*PLANE)),
    "norm.inf": lambda: call(f(*PLANE), float("inf")),
    "linalg.norm": lambda: call(f(*PLANE)),
    "std_mean": lambda: call(f(*PLANE), 1),
    "var_mean": lambda: call(f(*PLANE), 1),
    "std_mean.unbiased": lambda: call(f(*PLANE), True),
    "var_mean.unbiased": lambda: call(f(*PLANE), True),
    "sum_to_size": lambda: call(f(*PLANE), 1024),
    "trace": lambda: call(f(1000, 1000)),
    "_segment_reduce.lengths": lambda: call(f(4000, 64), "sum", lengths=torch.full((400,), 10)),
    "_softmax_backward_data": lambda: call(f(*PLANE), spread(*PLANE), 1, torch.float32),
    "torch.ops.aten._safe_softmax.default": lambda: call(f(*PLANE), 1),
}

PRODUCTS: dict[str, Row] = {
    "addbmm": lambda: call(f(64, 64), f(32, 64, 64), f(32, 64, 64)),
    "addmm": lambda: call(f(256, 256), f(256, 256), f(256, 256)),
    "addmm.decomposed": lambda: call(f(256, 256), f(256, 256), f(256, 256)),
    "addmv": lambda: call(f(800), f(800, 800), f(800)),
    "addr": lambda: call(f(800, 800), f(800), f(800)),
    "baddbmm": lambda: call(f(32, 64, 64), f(32, 64, 64), f(32, 64, 64)),
    "bmm": lambda: call(f(32, 64, 64), f(32, 64, 64)),
    "cross": lambda: call(f(100_000, 3), f(100_000, 3)),
    "linalg.cross": lambda: call(f(100_000, 3), f(100_000, 3)),
    "dot": lambda: call(f(500_000), f(500_000)),
    "vdot": lambda: call(f(500_000), f(500_000)),
    "linalg.vecdot": lambda: call(f(*PLANE), f(*PLANE)),
    "einsum": lambda: call([f(16, 64, 64), f(16, 64, 64)], "bij,bjk->bik"),
    "inner": lambda: call(f(256, 256), f(256, 256)),
    "mm": lambda: call(f(256, 256), f(256, 256)),
    "matmul": lambda: call(f(256, 256), f(256, 256)),
    "__rmatmul__": lambda: call(f(256, 256), f(256, 256)),
    "mv": lambda: call(f(800, 800), f(800)),
    "outer": lambda: call(f(800), f(800)),
    "tensordot": lambda: call(f(64, 16, 64), f(16, 64, 64)),
    "linalg.multi_dot": lambda: call([f(128, 256), f(256, 64), f(64, 256)]),
    "linalg.matrix_power": lambda: call(f(128, 128) / 12, 5),
    "sparse.mm.reduce": lambda: call(_sparse(), f(512, 64), "sum"),
    "nn.functional.bilinear": lambda: call(f(256, 32), f(256, 32), f(32, 32, 32)),
    "nn.functional.linear": lambda: call(f(512, 256), f(256, 256), f(256)),
    "cdist": lambda: call(f(400, 32), f(400, 32)),
    "nn.functional.pdist": lambda: call(f(400, 32)),
    "nn.functional.pairwise_distance": lambda: call(f(4000, 128), f(4000, 128)),
    "nn.functional.cosine_similarity": lambda: call(f(4000, 128), f(4000, 128)),
}

POINTWISE: dict[str, Row] = {
    "addcdiv": lambda: call(f(*PLANE), f(*PLANE), u(*PLANE)),
    "addcmul": lambda: call(f(*PLANE), f(*PLANE), f(*PLANE)),
    "clamp": lambda: call(f(*PLANE), -0.5, 0.5),
    "lerp": lambda: call(f(*PLANE), f(*PLANE), 0.3),
    "view_as_complex": lambda: call(f(512, 512, 2)),
    "nn.functional.dropout": lambda: call(f(*PLANE), 0.5),
    "nn.functional.dropout2d": lambda: call(images(), 0.5),
    "nn.functional.dropout3d": lambda: call(f(4, 16, 16, 16, 16), 0.5),
    "nn.functional.alpha_dropout": lambda: call(f(*PLANE), 0.5),
    "nn.functional.feature_alpha_dropout.with_train": lambda: call(images(), 0.5, True),
    "native_dropout_backward": lambda: call(f(*PLANE), b(*PLANE), 2.0),
    "nn.functional.gelu": lambda: call(f(*PLANE)),
    "nn.functional.glu": lambda: call(f(*PLANE)),
    "nn.functional.hardswish": lambda: call(f(*PLANE)),
    "nn.functional.leaky_relu": lambda: call(f(*PLANE)),
    "nn.functional.softmin": lambda: call(f(*PLANE), 1),
    "bernoulli": lambda: call(u(*PLANE)),
    "cauchy": lambda: call(f(*PLANE)),
    "exponential": lambda: call(f(*PLANE)),
    "geometric": lambda: call(f(*PLANE), 0.3),
    "log_normal": lambda: call(f(*PLANE)),
    "multinomial": lambda: call(u(64, 1000), 50),
    "normal": lambda: call(f(*PLANE), u(*PLANE)),
    "normal.in_place": lambda: call(f(*PLANE), 0.0, 1.0),
    "rand_like": lambda: call(f(*PLANE)),
    "randn_like": lambda: call(f(*PLANE)),
    "randn": lambda: call(512, 1024),
    "randint": lambda: call(0, 100, PLANE),
    "randint_like": lambda: call(f(*PLANE), 0, 100),
    "uniform": lambda: call(f(*PLANE), 0.0, 1.0),
}

LOSSES: dict[str, Row] = {
    "nn.functional.binary_cross_entropy": lambda: call(u(*PLANE), u(*PLANE)),
    "nn.functional.binary_cross_entropy_with_logits": lambda: call(f(*PLANE), u(*PLANE)),
    "nn.functional.cosine_embedding_loss": lambda: call(
        f(4000, 128), f(4000, 128), b(4000) * 2.0 - 1
    ),
    "nn.functional.cross_entropy": lambda: call(f(*PLANE), i(1024, 512)),
    "nn.functional.ctc_loss": _ctc,
    "nn.functional.gaussian_nll_loss": lambda: call(f(*PLANE), f(*PLANE), u(*PLANE)),
    "nn.functional.hinge_embedding_loss": lambda: call(f(*PLANE), b(*PLANE) * 2.0 - 1),
    "nn.functional.huber_loss": lambda: call(f(*PLANE), f(*PLANE)),
    "nn.functional.kl_div": lambda: call(f(*PLANE).log_softmax(1), spread(*PLANE)),
    "nn.functional.l1_loss": lambda: call(f(*PLANE), f(*PLANE)),
    "nn.functional.mse_loss": lambda: call(f(*PLANE), f(*PLANE)),
    "nn.functional.smooth_l1_loss": lambda: call(f(*PLANE), f(*PLANE)),
    "nn.functional.soft_margin_loss": lambda: call(f(*PLANE), b(*PLANE) * 2.0 - 1),
    "nn.functional.margin_ranking_loss": lambda: call(f(500_000), f(500_000), b(500_000) * 2.0 - 1),
    "nn.functional.multi_margin_loss": lambda: call(f(*PLANE), i(1024, 512)),
    "nn.functional.multilabel_margin_loss": lambda: call(f(256, 64), i(64, 256, 64)),
    "nn.functional.multilabel_soft_margin_loss": lambda: call(f(*PLANE), b(*PLANE) * 1.0),
    "nn.functional.nll_loss": lambda: call(f(*PLANE), i(1024, 512)),
    "nn.functional.poisson_nll_loss": lambda: call(f(*PLANE), u(*PLANE)),
    "nn.functional.triplet_margin_loss": lambda: call(f(4000, 128), f(4000, 128), f(4000, 128)),
    "nn.functional.triplet_margin_with_distance_loss": lambda: call(
        f(4000, 128), f(4000, 128), f(4000, 128)
    ),
    "nn.functional.linear_cross_entropy": lambda: call(f(256, 128), f(1000, 128), i(1000, 256)),
}

LAYERS: dict[str, Row] = {
    "nn.functional.batch_norm": lambda: call(images(), None, None, u(32), f(32), training=True),
    "native_batch_norm": lambda: call(
        images(), u(32), f(32), f(32), u(32), training=True, momentum=0.1, eps=1e-5
    ),
    "_native_batch_norm_legit": lambda: call(
        images(), u(32), f(32), f(32), u(32), training=True, momentum=0.1, eps=1e-5
    ),
    "nn.functional.embedding": lambda: call(f(5000, 64), i(5000, 4096)),
    "nn.functional.embedding_bag": _bag,
    "nn.functional.group_norm": lambda: call(images(), 4, u(32), f(32)),
    "native_group_norm": lambda: call(images(), u(32), f(32), 8, 32, 56 * 56, 4, 1e-5),
    "nn.functional.instance_norm": lambda: call(images()),
    "nn.functional.layer_norm": lambda: call(f(*PLANE), (1024,), u(1024), f(1024)),
    "native_layer_norm": lambda: call(f(*PLANE), (1024,), u(1024), f(1024), 1e-5),
    "nn.functional.local_response_norm": lambda: call(images(), 5),
    "nn.functional.normalize": lambda: call(f(4000, 128)),
    "nn.functional.rms_norm": lambda: call(f(*PLANE), (1024,), u(1024)),
    "nn.functional.multi_head_attention_forward": _mha,
    "nn.functional.scaled_dot_product_attention": lambda: call(*(f(4, 8, 128, 32),) * 3),
    "nn.functional.conv1d": lambda: call(f(8, 64, 512), f(64, 64, 5), f(64), padding=2),
    "nn.functional.conv2d": lambda: call(images(), f(64, 32, 3, 3), f(64), padding=1),
    "nn.functional.conv3d": lambda: call(f(2, 16, 16, 32, 32), f(16, 16, 3, 3, 3), padding=1),
    "nn.functional.conv_transpose1d": lambda: call(f(8, 64, 256), f(64, 64, 4), None, 2, 1),
    "nn.functional.conv_transpose2d": lambda: call(f(4, 32, 28, 28), f(32, 32, 4, 4), None, 2, 1),
    "nn.functional.conv_transpose3d": lambda: call(
        f(1, 16, 8, 16, 16), f(16, 16, 4, 4, 4), None, 2, 1
    ),
    "nn.functional.grid_sample": lambda: call(
        f(4, 16, 64, 64), grid(4, 64, 64, 2), align_corners=False
    ),
    "grid_sampler_2d": lambda: call(f(4, 16, 64, 64), grid(4, 64, 64, 2), 0, 0, False),
    "grid_sampler_3d": lambda: call(f(2, 8, 16, 32, 32), grid(2, 16, 32, 32, 3), 0, 0, False),
    "nn.functional.interpolate.area": lambda: call(images(), 28, mode="area"),
    "nn.functional.interpolate.bicubic": lambda: call(images(), 80, mode="bicubic"),
    "nn.functional.interpolate.bilinear": lambda: call(images(), 80, mode="bilinear"),
    "nn.functional.interpolate.linear": lambda: call(f(8, 64, 512), 800, mode="linear"),
    "nn.functional.interpolate.nearest": lambda: call(images(), 80),
    "nn.functional.interpolate.nearest-exact": lambda: call(images(), 80, mode="nearest-exact"),
    "nn.functional.interpolate.trilinear": lambda: call(
        f(2, 8, 16, 32, 32), (24, 48, 48), mode="trilinear"
    ),
    "nn.functional.upsample_bilinear": lambda: call(images(), 80),
    "nn.functional.upsample_nearest": lambda: call(images(), 80),
    "_upsample_bilinear2d_aa": lambda: call(images(), (28, 28), False),
}

POOLS: dict[str, Row] = {
    "nn.functional.adaptive_avg_pool1d": lambda: call(f(8, 64, 1000), 7),
    "nn.functional.adaptive_avg_pool2d": lambda: call(images(), 7),
    "nn.functional.adaptive_avg_pool3d": lambda: call(f(2, 16, 16, 32, 32), 7),
    "nn.functional.adaptive_max_pool1d": lambda: call(f(8, 64, 1000), 7),
    "nn.functional.adaptive_max_pool2d": lambda: call(images(), 7),
    "nn.functional.adaptive_max_pool3d": lambda: call(f(2, 16, 16, 32, 32), 7),
    "nn.functional.avg_pool1d": lambda: call(f(8, 64, 1000), 3, 2),
    "nn.functional.avg_pool2d": lambda: call(images(), 3, 2, 1),
    "nn.functional.avg_pool3d": lambda: call(f(2, 16, 16, 32, 32), 3, 2),
    "nn.functional.max_pool1d": lambda: call(f(8, 64, 1000), 3, 2),
    "nn.functional.max_pool2d": lambda: call(images(), 3, 2, 1),
    "nn.functional.max_pool3d": lambda: call(f(2, 16, 16, 32, 32), 3, 2),
    "nn.functional.fractional_max_pool2d": lambda: call(images(), 2, output_ratio=0.6),
    "nn.functional.fractional_max_pool3d": lambda: call(f(2, 16, 16, 32, 32), 2, output_ratio=0.6),
    "nn.functional.max_unpool2d": _unpool,
}

LINEAR_ALGEBRA: dict[str, Row] = {
    "linalg.cholesky": lambda: call(positive(256)),
    "linalg.det": lambda: call(well(256)),
    "linalg.eigh": lambda: call(positive(128)),
    "linalg.eigvals": lambda: call(well(64)),
    "linalg.inv": lambda: call(well(256)),
    "linalg.lstsq": lambda: call(f(512, 64), f(512, 8)),
    "linalg.pinv": lambda: call(f(256, 64)),
    "linalg.qr": lambda: call(f(256, 128)),
    "linalg.solve": lambda: call(well(256), f(256, 16)),
    "linalg.solve_triangular": lambda: call(well(256).triu(), f(256, 64), upper=True),
    "linalg.svd": lambda: call(f(128, 64), False),
    "linalg.svdvals": lambda: call(f(128, 64)),
    "linalg.slogdet": lambda: call(well(256)),
    "logdet": lambda: call(positive(256)),
    "matrix_exp": lambda: call(f(64, 64) / 8),
    "stft": lambda: call(f(4, 32_000), 512, window=torch.hann_window(512), return_complex=True),
}

TRANSFORMS: dict[str, Row] = {
    f"fft.{name}": lambda: call(f(*PLANE))
    for name in ("fft", "fft2", "ifft", "ifft2", "rfft", "rfft2", "hfft", "ihfft", "irfft")
}

TABLE: dict[str, Row] = (
    INDEXING
    | MOVING
    | REDUCING
    | PRODUCTS
    | POINTWISE
    | LOSSES
    | LAYERS
    | POOLS
    | LINEAR_ALGEBRA
    | TRANSFORMS
)


def large(entry: Any) -> Call | None:
    """The realistic call of an entry of the catalog, or None if the sample has to do."""
    torch.manual_seed(0)
    row = TABLE.get(entry.name) or (TABLE.get(entry.op.name) if "." not in entry.name else None)
    if row is not None:
        return row()
    kind = type(entry.op).__name__
    if kind == "UnaryUfuncInfo":
        return _unary(entry)
    if kind == "BinaryUfuncInfo":
        return _binary(entry)
    if kind == "ReductionOpInfo":
        return call(_filled(entry, {}), dim=1)
    return None


def _filled(entry: Any, options: dict[str, Any]) -> torch.Tensor:
    if not entry.dtype.is_floating_point and not entry.dtype.is_complex:
        return torch.randint(0, INTEGERS, PLANE).to(entry.dtype)
    return torch.testing.make_tensor(PLANE, dtype=entry.dtype, device="cpu", **options)


def _unary(entry: Any) -> Call:
    low, high = entry.op.domain
    x = _filled(entry, {"low": low, "high": high})
    kwargs, _ = entry.op.sample_kwargs("cpu", entry.dtype, x)
    if entry.name == "nn.functional.prelu":
        return call(x, torch.rand(()))
    return (x,), dict(kwargs)


def _binary(entry: Any) -> Call:
    sample = next(iter(entry.op.sample_inputs("cpu", entry.dtype)))
    left = _filled(entry, entry.op.lhs_make_tensor_kwargs)
    right = _filled(entry, entry.op.rhs_make_tensor_kwargs)
    if "shift" in entry.name:
        right = right % 8
    return (left, right), dict(sample.kwargs)
