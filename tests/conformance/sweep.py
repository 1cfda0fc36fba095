"""M11: samples in odd layouts and sizes, M11v: with odd values; forward, then gradients.

torch says what a changed sample means; one that it refuses is not a case. Ops that torch's own
results are unique for only up to a sign, or that draw, are not asked about odd values.
"""

from collections.abc import Callable
from typing import Any

import torch

from tests.conformance import catalog
from tests.conformance.context import Context, quiet
from tests.conformance.forward import run_sample
from tests.conformance.gradients import first_order, torch_graph
from tests.conformance.outcome import attempt
from tests.conformance.result import Tally

Change = Callable[[torch.Tensor], torch.Tensor]
KILLS = {
    ("_chunk_cat", "0-d"), ("_native_batch_norm_legit", "no elements"),
    ("native_batch_norm", "no elements"), ("nn.functional.pdist", "no elements"),
    ("linalg.eigvals", "nan"), ("linalg.eigvals", "inf"), ("linalg.eigvals", "-inf"),
    ("linalg.eigvals", "1e30"),
}  # fmt: skip
"""Cases that end torch's process by a signal."""
SAMPLES = 3
"""Of an entry, spread over its samples."""


def _expanded(t: torch.Tensor) -> torch.Tensor:
    """One row, which all the others share."""
    return t[:1].expand(t.shape) if t.dim() and t.shape[0] else t


def every_second(t: torch.Tensor) -> torch.Tensor:
    if not t.dim():
        return t
    wide = t.new_zeros((*t.shape[:-1], 2 * t.shape[-1]))
    wide[..., ::2] = t
    return wide[..., ::2]


def turned(t: torch.Tensor) -> torch.Tensor:
    """The same shape, laid out from the last dimension to the first."""
    back = tuple(reversed(range(t.dim())))
    return t.permute(back).contiguous().permute(back)


def _no_elements(t: torch.Tensor) -> torch.Tensor:
    return t[:0] if t.dim() else t


def _no_dimensions(t: torch.Tensor) -> torch.Tensor:
    return t.reshape(-1)[0] if t.numel() else t


def _behind(count: int) -> Change:
    """The same shape and strides, behind so many elements of a larger storage."""

    def change(t: torch.Tensor) -> torch.Tensor:
        span = 1 + sum((n - 1) * st for n, st in zip(t.shape, t.stride(), strict=True))
        if not t.numel():
            return t
        made = t.new_zeros(count + span + 9).as_strided(t.shape, t.stride(), count)
        return made.copy_(t) if not any(st == 0 for st in t.stride()) else t

    return change


LAYOUTS: dict[str, Change] = {
    # One after the other: what is remembered of the first must fit the others.
    "behind 5": _behind(5),
    "as it is": lambda t: t,
    "behind 3": _behind(3),
    "expanded": _expanded,
    "every second": every_second,
    "turned": turned,
    "no elements": _no_elements,
    "0-d": _no_dimensions,
}


def _holding(value: float) -> Change:
    """Every third element is that value."""

    def change(t: torch.Tensor) -> torch.Tensor:
        if not t.dtype.is_floating_point:
            return t
        made = t.clone()
        made.view(-1)[::3] = value
        return made

    return change


VALUES: dict[str, Change] = {
    "nan": _holding(float("nan")),
    "inf": _holding(float("inf")),
    "-inf": _holding(float("-inf")),
    "1e30": _holding(1e30),
    "denormal": _holding(1e-42),
    "-0.0": _holding(-0.0),
}


def check_layouts(context: Context, dtype: torch.dtype) -> list[Tally]:
    """M11."""
    return [_swept(context, dtype, "M11", LAYOUTS)]


def check_values(context: Context, dtype: torch.dtype) -> list[Tally]:
    """M11v."""
    inexact = dtype.is_floating_point or dtype.is_complex
    return [_swept(context, dtype, "M11v", VALUES if inexact else {})]


def _swept(context: Context, dtype: torch.dtype, metric: str, changes: dict[str, Change]) -> Tally:
    entry = context.entry
    tally = context.tally(metric, dtype)
    if not context.is_there(tally):
        return tally
    limit = min(context.limits.samples or SAMPLES, SAMPLES)
    grad = dtype is torch.float32 and entry.differentiable(dtype) and not entry.random
    for label, sample in catalog.samples(entry, dtype, grad=grad, limit=limit):
        for name, change in changes.items():
            if (entry.name, name) in KILLS:
                continue
            with quiet(), tally.sample(f"{name} {label}") as record:
                made = changed(sample, change, False)
                if made is None:
                    record.drop()
                else:
                    run_sample(context, dtype, made, record, None)
            if grad:
                with quiet(), tally.sample(f"gradient, {name} {label}") as record:
                    if _is_differentiable(context, changed(sample, change, True)):
                        first_order(context, changed(sample, change, True), record)
                    else:
                        record.drop()
    return tally


def _is_differentiable(context: Context, sample: Any) -> bool:
    """Whether torch goes back through a sample; some of its backward passes want other layouts."""

    def there_and_back() -> None:
        graph = torch_graph(context, sample)
        ends = [torch.ones_like(t) for t in graph.outs]
        if graph.outs and graph.ins:
            torch.autograd.grad(graph.outs, graph.ins, ends, allow_unused=True)

    return sample is not None and attempt(there_and_back).error is None


def changed(sample: Any, change: Change, grad: bool) -> Any:
    """The sample with each tensor changed; None: it can't be."""

    def one(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.layout is not torch.strided:
            return x
        with torch.no_grad():
            made = change(x.detach())
        return made.requires_grad_(grad and x.requires_grad)

    try:
        return sample.transform(one)
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
        return None
