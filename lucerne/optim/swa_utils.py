"""Averages of models over training, and the schedule that goes with them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

from lucerne import nn
from lucerne._src.base.process import notices
from lucerne._src.tensor import api as lu
from lucerne.optim.lr_scheduler.base import LRScheduler, one_per_group
from lucerne.optim.optimizer import Optimizer

Tensors = list[Any]


def _check_decay(decay: float) -> None:
    if decay < 0.0 or decay > 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[Tensors, Tensors, Any], None]:
    """A function that moves averages towards the current values, all at once."""
    _check_decay(decay)

    @lu.no_grad()
    def ema_update(ema_param_list: Tensors, current_param_list: Tensors, _: Any) -> None:
        for average, now in zip(ema_param_list, current_param_list, strict=True):
            if _has_fractions(average):
                average.lerp_(now, 1 - decay)
            else:  # (a count of batches is cut to a whole number, as in torch)
                average.copy_(average * decay + now * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Callable[[Tensors, Tensors, Any], None]:
    """A function that keeps equal averages, all at once."""

    @lu.no_grad()
    def swa_update(
        averaged_param_list: Tensors, current_param_list: Tensors, num_averaged: Any
    ) -> None:
        for average, now in zip(averaged_param_list, current_param_list, strict=True):
            if _has_fractions(average):
                average.lerp_(now, 1 / (int(num_averaged) + 1))
            else:
                average.copy_(average + (now - average) / (num_averaged + 1))

    return swa_update


def _has_fractions(x: Any) -> bool:
    return bool(x.is_floating_point() or x.is_complex())


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], Any]:
    """A function that gives the average moved towards the current value."""
    _check_decay(decay)

    @lu.no_grad()
    def ema_update(ema_param: Any, current_param: Any, num_averaged: Any) -> Any:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Callable[[Any, Any, Any], Any]:
    """A function that gives the equal average with one more value."""

    @lu.no_grad()
    def swa_update(averaged_param: Any, current_param: Any, num_averaged: Any) -> Any:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


class AveragedModel(nn.Module):
    """A copy of a model whose parameters are the average of those at each `update_parameters`.

    `avg_fn(average, value, count)` gives a new average, `multi_avg_fn(averages, values, count)`
    changes all of them; without either the average is equal. With `use_buffers` buffers are
    averaged too, else they are copied.

    >>> import lucerne
    >>> model = lucerne.nn.Linear(1, 1, bias=False)
    >>> averaged = lucerne.optim.swa_utils.AveragedModel(model)
    >>> for value in (1.0, 3.0):
    ...     _ = lucerne.nn.init.constant_(model.weight, value)
    ...     averaged.update_parameters(model)
    >>> averaged.module.weight.item()
    2.0
    """

    n_averaged: Any

    def __init__(
        self, model: nn.Module, device: Any = None, avg_fn: Any = None, multi_avg_fn: Any = None,
        use_buffers: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", lu.tensor(0, dtype=lu.long, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: nn.Module) -> None:
        """Take the parameters of `model` into the average."""
        mine, theirs = self._averaged(self), self._averaged(model)
        averages, values = [], []
        for average, value in zip(mine, theirs, strict=False):
            now = value.detach().to(average.device)
            averages.append(average.detach())
            values.append(now)
            if self.n_averaged == 0:
                average.detach().copy_(now)
        if self.n_averaged > 0:
            self._average(averages, values)
        if not self.use_buffers:
            for mine_, theirs_ in zip(self.module.buffers(), model.buffers(), strict=False):
                mine_.detach().copy_(theirs_.detach().to(mine_.device))
        self.n_averaged += 1

    def _averaged(self, model: Any) -> Iterable[Any]:
        if not self.use_buffers:
            return model.parameters()
        inner = model.module if model is self else model
        return itertools.chain(inner.parameters(), inner.buffers())

    def _average(self, averages: Tensors, values: Tensors) -> None:
        if self.multi_avg_fn is not None:
            self.multi_avg_fn(averages, values, self.n_averaged)
        elif self.avg_fn is None:
            get_swa_multi_avg_fn()(averages, values, self.n_averaged)
        else:
            for average, value in zip(averages, values, strict=True):
                average.copy_(self.avg_fn(average, value, self.n_averaged))


@lu.no_grad()
def update_bn(loader: Iterable[Any], model: nn.Module, device: Any = None) -> None:
    """Set the running statistics of batch norms from one pass over the data.

    Averaged parameters never saw a batch, so their statistics are made after the fact.
    """
    momenta = {}
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.reset_running_stats()
            momenta[module] = module.momentum
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.momentum = None
    for batch in loader:
        data = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(data if device is None else data.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """From the rate of the optimizer to `swa_lr` in `anneal_epochs`, and constant then."""

    def __init__(
        self, optimizer: Optimizer, swa_lr: Any, anneal_epochs: int = 10,
        anneal_strategy: str = "cos", last_epoch: int = -1,
    ) -> None:  # fmt: skip
        for rate, group in zip(
            one_per_group("swa_lr", optimizer, swa_lr), optimizer.param_groups, strict=True
        ):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._anneal_strategy = anneal_strategy
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _part(self, step: int) -> float:
        """How much of the way has been made after `step` steps."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * t)) / 2 if self._anneal_strategy == "cos" else t

    def get_lr(self) -> list[Any]:
        if not self._get_lr_called_within_step:
            notices.warn(
                "To get the last learning rate computed by the scheduler, please use get_last_lr()."
            )
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._part(step - 1), self._part(step)
        rates = []
        for group in self.optimizer.param_groups:
            rate, end = group["lr"], group["swa_lr"]
            first = end if before == 1 else (rate - end * before) / (1 - before)
            rates.append(end * now + first * (1 - now))
        return rates
