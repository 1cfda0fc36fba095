"""The derivative of an op in a random direction, against torch's forward mode.

Where torch has no forward rule for a call, its reverse rules are transposed: the gradient is linear
in its cotangent, and the derivative of that map is the derivative of the op.
"""

import importlib
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad

from tests.conformance import catalog, tree
from tests.conformance.bridge import Carried, Memo
from tests.conformance.compare import Comparison, Policy
from tests.conformance.context import Context, number_of, quiet
from tests.conformance.gradients import compare_gradients, draw_like, run_other, torch_graph
from tests.conformance.rebind import MissingError
from tests.conformance.result import Sample, Tally
from tests.conformance.tolerance import GRADIENTS

SECONDS = 60


class TookTooLongError(Exception):
    """An entry that would hold up all others."""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise inside if it takes longer."""

    def stop(*_: object) -> None:
        raise TookTooLongError(f"over {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def has_forward(entry: catalog.Entry, dtype: torch.dtype = torch.float64) -> bool:
    """Whether torch says that it differentiates the op forward."""
    return bool(entry.op.supports_forward_ad) and entry.differentiable(dtype)


def check(context: Context, dtype: torch.dtype, limit: int | None) -> Tally:
    """Some samples of an entry."""
    tally = context.tally("forward AD", dtype)
    try:
        context.function  # noqa: B018
    except MissingError as error:
        tally.lost("missing", str(error))
        return tally
    try:
        with time_limit(SECONDS):
            for label, sample in catalog.samples(context.entry, dtype, grad=True, limit=limit):
                with quiet(), tally.sample(label) as record:
                    _compare(context, sample, record)
    except TookTooLongError as error:
        tally.lost("time", str(error))
    return tally


def _compare(context: Context, sample: Any, record: Sample) -> None:
    seed = number_of(record.label)
    carried = context.bridge.carry_sample(sample)
    torch.manual_seed(seed)
    graph = torch_graph(context, sample)
    if not graph.outs or not graph.ins:
        record.drop()
        return
    tangents = draw_like(graph.ins, seed)
    torch.manual_seed(seed)
    try:
        expected = _by_torch(context, sample, graph.ins, tangents)
    except (RuntimeError, NotImplementedError):
        expected = _by_transposing(graph, tangents)
    if expected is None:
        record.drop()  # torch has no derivative for this sample
        return
    try:
        context.bridge.seed(seed)
        got = _by_other(context, sample, carried, graph.ins, tangents)
    except TookTooLongError:
        raise
    except Exception as error:
        record.raised(error, "forward AD")
        return
    if record.expect(len(got) == len(expected), "outputs", f"{len(expected)} got {len(got)}"):
        comparison = Comparison(record, context.bridge, Policy(GRADIENTS))
        compare_gradients(comparison, expected, got)


def _by_torch(context: Context, sample: Any, ins: list[Any], tangents: list[Any]) -> list[Any]:
    op = context.entry.op
    with forward_ad.dual_level():
        pairs = zip(ins, tangents, strict=True)
        duals = {id(x): forward_ad.make_dual(x.detach(), t) for x, t in pairs}
        given = [_replaced(x, duals) for x in (sample.input, list(sample.args), sample.kwargs)]
        raw = op.gradcheck_wrapper(op.op, given[0], *given[1], **given[2])
        outs = tree.leaves(sample.output_process_fn_grad(raw))
        return [
            forward_ad.unpack_dual(o).tangent
            for o in outs
            if isinstance(o, torch.Tensor) and (o.is_floating_point() or o.is_complex())
        ]


def _by_transposing(graph: Any, tangents: list[Any]) -> list[Any] | None:
    """Derivatives of the outputs that depend on an input, or None."""
    slots = [torch.zeros_like(o, requires_grad=True) for o in graph.outs]
    try:
        grads = torch.autograd.grad(
            graph.outs, graph.ins, slots, create_graph=True, allow_unused=True
        )
        live = [(g, t) for g, t in zip(grads, tangents, strict=True) if g is not None]
        live = [(g, t) for g, t in live if g.requires_grad]
        if not live:
            return None
        return list(
            torch.autograd.grad(
                [g for g, _ in live], slots, [t for _, t in live], allow_unused=True
            )
        )
    except (RuntimeError, NotImplementedError):
        return None


def _by_other(
    context: Context, sample: Any, carried: Carried, ins: list[Any], tangents: list[Any]
) -> list[Any]:
    bridge = context.bridge
    other = importlib.import_module(f"{bridge.name}.autograd.forward_ad")
    with other.dual_level():
        duals = {}
        for x, t in zip(ins, tangents, strict=True):
            mine = carried.memo.other(x)
            duals[id(mine)] = other.make_dual(mine.detach(), bridge.to_other(t, Memo()))
        given = Carried(
            _replaced(carried.input, duals),
            tuple(_replaced(list(carried.args), duals)),
            _replaced(carried.kwargs, duals),
            carried.memo,
        )
        outs = tree.leaves(run_other(context, sample, given))
        return [
            other.unpack_dual(o).tangent
            for o in outs
            if bridge.is_tensor(o) and (o.is_floating_point() or o.is_complex())
        ]


def _replaced(x: Any, duals: dict[int, Any]) -> Any:
    return tree.map_leaves(lambda leaf: duals.get(id(leaf), leaf), x)
