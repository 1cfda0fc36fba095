"""Exercise 6: rules of a Function for forward mode (`jvp`) and for batches (`vmap`)."""

from __future__ import annotations

import numpy as np

import lucerne as torch

TOLD = r"AssertionError: forward mode has no rule: "


def start() -> object:
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return torch.from_numpy(np.sin(x.detach().numpy()))

    return Sine


def solution() -> object:
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return torch.from_numpy(np.sin(x.detach().numpy()))

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_forward(*inputs)

        @staticmethod
        def jvp(ctx, tangent):
            return tangent * ctx.saved_tensors[0].cos()

        @staticmethod
        def vmap(info, in_dims, x):
            return Sine.apply(x), in_dims[0]

    return Sine


def check(sine: type[torch.autograd.Function]) -> None:
    x, v = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0])
    try:
        value, slope = torch.func.jvp(sine.apply, (x,), (v,))
    except (RuntimeError, NotImplementedError) as error:
        raise AssertionError(f"forward mode has no rule: {error}") from None
    assert torch.allclose(value, x.sin())
    assert torch.allclose(slope, v * x.cos()), "the tangent is that times the derivative"
    plain, calls = sine.forward, []
    sine.forward = staticmethod(lambda *given: calls.append(1) or plain(*given))
    rows = torch.func.vmap(sine.apply)(torch.ones(5, 2))
    assert torch.allclose(rows, torch.ones(5, 2).sin())
    assert len(calls) == 1, "one call is enough for a batch"
