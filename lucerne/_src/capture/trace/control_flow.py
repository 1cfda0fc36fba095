"""`cond`, `while_loop` and `scan` while a function is captured: nodes that hold graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.capture.trace import subgraph as sg
from lucerne._src.capture.trace.fake import CaptureError
from lucerne._src.capture.trace.pytree import flatten, rebuild
from lucerne._src.ir import dispatch
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.meta_text import meta_text
from lucerne._src.ir.op import Op
from lucerne._src.ops.checks import zeros_of
from lucerne._src.ops.control import COND, SCAN, WHILE
from lucerne._src.tensor.autograd.function import Function
from lucerne._src.tensor.base import TensorBase


def is_captured() -> bool:
    """Whether what happens now is written into a graph."""
    levels = dispatch.state.kernel_level
    return bool(levels) and bool(getattr(levels[-1], "captures", False))


def _call(op: Op, args: tuple[Any, ...]) -> list[Any]:
    found = dispatch.entry.run(op, args)
    return list(found) if isinstance(found, tuple) else [found]


def _needing(tensors: Sequence[Any]) -> list[int]:
    """Which tensors want gradients."""
    if not dispatch.state.grad_enabled:
        return []
    return [k for k, t in enumerate(tensors) if t._needs_grad and sg.is_differentiable(t._meta)]


def _only_once(what: str) -> None:
    if dispatch.state.grad_enabled:
        raise CaptureError(
            f"{what} can be differentiated once inside a program, and create_graph=True asks for "
            "more. Call autograd.grad outside of the compiled function, where it runs op by op."
        )


# ---- cond ---------------------------------------------------------------------------------------


def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Sequence[Any]) -> Any:
    """One of two branches, decided by a tensor at each call of the program."""
    yes = sg.traced(true_fn, operands, "cond, true_fn")
    no = sg.traced(false_fn, operands, "cond, false_fn")
    _check_alike(yes, no)
    graphs, tensors = sg.together([yes, no])
    sg.tell_constants([yes, no])
    needing = _needing(tensors)
    flag = pred.detach().reshape(())
    if not needing:
        outs = _call(COND, (flag, tuple(tensors), *graphs))
    else:
        wanted = [tensors[k] for k in needing]
        backward = [
            sg.differentiated(fn, operands, f"cond, {name}", tensors, wanted, yes.metas)
            for fn, name in ((true_fn, "true_fn"), (false_fn, "false_fn"))
        ]
        more, extra = sg.together(backward)
        sg.tell_constants(backward)
        plan = _CondPlan(graphs, more, extra, needing)
        found = _Cond.apply(plan, flag, *tensors)
        outs = list(found) if isinstance(found, tuple) else [found]
    return rebuild(yes.shape, iter(outs))


def _check_alike(yes: sg.TracedBranch, no: sg.TracedBranch) -> None:
    if yes.shape != no.shape:
        raise CaptureError("cond: the branches return different structures of tuples, lists, dicts")
    for k, (a, b) in enumerate(zip(yes.metas, no.metas, strict=True)):
        if a is not b:
            raise CaptureError(
                f"cond: result {k} is {meta_text(a)} in true_fn and {meta_text(b)} in false_fn; "
                "both must have the same shape and dtype"
            )


class _CondPlan:
    def __init__(
        self, graphs: list[Graph], backward: list[Graph], extra: list[Any], needing: list[int]
    ) -> None:
        self.graphs, self.backward, self.extra, self.needing = graphs, backward, extra, needing
        self.floats = [k for k, v in enumerate(graphs[0].outputs) if sg.is_differentiable(v.meta)]


class _Cond(Function):
    """The derivative of the branch that was taken."""

    @staticmethod
    def forward(ctx: Any, plan: _CondPlan, flag: Any, *tensors: Any) -> Any:
        ctx.plan = plan
        ctx.save_for_backward(flag, *tensors)
        outs = tuple(_call(COND, (flag, tensors, *plan.graphs)))
        ctx.mark_non_differentiable(*[t for k, t in enumerate(outs) if k not in plan.floats])
        return outs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        _only_once("cond")
        plan: _CondPlan = ctx.plan
        flag, *tensors = ctx.saved_tensors
        given = (*tensors, *(sg.fresh(grads[k]) for k in plan.floats), *plan.extra)
        found = _call(COND, (flag, given, *plan.backward))
        by_tensor = dict(zip(plan.needing, found, strict=True))
        return (None, None, *(by_tensor.get(k) for k in range(len(tensors))))


# ---- while_loop ---------------------------------------------------------------------------------


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: Sequence[Any]
) -> Any:
    """A body that runs as long as a tensor says so; forward only."""
    leaves: list[Any] = []
    shape = flatten(tuple(carried), leaves)
    _only_tensors(leaves, "while_loop: the carried inputs")
    start = [sg.fresh(x) for x in leaves]
    fakes = [sg.stand_in(t._meta) for t in start]
    args = rebuild(shape, iter(fakes))
    goes_on = sg.traced(cond_fn, args, "while_loop, cond_fn", fakes)
    body = sg.traced(_as_tuple(body_fn), args, "while_loop, body_fn", fakes)
    if len(goes_on.metas) != 1 or goes_on.metas[0].numel != 1:
        raise CaptureError("while_loop: cond_fn must return one tensor with one element")
    _check_carried(start, body, len(start), "while_loop, body_fn")
    graphs, extra = sg.together([goes_on, body])
    sg.tell_constants([goes_on, body])
    if _needing([*start, *extra]):
        raise CaptureError(
            "while_loop: how often it runs is not known beforehand, so nothing can be kept for a "
            "backward pass. Give max_iterations=, use scan for a known number of steps, or detach "
            "what goes in."
        )
    return rebuild(shape, iter(_call(WHILE, (tuple(start), tuple(extra), *graphs))))


def _as_tuple(fn: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        found = dispatch.call_inside(fn, *args)
        return tuple(found) if isinstance(found, (tuple, list)) else (found,)

    return run


def _only_tensors(leaves: Sequence[Any], what: str) -> None:
    for x in leaves:
        if not isinstance(x, TensorBase):
            raise CaptureError(f"{what} must be tensors, one is {x!r}")


def _check_carried(start: Sequence[Any], body: sg.TracedBranch, count: int, what: str) -> None:
    if len(body.metas) < count:
        raise CaptureError(f"{what} returns {len(body.metas)} tensors, {count} are carried")
    for k, (t, meta) in enumerate(zip(start, body.metas, strict=False)):
        if t._meta is not meta:
            raise CaptureError(
                f"{what}: carried tensor {k} is {meta_text(t._meta)} before a step and "
                f"{meta_text(meta)} after it; it must stay what it is"
            )


# ---- scan ---------------------------------------------------------------------------------------


def scan(fn: Callable[..., Any], init: Any, xs: Any, length: int, reverse: bool) -> tuple[Any, Any]:
    """`carry, y = fn(carry, x)` for each row of `xs`; `xs` are tensors with the rows in front."""
    carried: list[Any] = []
    carry_shape = flatten(init, carried)
    rows: list[Any] = []
    row_shape = flatten(xs, rows)
    _only_tensors([*carried, *rows], "scan: init and xs")
    carried, rows = [sg.fresh(t) for t in carried], [sg.fresh(t) for t in rows]
    return _Scanning(fn, carried, carry_shape, rows, row_shape, length, reverse).run()


class _Scanning:
    def __init__(
        self, fn: Any, carried: list[Any], carry_shape: Any, rows: list[Any], row_shape: Any,
        length: int, reverse: bool,
    ) -> None:  # fmt: skip
        self.fn, self.carried, self.rows = fn, carried, rows
        self.shapes = carry_shape, row_shape
        self.length, self.reverse = length, reverse
        self.count = len(carried)

    def run(self) -> tuple[Any, Any]:
        carry = [sg.stand_in(t._meta) for t in self.carried]
        row = [sg.stand_in(_row(t._meta)) for t in self.rows]
        body = sg.traced(self._step(carry, row), (), "scan, combine_fn", [*carry, *row])
        _check_carried(self.carried, body, self.count, "scan, combine_fn")
        self.floats = [sg.is_differentiable(m) for m in body.metas]
        [graph], extra = sg.together([body])
        sg.tell_constants([body])
        given = [*self.carried, *self.rows, *extra]
        if not _needing(given):
            args = tuple(self.carried), tuple(self.rows), tuple(extra)
            outs = _call(SCAN, (*args, graph, self.length, self.reverse))
        else:
            outs = self._differentiable(graph, carry, row, extra)
        carry_shape, ys_shape = body.shape[1]
        found = iter(outs)
        return rebuild(carry_shape, found), rebuild(ys_shape, found)

    def _step(self, carry: list[Any], row: list[Any]) -> Callable[[], Any]:
        shapes = self.shapes

        def step() -> Any:
            now, x = rebuild(shapes[0], iter(carry)), rebuild(shapes[1], iter(row))
            found = dispatch.call_inside(self.fn, now, x)
            if not isinstance(found, (tuple, list)) or len(found) != 2:
                raise CaptureError("scan: combine_fn returns a pair, the next carry and an output")
            return tuple(found)

        return step

    def _differentiable(
        self, graph: Graph, carry: list[Any], row: list[Any], extra: list[Any]
    ) -> list[Any]:
        """Two scans: forward, which also keeps the carry before each step, and back."""
        n = self.count
        wanted_extra = [extra[k] for k in _needing(extra)]
        float_rows = [x for x, t in zip(row, self.rows, strict=True)
                      if sg.is_differentiable(t._meta)]  # fmt: skip
        float_carry = [c for c in carry if sg.is_differentiable(c._meta)]
        sums = [sg.stand_in(t._meta) for t in wanted_extra]
        branch = sg.differentiated(
            self._step(carry, row), (), "scan, combine_fn", [*carry, *row, *extra],
            [*float_carry, *float_rows, *wanted_extra], [v.meta for v in graph.outputs], sums,
        )  # fmt: skip
        sg.tell_constants([branch])
        plan = _ScanPlan(self, graph, branch, len(extra))
        plan.wanted_extra = _needing(extra)
        plan.float_carry = [k for k in range(n) if self.floats[k]]
        plan.float_rows = [k for k, t in enumerate(self.rows) if sg.is_differentiable(t._meta)]
        found = _Scan.apply(plan, *self.carried, *self.rows, *extra)
        outs = list(found) if isinstance(found, tuple) else [found]
        return outs[: len(graph.outputs)]


def _row(meta: Any) -> Any:
    return meta.like(shape=tuple(meta.shape[1:]))


class _ScanPlan:
    wanted_extra: list[int]
    float_carry: list[int]
    float_rows: list[int]

    def __init__(
        self, scanning: _Scanning, graph: Graph, branch: sg.TracedBranch, extra: int
    ) -> None:
        self.length, self.reverse = scanning.length, scanning.reverse
        self.count, self.rows, self.extra = scanning.count, len(scanning.rows), extra
        self.floats = scanning.floats
        self.outputs = len(graph.outputs)
        self.forward = Graph()
        self.forward.inputs, self.forward.nodes = graph.inputs, graph.nodes
        self.forward._next = graph._next
        self.forward.outputs = (*graph.outputs, *graph.inputs[: self.count])
        self.branch = branch
        self.metas = [v.meta for v in graph.outputs]

    def backward(self) -> Graph:
        """The derivative of a step with its inputs and outputs as a scan has them: carried are the
        gradients of the carry and the sums for `extra`; rows are the carries, `xs` and the
        gradients of `ys`."""
        b = self.branch.graph
        n, m, e = self.count, self.rows, self.extra
        inputs = b.inputs
        state, row, extra = inputs[:n], inputs[n : n + m], inputs[n + m : n + m + e]
        at = n + m + e
        sums = inputs[at : at + len(self.wanted_extra)]
        at += len(sums)
        tangents = inputs[at : self.branch.given]
        rest = inputs[self.branch.given :]
        of_carry = tangents[: len(self.float_carry)]
        of_ys = tangents[len(of_carry) :]
        made = Graph()
        made.nodes, made._next = b.nodes, b._next
        made.inputs = [*of_carry, *sums, *state, *row, *of_ys, *extra, *rest]
        c, r = len(self.float_carry), len(self.float_rows)
        grads = b.outputs
        made.outputs = (*grads[:c], *grads[c + r :], *grads[c : c + r])
        return made


class _Scan(Function):
    """The backward pass of a scan is a scan the other way round."""

    @staticmethod
    def forward(ctx: Any, plan: _ScanPlan, *tensors: Any) -> Any:
        n, m = plan.count, plan.rows
        args = tensors[:n], tensors[n : n + m], tensors[n + m :]
        outs = tuple(_call(SCAN, (*args, plan.forward, plan.length, plan.reverse)))
        ctx.plan = plan
        ctx.save_for_backward(*tensors, *outs[plan.outputs :])
        fixed = [t for k, t in enumerate(outs) if k >= plan.outputs or not plan.floats[k]]
        ctx.mark_non_differentiable(*fixed)
        return outs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        _only_once("scan")
        plan: _ScanPlan = ctx.plan
        n, m, e = plan.count, plan.rows, plan.extra
        saved = ctx.saved_tensors
        rows, extra, states = saved[n : n + m], saved[n + m : n + m + e], saved[n + m + e :]
        of_carry = [sg.fresh(grads[k]) for k in plan.float_carry]
        sums = [zeros_of(sg.contiguous(extra[k]._meta)) for k in plan.wanted_extra]
        ys = [k for k in range(n, plan.outputs) if plan.floats[k]]
        of_ys = [sg.fresh(grads[k]) for k in ys]
        given = (*of_carry, *sums), (*states, *rows, *of_ys), (*extra, *plan.branch.tensors)
        outs = _call(SCAN, (*given, plan.backward(), plan.length, not plan.reverse))
        c, s = len(of_carry), len(sums)
        found: dict[int, Any] = dict(zip(plan.float_carry, outs[:c], strict=True))
        found.update((n + k, g) for k, g in zip(plan.float_rows, outs[c + s :], strict=True))
        found.update(
            (n + m + k, g) for k, g in zip(plan.wanted_extra, outs[c : c + s], strict=True)
        )
        return (None, *(found.get(k) for k in range(n + m + e)))


__all__ = ["cond", "is_captured", "scan", "while_loop"]
