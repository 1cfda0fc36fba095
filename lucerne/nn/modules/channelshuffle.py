"""A layer that deals channels out among groups."""

from __future__ import annotations

from lucerne._src.tensor.tensor import Tensor
from lucerne.nn import functional as F
from lucerne.nn.modules.module import Module


class ChannelShuffle(Module):
    """Rearranges channels (groups, n) as (n, groups), so that groups mix (ShuffleNet).

    >>> import lucerne as torch
    >>> torch.nn.ChannelShuffle(2)(torch.arange(4.0).reshape(1, 4, 1)).flatten()
    tensor([0., 2., 1., 3.])
    """

    __constants__ = ["groups"]
    groups: int

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        """The input with its channels dealt out."""
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        """The number of groups."""
        return f"groups={self.groups}"
