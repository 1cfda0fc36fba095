"""torchaudio's operators, in Python: its own are C++ that no other framework can load."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.as_torch.extension_ops.vision import refusing
from lucerne.library.registry import Library

SCHEMAS = (
    "_lfilter_core_loop(Tensor input, Tensor a, Tensor(a!) out) -> ()",
    "_overdrive_core_loop(Tensor waveform, Tensor temp, Tensor last_in, Tensor last_out, "
    "Tensor(a!) out) -> ()",
    "forced_align(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, "
    "int blank) -> (Tensor, Tensor)",
    "rnnt_loss_forward(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, "
    "int blank, float clamp, bool fused_log_softmax=True) -> (Tensor, Tensor?)",
)


_PIECE = 64
"""How many values of a filter are made by one product."""


class _Registered:
    libraries: tuple[Library, ...] = ()


def register() -> None:
    """Enter the operators, once."""
    if _Registered.libraries:
        return
    switches, ops = Library("_torchaudio", "FRAGMENT"), Library("torchaudio", "FRAGMENT")
    _Registered.libraries = switches, ops
    for name, kind, answer in (
        ("is_align_available", "bool", False),
        ("cuda_version", "int?", None),
    ):
        switches.define(f"{name}() -> {kind}")
        switches.impl(name, lambda answer=answer: answer, "CompositeExplicitAutograd")
    kernels = {
        "_lfilter_core_loop": lfilter_core_loop,
        "_overdrive_core_loop": overdrive_core_loop,
    }
    for schema in SCHEMAS:
        name = schema.partition("(")[0]
        ops.define(schema)
        ops.impl(name, kernels.get(name, refusing("torchaudio", name)), "CompositeExplicitAutograd")


def lfilter_core_loop(waveform: Any, coefficients: Any, padded: Any) -> None:
    """The recursive part of a filter, over time: each value takes from those before it.

    `padded` begins with as many values as there are coefficients less one, and gets the rest. A
    piece of time is a product of what came in and of the values before, with weights that the
    recursion has once given to impulses: in float64, so that they are no source of error.
    """
    given, found = waveform.numpy(), padded.numpy()
    taps = coefficients.numpy().astype(np.float64)
    before = taps.shape[1] - 1
    of_past, of_input = _responses(taps[:, :-1], min(_PIECE, max(given.shape[2], 1)))
    for t in range(0, given.shape[2], _PIECE):
        part = given[:, :, t : t + _PIECE].astype(np.float64)
        n = part.shape[2]
        value = np.einsum("cts,bcs->bct", of_input[:, :n, :n], part)
        value += np.einsum("ctj,bcj->bct", of_past[:, :n], found[:, :, t : t + before])
        found[:, :, t + before : t + before + n] = value


def _responses(taps: Any, length: int) -> tuple[Any, Any]:
    """What one in each value of the past, and one in each input, adds to `length` values."""
    channels, before = taps.shape
    ran = np.zeros((channels, before + length, before + 1))
    ran[:, :before, :before] = np.eye(before)
    for t in range(length):
        ran[:, t + before] = -np.einsum("cjk,cj->ck", ran[:, t : t + before], taps)
        if t == 0:
            ran[:, before, before] += 1
    gap = np.arange(length)[:, None] - np.arange(length)
    impulse = ran[:, before:, before]
    return ran[:, before:, :before], np.where(gap >= 0, impulse[:, np.maximum(gap, 0)], 0.0)


def overdrive_core_loop(waveform: Any, temp: Any, last_in: Any, last_out: Any, output: Any) -> None:
    """The recursive part of the overdrive effect: a first-order filter over time."""
    given, bent, found = waveform.numpy(), temp.numpy(), output.numpy()
    before, value = last_in.numpy(), last_out.numpy()
    for t in range(given.shape[-1]):
        value = bent[:, t] - before + 0.995 * value
        before = bent[:, t]
        found[:, t] = given[:, t] * 0.5 + value * 0.75
