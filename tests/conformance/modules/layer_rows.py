"""Rows for layers: dropout, shapes, resampling, pooling, lazy layers, losses."""

from typing import Any

import torch

from tests.conformance.modules.rows import BOTH, EVAL, Row, given, numbers


def _indices(*shape: int, high: int) -> torch.Tensor:
    made = torch.arange(int(torch.tensor(shape).prod())) * 7 % high
    return made.reshape(shape)


def _unpool(dims: int) -> list[Row]:
    """Pool, then put the maxima back where they came from."""

    def use(t: Any, module: Any, x: Any) -> Any:
        pool = getattr(t.nn, f"MaxPool{dims}d")(2, stride=2, return_indices=True)
        values, where = pool(x)
        return module(values, where), module(values, where, output_size=x.size())

    sizes = (6,) * dims
    return [
        Row(
            lambda t: getattr(t.nn, f"MaxUnpool{dims}d")(2, stride=2),
            given((2, 3, *sizes)),
            use=use,
        ),
        Row(lambda t: getattr(t.nn, f"MaxUnpool{dims}d")(2), given((3, *sizes)), use=use),
    ]


def _dropout(name: str, *shape: int) -> list[Row]:
    return [
        Row(lambda t: getattr(t.nn, name)(), given(shape), BOTH),
        Row(lambda t: getattr(t.nn, name)(p=0.2), given(shape), BOTH),
        Row(
            lambda t: getattr(t.nn, name)(0.3, inplace=True),
            lambda: [numbers(*shape, grad=False)],
            BOTH,
        ),
        Row(lambda t: getattr(t.nn, name)(1.0), given(shape)),
        Row(lambda t: getattr(t.nn, name)(1.5)),
    ]


def _lazy_norm(name: str, *shape: int) -> list[Row]:
    return [
        Row(lambda t: getattr(t.nn, name)(), given(shape), BOTH, lazy=True),
        Row(
            lambda t: getattr(t.nn, name)(eps=1e-3, momentum=0.3, affine=True),
            given(shape),
            BOTH,
            lazy=True,
        ),
        Row(
            lambda t: getattr(t.nn, name)(affine=False, track_running_stats=True),
            given(shape),
            BOTH,
            lazy=True,
        ),
    ]


def _bags() -> list[Row]:
    flat, square = _indices(7, high=10), _indices(2, 4, high=10)
    offsets, weights = torch.tensor([0, 2, 5]), numbers(7)
    return [
        Row(lambda t: t.nn.EmbeddingBag(10, 3), lambda: [square]),
        Row(lambda t: t.nn.EmbeddingBag(10, 3, mode="sum"), lambda: [flat, offsets]),
        Row(lambda t: t.nn.EmbeddingBag(10, 3, mode="sum"), lambda: [flat, offsets, weights]),
        Row(lambda t: t.nn.EmbeddingBag(10, 3, mode="max"), lambda: [flat, offsets]),
        Row(lambda t: t.nn.EmbeddingBag(10, 3, padding_idx=0, max_norm=1.0), lambda: [square]),
        Row(
            lambda t: t.nn.EmbeddingBag(10, 3, mode="mean", include_last_offset=True),
            lambda: [flat, torch.tensor([0, 3, 7])],
        ),
        Row(lambda t: t.nn.EmbeddingBag(10, 3, mode="sum", sparse=True), lambda: [square]),
        Row(lambda t: t.nn.Embedding(10, 3, padding_idx=0, sparse=True), lambda: [square]),
        Row(lambda t: t.nn.EmbeddingBag.from_pretrained(t.eye(10), freeze=False), lambda: [square]),
    ]


def _adaptive_softmax() -> list[Row]:
    target = torch.tensor([0, 4, 9, 17, 2])

    def everything(t: Any, module: Any, x: Any, y: Any) -> Any:
        return module(x, y), module.log_prob(x), module.predict(x)

    build = lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10])  # noqa: E731
    return [
        Row(build, lambda: [numbers(5, 8), target], use=everything),
        Row(
            lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5], div_value=2.0, head_bias=True),
            lambda: [numbers(5, 8), target],
        ),
        Row(build, lambda: [numbers(8), torch.tensor(3)]),
        Row(lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 5])),
        Row(build, lambda: [numbers(5, 8), torch.tensor([25, 0, 0, 0, 0])]),
    ]


def _triplets(name: str, **more: Any) -> list[Row]:
    inputs = given((4, 5), (4, 5), (4, 5))
    return [
        Row(lambda t: getattr(t.nn, name)(), inputs),
        Row(lambda t: getattr(t.nn, name)(margin=0.3, swap=True, reduction="sum"), inputs),
        Row(lambda t: getattr(t.nn, name)(reduction="none"), inputs),
    ]


