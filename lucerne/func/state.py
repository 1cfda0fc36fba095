"""Modules called as functions of their parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.nn.modules.module import Module
from lucerne.nn.utils.stateless import call_with


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: dict[str, Any] | Sequence[dict[str, Any]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call `module` with these tensors in place of its own, leaving it unchanged.

    >>> import lucerne as torch
    >>> layer = torch.nn.Linear(2, 1)
    >>> weights = {"weight": torch.ones(1, 2), "bias": torch.zeros(1)}
    >>> torch.func.functional_call(layer, weights, torch.tensor([3.0, 4.0]))
    tensor([7.])
    """
    given = parameter_and_buffer_dicts
    if not isinstance(given, dict):
        for d in given:
            if not isinstance(d, dict):
                raise ValueError(
                    "Expected all elements of parameter_and_buffer_dicts to be dictionaries"
                )
        count = Counter(name for d in given for name in d)
        twice = [name for name, n in count.items() if n > 1]
        if twice:
            raise ValueError(
                f"{twice} appeared in multiple dictionaries; behavior of functional call is "
                "ambiguous"
            )
        given = {name: t for d in given for name, t in d.items()}
    return call_with(module, given, args, kwargs, tie_weights=tie_weights, strict=strict)


def stack_module_state(models: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters and buffers of modules of one kind, each name's tensors stacked."""
    if not len(models):
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    if len({type(m) for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    parameters = {
        name: lu.stack([m.get_parameter(name) for m in models]).detach().requires_grad_()
        for name, _ in models[0].named_parameters()
    }
    buffers = {
        name: lu.stack([m.get_buffer(name) for m in models])
        for name, _ in models[0].named_buffers()
    }
    return parameters, buffers
