"""A softmax over very many classes, cheap for the frequent ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from lucerne._src.tensor import api as lu
from lucerne._src.tensor.tensor import Tensor
from lucerne.nn import functional as F
from lucerne.nn.modules.container import ModuleList, Sequential
from lucerne.nn.modules.linear import Linear
from lucerne.nn.modules.module import Module


class _ASMoutput(NamedTuple):
    output: Any
    loss: Any


def _check_cutoffs(cutoffs: list[int], n_classes: int) -> None:
    if not cutoffs:
        raise ValueError("cutoffs should be a sequence of length larger than 0")
    rising = all(a < b for a, b in pairwise(cutoffs))
    whole = all(int(c) == c for c in cutoffs)
    if not rising or min(cutoffs) <= 0 or max(cutoffs) > n_classes - 1 or not whole:
        raise ValueError(
            "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
            "order, where each value is between 1 and n_classes-1"
        )


class AdaptiveLogSoftmaxWithLoss(Module):
    """Classes sorted by frequency, in clusters: the head knows the frequent ones and the clusters.

    >>> import lucerne as torch
    >>> layer = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 100, cutoffs=[10, 50])
    >>> layer(torch.randn(4, 16), torch.tensor([1, 20, 60, 99])).output.shape
    torch.Size([4])
    """

    in_features: int
    n_classes: int
    cutoffs: list[int]
    div_value: float
    head_bias: bool
    head: Linear
    tail: ModuleList

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check_cutoffs(list(cutoffs), n_classes)
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        where = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **where)
        self.tail = ModuleList()
        for at in range(self.n_clusters):
            width = int(in_features // div_value ** (at + 1))
            size = self.cutoffs[at + 1] - self.cutoffs[at]
            self.tail.append(
                Sequential(
                    Linear(in_features, width, bias=False, **where),
                    Linear(width, size, bias=False, **where),
                )
            )

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        """The log-probability of each target, and minus their mean as the loss."""
        self._check(input_, target_)
        single = target_.dim() == 0
        input = input_.unsqueeze(0) if single else input_
        target = target_.unsqueeze(0) if single else target_
        log_probs = input.new_zeros(target.shape[0])
        in_head = lu.where(target < self.shortlist_size, target, 0)  # where each is in the head
        counted = int((target < self.shortlist_size).sum())
        for at in range(self.n_clusters):
            low, high = self.cutoffs[at], self.cutoffs[at + 1]
            rows = ((target >= low) & (target < high)).nonzero().squeeze(1)
            if rows.numel() == 0:
                continue
            inside = F.log_softmax(self.tail[at](input.index_select(0, rows)), dim=1)
            wanted = target.index_select(0, rows) - low
            log_probs = log_probs.index_copy(0, rows, inside.gather(1, wanted[:, None]).squeeze(1))
            in_head = in_head.index_fill(0, rows, self.shortlist_size + at)
            counted += rows.numel()
        if counted != target.numel() or int(target.min() if target.numel() else 0) < 0:
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{target.min().item()}, {target.max().item()}] were found. "
            )
        head = F.log_softmax(self.head(input), dim=1)
        log_probs = log_probs + head.gather(1, in_head[:, None]).squeeze(1)
        loss = (-log_probs).mean()
        return _ASMoutput(log_probs.squeeze(0) if single else log_probs, loss)

    def _check(self, input: Tensor, target: Tensor) -> None:
        """Rows of input and targets must match; a single target goes with a single input."""
        if target.dim() == 1:
            if input.shape[0] != target.shape[0]:
                raise RuntimeError(
                    "Input and target should have the same size in the batch dimension."
                )
            if input.dim() != 2:
                raise RuntimeError(
                    "1D target tensor expects 2D input tensors, but found inputs with size "
                    f"{input.size()}"
                )
        elif target.dim() == 0:
            if input.dim() != 1:
                raise RuntimeError(
                    "0D target tensor expects 1D input tensors, but found inputs with size "
                    f"{input.size()}"
                )
        else:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")

    def _get_full_log_prob(self, input: Tensor, head_output: Tensor) -> Tensor:
        """Log-probabilities of all classes, given the head's scores."""
        head = F.log_softmax(head_output, dim=1)
        parts = [head[:, : self.shortlist_size]]
        for at, cluster in enumerate(self.tail):
            inside = F.log_softmax(cluster(input), dim=1)
            parts.append(inside + head[:, self.shortlist_size + at].unsqueeze(1))
        return lu.cat(parts, dim=1)

    def log_prob(self, input: Tensor) -> Tensor:
        """Log-probabilities of all classes, (N, n_classes)."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """The likeliest class of each row, looking into clusters only where one leads the head."""
        scores = self.head(input)
        best = scores.argmax(dim=1)
        deeper = best >= self.shortlist_size
        if deeper.any():
            every = self._get_full_log_prob(input[deeper], scores[deeper])
            best[deeper] = every.argmax(dim=1)
        return best
