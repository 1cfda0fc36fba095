"""`grad`, `grad_and_value` and `vjp`: derivatives in reverse, of functions.

All of them run the function on tensors of their own that stand for its arguments, and walk the
graph that autograd recorded back to those. There is one graph for all: where an outer transform (or
the user) records as well, the tensor inside is a recorded alias of the one outside, so gradients
inside are ordinary results outside. Variables of outer functions are other tensors than the alias,
hence never taken for it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lucerne._src.ir import dispatch
from lucerne._src.ir.dispatch import call_inside
from lucerne._src.ops.view.reshape import alias
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.autograd.api import root_gradient
from lucerne._src.tensor.autograd.engine import reachable, run_backward
from lucerne._src.tensor.autograd.node import AccumulateGrad, GradientNode, gradient_edge
from lucerne._src.tensor.autograd.records import walk
from lucerne._src.tensor.autograd.state import AutogradState
from lucerne._src.tensor.autograd.towards import ends, gradients_towards, history
from lucerne._src.tensor.base import make_tensor, plain_types
from lucerne._src.tensor.forward.level import lifted
from lucerne._src.tensor.layers.layer import open_levels
from lucerne.func.arguments import (
    check_outputs,
    check_tensors,
    chosen,
    leaves_of,
    map_tensors,
    parted,
    put_back,
    replaced,
    spelled,
)

_state = dispatch.state
_alias = alias.op  # type: ignore[attr-defined]


class _Running(threading.local):
    """The recordings whose functions are running, the outermost first."""

    def __init__(self) -> None:
        self.recordings: list[Recording] = []


_running = _Running()


def is_recording() -> bool:
    """Whether some function of `grad` or `vjp` is running in this thread."""
    return bool(_running.recordings)


class Recording:
    """A function being recorded for a derivative in reverse.

    `primal` gives the tensors to run it on, `gradients` walks back to them, `finished` makes
    ordinary tensors of what leaves the transform.
    """

    def __init__(self) -> None:
        self.wanted = _state.grad_enabled
        """Whether somebody outside records too."""
        self.has_levels = bool(open_levels())
        self._leaves: list[GradientNode] = []
        """Where the graph ends in tensors that only this recording knows."""

    @contextmanager
    def on(self) -> Iterator[Recording]:
        """Record what runs inside."""
        before = _state.grad_enabled, _state.asked_grad
        _state.grad_enabled, _state.asked_grad = True, True
        _running.recordings.append(self)
        try:
            yield self
        finally:
            _running.recordings.pop()
            _state.grad_enabled, _state.asked_grad = before

    def primal(self, x: Any) -> Any:
        """The tensor that stands for an argument inside."""
        if not isinstance(x, lu.Tensor):
            raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
        if x.is_nested:
            raise NotImplementedError(
                "transforms do not differentiate by nested tensors. Hint: differentiate by the "
                "dense tensors inside (x.values() of the jagged layout, x.unbind()), or use "
                "autograd.grad, which takes nested tensors."
            )
        x = lifted(x)
        if self.wanted and x.requires_grad:
            return dispatch.entry.run(_alias, (x,))
        if not (x.is_floating_point() or x.is_complex()):
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        return self.leaf(x)

    def leaf(self, x: Any) -> Any:
        """A tensor over the elements of `x` at which the graph of this recording ends."""
        made = _bare(x).requires_grad_()
        leaf = gradient_edge(made)[0]
        leaf.__dict__["recording"] = self
        self._leaves.append(leaf)
        return made

    def reaches_outside(self, tensors: Sequence[Any]) -> bool:
        """Whether the history of some tensor goes beyond this recording."""
        live = [t for t in tensors if t.requires_grad]
        roots = [r for r in map(history, live) if r]
        order = walk(roots, used=True) if len(roots) == len(live) else None
        if order is not None:
            return ends(order, self._ends_outside)
        nodes = reachable([gradient_edge(t)[0] for t in live])
        return any(self._is_outside(node) for node in nodes)

    def _ends_outside(self, end: AutogradState) -> bool:
        """`_is_outside` of where records end, without making a node of it."""
        if end.grad_fn is not None:
            return any(self._is_outside(node) for node in reachable([end.grad_fn]))
        node = end.accumulator() if end.accumulator is not None else None
        return node is None or self._is_outside(node)

    def _is_outside(self, node: GradientNode) -> bool:
        """Whether a node is where the graph of somebody else ends: of the user, or of a recording
        around this one (those that are over do not count)."""
        if not isinstance(node, AccumulateGrad):
            return node.is_unknown
        owner = node.__dict__.get("recording")
        return owner is None or (owner is not self and owner in _running.recordings)

    @contextmanager
    def below(self, create_graph: bool) -> Iterator[None]:
        """Around a walk back: without other transforms outside of this one, there is nothing to
        record below transforms inside of it, unless the walk itself is recorded."""
        before = _state.asked_grad
        if not self.has_levels:
            _state.asked_grad = create_graph
        try:
            yield
        finally:
            _state.asked_grad = before

    def gradients(
        self,
        outputs: Sequence[Any],
        given: Sequence[Any],
        inputs: Sequence[Any],
        keep: bool,
        reach: bool,
    ) -> list[Any]:
        """The gradients of `inputs`, for the gradients `given` of `outputs`; zeros where none.
        `reach`: whether the history of some output goes beyond this recording."""
        pairs = [(o, root_gradient(o, g)) for o, g in zip(outputs, given, strict=True)]
        outer = _state.grad_enabled and self.wanted
        create = outer and (reach or self.reaches_outside([g for _, g in pairs]))
        with self.below(create):
            found = None
            if not create:
                live = [(o, g) for o, g in pairs if o.requires_grad]
                found = gradients_towards([o for o, _ in live], [g for _, g in live], inputs, keep)
            if found is None:
                found = run_backward(
                    [(gradient_edge(o), g) for o, g in pairs if o.requires_grad],
                    keep_graph=keep or create,
                    create_graph=create,
                    wanted=[gradient_edge(x) for x in inputs],
                )
        zeros = [lu.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True)]
        return [self.finished(g) for g in zeros]

    def finished(self, t: Any) -> Any:
        """A tensor as the caller gets it: with the history it has outside, if any."""
        if not t.requires_grad or (self.wanted and self.reaches_outside([t])):
            return t
        return _bare(t)


def _without(t: Any) -> Any:
    """A tensor whose history nobody outside knows, as the caller gets it."""
    return _bare(t) if t.requires_grad else t


def _bare(x: Any) -> Any:
    """Another tensor over the same elements, without history; tangents stay."""
    if type(x) not in plain_types:  # elements of others (sparse ones) may be anywhere
        return x.detach()
    made = make_tensor(x._storage, x._offset, x._meta)
    stack = _state.kernel_level
    return stack[-1].aliased(made, x, False) if stack else made


# ---- vjp ---------------------------------------------------------------------------------------


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The value of `func` at `primals`, and a function from cotangents to gradients.

    >>> import lucerne as torch
    >>> value, pull_back = torch.func.vjp(torch.sin, torch.zeros(2))
    >>> pull_back(torch.tensor([1.0, 10.0]))
    (tensor([ 1., 10.]),)
    """
    at = tuple(range(len(primals)))
    output, pull_back, aux = pulled_back(func, primals, at, has_aux)

    def vjp_fn(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        return pull_back(cotangents)

    return (output, vjp_fn, aux) if has_aux else (output, vjp_fn)


def pulled_back(
    func: Callable[..., Any], args: tuple[Any, ...], at: tuple[int, ...], has_aux: bool
) -> tuple[Any, Callable[[Any], Any], Any]:
    """Output, pull-back to the arguments `at` (a tuple of trees), and what else was returned."""
    api = "vjp(f, *primals)"
    recording = Recording()
    inputs, shape = leaves_of(tuple(args[i] for i in at))
    xs = [recording.primal(x) for x in inputs]
    with recording.on():
        result = call_inside(func, *replaced(args, at, put_back(xs, shape)))
    output, aux = parted(result, has_aux, api)
    outs, out_shape = leaves_of(output)
    check_outputs(output, outs, api)
    for o in outs:
        if not (o.is_floating_point() or o.is_complex()):
            raise RuntimeError(
                "vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got "
                f"Tensor with dtype {o.dtype}"
            )

    def pull_back(cotangents: Any) -> Any:
        given, given_shape = leaves_of(cotangents)
        if given_shape != out_shape:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function. cotangents: {spelled(given_shape)}, primal output: "
                f"{spelled(out_shape)}"
            )
        check_tensors(given, api, "cotangents")
        fitted = [
            g if g.dtype is o.dtype else g.to(o.dtype) for g, o in zip(given, outs, strict=True)
        ]
        return put_back(recording.gradients(outs, fitted, xs, True, reach), shape)

    reach = recording.wanted and recording.reaches_outside(outs)
    leaving = [recording.finished(o) if reach else _without(o) for o in outs]
    return put_back(leaving, out_shape), pull_back, map_tensors(recording.finished, aux)


