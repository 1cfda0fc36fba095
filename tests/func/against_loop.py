"""vmap of every op against a Python loop of the same op.

Samples come from torch's op database. Each tensor of a sample is stacked with two changed copies of
itself, so that a rule that mixes up parts of the batch is seen. The op is mapped over one tensor
at a time and over all of them, with the batch at the front and at the end.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import lucerne
from lucerne.func import grad, vmap, vmap_fallbacks
from tests.conformance import catalog, tree
from tests.conformance.bridge import Bridge, Carried, NotCarriedError, lucerne_bridge
from tests.conformance.context import Context, quiet
from tests.conformance.rebind import MissingError

BATCH = 3
Pattern = tuple[int | None, ...]


@dataclass
class Verdict:
    """What came of one op."""

    name: str
    tier: str
    calls: int = 0
    failures: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    fallbacks: dict[str, int] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        if self.failures:
            return "FAIL"
        if self.refusals:
            return "refused"
        return "ok" if self.calls else "empty"


def patterns(tensors: list[Any]) -> Iterator[Pattern]:
    """Which tensors are mapped, and along which dimension."""
    count = len(tensors)
    if count > 1:
        for i in range(min(count, 4)):
            yield tuple(0 if k == i else None for k in range(count))
    yield (0,) * count
    yield (-1,) * count


def changed(t: Any, k: int) -> Any:
    """A copy of a tensor with other values that the op takes as well, most likely."""
    if not k or not t.numel():
        return t.clone()
    if t.dtype.is_floating_point or t.dtype.is_complex:
        return t * (1 - 0.03 * k)
    return t.flip(0) if t.ndim and k == 1 else t.clone()


def stacked(t: Any, dim: int, change: bool) -> Any:
    copies = [changed(t, k) if change else t.clone() for k in range(BATCH)]
    return lucerne.stack(copies, dim if dim >= 0 else t.ndim)


def rebuilt(carried: Carried, tensors: list[Any], given: tuple[Any, ...]) -> Carried:
    """The same arguments with other tensors."""
    at = {id(t): g for t, g in zip(tensors, given, strict=True)}

    def swap(leaf: Any) -> Any:
        return at.get(id(leaf), leaf)

    args = tuple(tree.map_leaves(swap, list(carried.args)))
    kwargs = tree.map_leaves(swap, carried.kwargs)
    return Carried(tree.map_leaves(swap, carried.input), args, kwargs, carried.memo)


def tensor_results(result: Any) -> list[Any]:
    return [x for x in tree.leaves(result) if isinstance(x, lucerne.Tensor)]


def looped(f: Callable[..., Any], inputs: list[Any], dims: Pattern) -> list[Any]:
    """The results of one call for each of the batch, stacked."""
    rows = []
    for k in range(BATCH):
        lucerne.manual_seed(0)
        given = [x if d is None else x.select(d, k) for x, d in zip(inputs, dims, strict=True)]
        rows.append(tensor_results(f(*given)))
    return [lucerne.stack(list(column)) for column in zip(*rows, strict=True)]


def difference(want: Any, got: Any) -> str | None:
    """What is wrong with a result, or None."""
    if tuple(want.shape) != tuple(got.shape):
        return f"shape {list(got.shape)}, expected {list(want.shape)}"
    if want.dtype is not got.dtype:
        return f"dtype {got.dtype}, expected {want.dtype}"
    a, b = wide(want), wide(got)
    largest = np.nanmax(np.abs(a), initial=0, where=np.isfinite(a))
    if not np.allclose(a, b, rtol=2e-4, atol=1e-5 * (1 + largest), equal_nan=True):
        with np.errstate(all="ignore"):
            return f"values differ by {np.nanmax(np.abs(a - b)):.3g}"
    return None


def wide(t: Any) -> Any:
    t = t.detach()
    if t.dtype.is_complex:
        return t.to(lucerne.complex128).numpy()
    return t.to(lucerne.float64).numpy()


def gradient_of(f: Callable[..., Any], tensors: list[Any]) -> Callable[..., Any] | None:
    """The gradient of (a weighted sum of) the results by the inputs of floating point, or None."""
    smooth = tuple(i for i, t in enumerate(tensors) if t.dtype.is_floating_point)
    if not smooth:
        return None

    def total(*given: Any) -> Any:
        found = [r for r in tensor_results(f(*given)) if r.dtype.is_floating_point]
        parts = [(r * (1 + 0.1 * lucerne.arange(r.numel()).reshape(r.shape))).sum() for r in found]
        return sum(parts, lucerne.zeros(()))

    return grad(total, argnums=smooth)


class Trial:
    """One op under test. `gradients`: not its results but their gradients."""

    def __init__(
        self, entry: catalog.Entry, bridge: Bridge, limit: int | None, gradients: bool = False
    ) -> None:
        self.gradients = gradients
        self.context = Context(entry, bridge)
        self.entry = entry
        self.limit = limit
        self.verdict = Verdict(entry.name, entry.tier)

    def run(self) -> Verdict:
        try:
            self.context.function  # noqa: B018
        except MissingError as error:
            self.verdict.failures.append(str(error))
            return self.verdict
        vmap_fallbacks(reset=True)
        for label, sample in catalog.samples(self.entry, self.entry.dtype, limit=self.limit):
            with quiet():
                self.sample(label, sample)
        self.verdict.fallbacks = vmap_fallbacks(reset=True)
        return self.verdict

    def sample(self, label: str, sample: Any) -> None:
        try:
            carried = self.context.bridge.carry_sample(sample)
        except NotCarriedError:
            return
        memo = carried.memo.tensors.values()
        tensors = [ours for theirs, ours in memo if theirs.layout == torch.strided]
        tensors = [t for t in tensors if t.device.type != "meta"]
        if not tensors:
            return

        def f(*given: Any) -> Any:
            return self.context.call(rebuilt(carried, tensors, given))

        run = gradient_of(f, tensors) if self.gradients else f
        for dims in patterns(tensors) if run is not None else ():
            failed = self.pattern(f"{label} in_dims={dims}", run, tensors, dims)
            if failed is not None:
                refused = torch_refuses(self.entry.op.op, sample, carried, dims)
                (self.verdict.refusals if refused else self.verdict.failures).append(failed)

    def pattern(self, label: str, f: Any, tensors: list[Any], dims: Pattern) -> str | None:
        """What vmap raised, if it did."""
        for change in (True, False):
            inputs = [
                t if d is None else stacked(t, d, change)
                for t, d in zip(tensors, dims, strict=True)
            ]
            copies = [x.clone() for x in inputs]  # an op may write to its arguments
            try:
                want = looped(f, copies, dims)
                break
            except Exception:  # values the op does not take, or results of several shapes
                want = None
        return None if want is None else self.compare(label, f, inputs, dims, want)

    def compare(
        self, label: str, f: Any, inputs: list[Any], dims: Pattern, want: Any
    ) -> str | None:
        randomness = "different" if self.entry.random or self.entry.undefined else "same"
        lucerne.manual_seed(0)
        try:
            got = vmap(lambda *a: tensor_results(f(*a)), dims, randomness=randomness)(*inputs)
        except Exception as error:
            return f"{label}: {type(error).__name__}: {str(error)[:160]}"
        self.verdict.calls += 1
        for i, (w, g) in enumerate(zip(want, got, strict=True)):
            if self.entry.random or self.entry.undefined:
                wrong = None if tuple(w.shape) == tuple(g.shape) else "shape"
            else:
                wrong = difference(w, g)
            if wrong is not None:
                self.verdict.failures.append(f"{label} result {i}: {wrong}")
                break
        return None


def torch_refuses(op: Any, sample: Any, carried: Carried, dims: Pattern) -> bool:
    """Whether torch's vmap refuses the same call (results of dynamic shape, values looked at, a
    batched value written into a tensor that is none)."""
    memo = carried.memo.tensors.values()
    tensors = [theirs for theirs, _ in memo if theirs.layout == torch.strided]
    tensors = [t for t in tensors if t.device.type != "meta"]
    theirs = Carried(sample.input, tuple(sample.args), dict(sample.kwargs), carried.memo)
    inputs = [
        t.detach() if d is None else torch.stack([t.detach()] * BATCH, d if d >= 0 else t.ndim)
        for t, d in zip(tensors, dims, strict=True)
    ]

    def f(*given: Any) -> Any:
        there = rebuilt(theirs, tensors, given)
        found = tree.leaves(op(there.input, *there.args, **there.kwargs))
        return [x for x in found if isinstance(x, torch.Tensor)]

    try:
        torch.func.vmap(f, dims, randomness="different")(*inputs)
    except Exception:
        return True
    return False


def check(
    entry: catalog.Entry,
    limit: int | None,
    bridge: Bridge | None = None,
    gradients: bool = False,
) -> Verdict:
    """Try one op."""
    return Trial(entry, bridge or lucerne_bridge(), limit, gradients).run()
