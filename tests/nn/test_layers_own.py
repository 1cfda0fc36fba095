"""Layers that torch's module database lacks, against torch: train and eval, forward and backward.

Each row makes a layer and its inputs with whichever framework it is given. Everything a user can
see is compared: repr, state and its first values, outputs, gradients of inputs and parameters, the
state afterwards.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import lucerne as torch
from lucerne import nn
from tests.nn.agree import assert_agree

pytestmark = pytest.mark.torch


@dataclass(frozen=True)
class Row:
    """A layer (made from `t.nn`) and the shapes of its inputs, or a function that makes them."""

    make: Callable[[Any], Any]
    inputs: Any

    def arguments(self, t: Any) -> list[Any]:
        if callable(self.inputs):
            return list(self.inputs(t))
        return [t.randn(shape, requires_grad=True) for shape in self.inputs]


def _padded(kind: str, n: int, *more: Any) -> Row:
    shape = (2, 3, 5, 6, 7)[: n + 2]
    widths = tuple(range(1, 2 * n + 1)) if kind in ("Zero", "Constant") else (1, 2) * n
    return Row(lambda t: getattr(t.nn, f"{kind}Pad{n}d")(widths, *more), [shape])


def _pooled(t: Any, n: int) -> Any:
    pool = getattr(t.nn, f"MaxPool{n}d")(2, return_indices=True)
    return pool(t.randn((2, 3, 4, 6, 4)[: n + 2], requires_grad=True))


def _probabilities(t: Any, *shape: int) -> Any:
    return t.rand(shape) * 0.8 + 0.1


def _bags(t: Any) -> list[Any]:
    return [t.tensor([1, 2, 4, 5, 4, 3, 2, 9]), t.tensor([0, 4, 4])]


ROWS: dict[str, Row] = {
    "Identity": Row(lambda t: t.nn.Identity(3, x=1), [(2, 3)]),
    "Bilinear": Row(lambda t: t.nn.Bilinear(3, 4, 5, bias=False), [(2, 3), (2, 4)]),
    "Flatten": Row(lambda t: t.nn.Flatten(), [(2, 3, 4)]),
    "Flatten 0 1": Row(lambda t: t.nn.Flatten(0, 1), [(2, 3, 4)]),
    "Unflatten": Row(lambda t: t.nn.Unflatten(1, (2, 3)), [(2, 6)]),
    "Unflatten Size": Row(lambda t: t.nn.Unflatten(-1, t.Size([2, 3])), [(2, 6)]),
    "PixelShuffle": Row(lambda t: t.nn.PixelShuffle(2), [(2, 8, 3, 3)]),
    "PixelUnshuffle": Row(lambda t: t.nn.PixelUnshuffle(2), [(2, 2, 4, 6)]),
    "ChannelShuffle": Row(lambda t: t.nn.ChannelShuffle(3), [(2, 6, 4)]),
    "Upsample": Row(lambda t: t.nn.Upsample(scale_factor=2), [(2, 3, 4)]),
    "Upsample size": Row(lambda t: t.nn.Upsample((5, 7)), [(2, 3, 4, 4)]),
    "Upsample bicubic": Row(lambda t: t.nn.Upsample(7, mode="bicubic"), [(2, 3, 4, 4)]),
    "Upsample factors": Row(
        lambda t: t.nn.Upsample(scale_factor=(2, 1.5), mode="bilinear", align_corners=True),
        [(2, 3, 4, 4)],
    ),
    "UpsamplingNearest2d": Row(lambda t: t.nn.UpsamplingNearest2d(scale_factor=2), [(1, 2, 3, 3)]),
    "UpsamplingBilinear2d": Row(lambda t: t.nn.UpsamplingBilinear2d((5, 4)), [(1, 2, 3, 3)]),
    "Unfold": Row(lambda t: t.nn.Unfold((2, 3), padding=1, stride=2), [(2, 3, 5, 6)]),
    "Fold": Row(lambda t: t.nn.Fold((4, 5), (2, 2)), [(2, 12, 12)]),
    "Softmax2d": Row(lambda t: t.nn.Softmax2d(), [(2, 3, 4, 4)]),
    "Softmax2d 3D": Row(lambda t: t.nn.Softmax2d(), [(3, 4, 4)]),
    "CosineSimilarity": Row(lambda t: t.nn.CosineSimilarity(0), [(3, 4), (3, 4)]),
    "PairwiseDistance": Row(lambda t: t.nn.PairwiseDistance(1.5, keepdim=True), [(3, 4), (3, 4)]),
    "RMSNorm": Row(lambda t: t.nn.RMSNorm((3, 4)), [(2, 3, 4)]),
    "RMSNorm eps": Row(lambda t: t.nn.RMSNorm(4, 1e-2, False), [(2, 3, 4)]),
    "LayerNorm no bias": Row(lambda t: t.nn.LayerNorm([3, 4], bias=False), [(2, 3, 4)]),
    "GroupNorm no bias": Row(lambda t: t.nn.GroupNorm(2, 4, bias=False), [(2, 4, 3)]),
    "GroupNorm plain": Row(lambda t: t.nn.GroupNorm(2, 4, affine=False), [(2, 4, 3)]),
    "BatchNorm1d cumulative": Row(lambda t: t.nn.BatchNorm1d(3, momentum=None), [(4, 3)]),
    "BatchNorm2d no bias": Row(lambda t: t.nn.BatchNorm2d(3, bias=False), [(4, 3, 2, 2)]),
    "BatchNorm2d untracked": Row(
        lambda t: t.nn.BatchNorm2d(3, affine=False, track_running_stats=False), [(4, 3, 2, 2)]
    ),
    "SyncBatchNorm": Row(lambda t: t.nn.SyncBatchNorm(3), [(4, 3, 2)]),
    "InstanceNorm2d affine": Row(
        lambda t: t.nn.InstanceNorm2d(3, affine=True, track_running_stats=True, bias=False),
        [(4, 3, 2, 3)],
    ),
    "Conv2d circular": Row(
        lambda t: t.nn.Conv2d(2, 4, 3, padding=(1, 2), padding_mode="circular", groups=2),
        [(2, 2, 5, 5)],
    ),
    "Conv2d same reflect": Row(
        lambda t: t.nn.Conv2d(2, 3, (2, 3), padding="same", dilation=2, padding_mode="reflect"),
        [(2, 2, 6, 6)],
    ),
    "Conv1d unbatched": Row(lambda t: t.nn.Conv1d(2, 3, 3, bias=False, stride=2), [(2, 9)]),
    "ConvTranspose2d size": Row(
        lambda t: t.nn.ConvTranspose2d(4, 2, 3, stride=2, groups=2),
        lambda t: [t.randn(1, 4, 3, 3, requires_grad=True), (8, 7)],
    ),
    "Embedding": Row(
        lambda t: t.nn.Embedding(10, 3, padding_idx=-1), lambda t: [t.tensor([[1, 9], [2, 1]])]
    ),
    "Embedding renormed": Row(
        lambda t: t.nn.Embedding(10, 3, max_norm=0.7, norm_type=1.0, scale_grad_by_freq=True),
        lambda t: [t.tensor([[1, 9], [2, 1]])],
    ),
    "Embedding pretrained": Row(
        lambda t: t.nn.Embedding.from_pretrained(t.randn(4, 3), freeze=False, padding_idx=2),
        lambda t: [t.tensor([0, 2, 2])],
    ),
    "EmbeddingBag": Row(lambda t: t.nn.EmbeddingBag(10, 3), _bags),
    "EmbeddingBag sum": Row(lambda t: t.nn.EmbeddingBag(10, 3, mode="sum", padding_idx=4), _bags),
    "EmbeddingBag max": Row(lambda t: t.nn.EmbeddingBag(10, 3, mode="max"), _bags),
    "EmbeddingBag 2D": Row(
        lambda t: t.nn.EmbeddingBag(10, 3, max_norm=1.0), lambda t: [t.tensor([[1, 2], [3, 3]])]
    ),
    "EmbeddingBag weights": Row(
        lambda t: t.nn.EmbeddingBag(10, 3, mode="sum"),
        lambda t: [*_bags(t), t.rand(8, requires_grad=True)],
    ),
    "EmbeddingBag last": Row(
        lambda t: t.nn.EmbeddingBag(10, 3, include_last_offset=True),
        lambda t: [_bags(t)[0], t.tensor([0, 4, 8])],
    ),
    "EmbeddingBag pretrained": Row(
        lambda t: t.nn.EmbeddingBag.from_pretrained(t.randn(10, 3), freeze=False), _bags
    ),
    "AdaptiveLogSoftmaxWithLoss": Row(
        lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], div_value=2.0, head_bias=True),
        lambda t: [t.randn(5, 8, requires_grad=True), t.tensor([1, 5, 12, 19, 3])],
    ),
    "AdaptiveLogSoftmaxWithLoss single": Row(
        lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4]),
        lambda t: [t.randn(8, requires_grad=True), t.tensor(11)],
    ),
    "LPPool2d": Row(lambda t: t.nn.LPPool2d(2, 2, stride=1, ceil_mode=True), [(1, 2, 5, 5)]),
    "AvgPool2d divisor": Row(
        lambda t: t.nn.AvgPool2d(2, 1, 1, True, False, divisor_override=3), [(1, 2, 5, 5)]
    ),
    "AdaptiveAvgPool2d None": Row(lambda t: t.nn.AdaptiveAvgPool2d((3, None)), [(1, 2, 5, 5)]),
    "AdaptiveMaxPool1d indices": Row(lambda t: t.nn.AdaptiveMaxPool1d(3, True), [(1, 2, 7)]),
    "FractionalMaxPool2d": Row(
        lambda t: t.nn.FractionalMaxPool2d(2, output_size=3, return_indices=True), [(2, 3, 7, 7)]
    ),
    "LinearCrossEntropyLoss": Row(
        lambda t: t.nn.LinearCrossEntropyLoss(5, 7, bias=True, out_features=(2,)),
        lambda t: [t.randn(3, 5, requires_grad=True), t.tensor([[0, 1], [5, 6], [3, 3]])],
    ),
    "TripletMarginWithDistanceLoss": Row(
        lambda t: t.nn.TripletMarginWithDistanceLoss(swap=True, margin=2.0),
        [(3, 4), (3, 4), (3, 4)],
    ),
    "GaussianNLLLoss": Row(
        lambda t: t.nn.GaussianNLLLoss(full=True),
        lambda t: [t.randn(3, 4, requires_grad=True), t.randn(3, 4), _probabilities(t, 3, 4)],
    ),
    "BCELoss weighted": Row(
        lambda t: t.nn.BCELoss(weight=t.tensor([1.0, 2.0])),
        lambda t: [_probabilities(t, 3, 2).requires_grad_(), _probabilities(t, 3, 2)],
    ),
    "BCEWithLogitsLoss pos": Row(
        lambda t: t.nn.BCEWithLogitsLoss(pos_weight=t.tensor([1.0, 2.0]), reduction="none"),
        lambda t: [t.randn(3, 2, requires_grad=True), _probabilities(t, 3, 2)],
    ),
    "MultiMarginLoss": Row(
        lambda t: t.nn.MultiMarginLoss(p=2, weight=t.tensor([1.0, 2.0, 0.5])),
        lambda t: [t.randn(4, 3, requires_grad=True), t.tensor([0, 2, 1, 1])],
    ),
}
ROWS |= {
    f"{name} {p}": Row(lambda t, name=name, p=p: getattr(t.nn, name)(p), [(4, 6, 3, 3)])  # type: ignore[misc]
    for name in ("Dropout", "Dropout2d", "AlphaDropout", "FeatureAlphaDropout")
    for p in (0.0, 0.3, 1.0)
}
ROWS |= {
    "Dropout1d": Row(lambda t: t.nn.Dropout1d(0.4), [(4, 6, 3)]),
    "Dropout3d": Row(lambda t: t.nn.Dropout3d(0.4), [(4, 6, 3, 2, 2)]),
    "Dropout in place": Row(
        lambda t: t.nn.Dropout(0.4, inplace=True),
        lambda t: [t.randn(4, 6, requires_grad=True) * 1],
    ),
}
ROWS |= {f"{k}Pad{n}d": _padded(k, n) for k in ("Zero", "Circular", "Reflection", "Replication")
         for n in (1, 2, 3)}  # fmt: skip
ROWS |= {f"ConstantPad{n}d": _padded("Constant", n, 1.5) for n in (1, 2, 3)}
ROWS |= {
    f"MaxUnpool{n}d": Row(
        lambda t, n=n: getattr(t.nn, f"MaxUnpool{n}d")(2),  # type: ignore[misc]
        lambda t, n=n: _pooled(t, n),  # type: ignore[misc]
    )
    for n in (1, 2, 3)
}
LAZY = {
    "LazyLinear": ((4,), (2, 5)),
    "LazyBatchNorm1d": ((), (4, 3)),
    "LazyBatchNorm2d": ((), (4, 3, 2, 2)),
    "LazyBatchNorm3d": ((), (4, 3, 2, 2, 2)),
    "LazyInstanceNorm1d": ((), (4, 3, 5)),
    "LazyInstanceNorm2d": ((), (4, 3, 2, 3)),
    "LazyInstanceNorm3d": ((), (4, 3, 2, 3, 2)),
    "LazyConv1d": ((4, 3), (2, 3, 6)),
    "LazyConvTranspose2d": ((4, 3), (2, 3, 4, 4)),
}


def _leaves(found: Any) -> list[Any]:
    return [x for one in found for x in _leaves(one)] if isinstance(found, tuple) else [found]


def _use(t: Any, module: Any, arguments: list[Any]) -> list[Any]:
    """Outputs, gradients of all leaves, and the state afterwards."""
    leaves = [a for a in arguments if hasattr(a, "requires_grad") and a.is_leaf]
    outs = _leaves(module(*arguments))
    seen = [o for o in outs if o.requires_grad]
    if seen:
        sum((o * t.arange(1.0, o.numel() + 1).reshape(o.shape)).sum() for o in seen).backward()
    grads = [a.grad for a in leaves if a.requires_grad] + [p.grad for p in module.parameters()]
    return [*outs, [g if g is not None else "none" for g in grads], dict(module.state_dict())]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", ROWS)
def test_layer_agrees_with_torch(name: str, training: bool) -> None:
    row = ROWS[name]

    def case(t: Any) -> Any:
        module = row.make(t).train(training)
        first = {key: value.clone() for key, value in module.state_dict().items()}
        return [repr(module), first, *_use(t, module, row.arguments(t))]

    assert_agree(case, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", LAZY)
def test_lazy_layer_becomes_what_torchs_becomes(name: str) -> None:
    arguments, shape = LAZY[name]

    def case(t: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = getattr(t.nn, name)(*arguments)
        before = [repr(module), list(module.state_dict()), module.has_uninitialized_params()]
        found = _use(t, module, [t.randn(shape, requires_grad=True)])
        return [before, repr(module), type(module).__name__, *found]

    assert_agree(case)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("channels", [1, 3, 7])
def test_cross_map_lrn(size: int, channels: int) -> None:
    """Values only: torch's gradient forgets the first channel that its values remember."""

    def case(t: Any) -> Any:
        module = t.nn.CrossMapLRN2d(size, 0.5, 0.6, 2)
        return [repr(module), module(t.randn(2, channels, 3, 3))]

    assert_agree(case)


