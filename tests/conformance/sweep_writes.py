"""M11i: in-place calls on odd targets, M11o: `out=` that is oddly laid out, or lies over an input.

torch says what a case means: a result, or a refusal. Of memory that a call reads and writes, or
writes twice, the law is another: the call is refused, or gives the result of memory apart. (torch
refuses most, gives what the order of its loops makes of some, and dies of a few.) What is laid
exactly over an input must work where it does in torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.conformance import catalog, tree
from tests.conformance.bridge import Carried, Memo, torch_bridge
from tests.conformance.compare import Comparison, Policy, Truth, compare_ambiguous
from tests.conformance.context import Context, number_of, quiet, run_torch
from tests.conformance.outcome import Outcome, attempt, both_succeeded
from tests.conformance.rebind import Function, MissingError
from tests.conformance.result import Sample, Tally
from tests.conformance.sweep import LAYOUTS, SAMPLES, VALUES, Change, every_second, turned
from tests.conformance.sweep import changed as with_change
from tests.conformance.variants import OUT_VALUES, run_inplace, truth_of

KILLS = {("tril", "turned"), ("triu", "turned")}
"""Cases in which torch writes outside of its memory."""
Out = Callable[[torch.Tensor, Carried], torch.Tensor | None]


# In place


def check_targets(context: Context, dtype: torch.dtype) -> list[Tally]:
    """M11i."""
    tally = context.tally("M11i", dtype)
    try:
        function = context.bridge.resolve_inplace(context.entry)
    except MissingError as error:
        tally.lost("missing", str(error))
        return [tally]
    changes = {**LAYOUTS, **(VALUES if dtype.is_floating_point else {})}
    for label, sample in _samples(context, dtype):
        if not isinstance(sample.input, torch.Tensor):
            continue
        for name, change in changes.items():
            with quiet(), tally.sample(f"{name} {label}") as record:
                _run_changed(context, function, sample, change, record, dtype)
        for name, over in OPERANDS.items():
            with quiet(), tally.sample(f"{name} {label}") as record:
                _run_operand(context, function, sample, over, record)
    return [tally]


def _run_changed(
    context: Context,
    function: Function,
    sample: Any,
    change: Change,
    record: Sample,
    dtype: torch.dtype,
) -> None:
    made = with_change(sample, change, False)
    if made is None:
        record.drop()
        return
    if change is LAYOUTS["expanded"]:  # torch writes some such targets, each element many times
        right = context.bridge.carry_sample(made)
        got = attempt(lambda: function(right.input, *right.args, **right.kwargs))
        if "single memory location" in str(got.error):
            _expect_refusal(record, got, works=False)
            return
    run_inplace(context, function, made, record, dtype)


def _itself(target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return target, target


def _its_neighbour(target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The operand begins one element before the target, in the same memory."""
    memory = target.new_zeros(target.numel() + 1)
    memory[1:] = target.reshape(-1)
    return memory[1:].view(target.shape), memory[:-1].view(target.shape)


OPERANDS: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]] = {
    "operand is the target": _itself,
    "operand lies over the target": _its_neighbour,
}


def _run_operand(
    context: Context, function: Function, sample: Any, over: Any, record: Sample
) -> None:
    """The first argument of the target's shape and dtype is replaced by one that shares memory."""
    at = next((i for i, x in enumerate(sample.args) if _alike(x, sample.input)), None)
    if at is None or not _is_plain(sample.input):
        record.drop()
        return
    target, operand = over(sample.input)
    apart = _Arguments(target.clone(), _replaced(sample.args, at, operand.clone()), sample.kwargs)
    shared = _Arguments(target, _replaced(sample.args, at, operand), sample.kwargs)
    left, right = torch_bridge().carry_sample(shared), context.bridge.carry_sample(shared)
    inplace = context.entry.op.inplace_variant
    seed = number_of(record.label)

    def of_torch(x: Any) -> Outcome:
        torch.manual_seed(seed)
        return attempt(lambda: inplace(x.input, *x.args, **x.kwargs))

    plain = of_torch(apart)
    context.bridge.seed(seed)
    got = attempt(lambda: function(right.input, *right.args, **right.kwargs))
    if plain.error is not None:
        record.drop()
    elif got.error is not None:
        _expect_refusal(record, got, over is _itself and of_torch(left).error is None)
    else:
        policy = Policy(OUT_VALUES, context.entry.random, context.entry.undefined)
        Comparison(record, context.bridge, policy).leaf(0, apart.input, right.input)


