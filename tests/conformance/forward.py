"""M1 forward values, M3 stronger samples, M4 dtypes, M7 strides of the results."""

from typing import Any

import torch

from tests.conformance import catalog
from tests.conformance.bridge import Carried
from tests.conformance.compare import (
    Comparison,
    Policy,
    compare_aliases,
    compare_ambiguous,
    compare_strides,
)
from tests.conformance.context import Context, float64_truth, number_of, quiet, run_torch
from tests.conformance.outcome import attempt
from tests.conformance.result import Sample, Tally


def check_forward(context: Context) -> list[Tally]:
    """M1 and M7 on the plain samples, at the entry's first dtype."""
    dtype = context.entry.dtype
    values, strides = context.tally("M1", dtype), context.tally("M7", dtype)
    samples = catalog.samples(context.entry, dtype, limit=context.limits.samples)
    _run_all(context, dtype, samples, values, strides)
    return [values, strides]


def check_reference(context: Context) -> list[Tally]:
    """M3: reference samples, then every plain sample laid out with gaps."""
    dtype, limit = context.entry.dtype, context.limits.reference
    samples = catalog.reference_samples(context.entry, dtype, limit)
    samples += catalog.noncontiguous_samples(context.entry, dtype, limit)
    values = context.tally("M3", dtype)
    _run_all(context, dtype, samples, values, None)
    return [values]


def check_dtype(context: Context, dtype: torch.dtype) -> list[Tally]:
    """M4: the checks of M1 at one dtype."""
    values = context.tally("M4", dtype)
    samples = catalog.samples(context.entry, dtype, limit=context.limits.samples)
    _run_all(context, dtype, samples, values, None)
    return [values]


def _run_all(
    context: Context,
    dtype: torch.dtype,
    samples: catalog.Sampled,
    values: Tally,
    strides: Tally | None,
) -> None:
    if not context.is_there(values, strides):
        return
    for label, sample in samples:
        with quiet(), values.sample(label) as record:
            run_sample(context, dtype, sample, record, strides)


def run_sample(
    context: Context, dtype: torch.dtype, sample: Any, record: Sample, strides: Tally | None
) -> None:
    entry, bridge = context.entry, context.bridge
    truth = float64_truth(sample, lambda wide: _processed(context, wide), dtype)
    carried = bridge.carry_sample(sample)
    seed = number_of(record.label)
    torch.manual_seed(seed)
    expected = attempt(lambda: run_torch(entry.op, sample))
    if expected.error is not None:
        record.drop()  # torch refuses it: a few ops do so when samples are laid out with gaps
        return
    bridge.seed(seed)
    got = attempt(lambda: context.call(carried))
    if got.error is not None:
        record.raised(got.error, "runs")
        if strides is not None:
            strides.lost("runs", f"{record.label} did not run")
        return
    if strides is not None:
        compare_strides(strides, record.label, expected.result, got.result, bridge)
    policy = Policy(exact=entry.random, undefined=entry.undefined, truth=truth)
    comparison = Comparison(record, bridge, policy)
    if entry.ambiguous:
        compare_ambiguous(comparison, sample, expected.result, got.result)
    elif comparison.outputs(expected.result, got.result):
        _compare_memory(comparison, carried, expected.result, got.result)


def _compare_memory(comparison: Comparison, carried: Carried, expected: Any, got: Any) -> None:
    """Views stay views, and only those arguments change that torch changes."""
    inputs = [left for left, _ in carried.memo.tensors.values()]
    ours = [right for _, right in carried.memo.tensors.values()]
    compare_aliases(comparison.sample, comparison.bridge, inputs, ours, expected, got)
    if not comparison.policy.undefined:
        _compare_inputs(comparison, inputs, ours)


def _processed(context: Context, wide: Any) -> Any:
    """torch's result for the float64 rule, in the form in which values are compared."""
    result = run_torch(context.entry.op, wide)
    return wide.output_process_fn_grad(result) if context.entry.ambiguous else result


def _compare_inputs(comparison: Comparison, inputs: list[torch.Tensor], ours: list[Any]) -> None:
    plain = Policy(comparison.policy.tolerances, comparison.policy.exact)
    unaided = Comparison(comparison.sample, comparison.bridge, plain)
    for i, (left, right) in enumerate(zip(inputs, ours, strict=True)):
        if left.device.type == "meta" or tuple(left.shape) != tuple(right.shape):
            continue
        unaided.value(i, left, right, check="inputs")