def test_adaptive_softmax_log_prob_and_predict() -> None:
    def case(t: Any) -> Any:
        module = t.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], div_value=2.0)
        x = t.randn(16, 8) * 4
        return [module.log_prob(x), module.predict(x), module.predict(x * 0)]

    assert_agree(case)


def test_convert_sync_batchnorm_keeps_state() -> None:
    def case(t: Any) -> Any:
        net = t.nn.Sequential(t.nn.Conv2d(3, 4, 1), t.nn.Sequential(t.nn.BatchNorm2d(4)))
        net(t.randn(2, 3, 4, 4))
        twin = t.nn.SyncBatchNorm.convert_sync_batchnorm(net)
        return [repr(twin), dict(twin.state_dict()), twin(t.randn(2, 3, 4, 4))]

    assert_agree(case)


@pytest.mark.parametrize("metadata", [True, False])
def test_batch_norm_loads_state_without_a_count(metadata: bool) -> None:
    """A state dict of version 1 has no `num_batches_tracked`; one of version 2 must have it."""

    def case(t: Any) -> Any:
        module = t.nn.BatchNorm1d(3)
        module.num_batches_tracked += 7
        state = module.state_dict()
        del state["num_batches_tracked"]
        if not metadata:
            state = dict(state)
        try:
            return [str(module.load_state_dict(state)), dict(module.state_dict())]
        except RuntimeError as error:
            return [str(error)]

    assert_agree(case)


