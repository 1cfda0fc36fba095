"""`cond`, `while_loop`, `scan` and `map`: control flow by the values of tensors, in programs too.

Uncompiled they are the Python they look like. While a function is compiled or exported each is one
node that holds the graphs of its functions, so a program decides at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.base.shape import wrap_dim
from lucerne._src.capture.trace import control_flow
from lucerne._src.capture.trace.pytree import flatten, rebuild
from lucerne._src.ir import dispatch
from lucerne._src.ir.dispatch import call_inside
from lucerne._src.tensor import api as lu


def cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Sequence[Any] = (),
) -> Any:
    """`true_fn(*operands)` if `pred` is true, else `false_fn(*operands)`.

    `pred`: a bool or a tensor with one element. In a program both functions must return tensors of
    the same shapes and dtypes and write to nothing outside; the derivative is that of the function
    that ran.

    >>> import lucerne as torch
    >>> @torch.compile(fullgraph=True)
    ... def root(x):
    ...     return torch.cond(x.sum() > 0, lambda x: x.sqrt(), lambda x: -x, (x,))
    >>> root(torch.tensor([4.0])), root(torch.tensor([-3.0]))
    (tensor([2.]), tensor([3.]))
    """
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expected true_fn and false_fn to be callable")
    if not isinstance(operands, (tuple, list)):
        raise RuntimeError(f"cond: operands is a tuple or a list, not {type(operands).__name__}")
    if not isinstance(pred, lu.Tensor):
        return dispatch.call_back(true_fn if pred else false_fn, *operands)
    if pred.numel() != 1:
        raise RuntimeError(
            f"Expected pred to be bool or single-element tensor, but got {list(pred.shape)}; use "
            "torch.where to choose element by element"
        )
    if dispatch.varies(pred):
        return _chosen(
            pred.reshape(()), call_inside(true_fn, *operands), call_inside(false_fn, *operands)
        )
    if control_flow.is_captured():
        return control_flow.cond(pred, true_fn, false_fn, operands)
    return dispatch.call_back(true_fn if bool(pred) else false_fn, *operands)


def _chosen(pred: Any, yes: Any, no: Any) -> Any:
    """Inside vmap some of the batch take one branch and some the other: both were run."""
    left: list[Any] = []
    right: list[Any] = []
    shape = flatten(yes, left)
    if flatten(no, right) != shape:
        raise RuntimeError("cond: the branches return different structures of tuples, lists, dicts")
    pairs = zip(left, right, strict=True)
    return rebuild(shape, iter([lu.where(pred != 0, a, b) for a, b in pairs]))


def while_loop(
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    carried_inputs: Sequence[Any],
    *,
    max_iterations: int | None = None,
) -> Any:
    """`carried = body_fn(*carried)` for as long as `cond_fn(*carried)` is true.

    In a program it has a derivative only with `max_iterations`: what a step needs for the backward
    pass is then kept that often. More steps than that are an error.

    >>> import lucerne as torch
    >>> @torch.compile(fullgraph=True)
    ... def halvings(x):
    ...     start = x, torch.tensor(0)
    ...     return torch.while_loop(lambda x, n: x > 1, lambda x, n: (x / 2, n + 1), start)
    >>> halvings(torch.tensor(40.0))
    (tensor(0.6250), tensor(6))
    """
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(
            f"carried_inputs must be a tuple or list, got {type(carried_inputs).__name__}"
        )
    carried = tuple(carried_inputs)
    if max_iterations is not None and control_flow.is_captured():
        return _bounded(cond_fn, body_fn, carried, max_iterations)
    if control_flow.is_captured():
        return control_flow.while_loop(cond_fn, body_fn, carried)
    steps = 0
    goes_on = call_inside(cond_fn, *carried)
    while bool(dispatch.every_value(goes_on).any()) if dispatch.varies(goes_on) else bool(goes_on):
        found = call_inside(body_fn, *carried)
        after = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if dispatch.varies(goes_on):  # those of the batch that are done stay as they are
            carried = _chosen(goes_on, after, carried)
            goes_on = goes_on & call_inside(cond_fn, *carried)
        else:
            carried, goes_on = after, call_inside(cond_fn, *after)
        steps += 1
        if max_iterations is not None and steps > max_iterations:
            raise _too_many(max_iterations)
    return carried


def _too_many(most: int) -> RuntimeError:
    return RuntimeError(f"while_loop: more than max_iterations={most} steps are needed")


def _bounded(cond_fn: Any, body_fn: Any, carried: tuple[Any, ...], most: int) -> Any:
    """A loop with a derivative: steps of a scan, of which those after the end do nothing."""

    def step(state: Any, _: Any) -> Any:
        goes_on, now = state

        def advance(*given: Any) -> Any:
            found = call_inside(body_fn, *given)
            after = tuple(found) if isinstance(found, (tuple, list)) else (found,)
            return (call_inside(cond_fn, *after).reshape(()).to(lu.bool), after)

        def stay(*given: Any) -> Any:
            return (lu.zeros((), dtype=lu.bool), tuple(given))

        return cond(goes_on, advance, stay, now), ()

    first = call_inside(cond_fn, *carried).reshape(()).to(lu.bool)
    (goes_on, found), _ = control_flow.scan(step, (first, carried), (), most, False)
    dispatch.raise_if(goes_on, lambda: _too_many(most))
    return found


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    *,
    dim: int = 0,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """`carry, y = combine_fn(carry, x)` for each slice `x` of `xs` along `dim`, in order.

    Returns the last carry, and all `y` stacked along `dim`. `init`, `xs` and `y` are tensors or
    tuples, lists and dicts of them. With `reverse` the last slice comes first.

    >>> import lucerne as torch
    >>> from lucerne.control_flow import scan
    >>> scan(lambda total, x: (total + x, total + x), torch.tensor(0), torch.tensor([1, 2, 3]))
    (tensor(6), tensor([1, 3, 6]))
    """
    leaves: list[Any] = []
    shape = flatten(xs, leaves)
    if not all(isinstance(x, lu.Tensor) for x in leaves):
        raise RuntimeError("scan: all xs must be tensors")
    if not leaves:
        return init, ()
    rows = [x.movedim(wrap_dim(dim, x.dim()), 0) for x in leaves]
    lengths = {x.shape[0] for x in rows}
    if len(lengths) != 1:
        raise RuntimeError(f"scan: xs have different sizes along dim {dim}: {sorted(lengths)}")
    [length] = lengths
    if not length:
        raise RuntimeError("All xs leaves must at least have a dim with size > 0")
    if control_flow.is_captured():
        carry, ys = control_flow.scan(
            combine_fn, init, rebuild(shape, iter(rows)), int(length), reverse
        )
    else:
        carry, ys = _scanned(combine_fn, init, rows, shape, int(length), reverse)
    if dim == 0:
        return carry, ys
    outs: list[Any] = []
    out_shape = flatten(ys, outs)
    return carry, rebuild(out_shape, iter([y.movedim(0, wrap_dim(dim, y.dim())) for y in outs]))


def _scanned(
    fn: Any, carry: Any, rows: list[Any], shape: Any, length: int, reverse: bool
) -> tuple[Any, Any]:
    """The loop as it is."""
    found: list[list[Any]] = []
    out_shape: Any = None
    before: list[Any] = []
    form = flatten(carry, before)
    for t in reversed(range(length)) if reverse else range(length):
        result = call_inside(fn, carry, rebuild(shape, iter([x[t] for x in rows])))
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise RuntimeError("scan: combine_fn returns a pair, the next carry and an output")
        carry, y = result
        after: list[Any] = []
        if flatten(carry, after) != form or [_kind(x) for x in after] != [_kind(x) for x in before]:
            raise RuntimeError(
                "scan: the carry that combine_fn returns has another structure, shape or dtype "
                "than init"
            )
        leaves: list[Any] = []
        out_shape = flatten(y, leaves)
        found.append(leaves)
    if reverse:
        found.reverse()
    return carry, rebuild(out_shape, iter([lu.stack(y) for y in zip(*found, strict=True)]))


def _kind(x: Any) -> Any:
    return (x.dtype, tuple(x.shape)) if isinstance(x, lu.Tensor) else type(x)


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """`f(x, *args)` for each row `x` of `xs`, stacked.

    >>> import lucerne as torch
    >>> from lucerne.control_flow import map
    >>> map(lambda x, y: x.sum() * y, torch.tensor([[1, 2], [3, 4]]), torch.tensor(10))
    tensor([30, 70])
    """
    return scan(lambda _, x: ((), call_inside(f, x, *args)), (), xs)[1]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """All partial results of an associative function along `dim`, as a scan."""
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(
            f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}"
        )
    leaves: list[Any] = []
    shape = flatten(xs, leaves)
    rows = [x.movedim(dim, 0) for x in leaves]
    if reverse:
        rows = [x.flip(0) for x in rows]
    first, rest = [x[0] for x in rows], [x[1:] for x in rows]
    found = rows
    if rows[0].shape[0] > 1:

        def step(carry: Any, x: Any) -> Any:
            after = call_inside(combine_fn, rebuild(shape, iter(carry)), rebuild(shape, iter(x)))
            flat: list[Any] = []
            flatten(after, flat)
            return tuple(flat), tuple(flat)

        _, ys = scan(step, tuple(first), tuple(rest))
        found = [lu.cat([a.unsqueeze(0), y]) for a, y in zip(first, ys, strict=True)]
    if reverse:
        found = [x.flip(0) for x in found]
    return rebuild(shape, iter([x.movedim(0, dim) for x in found]))
