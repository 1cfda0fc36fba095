"""The losses that torch also has at top level: reduction is a number (0 none, 1 mean, 2 sum)."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import front
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy.cast import filled
from lucerne._src.ops.nn import classify, ctc, embedding, loss, margins

_REDUCTIONS = ("none", "mean", "sum")


def _named(reduction: Any) -> str:
    return reduction if isinstance(reduction, str) else _REDUCTIONS[reduction]


@front()
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:
    """Binary cross entropy of scores; see `nn.functional`."""
    return classify.binary_cross_entropy_with_logits(
        input, target, weight, reduction=_named(reduction), pos_weight=pos_weight
    )


@front()
def kl_div(
    input: Tensor, target: Tensor, reduction: int = 1, *, log_target: bool = False
) -> Tensor:
    """Kullback-Leibler divergence; see `nn.functional`."""
    return classify.kl_div(input, target, reduction=_named(reduction), log_target=log_target)


@front()
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 1
) -> Tensor:
    """Ranking loss; see `nn.functional`."""
    return margins.margin_ranking_loss(input1, input2, target, margin, reduction=_named(reduction))


@front()
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 1
) -> Tensor:
    """Hinge loss of distances; see `nn.functional`."""
    return margins.hinge_embedding_loss(input, target, margin, reduction=_named(reduction))


@front()
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 1
) -> Tensor:
    """Cosine loss of two vectors; see `nn.functional`."""
    return margins.cosine_embedding_loss(
        input1, input2, target, margin, reduction=_named(reduction)
    )


@front(autocast="full")
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 1,
) -> Tensor:
    """Triplet loss; see `nn.functional`."""
    return margins.triplet_margin_loss(
        anchor, positive, negative, margin, p, eps, swap, reduction=_named(reduction)
    )


@front()
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int
) -> Tensor:
    """Likelihood of counts; see `nn.functional`."""
    return loss.poisson_nll_loss(
        input, target, log_input, full, eps=eps, reduction=_named(reduction)
    )


@front(name="ctc_loss", autocast="full")
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """Likelihood of label sequences; see `nn.functional`."""
    return ctc.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, _named(reduction), zero_infinity
    )


@front(name="embedding_bag")
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Bags of embeddings, with the bag of each index, the size of each bag, and an empty tensor."""
    found = embedding.embedding_bag(
        indices,
        weight,
        offsets,
        scale_grad_by_freq=scale_grad_by_freq,
        mode=("sum", "mean", "max")[mode],
        sparse=sparse,
        per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset,
        padding_idx=padding_idx,
    )
    starts = offsets.narrow(0, 0, found.shape[0])
    bags = embedding.bag_numbers(starts, indices.shape[0])
    sizes = bags.bincount(minlength=found.shape[0])
    return found, bags, sizes, filled((0,), 0, dt.int64, indices.device, None)
