"""M2 gradients in float32, M8 double backward in float64; M2c and M8c in complex numbers.

Both sides get the same fixed random cotangents. A missing gradient (None) equals zeros.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests.conformance import catalog, tree
from tests.conformance.bridge import Bridge, Carried, Memo
from tests.conformance.compare import Comparison, Policy
from tests.conformance.context import Context, float64_truth, number_of, quiet
from tests.conformance.result import Sample, Tally
from tests.conformance.tolerance import GRADIENTS


@dataclass(frozen=True)
class Graph:
    """A call that has been run with gradients on: its differentiable ends."""

    outs: list[Any]
    ins: list[Any]


def check_gradients(context: Context) -> list[Tally]:
    """M2: first derivatives of every sample."""
    dtype = torch.float32
    tally = context.tally("M2", dtype)
    samples = catalog.samples(context.entry, dtype, grad=True, limit=context.limits.samples)
    return _run_all(context, samples, tally, first_order)


def check_complex_gradients(context: Context) -> list[Tally]:
    """M2c: first derivatives of every complex sample, and second ones of a few (M8c)."""
    tally = context.tally("M2c", torch.complex64)
    limit = context.limits.samples
    samples = catalog.samples(context.entry, torch.complex64, grad=True, limit=limit)
    _run_all(context, samples, tally, first_order)
    if not context.entry.op.supports_gradgrad:
        return [tally]
    return [tally, *_twice(context, "M8c", torch.complex128)]


def check_double_backward(context: Context) -> list[Tally]:
    """M8: second derivatives of a few samples."""
    return _twice(context, "M8", torch.float64)


def _twice(context: Context, metric: str, dtype: torch.dtype) -> list[Tally]:
    tally = context.tally(metric, dtype)
    limit = context.limits.double_backward
    samples = catalog.samples(context.entry, dtype, grad=True, limit=limit)
    return _run_all(context, samples, tally, _second_order)


def _run_all(context: Context, samples: catalog.Sampled, tally: Tally, check: Any) -> list[Tally]:
    if not context.is_there(tally):
        return [tally]
    for label, sample in samples:
        with quiet(), tally.sample(label) as record:
            check(context, sample, record)
    return [tally]


def first_order(context: Context, sample: Any, record: Sample) -> None:
    seed = number_of(record.label)
    dtype = getattr(torch, record.tally.dtype)
    truth = float64_truth(sample, lambda wide: _truth(context, wide, seed), dtype)
    carried = context.bridge.carry_sample(sample)
    torch.manual_seed(seed)
    left = torch_graph(context, sample)
    if not left.outs or not left.ins:
        record.drop()
        return
    cotangents = draw_like(left.outs, seed)
    expected = torch.autograd.grad(left.outs, left.ins, cotangents, allow_unused=True)
    try:
        context.bridge.seed(seed)
        right = _other_graph(context, sample, carried, left, record)
        if right is None:
            return
        ours = [context.bridge.to_other(c, Memo()) for c in cotangents]
        got = context.bridge.grad(right.outs, right.ins, ours)
    except Exception as error:
        record.raised(error, "backward")
        return
    comparison = Comparison(record, context.bridge, Policy(GRADIENTS, truth=truth))
    compare_gradients(comparison, expected, got)


def _second_order(context: Context, sample: Any, record: Sample) -> None:
    seed = number_of(record.label)
    carried = context.bridge.carry_sample(sample)
    torch.manual_seed(seed)
    left = torch_graph(context, sample)
    if not left.outs or not left.ins:
        record.drop()
        return
    cotangents = [c.requires_grad_() for c in draw_like(left.outs, seed)]
    try:
        expected, seconds = _torch_twice(left, cotangents, seed)
    except (RuntimeError, NotImplementedError):
        record.drop()  # torch has no second derivative for this sample
        return
    try:
        context.bridge.seed(seed)
        right = _other_graph(context, sample, carried, left, record)
        if right is None:
            return
        got = _other_twice(context.bridge, right, cotangents, seconds)
    except Exception as error:
        record.raised(error, "double backward")
        return
    comparison = Comparison(record, context.bridge, Policy(GRADIENTS))
    compare_gradients(comparison, expected, got)


def torch_graph(context: Context, sample: Any) -> Graph:
    op = context.entry.op
    raw = op.gradcheck_wrapper(op.op, sample.input, *sample.args, **sample.kwargs)
    result = sample.output_process_fn_grad(raw)
    outs = [t for t in tree.leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    return Graph(outs, _distinct_inputs(sample))


def compare_gradients(comparison: Comparison, expected: Any, got: Any) -> None:
    """One gradient per differentiable input."""
    for i, (want, have) in enumerate(zip(expected, got, strict=True)):
        if want is None or have is None:
            zero = _is_zero(want) and (have is None or _is_zero(comparison.bridge.from_other(have)))
            comparison.sample.expect(zero, "gradient", f"d/d[{i}] {_kind(want)} got {_kind(have)}")
            continue
        left = (tuple(want.shape), str(want.dtype), str(want.layout))
        right = (tuple(have.shape), str(have.dtype), str(have.layout))
        if comparison.sample.expect(left == right, "gradient", f"d/d[{i}] {left} got {right}"):
            comparison.value(i, want, have, check="gradient")


def draw_like(tensors: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Fixed random numbers of the same shapes and dtypes."""
    draws = np.random.RandomState(seed)
    made = []
    for t in tensors:
        numbers = draws.standard_normal(tuple(t.shape))
        if t.dtype.is_complex:
            numbers = numbers + 1j * draws.standard_normal(tuple(t.shape))
        made.append(torch.from_numpy(np.asarray(numbers)).to(t.dtype))
    return made