ERRORS: dict[str, Callable[[Any], Any]] = {
    "dropout p": lambda t: t.nn.Dropout(1.5),
    "groups": lambda t: t.nn.Conv2d(3, 4, 3, groups=2),
    "groups 0": lambda t: t.nn.Conv2d(3, 4, 3, groups=0),
    "same strided": lambda t: t.nn.Conv2d(4, 4, 3, padding="same", stride=2),
    "transposed mode": lambda t: t.nn.ConvTranspose1d(4, 4, 3, padding_mode="reflect"),
    "output size": lambda t: t.nn.ConvTranspose1d(1, 1, 3, stride=2)(t.zeros(1, 1, 4), [12]),
    "output length": lambda t: t.nn.ConvTranspose1d(1, 1, 3)(t.zeros(1, 1, 4), [1, 2, 3, 4]),
    "bilinear": lambda t: t.nn.Bilinear(0, 1, 1),
    "padding_idx": lambda t: t.nn.Embedding(3, 4, padding_idx=3),
    "bag padding_idx": lambda t: t.nn.EmbeddingBag(3, 4, padding_idx=-4),
    "embedding weight": lambda t: t.nn.Embedding(3, 4, _weight=t.zeros(2, 2)),
    "pretrained": lambda t: t.nn.Embedding.from_pretrained(t.zeros(3)),
    "bn dims": lambda t: t.nn.BatchNorm2d(3)(t.zeros(2, 3)),
    "sync channels": lambda t: t.nn.SyncBatchNorm(3)(t.zeros(2, 0)),
    "instance channels": lambda t: t.nn.InstanceNorm1d(3, affine=True)(t.zeros(2, 4, 5)),
    "group norm": lambda t: t.nn.GroupNorm(2, 3),
    "fraction": lambda t: t.nn.FractionalMaxPool2d(2),
    "fraction both": lambda t: t.nn.FractionalMaxPool3d(2, 3, 0.5),
    "fraction range": lambda t: t.nn.FractionalMaxPool2d(2, output_ratio=1.5),
    "softmax2d": lambda t: t.nn.Softmax2d()(t.zeros(2, 3)),
    "circular": lambda t: t.nn.CircularPad2d(1)(t.zeros(2, 3)),
    "lrn": lambda t: t.nn.CrossMapLRN2d(3)(t.zeros(2, 3)),
    "hardtanh": lambda t: t.nn.Hardtanh(2, 1),
    "unflatten": lambda t: t.nn.Unflatten(1, 3),
    "unflatten item": lambda t: t.nn.Unflatten(1, (2, "a")),
    "margin": lambda t: t.nn.TripletMarginLoss(margin=-1),
    "multi margin p": lambda t: t.nn.MultiMarginLoss(p=3),
    "huber": lambda t: t.nn.HuberLoss(delta="a"),
    "cutoffs": lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(4, 9, [5, 3]),
    "no cutoffs": lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(4, 9, []),
    "adaptive target": lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(4, 9, [3])(
        t.zeros(2, 4), t.tensor([1, 9])
    ),
    "adaptive batch": lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(4, 9, [3])(
        t.zeros(2, 4), t.tensor([1])
    ),
    "lce options": lambda t: t.nn.LinearCrossEntropyOptions(batch_chunk_size=-1),
    "gain": lambda t: t.nn.init.calculate_gain("gelu"),
    "fan": lambda t: t.nn.init.kaiming_uniform_(t.zeros(3)),
    "mode": lambda t: t.nn.init.kaiming_normal_(t.zeros(3, 3), mode="fan"),
    "dirac": lambda t: t.nn.init.dirac_(t.zeros(3, 3)),
    "eye": lambda t: t.nn.init.eye_(t.zeros(3)),
    "orthogonal": lambda t: t.nn.init.orthogonal_(t.zeros(3)),
    "sparse": lambda t: t.nn.init.sparse_(t.zeros(3), 0.1),
}


