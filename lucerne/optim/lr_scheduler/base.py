"""LRScheduler: when a schedule moves, and what it writes into the optimizer's groups."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.tensor import api as lu
from lucerne.optim.optimizer import Optimizer

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
    "possible. Please use `scheduler.step()` to step the scheduler. During the deprecation, if "
    "epoch is different from None, the closed form is used instead of the new chainable form, "
    "where available. Please open an issue if you are unable to replicate your use case: "
    "https://github.com/pytorch/pytorch/issues/new/choose."
)
_HOW_TO = (
    "See more details at https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
)
_OVERRIDDEN = (
    "Seems like `optimizer.step()` has been overridden after learning rate scheduler "
    "initialization. Please, make sure to call `optimizer.step()` before `lr_scheduler.step()`. "
) + _HOW_TO
_ORDER = (
    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and "
    "later, you should call them in the opposite order: `optimizer.step()` before "
    "`lr_scheduler.step()`.  Failure to do this will result in PyTorch skipping the first value "
    "of the learning rate schedule. "
) + _HOW_TO
_RESUMED = (
    "param 'initial_lr' is not specified in param_groups[{}] when resuming scheduler with "
    "last_epoch >= 0.\nThis typically happens when:\n1. You're trying to resume training from a "
    "checkpoint but haven't properly loaded the optimizer state\n2. You're using last_epoch >= 0 "
    "for a fresh training run (not recommended)"
)


def copied(value: Any) -> Any:
    return value.clone() if isinstance(value, lu.Tensor) else value


def values_of(optimizer: Optimizer, key: str) -> list[Any]:
    """An option of all groups, with tensors copied."""
    return [copied(group[key]) for group in optimizer.param_groups]


def set_value(group: dict[str, Any], key: str, value: Any) -> None:
    """Write an option; a tensor is written into."""
    if isinstance(group[key], lu.Tensor):
        group[key].fill_(value.item() if isinstance(value, lu.Tensor) else value)
    else:
        group[key] = value


def one_per_group(name: str, optimizer: Optimizer, given: Any) -> list[Any]:
    """An option given once for all groups or once for each."""
    if not isinstance(given, (list, tuple)):
        return [copied(given) for _ in optimizer.param_groups]
    if len(given) != len(optimizer.param_groups):
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. "
            f"{name} has {len(given)} values, param_groups has {len(optimizer.param_groups)}."
        )
    return list(map(copied, given))


def check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


class LRScheduler:
    """Base of schedules. A subclass gives `get_lr`, the rates of all groups after a step.

    `last_epoch` counts steps; -1 begins anew, another number resumes (the groups then have
    "initial_lr" from before).

    >>> import lucerne
    >>> optimizer = lucerne.optim.SGD([lucerne.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = lucerne.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.5]
    """

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        if last_epoch == -1:
            for group in optimizer.param_groups:
                group.setdefault("initial_lr", copied(group["lr"]))
        else:
            for i, group in enumerate(optimizer.param_groups):
                if "initial_lr" not in group:
                    raise KeyError(_RESUMED.format(i))
        self.base_lrs = values_of(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        _note_steps(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        """The first step, which sets the rates to begin with."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The rates of all groups as last computed."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """The rates of all groups for `last_epoch`, mostly from those before."""
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Move on. Call it after the optimizer's step."""
        if self._step_count == 1:
            if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
                notices.warn(_OVERRIDDEN)
            elif not getattr(self.optimizer, "_opt_called", False):
                notices.warn(_ORDER)
        self._step_count += 1
        if epoch is not None:
            notices.warn(EPOCH_DEPRECATION_WARNING)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        self._get_lr_called_within_step = True
        try:
            if epoch is None:
                self.last_epoch += 1
                rates = self.get_lr()
            else:
                self.last_epoch = epoch
                rates = getattr(self, "_get_closed_form_lr", self.get_lr)()
        finally:
            self._get_lr_called_within_step = False
        self._write(rates)

    def _write(self, rates: Sequence[Any]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=False):
            set_value(group, "lr", rate)
        self._last_lr = values_of(self.optimizer, "lr")

    def _warn_outside_step(self) -> None:
        if not self._get_lr_called_within_step:
            notices.warn(
                "To get the last learning rate computed by the scheduler, please use "
                "`get_last_lr()`."
            )


def _note_steps(optimizer: Optimizer) -> None:
    """Let the optimizer tell that it was stepped, so that a wrong order can be noticed."""
    step: Any = optimizer.step
    if hasattr(step, "_wrapped_by_lr_sched"):
        return
    function = getattr(step, "__func__", None)
    owner = weakref.ref(optimizer)  # the optimizer holds the wrapper: no cycle

    @functools.wraps(function or step)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        found: Any = owner()
        found._opt_called = True
        return step(*args, **kwargs) if function is None else function(found, *args, **kwargs)

    if function is not None:
        step = None  # a bound method would hold the optimizer
    wrapper._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = wrapper  # type: ignore[method-assign]
