"""One op on both sides: the same arguments, in turn, one thread, the best of several short runs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.survey import sizes
from benchmarks.timing import Effort, best_times
from tests.conformance import catalog, tree
from tests.conformance.bridge import Bridge
from tests.conformance.catalog import Entry
from tests.conformance.context import quiet

TOLERANCE = 1e-3
"""Results whose largest difference is above this share of the largest number are `wrong`."""


class OutOfTimeError(Exception):
    """An op took longer than one op may."""


@dataclass
class Row:
    """The figures of one op: microseconds of both sides for each kind of call."""

    name: str
    tier: str
    size: str
    """`small` (the database's sample) or `large`."""
    way: str
    """`forward` or `train` (forward and backward)."""
    ours: float = 0.0
    torch: float = 0.0
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.ours / self.torch if self.torch else float("nan")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio}


def effort(seconds: float) -> Effort:
    made = Effort(rounds=6, repeats=3, pause=0.0, seconds=seconds)
    made.one_thread = True
    return made


def survey(
    entry: Entry, bridge: Bridge, backward: bool, limit: float, seconds: float
) -> Iterator[Row]:
    """The rows of one op: what cannot be measured says why in its note."""
    for size in ("small", "large"):
        for way in ("forward", "train") if backward else ("forward",):
            row = Row(entry.name, entry.tier, size, way)
            try:
                with quiet(), within(limit):
                    if _fill(row, entry, bridge, seconds):
                        yield row
            except Exception as error:  # whatever an op says is what the table should say
                row.note = f"{type(error).__name__}: {error}".splitlines()[0][:120]
                yield row


@contextmanager
def within(limit: float) -> Iterator[None]:
    """Give up after `limit` seconds (as soon as the call that runs returns to Python)."""

    def stop(*_: Any) -> None:
        raise OutOfTimeError(f"more than {limit:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _fill(row: Row, entry: Entry, bridge: Bridge, seconds: float) -> bool:
    """Time the call a row is about; False if there is no such call."""
    train = row.way == "train"
    if train and not entry.differentiable(torch.float32):
        return False
    sample = _sample(entry, row.size, train)
    if sample is None:
        return False
    carried = bridge.carry_sample(sample)
    theirs = _caller(torch, entry.op.op, sample, train)
    ours = _caller(bridge.module, bridge.resolve(entry), carried, train)
    torch.manual_seed(0)
    expected = theirs()
    bridge.seed(0)
    got = ours()
    if expected is None:
        return False
    row.note = "" if entry.undefined else _difference(expected, got, bridge)
    found = best_times({"ours": ours, "torch": theirs}, effort(seconds))
    row.ours, row.torch = found["ours"] * 1e6, found["torch"] * 1e6
    return True


def _sample(entry: Entry, size: str, train: bool) -> Any:
    dtype = torch.float32 if train else entry.dtype
    if size == "small":
        found = catalog.samples(entry, dtype, grad=train)
        return found[0][1] if found else None
    made = sizes.large(entry)
    if made is None:
        return None
    args, kwargs = made
    if train:
        wanted = _wanting(entry)
        args = tree.map_leaves(lambda x: _wants(x) if wanted else x, args)
    return SimpleNamespace(input=args[0], args=args[1:], kwargs=kwargs)


def _wanting(entry: Entry) -> bool:
    return entry.dtype.is_floating_point


def _wants(x: Any) -> Any:
    plain = isinstance(x, torch.Tensor) and x.is_floating_point()
    return x.requires_grad_() if plain else x


def _caller(module: Any, function: Any, sample: Any, train: bool) -> Any:
    """A call without arguments: the op, or the op and the gradients of its inputs."""
    args = (sample.input, *sample.args)

    def forward() -> Any:
        with module.no_grad():
            return function(*args, **sample.kwargs)

    if not train:
        return forward
    ins = [x for x in tree.leaves([args, sample.kwargs]) if getattr(x, "requires_grad", False)]
    grad = module.autograd.grad

    def once() -> Any:
        out = function(*args, **sample.kwargs)
        return [x for x in tree.leaves(out) if getattr(x, "requires_grad", False)]

    outs = once()
    if not outs or not ins:
        return lambda: None
    if any(str(x.layout) != "torch.strided" for x in outs):
        return lambda: None
    # Not all ones, of which the gradient is zero for whatever sums to a constant (softmax).
    given = [(x.detach() * 0 + 1).cumsum(-1) if x.ndim else module.ones_like(x) for x in outs]
    return lambda: grad(once(), ins, given, allow_unused=True)


def _difference(expected: Any, got: Any, bridge: Bridge) -> str:
    """`wrong ...` if values differ by more than rounding."""
    pairs = zip(tree.leaves(expected), tree.leaves(got), strict=False)
    for left, right in pairs:
        if not isinstance(left, torch.Tensor) or not left.is_floating_point():
            continue
        if left.layout != torch.strided or not left.numel():
            continue
        a, b = left.detach().double(), bridge.from_other(right).double()
        a, b = torch.nan_to_num(a), torch.nan_to_num(b)
        far = (a - b).abs().max() / a.abs().max().clamp_min(1e-6)
        if far > TOLERANCE:
            return f"wrong by {float(far):.1e}"
    return ""
