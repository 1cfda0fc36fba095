"""`foreach`: torch's database of ops over lists of tensors (48 entries, not part of op_db).

Each sample runs in the form that makes new tensors and in the one in place, at every dtype of the
entry; where torch refuses, the other side must refuse with the same type. In float32 the
derivatives of the form that makes new tensors are compared too.
"""

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from tests.conformance import catalog, rebind, tree
from tests.conformance.bridge import Bridge, Memo, torch_bridge
from tests.conformance.compare import Comparison, Policy
from tests.conformance.context import Limits, float64_truth, number_of, quiet
from tests.conformance.gradients import compare_gradients, draw_like
from tests.conformance.outcome import attempt, both_succeeded
from tests.conformance.result import Sample, Tally
from tests.conformance.tolerance import GRADIENTS

TIER = "foreach"
ENTRIES = 48
FEW_DTYPES = 3  # of twelve, when samples are limited
_KINDS = ("unary", "binary", "pointwise", "reduce", "other")


@functools.cache
def load() -> dict[str, Any]:
    """The entries by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal import common_methods_invocations as database
    found = [op for kind in _KINDS for op in getattr(database, f"foreach_{kind}_op_db")]
    if len(found) != ENTRIES:
        raise RuntimeError(f"torch's foreach database changed: {len(found)} entries")
    return {op.name: op for op in found}


def check_foreach(name: str, bridge: Bridge, limits: Limits) -> list[Tally]:
    """One entry: every dtype, both forms, and derivatives."""
    op, tally = load()[name], Tally("foreach", name, TIER, "")
    missing = [form.__name__ for form in _forms(op) if not hasattr(bridge.module, form.__name__)]
    if missing:
        tally.lost("missing", ", ".join(missing))
        return [tally]
    dtypes = sorted(op.supported_dtypes("cpu"), key=str)
    few = limits.classes and min(limits.classes, FEW_DTYPES)
    for dtype in catalog.pick(dtypes, few):
        for label, sample in _samples(op, dtype, limits):
            for function in _forms(op):
                place = f"{function.__name__} {str(dtype).removeprefix('torch.')} {label}"
                with quiet(), tally.sample(place) as record:
                    _check_values(function, sample, bridge, record)
    if op.supports_autograd and op.name != "_foreach_zero":
        for label, sample in _samples(op, torch.float32, limits, grad=True):
            with quiet(), tally.sample(f"derivative {label}") as record:
                _check_gradients(op.op, sample, bridge, record)
    return [tally]


def _samples(op: Any, dtype: torch.dtype, limits: Limits, *, grad: bool = False) -> Iterator[Any]:
    """Samples of a dtype, labelled by their place in the database."""
    torch.manual_seed(0)
    found = enumerate(op.sample_inputs("cpu", dtype, requires_grad=grad))
    labelled = [(f"#{i}", sample) for i, sample in found]
    return iter(catalog.pick(labelled, limits.classes))


def _forms(op: Any) -> list[Any]:
    forms = (op.op, op.inplace_variant)
    return list(dict.fromkeys(form for form in forms if form is not None))


def _check_values(function: Any, sample: Any, bridge: Bridge, record: Sample) -> None:
    ours = rebind.lookup(bridge.module, function.__name__)
    left, right = torch_bridge().carry_sample(sample), bridge.carry_sample(sample)
    truth = float64_truth(sample, lambda wide: _run(function, wide), _dtype_of(sample))
    expected = attempt(lambda: _run(function, left))
    got = attempt(lambda: _run(ours, right))
    if not both_succeeded(record, expected, got):
        return
    comparison = Comparison(record, bridge, Policy(truth=truth))
    comparison.outputs(expected.result, got.result)
    if function.__name__.endswith("_"):
        comparison.outputs(left.input, right.input)
        same = expected.result is left.input, got.result is right.input
        record.expect(same[0] == same[1], "returns self", f"{same[0]} got {same[1]}")


def _check_gradients(function: Any, sample: Any, bridge: Bridge, record: Sample) -> None:
    ours = rebind.lookup(bridge.module, function.__name__)
    carried = bridge.carry_sample(sample)
    expected = attempt(lambda: _run(function, sample))
    got = attempt(lambda: _run(ours, carried))
    if not both_succeeded(record, expected, got):
        return
    outs = [t for t in tree.leaves(expected.result) if t.requires_grad]
    mine = [t for t in tree.leaves(got.result) if t.requires_grad]
    leaves = tree.leaves([sample.input, list(sample.args), sample.kwargs])
    wanted = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
    ins = list({id(t): t for t in wanted}.values())
    if not outs or not ins:
        record.drop()
        return
    if not record.expect(len(outs) == len(mine), "requires_grad", f"{len(outs)} got {len(mine)}"):
        return
    cotangents = draw_like(outs, number_of(record.label))
    try:
        grads = torch.autograd.grad(outs, ins, cotangents, allow_unused=True)
    except (RuntimeError, IndexError):  # torch's own formula fails for one tensor against a list
        record.drop()
        return
    others = [bridge.to_other(c, Memo()) for c in cotangents]
    found = bridge.grad(mine, [carried.memo.other(t) for t in ins], others)
    compare_gradients(Comparison(record, bridge, Policy(GRADIENTS)), grads, found)


def _run(function: Any, sample: Any) -> Any:
    return function(sample.input, *sample.args, **sample.kwargs)


def _dtype_of(sample: Any) -> torch.dtype:
    leaves = tree.leaves([sample.input, list(sample.args)])
    found: torch.dtype = next(t.dtype for t in leaves if isinstance(t, torch.Tensor))
    return found
