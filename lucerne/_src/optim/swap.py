"""Lending an optimizer other parameters and another state for a while."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lucerne.optim.optimizer import Optimizer

_NAME = "swap_in_optimizer_params_and_state"


@contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer, swapin_parameters: Mapping[str, Any], swapin_optim_state: dict[str, Any]
) -> Iterator[None]:
    """Inside the block the optimizer works on `swapin_parameters` (in the order of its own) with
    the state `swapin_optim_state` (as from `state_dict`), whose tensors it changes in place.

    >>> import lucerne
    >>> w, other = lucerne.ones(1, requires_grad=True), lucerne.ones(1, requires_grad=True)
    >>> optimizer = lucerne.optim.SGD([w], lr=0.1, momentum=0.9)
    >>> w.grad = other.grad = lucerne.ones(1)
    >>> optimizer.step()
    >>> state = {"state": {}, "param_groups": optimizer.state_dict()["param_groups"]}
    >>> swap = lucerne.optim.swap_in_optimizer_params_and_state
    >>> with swap(optimizer, {"w": other}, state):
    ...     optimizer.step()
    >>> w.item() == other.item()
    True
    """
    if not optimizer.state:
        raise RuntimeError(f"{_NAME} requires initialized optimizer state.")
    saved = swapin_optim_state.get("param_groups")
    if not isinstance(saved, list):
        kind = type(saved).__name__
        raise RuntimeError(
            f"{_NAME} requires swapin_optim_state['param_groups'] to be a list of param-group "
            f"dicts, got {kind}."
        )
    lent = list(swapin_parameters.values())
    if len(lent) != sum(len(g["params"]) for g in optimizer.param_groups):
        raise RuntimeError(
            f"{_NAME} requires the explicit parameter state to match optimizer.param_groups "
            "ordering."
        )
    if len(saved) != len(optimizer.param_groups):
        raise RuntimeError(
            "swapin_optim_state has a different number of parameter groups than the live optimizer."
        )
    kept_state = optimizer.state
    kept_groups = [dict(group) for group in optimizer.param_groups]
    numbers = [n for group in saved for n in group["params"]]
    values = swapin_optim_state.get("state", {})
    optimizer.state = defaultdict(dict)
    for number, p in zip(numbers, lent, strict=True):
        optimizer.state[p] = dict(values.get(number, {}))
    left = iter(lent)
    for group, given in zip(optimizer.param_groups, saved, strict=True):
        group.update({k: v for k, v in given.items() if k != "params"})
        group["params"] = [next(left) for _ in group["params"]]
    try:
        yield
    finally:
        optimizer.state = kept_state
        for group, kept in zip(optimizer.param_groups, kept_groups, strict=True):
            group.clear()
            group.update(kept)
