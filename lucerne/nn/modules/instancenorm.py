"""Instance normalisation: statistics of each channel of each sample."""

from __future__ import annotations

from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.tensor.tensor import Tensor
from lucerne.nn import functional as F
from lucerne.nn.modules.batchnorm import _LazyNormBase, _NormBase

_STALE = (
    "Unexpected running stats buffer(s) {names} for {klass} with track_running_stats=False. If "
    "state_dict is a checkpoint saved before 0.4.0, this may be expected because {klass} does not "
    "track running stats by default since 0.4.0. Please remove these keys from state_dict. If the "
    "running stats are actually needed, instead set track_running_stats=True in {klass} to enable "
    "them. See the documentation of {klass} for details."
)


class _InstanceNorm(_NormBase):
    """Instance norm of any number of dimensions, with or without a batch dimension."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    _no_batch_dim: int

    def _get_no_batch_dim(self) -> int:
        return self._no_batch_dim

    def _check_input_dim(self, input: Tensor) -> None:
        n = self._get_no_batch_dim()
        if input.dim() not in (n, n + 1):
            raise ValueError(f"expected {n}D or {n + 1}D input (got {input.dim()}D input)")

    def _handle_no_batch_input(self, input: Tensor) -> Tensor:
        return self._apply_instance_norm(input.unsqueeze(0)).squeeze(0)

    def _apply_instance_norm(self, input: Tensor) -> Tensor:
        return F.instance_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        if local_metadata.get("version", None) is None and not self.track_running_stats:
            keys = [prefix + name for name in ("running_mean", "running_var")]
            stale = [key for key in keys if key in state_dict]
            if stale:
                names = " and ".join(f'"{key}"' for key in stale)
                error_msgs.append(_STALE.format(names=names, klass=self.__class__.__name__))
                for key in stale:
                    state_dict.pop(key)
        rest = strict, missing_keys, unexpected_keys, error_msgs
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def forward(self, input: Tensor) -> Tensor:
        """Each channel of each sample with mean 0 and variance 1, then scaled and shifted."""
        self._check_input_dim(input)
        n = self._get_no_batch_dim()
        at = input.dim() - n
        if input.size(at) != self.num_features:
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={at} to match num_features "
                    f"({self.num_features}), but got: {input.size(at)}."
                )
            notices.warn(
                f"input's size at dim={at} does not match num_features. "
                "You can silence this warning by not passing in num_features, "
                "which is not used because affine=False"
            )
        if input.dim() == n:
            return self._handle_no_batch_input(input)
        return self._apply_instance_norm(input)


class InstanceNorm1d(_InstanceNorm):
    """Instance norm of (N, C, L) or (C, L)."""

    _no_batch_dim = 2


class InstanceNorm2d(_InstanceNorm):
    """Instance norm of images (N, C, H, W) or (C, H, W)."""

    _no_batch_dim = 3


class InstanceNorm3d(_InstanceNorm):
    """Instance norm of volumes (N, C, D, H, W) or (C, D, H, W)."""

    _no_batch_dim = 4


class LazyInstanceNorm1d(_LazyNormBase, _InstanceNorm):
    """An `InstanceNorm1d` that takes `num_features` from its first input.

    >>> import lucerne as torch
    >>> layer = torch.nn.LazyInstanceNorm1d()
    >>> _ = layer(torch.randn(2, 4, 5))
    >>> type(layer).__name__, layer.num_features
    ('InstanceNorm1d', 4)
    """

    cls_to_become = InstanceNorm1d
    _no_batch_dim = 2


class LazyInstanceNorm2d(_LazyNormBase, _InstanceNorm):
    """An `InstanceNorm2d` that takes `num_features` from its first input."""

    cls_to_become = InstanceNorm2d
    _no_batch_dim = 3


class LazyInstanceNorm3d(_LazyNormBase, _InstanceNorm):
    """An `InstanceNorm3d` that takes `num_features` from its first input."""

    cls_to_become = InstanceNorm3d
    _no_batch_dim = 4