# ---- grad --------------------------------------------------------------------------------------


def grad_and_value(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradient of `func` and its value (with aux: `(value, aux)`).

    >>> import lucerne as torch
    >>> torch.func.grad_and_value(lambda x: (x * x).sum())(torch.tensor([1.0, 3.0]))
    (tensor([2., 6.]), tensor(10.))
    """
    api = "grad_and_value(f)(*args)"

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        recording = Recording()
        at, picked = chosen(args, argnums)
        inputs, shape = leaves_of(picked)
        xs = [recording.primal(x) for x in inputs]
        with recording.on():
            result = call_inside(func, *replaced(args, at, put_back(xs, shape)), **kwargs)
        output, aux = parted(result, has_aux, api)
        _check_scalar(output, api)
        reach = recording.wanted and recording.reaches_outside([output])
        found = put_back(recording.gradients([output], [None], xs, False, reach), shape)
        value = output if reach else _without(output)
        gradient = found if isinstance(argnums, tuple) else found[0]
        if has_aux:
            return gradient, (value, map_tensors(recording.finished, aux))
        return gradient, value

    return wrapper


def _check_scalar(output: Any, api: str) -> None:
    if not isinstance(output, lu.Tensor):
        raise RuntimeError(f"{api}: Expected f(*args) to return a Tensor, got {type(output)}")
    if output.dim() != 0:
        raise RuntimeError(
            f"{api}: Expected f(*args) to return a scalar Tensor, got tensor with {output.dim()} "
            "dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
        )


def grad(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradient of `func`, which returns one number.

    >>> import lucerne as torch
    >>> torch.func.grad(torch.func.grad(torch.sin))(torch.tensor(0.5))
    tensor(-0.4794)
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapper
