"""What few bits cost: layer by layer, and the whole model, measured on batches of the user's."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lucerne._src.capture.report import dump
from lucerne._src.quantization import page
from lucerne._src.quantization.linear import QuantizedLinear
from lucerne._src.tensor.autograd.modes import no_grad
from lucerne._src.tensor.tensor import Tensor

Loss = Callable[[Any, Any], Any]
"""`loss(model, batch)`: one number, the smaller the better."""


@dataclass
class LayerSwap:
    """A layer and what may take its place."""

    name: str
    parent: Any
    key: str
    before: Any
    after: Any

    def apply(self) -> None:
        setattr(self.parent, self.key, self.after)

    def undo(self) -> None:
        setattr(self.parent, self.key, self.before)


@dataclass
class LayerQuality:
    """One layer."""

    name: str
    shape: tuple[int, int]
    stored: str
    sqnr: float
    """Of the layer's output, in decibels: ten times the logarithm of signal by noise."""
    change: float
    """By how much the loss grows when this layer alone is in few bits."""
    share: float
    """Its part of all such changes."""
    bytes_before: int
    bytes_after: int
    kept: bool = False
    """Whether it stayed in float, because of the budget."""


@dataclass
class QualityReport:
    """The table of `quantize_(..., check=batches)`: print it, or `save` it as a page."""

    layers: list[LayerQuality]
    loss_before: float
    loss_after: float
    ms_before: float
    ms_after: float
    budget: float | None
    measured: str
    """What the loss is."""
    bytes_before: int = field(init=False)
    bytes_after: int = field(init=False)

    def __post_init__(self) -> None:
        self.bytes_before = sum(x.bytes_before for x in self.layers)
        self.bytes_after = sum(x.bytes_before if x.kept else x.bytes_after for x in self.layers)

    @property
    def change(self) -> float:
        """By how much of itself the loss has grown (of one, where it was zero)."""
        return (self.loss_after - self.loss_before) / (abs(self.loss_before) or 1.0)

    def __str__(self) -> str:
        return page.as_text(self)

    def html(self) -> str:
        """The report as one page that needs nothing else."""
        return page.as_html(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write that page; a file at `path` is replaced in one step."""
        dump.write(Path(path), self.html())


def kept_within(
    model: Any, swaps: Sequence[LayerSwap], batches: Sequence[Any], loss: Loss | None,
    budget: float | None,
) -> QualityReport:  # fmt: skip
    """Exchange layers, the cheap ones first of all, so that the loss stays within the budget."""
    if not batches:
        raise ValueError("quantize_: `check` holds no batch to measure with")
    for s in swaps:
        if not isinstance(s.after, QuantizedLinear):
            raise TypeError(f"quantize_: {s.name!r} became a {type(s.after).__name__}")
    training = model.training
    model.eval()
    try:
        with no_grad():
            return _measured(model, swaps, batches, loss, budget)
    finally:
        model.train(training)


def _measured(
    model: Any, swaps: Sequence[LayerSwap], batches: Sequence[Any], loss: Loss | None,
    budget: float | None,
) -> QualityReport:  # fmt: skip
    measure = loss if loss is not None else _distance(model, batches)
    levels = _sqnr(model, swaps, batches, measure)
    before, ms_before = _run(model, batches, measure)
    changes = []
    for s in swaps:
        s.apply()
        changes.append(_run(model, batches, measure)[0] - before)
        s.undo()
    for s in swaps:
        s.apply()
    after, ms_after = _run(model, batches, measure)
    kept: set[str] = set()
    costly = sorted(zip(changes, swaps, strict=True), key=lambda pair: -pair[0])
    most = math.inf if budget is None else budget
    for _, s in costly:
        if (after - before) / (abs(before) or 1.0) <= most:
            break
        s.undo()
        kept.add(s.name)
        after, ms_after = _run(model, batches, measure)
    whole = sum(abs(c) for c in changes) or 1.0
    layers = [
        LayerQuality(
            s.name, (s.after.out_features, s.after.in_features), s.after.stored, level, change,
            abs(change) / whole, int(s.before.weight.nbytes), s.after.weight.nbytes,
            s.name in kept,
        )
        for s, level, change in zip(swaps, levels, changes, strict=True)
    ]  # fmt: skip
    measured = "loss" if loss is not None else "distance of the outputs"
    return QualityReport(layers, before, after, ms_before, ms_after, budget, measured)


def _run(model: Any, batches: Sequence[Any], measure: Loss) -> tuple[float, float]:
    """The mean loss of the batches, and the milliseconds of the fastest."""
    total, best = 0.0, math.inf
    for batch in batches:
        began = time.perf_counter()
        total += float(measure(model, batch))
        best = min(best, time.perf_counter() - began)
    return total / len(batches), best * 1e3


def _distance(model: Any, batches: Sequence[Any]) -> Loss:
    """How far outputs are from those of the model as it is: noise by signal."""
    wanted = {id(batch): _outputs(model, batch) for batch in batches}

    def measure(changed: Any, batch: Any) -> float:
        pairs = zip(_outputs(changed, batch), wanted[id(batch)], strict=True)
        powers = [(float((a - b).square().sum()), float(b.square().sum())) for a, b in pairs]
        return sum(p[0] for p in powers) / (sum(p[1] for p in powers) or 1.0)

    return measure


def _outputs(model: Any, batch: Any) -> list[Any]:
    """The tensors that a model makes of a batch: one input, or a tuple of them."""
    made = model(*batch) if isinstance(batch, tuple | list) else model(batch)
    parts = made if isinstance(made, tuple | list) else (made,)
    found = [t for t in parts if isinstance(t, Tensor)]
    if not found:
        raise TypeError(
            f"quantize_: the model returned {type(made).__name__}, in which no tensor is seen; "
            "say what to measure: loss=lambda model, batch: ..."
        )
    return found


def _sqnr(
    model: Any, swaps: Sequence[LayerSwap], batches: Sequence[Any], measure: Loss
) -> list[float]:
    """Of each layer's output on what it is given in the model as it is."""
    signal, noise = [0.0] * len(swaps), [0.0] * len(swaps)

    def watch(i: int, after: Any) -> Any:
        def hook(_: Any, args: Any, output: Any) -> None:
            signal[i] += float(output.square().sum())
            noise[i] += float((after(args[0]) - output).square().sum())

        return hook

    handles = [
        s.before.register_forward_hook(watch(i, s.after.eval())) for i, s in enumerate(swaps)
    ]
    try:
        for batch in batches:
            measure(model, batch)
    finally:
        for handle in handles:
            handle.remove()
    return [_decibels(a, b) for a, b in zip(signal, noise, strict=True)]


def _decibels(signal: float, noise: float) -> float:
    if not signal or math.isnan(noise):
        return math.nan
    return math.inf if not noise else 10 * math.log10(signal / noise)