@pytest.mark.parametrize("name", ERRORS)
def test_refuses_as_torch_does(name: str) -> None:
    def case(t: Any) -> list[str]:
        with pytest.raises(Exception, match=r"[a-z]") as caught:
            ERRORS[name](t)
        return [caught.type.__name__, str(caught.value)]

    assert_agree(case)


WARNINGS: dict[str, Callable[[Any], Any]] = {
    "size_average": lambda t: t.nn.L1Loss(size_average=False),
    "reduce": lambda t: t.nn.CrossEntropyLoss(reduce=False),
    "nll2d": lambda t: t.nn.NLLLoss2d(),
    "hardtanh": lambda t: t.nn.Hardtanh(min_value=-2.0),
    "instance": lambda t: t.nn.InstanceNorm1d(3)(t.zeros(2, 4, 5)),
    "softmax": lambda t: t.nn.Softmax()(t.zeros(2, 3)),
    "nothing to draw": lambda t: t.nn.Linear(0, 2),
    "old init": lambda t: t.nn.init.constant(t.zeros(2), 1.0),
    "far": lambda t: t.nn.init.trunc_normal_(t.zeros(2), mean=9.0),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_warns_as_torch_does(name: str) -> None:
    def case(t: Any) -> list[Any]:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            made = WARNINGS[name](t)
        return [[(w.category.__name__, str(w.message)) for w in told], str(made.reduction)
                if hasattr(made, "reduction") else ""]  # fmt: skip

    assert_agree(case)


@pytest.mark.parametrize(
    "layer", [nn.Linear(6, 3, device="meta"), nn.Conv1d(4, 3, 2, device="meta")], ids=repr
)
def test_a_layer_without_memory_refuses_numbers(layer: nn.Module) -> None:
    """Its weights hold nothing: reading them would end the process."""
    with pytest.raises(RuntimeError, match="device meta is not on the expected device cpu"):
        layer(torch.ones(2, 4, 6))


def test_lazy_convolutions_live_where_torch_has_them() -> None:
    for name in ("LazyConv1d", "LazyConv2d", "LazyConvTranspose3d"):
        assert getattr(nn, name) is getattr(nn.modules.conv, name)
        assert getattr(nn, name).__module__ == nn.modules.conv.__name__
