"""Batch normalisation: statistics over all but the channel dimension, remembered for evaluation."""

from __future__ import annotations

from typing import Any

from lucerne._src.base.process.late_bindings import LateBindings
from lucerne._src.ir.dispatch import recording
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.tensor import Tensor
from lucerne.nn import functional as F
from lucerne.nn.modules.affine import add_affine, reset_affine
from lucerne.nn.modules.lazy import LazyModuleMixin
from lucerne.nn.modules.module import Module
from lucerne.nn.parameter import UninitializedBuffer, UninitializedParameter


class _NormBase(Module):
    """What batch and instance norm share: scale and shift, running statistics, loading them."""

    _version = 2
    __constants__ = ["track_running_stats", "momentum", "eps", "num_features", "affine"]
    num_features: int
    eps: float
    momentum: float | None
    affine: bool
    track_running_stats: bool
    weight: Any
    bias: Any
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        add_affine(self, num_features, affine, affine and bias, device, dtype)
        self._register_statistics(device, dtype)
        self.reset_parameters()

    def _register_statistics(self, device: Any, dtype: Any) -> None:
        n, tracks = self.num_features, self.track_running_stats
        mean = lu.zeros(n, device=device, dtype=dtype) if tracks else None
        variance = lu.ones(n, device=device, dtype=dtype) if tracks else None
        count = lu.tensor(0, dtype=lu.int64, device=device) if tracks else None
        self.register_buffer("running_mean", mean)
        self.register_buffer("running_var", variance)
        self.register_buffer("num_batches_tracked", count)

    def reset_running_stats(self) -> None:
        """Forget what was seen: mean 0, variance 1, no batches."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0, no statistics."""
        self.reset_running_stats()
        if self.affine:
            reset_affine(self)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Size and options."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *args: Any, **kwargs: Any
    ) -> None:
        version = local_metadata.get("version", None)
        if (version is None or version < 2) and self.track_running_stats:
            # Version 1 did not count batches: keep the count we have.
            count = self.num_batches_tracked
            if count is None or count.is_meta:
                count = lu.tensor(0, dtype=lu.int64)
            state_dict.setdefault(prefix + "num_batches_tracked", count)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args, **kwargs)


class _BatchNorm(_NormBase):
    """Batch norm of any number of dimensions."""

    _accepted: tuple[int, ...] = ()  # numbers of dimensions

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in self._accepted:
            if not self._accepted:
                raise NotImplementedError
            expected = " or ".join(f"{n}D" for n in self._accepted)
            raise ValueError(f"expected {expected} input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        """Normalised with the statistics of the batch (training) or of all batches before."""
        self._check_input_dim(input)
        mean, variance = self.running_mean, self.running_var
        training, factor = self.training, self.momentum
        if training and factor is None and self.track_running_stats and recording():
            return self._averaged(input)
        if not training:
            own = mean is None and variance is None
        elif self.track_running_stats:
            own, factor = True, self._count_batch(factor)
        else:
            own, mean, variance = True, None, None
        if factor is None:
            factor = 0.0
        return F.batch_norm(input, mean, variance, self.weight, self.bias, own, factor, self.eps)

    def _averaged(self, input: Tensor) -> Tensor:
        """Training without momentum in a function that is captured: the weight of this batch in the
        averages depends on a count, which has no value there, so it stays a tensor."""
        mean, variance, count = self.running_mean, self.running_var, self.num_batches_tracked
        if mean is None or variance is None or count is None:
            return F.batch_norm(input, mean, variance, self.weight, self.bias, True, 0.0, self.eps)
        count.add_(1)
        of_batch = lu.zeros_like(mean), lu.zeros_like(variance)
        output = F.batch_norm(input, *of_batch, self.weight, self.bias, True, 1.0, self.eps)
        weight = (1.0 / count).to(mean.dtype)
        for average, new in zip((mean, variance), of_batch, strict=True):
            average.mul_(1 - weight).add_(new * weight)
        return output

    def _count_batch(self, momentum: float | None) -> float | None:
        """One batch more; returns its weight in the running statistics."""
        count = self.num_batches_tracked
        if count is None:
            return momentum
        count.add_(1)
        return 1.0 / float(count) if momentum is None else momentum


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """Takes `num_features` from the first input."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype, bias=False)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = lu.tensor(0, dtype=lu.int64, device=device)

    def reset_parameters(self) -> None:
        """As the layer it becomes, once the size is known."""
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take the size from the first input."""
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        names = ["weight", "bias"] if self.affine else []
        if self.track_running_stats:
            names += ["running_mean", "running_var"]
        for name in names:
            found = getattr(self, name)
            if found is not None:
                found.materialize((self.num_features,))
        self.reset_parameters()


class BatchNorm1d(_BatchNorm):
    """Batch norm of (N, C) or (N, C, L), for each channel C."""

    _accepted = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch norm of images (N, C, H, W), for each channel C.

    >>> import lucerne as torch
    >>> layer = torch.nn.BatchNorm2d(3)
    >>> _ = layer(torch.ones(2, 3, 4, 4))
    >>> layer.running_mean
    tensor([0.1000, 0.1000, 0.1000])
    """

    _accepted = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch norm of volumes (N, C, D, H, W), for each channel C."""

    _accepted = (5,)


class LazyBatchNorm1d(_LazyNormBase, _BatchNorm):
    """A `BatchNorm1d` that takes `num_features` from its first input.

    >>> import lucerne as torch
    >>> layer = torch.nn.LazyBatchNorm1d()
    >>> _ = layer(torch.randn(2, 4))
    >>> type(layer).__name__, layer.num_features
    ('BatchNorm1d', 4)
    """

    cls_to_become = BatchNorm1d
    _accepted = (2, 3)


class LazyBatchNorm2d(_LazyNormBase, _BatchNorm):
    """A `BatchNorm2d` that takes `num_features` from its first input."""

    cls_to_become = BatchNorm2d
    _accepted = (4,)


class LazyBatchNorm3d(_LazyNormBase, _BatchNorm):
    """A `BatchNorm3d` that takes `num_features` from its first input."""

    cls_to_become = BatchNorm3d
    _accepted = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch norm whose statistics are shared between processes; with one process a `BatchNorm`.

    >>> import lucerne as torch
    >>> net = torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.ReLU())
    >>> torch.nn.SyncBatchNorm.convert_sync_batchnorm(net)[0].__class__.__name__
    'SyncBatchNorm'
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def _check_non_zero_input_channels(self, input: Tensor) -> None:
        if input.size(1) == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")

    def forward(self, input: Tensor) -> Tensor:
        """Normalised with the statistics of the batch (training) or of all batches before."""
        self._check_input_dim(input)
        self._check_non_zero_input_channels(input)
        shared = LateBindings.sync_norm
        if self.training and shared is not None:
            found: Tensor | None = shared(self, input)
            if found is not None:
                return found
        return super().forward(input)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """`module` with each batch norm in it replaced by a `SyncBatchNorm` of the same state."""
        result = module
        if isinstance(module, _BatchNorm):
            result = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
                bias=module.bias is not None,
            )
            result.weight, result.bias = module.weight, module.bias
            result.running_mean = module.running_mean
            result.running_var = module.running_var
            result.num_batches_tracked = module.num_batches_tracked
            result.training = module.training
            if hasattr(module, "qconfig"):
                result.qconfig = module.qconfig
        for name, child in module.named_children():
            result.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return result