LAYERS: dict[str, list[Row]] = {
    "Dropout": _dropout("Dropout", 4, 5),
    "Dropout1d": [*_dropout("Dropout1d", 2, 3, 4), Row(lambda t: t.nn.Dropout1d(), given((3, 4)))],
    "Dropout2d": _dropout("Dropout2d", 2, 3, 4, 4),
    "Dropout3d": _dropout("Dropout3d", 2, 3, 2, 2, 2),
    "AlphaDropout": _dropout("AlphaDropout", 4, 5),
    "FeatureAlphaDropout": _dropout("FeatureAlphaDropout", 2, 3, 4, 4),
    "Identity": [
        Row(lambda t: t.nn.Identity(), given((2, 3))),
        Row(lambda t: t.nn.Identity(54, unused=0.1), given((2,))),
    ],
    "Flatten": [
        Row(lambda t: t.nn.Flatten(), given((2, 3, 4))),
        Row(lambda t: t.nn.Flatten(0, 2), given((2, 3, 4, 5))),
        Row(lambda t: t.nn.Flatten(start_dim=-2), given((2, 3, 4))),
    ],
    "Unflatten": [
        Row(lambda t: t.nn.Unflatten(1, (2, 3)), given((4, 6))),
        Row(lambda t: t.nn.Unflatten(1, t.Size([2, -1])), given((4, 6))),
        Row(lambda t: t.nn.Unflatten(1, (2, 2)), given((4, 6))),
        Row(lambda t: t.nn.Unflatten(1, "no")),
    ],
    "PixelShuffle": [
        Row(lambda t: t.nn.PixelShuffle(2), given((2, 8, 3, 4))),
        Row(lambda t: t.nn.PixelShuffle(3), given((9, 2, 2))),
        Row(lambda t: t.nn.PixelShuffle(2), given((2, 7, 3, 4))),
    ],
    "PixelUnshuffle": [
        Row(lambda t: t.nn.PixelUnshuffle(2), given((2, 3, 4, 6))),
        Row(lambda t: t.nn.PixelUnshuffle(3), given((1, 1, 4, 6))),
    ],
    "ChannelShuffle": [
        Row(lambda t: t.nn.ChannelShuffle(2), given((2, 6, 3, 3))),
        Row(lambda t: t.nn.ChannelShuffle(4), given((2, 6, 3, 3))),
    ],
    "Upsample": [
        Row(lambda t: t.nn.Upsample(size=7), given((1, 2, 4))),
        Row(lambda t: t.nn.Upsample(scale_factor=2), given((1, 2, 3, 4))),
        Row(lambda t: t.nn.Upsample(scale_factor=(2, 3), mode="bilinear"), given((1, 2, 3, 4))),
        Row(
            lambda t: t.nn.Upsample(scale_factor=2.5, mode="bicubic", align_corners=True),
            given((1, 2, 3, 4)),
        ),
        Row(lambda t: t.nn.Upsample(scale_factor=2, mode="trilinear"), given((1, 1, 2, 3, 2))),
        Row(
            lambda t: t.nn.Upsample(scale_factor=1.7, mode="linear", recompute_scale_factor=True),
            given((1, 2, 5)),
        ),
    ],
    "UpsamplingNearest2d": [
        Row(lambda t: t.nn.UpsamplingNearest2d(scale_factor=2), given((1, 2, 3, 4))),
        Row(lambda t: t.nn.UpsamplingNearest2d(size=(5, 3)), given((1, 2, 3, 4))),
    ],
    "UpsamplingBilinear2d": [
        Row(lambda t: t.nn.UpsamplingBilinear2d(scale_factor=2), given((1, 2, 3, 4))),
        Row(lambda t: t.nn.UpsamplingBilinear2d(size=(5, 3)), given((1, 2, 3, 4))),
    ],
    "Unfold": [
        Row(lambda t: t.nn.Unfold(2), given((2, 3, 5, 6))),
        Row(lambda t: t.nn.Unfold((2, 3), dilation=1, padding=1, stride=2), given((2, 3, 5, 6))),
    ],
    "Fold": [
        Row(lambda t: t.nn.Fold((4, 5), 2), given((2, 12, 12))),
        Row(
            lambda t: t.nn.Fold(output_size=(4, 5), kernel_size=(2, 2), padding=1, stride=2),
            given((12, 9)),
        ),
        Row(lambda t: t.nn.Fold((4, 5), 2), given((2, 12, 11))),
    ],
    "EmbeddingBag": _bags(),
    "MaxUnpool1d": _unpool(1),
    "MaxUnpool2d": _unpool(2),
    "MaxUnpool3d": _unpool(3),
    "AdaptiveLogSoftmaxWithLoss": _adaptive_softmax(),
    "CrossMapLRN2d": [
        # Values only: torch's backward is not the derivative of its forward (gradcheck refuses
        # it), ours is.
        Row(lambda t: t.nn.CrossMapLRN2d(3), lambda: [numbers(2, 5, 3, 3, grad=False)]),
        Row(
            lambda t: t.nn.CrossMapLRN2d(2, alpha=0.1, beta=0.5, k=2),
            lambda: [numbers(2, 5, 3, 3, grad=False)],
        ),
    ],
    "CosineSimilarity": [
        Row(lambda t: t.nn.CosineSimilarity(), given((3, 4), (3, 4))),
        Row(lambda t: t.nn.CosineSimilarity(dim=0, eps=1e-3), given((3, 4), (3, 4))),
    ],
    "PairwiseDistance": [
        Row(lambda t: t.nn.PairwiseDistance(), given((3, 4), (3, 4))),
        Row(lambda t: t.nn.PairwiseDistance(p=1.0, eps=1e-3, keepdim=True), given((3, 4), (3, 4))),
    ],
    "RReLU": [
        Row(lambda t: t.nn.RReLU(), given((4, 5)), BOTH),
        Row(lambda t: t.nn.RReLU(0.2, 0.4), given((4, 5)), BOTH),
        Row(lambda t: t.nn.RReLU(inplace=True), lambda: [numbers(4, 5, grad=False)], BOTH),
    ],
    "Hardsigmoid": [
        Row(lambda t: t.nn.Hardsigmoid(), lambda: [numbers(4, 5) * 3]),
        Row(lambda t: t.nn.Hardsigmoid(inplace=True), lambda: [numbers(4, 5, grad=False)]),
    ],
    "SyncBatchNorm": [
        Row(lambda t: t.nn.SyncBatchNorm(3), given((4, 3, 2)), EVAL),
        Row(lambda t: t.nn.SyncBatchNorm(3), given((4, 3, 2))),
        Row(
            lambda t: t.nn.SyncBatchNorm.convert_sync_batchnorm(
                t.nn.Sequential(t.nn.Conv1d(3, 3, 1), t.nn.BatchNorm1d(3, eps=1e-3))
            ),
            given((4, 3, 2)),
            EVAL,
        ),
        Row(lambda t: t.nn.SyncBatchNorm(3), given((4,)), EVAL),
    ],
    "LazyBatchNorm1d": _lazy_norm("LazyBatchNorm1d", 4, 3, 5),
    "LazyBatchNorm2d": _lazy_norm("LazyBatchNorm2d", 4, 3, 2, 2),
    "LazyBatchNorm3d": _lazy_norm("LazyBatchNorm3d", 4, 3, 2, 2, 2),
    "LazyInstanceNorm1d": _lazy_norm("LazyInstanceNorm1d", 4, 3, 5),
    "LazyInstanceNorm2d": _lazy_norm("LazyInstanceNorm2d", 4, 3, 2, 2),
    "LazyInstanceNorm3d": _lazy_norm("LazyInstanceNorm3d", 4, 3, 2, 2, 2),
    "LazyLinear": [
        Row(lambda t: t.nn.LazyLinear(4), given((2, 3)), lazy=True),
        Row(lambda t: t.nn.LazyLinear(4, bias=False), given((2, 3)), lazy=True),
        Row(
            lambda t: t.nn.Sequential(t.nn.LazyLinear(4), t.nn.LazyLinear(2)),
            given((2, 3)),
            lazy=True,
        ),
    ],
    "NLLLoss2d": [
        Row(lambda t: t.nn.NLLLoss2d(), lambda: [numbers(2, 3, 2, 2), _indices(2, 2, 2, high=3)]),
        Row(
            lambda t: t.nn.NLLLoss2d(t.tensor([1.0, 2.0, 3.0]), reduction="sum"),
            lambda: [numbers(2, 3, 2, 2), _indices(2, 2, 2, high=3)],
        ),
    ],
    "TripletMarginLoss": [
        *_triplets("TripletMarginLoss"),
        Row(lambda t: t.nn.TripletMarginLoss(p=1, eps=1e-3), given((4, 5), (4, 5), (4, 5))),
    ],
    "TripletMarginWithDistanceLoss": [
        *_triplets("TripletMarginWithDistanceLoss"),
        Row(
            lambda t: t.nn.TripletMarginWithDistanceLoss(
                distance_function=t.nn.PairwiseDistance(p=3)
            ),
            given((4, 5), (4, 5), (4, 5)),
        ),
    ],
}
