"""M5: the in-place form (`M5i`) and `out=` (`M5o`), as torch's own test_out asks.

Nothing is written down about what an op should do: torch runs each case, and the other framework
must do the same, be it a result, a resized output with a warning, or a refusal.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.testing import make_tensor

from tests.conformance import catalog, tree
from tests.conformance.bridge import Memo, torch_bridge
from tests.conformance.compare import (
    Comparison,
    Policy,
    Truth,
    compare_ambiguous,
    significant_strides,
)
from tests.conformance.context import Context, float64_truth, number_of, quiet, run_torch
from tests.conformance.outcome import Outcome, attempt, both_succeeded
from tests.conformance.rebind import Function, MissingError
from tests.conformance.result import Sample, Tally
from tests.conformance.tolerance import VALUES

# Results computed in float32 stay as exact as float32 in a wider output.
OUT_VALUES = {
    **VALUES,
    torch.float64: VALUES[torch.float32],
    torch.complex128: VALUES[torch.complex64],
}

Make = Callable[[torch.Tensor], torch.Tensor]
Layout = tuple[tuple[int, ...], tuple[int, ...], int | None]  # shape, strides, storage


# In-place


def check_inplace(context: Context) -> list[Tally]:
    """`x.op_(...)` changes x as torch does, and returns it."""
    dtype = context.entry.dtype
    tally = context.tally("M5i", dtype)
    try:
        function = context.bridge.resolve_inplace(context.entry)
    except MissingError as error:
        tally.lost("missing", str(error))
        return [tally]
    for label, sample in catalog.samples(context.entry, dtype, limit=context.limits.samples):
        if not isinstance(sample.input, torch.Tensor):
            continue
        with quiet(), tally.sample(label) as record:
            run_inplace(context, function, sample, record, dtype)
    return [tally]


def run_inplace(
    context: Context, function: Function, sample: Any, record: Sample, dtype: torch.dtype
) -> None:
    inplace = context.entry.op.inplace_variant
    left, right = torch_bridge().carry_sample(sample), context.bridge.carry_sample(sample)
    target, ours = left.input, right.input
    seed = number_of(record.label)
    torch.manual_seed(seed)
    expected = attempt(lambda: inplace(target, *left.args, **left.kwargs))
    context.bridge.seed(seed)
    got = attempt(lambda: function(ours, *right.args, **right.kwargs))
    if sample.broadcasts_input and expected.error is None:
        record.drop()  # a broadcast target must be refused; torch forgets to for a few ops
        return
    if not both_succeeded(record, expected, got):
        return
    record.expect(got.result is ours, "returns self", f"returned another {type(got.result)}")
    truth = truth_of(context, sample, dtype)
    policy = Policy(exact=context.entry.random, undefined=context.entry.undefined, truth=truth)
    Comparison(record, context.bridge, policy).leaf(0, target, ours)


def truth_of(context: Context, sample: Any, dtype: torch.dtype) -> Truth | None:
    """As for results that are returned: where torch's own value is rough, float64 decides."""
    return float64_truth(sample, lambda x: run_torch(context.entry.op, x), dtype)


# out=


def _poisoned(t: torch.Tensor) -> torch.Tensor:
    """Right shape and dtype; the old values must not matter."""
    if t.dtype.is_floating_point or t.dtype.is_complex:
        return torch.full_like(t, float("nan"))
    fill = True if t.dtype == torch.bool else torch.iinfo(t.dtype).max
    return torch.full_like(t, fill)


def _spread(t: torch.Tensor) -> torch.Tensor:
    """Right shape and dtype, with gaps: strides and memory must be kept."""
    return make_tensor(tuple(t.shape), dtype=t.dtype, device="cpu", noncontiguous=True)


def _empty(t: torch.Tensor) -> torch.Tensor:
    """No elements: resized in silence."""
    return torch.empty(0, dtype=t.dtype)


def _wrong_shape(t: torch.Tensor) -> torch.Tensor:
    """Elements and a wrong shape: resized with a warning."""
    shape = (*t.shape[:-1], t.shape[-1] + 1) if t.dim() else (2,)
    return torch.zeros(shape, dtype=t.dtype)


def _integers(t: torch.Tensor) -> torch.Tensor:
    """A dtype into which floating results may not be cast."""
    return torch.zeros(tuple(t.shape), dtype=torch.int64)


def _wider(t: torch.Tensor) -> torch.Tensor:
    """A dtype into which most results may be cast."""
    dtype = torch.complex128 if t.dtype.is_complex else torch.float64
    return torch.zeros(tuple(t.shape), dtype=dtype)