def _other_graph(
    context: Context, sample: Any, carried: Carried, left: Graph, record: Sample
) -> Graph | None:
    result = run_other(context, sample, carried)
    bridge = context.bridge
    outs = [x for x in tree.leaves(result) if bridge.is_tensor(x) and x.requires_grad]
    message = f"{len(left.outs)} differentiable outputs, got {len(outs)}"
    if not record.expect(len(outs) == len(left.outs), "requires_grad", message):
        return None
    return Graph(outs, [carried.memo.other(t) for t in left.ins])


def run_other(context: Context, sample: Any, carried: Carried) -> Any:
    """The other side of `torch_graph`: torch's wrappers around the other framework's op."""
    bridge, wrapper = context.bridge, context.entry.op.gradcheck_wrapper
    process = bridge.rebind(sample.output_process_fn_grad)
    if "masked" in wrapper.__name__:
        raw = context.call(carried)
        return process(_hide_masked(context, sample, raw))
    run = bridge.rebind(wrapper)
    return process(run(context.function, carried.input, *carried.args, **carried.kwargs))


def _hide_masked(context: Context, sample: Any, result: Any) -> Any:
    """Zeros where the mask is false; torch says where, its wrapper reads private names."""
    kwargs = sample.kwargs
    with torch.no_grad():
        if kwargs.get("mask") is not None:
            op = context.entry.op.op
            mask = torch.masked._output_mask(op, sample.input, *sample.args, **kwargs)
        elif kwargs.get("input_mask") is not None and kwargs.get("other_mask") is not None:
            both = torch.logical_and(kwargs["input_mask"], kwargs["other_mask"])
            mask = torch.masked._input_mask(sample.input, *sample.args, mask=both, **kwargs)
        else:
            return result
    where = context.bridge.module.where
    return where(context.bridge.to_other(mask, Memo()), result, result.new_zeros([]))


def _truth(context: Context, wide: Any, seed: int) -> Any:
    """The gradients of the float64 sample."""
    graph = torch_graph(context, wide)
    cotangents = draw_like(graph.outs, seed)
    return list(torch.autograd.grad(graph.outs, graph.ins, cotangents, allow_unused=True))


def _torch_twice(
    graph: Graph, cotangents: list[torch.Tensor], seed: int
) -> tuple[Any, list[torch.Tensor | None]]:
    """torch's second derivatives, and the cotangent of each first one (None: it is constant)."""
    grads = torch.autograd.grad(
        graph.outs, graph.ins, cotangents, create_graph=True, allow_unused=True
    )
    live = [i for i, g in enumerate(grads) if g is not None and g.requires_grad]
    draws = draw_like([grads[i] for i in live], seed + 1)
    seconds: list[torch.Tensor | None] = [None] * len(grads)
    for i, draw in zip(live, draws, strict=True):
        seconds[i] = draw
    ends = [*graph.ins, *cotangents]
    if not live:
        return [None] * len(ends), seconds
    twice = torch.autograd.grad([grads[i] for i in live], ends, draws, allow_unused=True)
    return twice, seconds


def _other_twice(
    bridge: Bridge,
    graph: Graph,
    cotangents: list[torch.Tensor],
    seconds: list[torch.Tensor | None],
) -> Any:
    ours = [bridge.to_other(c, Memo()) for c in cotangents]
    grads = bridge.grad(graph.outs, graph.ins, ours, create_graph=True)
    pairs = [
        (grad, bridge.to_other(second, Memo()))
        for grad, second in zip(grads, seconds, strict=True)
        if second is not None and grad is not None and grad.requires_grad
    ]
    ends = [*graph.ins, *ours]
    if not pairs:
        return [None] * len(ends)
    return bridge.grad([grad for grad, _ in pairs], ends, [second for _, second in pairs])


def _distinct_inputs(sample: Any) -> list[torch.Tensor]:
    found = tree.leaves([sample.input, list(sample.args), sample.kwargs])
    wanted = [t for t in found if isinstance(t, torch.Tensor) and t.requires_grad]
    return list({id(t): t for t in wanted}.values())


def _is_zero(t: torch.Tensor | None) -> bool:
    return t is None or not bool(t.detach().to_dense().ne(0).any())


def _kind(x: Any) -> str:
    return "None" if x is None else "a gradient"