class _Arguments:
    """As much of a sample as crosses the bridge."""

    def __init__(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.input, self.args, self.kwargs = target, args, kwargs


# out=


def _apart(t: torch.Tensor, _: Carried) -> torch.Tensor:
    return t.clone()


def _spread(t: torch.Tensor, _: Carried) -> torch.Tensor:
    return every_second(t)


def _turned(t: torch.Tensor, _: Carried) -> torch.Tensor:
    return turned(t)


def _one_row(t: torch.Tensor, _: Carried) -> torch.Tensor | None:
    """All rows in one place: torch refuses to write it."""
    return t[:1].clone().expand(t.shape) if t.dim() and t.shape[0] > 1 else None


def _the_input(t: torch.Tensor, carried: Carried) -> torch.Tensor | None:
    return next((x for x in _tensors(carried) if _alike(x, t)), None)


def _over_input(shift: int) -> Out:
    """Memory of an input, from `shift` elements behind its beginning; needs one that is longer."""

    def make(t: torch.Tensor, carried: Carried) -> torch.Tensor | None:
        for x in _tensors(carried):
            memory = x.untyped_storage().nbytes() // x.element_size()
            if x.dtype is t.dtype and x.numel() and t.numel():
                begin = x.storage_offset() + shift
                if begin + t.numel() <= memory:
                    steps = torch.empty(t.shape, device="meta").stride()
                    return x.as_strided(t.shape, steps, begin)
        return None

    return make


OUTS: dict[str, Out] = {
    "apart": _apart,
    "every second": _spread,
    "turned": _turned,
}
SHARED: dict[str, Out] = {
    "one row": _one_row,
    "the input": _the_input,
    "over the input": _over_input(0),
    "behind the input's first": _over_input(1),
}


def check_outs(context: Context, dtype: torch.dtype) -> list[Tally]:
    """M11o."""
    tally = context.tally("M11o", dtype)
    if not context.is_there(tally):
        return [tally]
    for label, sample in _samples(context, dtype):
        torch.manual_seed(number_of(label))
        first = attempt(
            lambda s=sample: run_torch(context.entry.op, torch_bridge().carry_sample(s))
        )
        leaves = [] if first.error else tree.leaves(first.result)
        if not leaves or not all(isinstance(t, torch.Tensor) for t in leaves):
            continue
        plain = _out_call(context, sample, first.result, _apart, 0)
        if plain is None or plain.of_torch(context).error is not None:
            continue  # (M5o compares such refusals)
        for name, make in {**OUTS, **SHARED}.items():
            with quiet(), tally.sample(f"{name} {label}") as record:
                call = _out_call(context, sample, first.result, make, number_of(label))
                if call is None:
                    record.drop()
                else:
                    call.truth = truth_of(context, sample, dtype)
                    compare = _compare_layout if name in OUTS else _compare_shared
                    compare(context, call, record)
    return [tally]


@dataclass
class _OutCall:
    """A call with `out=` on both sides; `apart` is torch's result in memory of its own."""

    sample: Any
    apart: Any
    seed: int
    left: Carried
    right: Carried
    out: Any
    ours: Any
    truth: Truth | None = None

    @property
    def is_input(self) -> bool:
        """Whether the first output is an input itself."""
        return any(x is tree.leaves(self.out)[0] for x in _tensors(self.left))

    def of_torch(self, context: Context) -> Outcome:
        torch.manual_seed(self.seed)
        return attempt(lambda: run_torch(context.entry.op, self.left, out=self.out))

    def of_other(self, context: Context) -> Outcome:
        context.bridge.seed(self.seed)
        return attempt(lambda: context.call(self.right, out=self.ours))


def _out_call(context: Context, sample: Any, apart: Any, make: Out, seed: int) -> _OutCall | None:
    """`out=` made from the result; of several the first lies oddly."""
    left = torch_bridge().carry_sample(_longer(sample))
    leaves = [t.clone() for t in tree.leaves(apart)]
    odd = make(leaves[0], left) if leaves[0].layout is torch.strided else None
    if odd is None:
        return None
    out: Any = odd if isinstance(apart, torch.Tensor) else (odd, *leaves[1:])
    memo = Memo()
    right = Carried(*(context.bridge.carry(x, memo) for x in _parts(left)), memo)
    return _OutCall(sample, apart, seed, left, right, out, context.bridge.carry(out, memo))


def _compare_layout(context: Context, call: _OutCall, record: Sample) -> None:
    """Draws lie in the order of the memory; other results do not depend on where they are put.

    torch's own do for two ops, which write as if `out` were contiguous.
    """
    got = call.of_other(context)
    if (context.entry.name, record.label.split()[0]) in KILLS:
        expected = Outcome(result=call.apart)
    else:
        expected = call.of_torch(context)
    if both_succeeded(record, expected, got):
        _compare(context, call, call.out if context.entry.random else call.apart, record)


def _compare_shared(context: Context, call: _OutCall, record: Sample) -> None:
    got = call.of_other(context)
    if got.error is not None:
        _expect_refusal(record, got, call.is_input and call.of_torch(context).error is None)
    elif not context.entry.random:
        _compare(context, call, call.apart, record)


def _compare(context: Context, call: _OutCall, want: Any, record: Sample) -> None:
    entry = context.entry
    policy = Policy(OUT_VALUES, entry.random, entry.undefined, truth=call.truth)
    comparison = Comparison(record, context.bridge, policy)
    plain = want if isinstance(want, torch.Tensor) else tuple(want)
    if entry.ambiguous:
        compare_ambiguous(comparison, call.sample, plain, call.ours)
    else:
        comparison.outputs(plain, call.ours)


def _parts(carried: Carried) -> tuple[Any, Any, Any]:
    return carried.input, carried.args, carried.kwargs


def _longer(sample: Any) -> Any:
    """The sample with each tensor at the head of memory that is three elements longer."""

    def one(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not _is_plain(x):
            return x
        memory = x.new_zeros(x.numel() + 3)
        memory[: x.numel()] = x.detach().reshape(-1)
        return memory[: x.numel()].view(x.shape)

    return sample.transform(one)


# Both


def _samples(context: Context, dtype: torch.dtype) -> catalog.Sampled:
    limit = min(context.limits.samples or SAMPLES, SAMPLES)
    return catalog.samples(context.entry, dtype, limit=limit)


def _expect_refusal(record: Sample, got: Outcome, works: bool) -> None:
    """The call may raise, for the memory it shares; not if it works in torch."""
    refused = "single memory location" in str(got.error)
    assert got.error is not None
    if works or not refused:
        record.raised(got.error, "shared memory")
    else:
        record.expect(True, "shared memory", "")


def _alike(x: Any, target: torch.Tensor) -> bool:
    same = isinstance(x, torch.Tensor) and x.layout is torch.strided
    return same and x.shape == target.shape and x.dtype is target.dtype


def _is_plain(x: torch.Tensor) -> bool:
    return x.layout is torch.strided and x.device.type == "cpu" and not x.is_conj()


def _tensors(carried: Carried) -> list[torch.Tensor]:
    found = [*tree.leaves(carried.input), *tree.leaves(list(carried.args))]
    return [x for x in found if isinstance(x, torch.Tensor) and _is_plain(x)]


def _replaced(args: tuple[Any, ...], at: int, new: Any) -> tuple[Any, ...]:
    return (*args[:at], new, *args[at + 1 :])