OUT_CASES: dict[str, Make] = {
    "poisoned": _poisoned,
    "spread": _spread,
    "empty": _empty,
    "wrong shape": _wrong_shape,
    "integers": _integers,
    "wider": _wider,
}


def check_out(context: Context) -> list[Tally]:
    """`op(..., out=t)` for six kinds of `t`."""
    dtype = context.entry.dtype
    tally = context.tally("M5o", dtype)
    try:
        context.function  # noqa: B018
    except MissingError as error:
        tally.lost("missing", str(error))
        return [tally]
    for label, sample in catalog.samples(context.entry, dtype, limit=context.limits.samples):
        with quiet():
            _run_out_cases(context, tally, label, sample)
    return [tally]


def _run_out_cases(context: Context, tally: Tally, label: str, sample: Any) -> None:
    torch.manual_seed(number_of(label))
    expected = run_torch(context.entry.op, sample)
    results = tree.leaves(expected)
    if not results or not all(isinstance(t, torch.Tensor) for t in results):
        return
    for case, make in OUT_CASES.items():
        with tally.sample(f"{label} {case}") as record:
            out = tree.map_leaves(make, _plain(expected))
            _run_out(context, sample, out, case, record)


def _run_out(context: Context, sample: Any, out: Any, case: str, record: Sample) -> None:
    seed = number_of(record.label.split()[0])
    left, right = torch_bridge().carry_sample(sample), context.bridge.carry_sample(sample)
    ours = context.bridge.carry(out, Memo())
    before = _layouts(ours, context)
    torch.manual_seed(seed)
    expected = attempt(lambda: run_torch(context.entry.op, left, out=out))
    context.bridge.seed(seed)
    got = attempt(lambda: context.call(right, out=ours))
    if not both_succeeded(record, expected, got):
        return
    _compare_warnings(record, case, expected, got)
    want, have = _identities(expected.result, out), _identities(got.result, ours)
    record.expect(want == have, "returns out", f"result is out: {want}, got {have}")
    truth = truth_of(context, sample, context.entry.dtype)
    policy = Policy(OUT_VALUES, context.entry.random, context.entry.undefined, truth=truth)
    comparison = Comparison(record, context.bridge, policy)
    if context.entry.ambiguous:
        compare_ambiguous(comparison, sample, out, ours)
    elif comparison.outputs(out, ours):
        _compare_layouts(record, context, out, ours, before)


def _compare_warnings(record: Sample, case: str, expected: Outcome, got: Outcome) -> None:
    """A wrong shape is resized with a warning, a right or empty one in silence.

    Where torch breaks its own rule, either behaviour passes.
    """
    if case == "wrong shape":
        broken = expected.warned and not got.warned
    else:
        broken = got.warned and not expected.warned
    message = f"torch warns of the resize: {expected.warned}, got {got.warned}"
    record.expect(not broken, "resize warning", message)


def _compare_layouts(
    record: Sample, context: Context, out: Any, ours: Any, before: list[Layout]
) -> None:
    """Strides and memory stay where the shape was right; else strides are as torch leaves them."""
    for i, (left, right) in enumerate(zip(tree.leaves(out), tree.leaves(ours), strict=True)):
        if left.numel() == 0 or left.layout != torch.strided:
            continue
        shape, strides, storage = before[i]
        want, have = significant_strides(left), significant_strides(right)
        if shape == tuple(right.shape):
            kept = storage == context.bridge.storage_id(right)
            record.expect(kept, "out memory", f"[{i}] moved to other memory")
            if have == strides:
                continue  # torch's linear breaks this rule
        record.expect(want == have, "out strides", f"[{i}] {left.stride()} got {right.stride()}")


def _layouts(ours: Any, context: Context) -> list[Layout]:
    return [_layout(x, context) for x in tree.leaves(ours)]


def _layout(x: Any, context: Context) -> Layout:
    strides = significant_strides(x) if str(x.layout) == "torch.strided" else ()
    return tuple(x.shape), strides, context.bridge.storage_id(x)


def _identities(result: Any, out: Any) -> list[bool]:
    """For each output, whether it is the very object that was passed."""
    pairs = zip(tree.leaves(result), tree.leaves(out), strict=False)
    return [left is right for left, right in pairs]


def _plain(x: Any) -> Any:
    """Named tuples as tuples: that is how `out=` is spelled."""
    if isinstance(x, tuple):
        return tuple(_plain(item) for item in x)
    return x
