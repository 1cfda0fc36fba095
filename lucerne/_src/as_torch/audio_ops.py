"""torchaudio's operators, in Python: its own are C++ that no other framework can load."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne.library.registry import Library


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
    ops.define("_lfilter_core_loop(Tensor input, Tensor a, Tensor(a!) out) -> ()")
    ops.impl("_lfilter_core_loop", lfilter_core_loop, "CompositeExplicitAutograd")


def lfilter_core_loop(waveform: Any, coefficients: Any, padded: Any) -> None:
    """The recursive part of a filter, over time: each value takes from those before it.

    `padded` begins with as many values as there are coefficients less one, and gets the rest.
    """
    given, taps, found = waveform.numpy(), coefficients.numpy(), padded.numpy()
    order = taps.shape[1]
    for t in range(given.shape[2]):
        past = found[:, :, t : t + order - 1]
        found[:, :, t + order - 1] = given[:, :, t] - np.einsum("bco,co->bc", past, taps[:, :-1])
