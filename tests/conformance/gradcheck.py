"""torch.autograd.gradcheck on another framework's op: derivatives against finite differences.

The op is wrapped as a torch.autograd.Function whose backward asks the other framework, so torch's
own checker does the work. It does not depend on torch's derivative being right.
"""

from collections.abc import Callable
from typing import Any

import torch

from tests.conformance import catalog, tree
from tests.conformance.bridge import Bridge, Memo
from tests.conformance.catalog import Entry
from tests.conformance.context import quiet
from tests.conformance.rebind import Function


def as_torch(function: Function, bridge: Bridge) -> Callable[..., torch.Tensor]:
    """A torch function of tensors that computes with the other framework."""

    class Via(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: torch.Tensor) -> torch.Tensor:
            ctx.ours = [bridge.to_other(x.detach().requires_grad_(), Memo()) for x in inputs]
            with bridge.module.enable_grad():  # torch turns it off in here
                ctx.result = function(*ctx.ours)
            return bridge.from_other(ctx.result)

        @staticmethod
        def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
            ours = [bridge.to_other(c.contiguous(), Memo()) for c in cotangents]
            grads = bridge.grad([ctx.result], ctx.ours, ours, retain_graph=True)
            return tuple(None if g is None else bridge.from_other(g) for g in grads)

    return Via.apply


def gradcheck(function: Function, bridge: Bridge, inputs: tuple[torch.Tensor, ...]) -> bool:
    """Whether the other framework's derivatives of `function` agree with differences."""
    wrapped = as_torch(function, bridge)
    return torch.autograd.gradcheck(wrapped, inputs, raise_exception=False, fast_mode=True)


def gradcheck_entry(entry: Entry, bridge: Bridge, limit: int = 3) -> list[str]:
    """Labels of the samples whose derivatives fail; only single-output samples are tried."""
    function = bridge.resolve(entry)
    failed = []
    for label, sample in catalog.samples(entry, torch.float64, grad=True, limit=limit):
        with quiet():
            if not _sample_passes(function, bridge, sample):
                failed.append(label)
    return failed


def _sample_passes(function: Function, bridge: Bridge, sample: Any) -> bool:
    """Differentiable inputs vary; everything else is carried over as it is."""
    arguments = [sample.input, list(sample.args), sample.kwargs]
    found = [t for t in tree.leaves(arguments) if isinstance(t, torch.Tensor) and t.requires_grad]
    moving = tuple({id(t): t for t in found}.values())
    if not moving:
        return True

    def call(*ours: Any) -> Any:
        memo = Memo({id(t): (t, x) for t, x in zip(moving, ours, strict=True)})
        first, args, kwargs = bridge.carry(arguments, memo)
        return function(first, *args, **kwargs)

    probe = call(*(bridge.to_other(t, Memo()) for t in moving))
    if not bridge.is_tensor(probe) or not probe.requires_grad:
        return True
    return gradcheck(call, bridge, moving)
