"""How a tangent goes through one op call: the derivative of the call in a direction.

Nothing here knows where tangents are kept. `tangents_of` takes a call, its results and the tangents
of its arguments, and gives the tangents of the results. A tangent that is zero everywhere is None.

Most ops need no entry of their own, because the gradient formula in the table says it all:

* a formula of a real pointwise op is multiplication by the derivative: it serves both directions;
* a linear op (views, sums, gathers, ...) maps the tangent as it maps the value;
* for every other op the formula is transposed: it is linear in the incoming gradient, so its own
  derivative in that gradient is the derivative of the op. This is exact, for complex numbers too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir import dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.op import RESULTS, Op
from lucerne._src.ops.checks import zeros_of
from lucerne._src.ops.copy.cast import filled
from lucerne._src.tensor.autograd.engine import run_backward
from lucerne._src.tensor.autograd.node import fit, gradient_edge, gradients
from lucerne._src.tensor.autograd.state import requires_grad
from lucerne._src.tensor.base import TensorBase, offset_of
from lucerne._src.tensor.storage import bytes_of

_state = dispatch.state

Tangents = tuple[Any, ...]
"""One entry for each argument (or result): a tensor, None, or a tuple of those for a list."""

STAND_IN = "a stand-in"
"""Marks where a graph ends in a tensor that stands for no one's: its gradient is nobody's."""

SIDE = frozenset({"running_average"})
"""Statistics on the side: they are no part of the derivative."""

PRODUCTS = {
    "batch_matmul": ("input", "other"),
    "conv": ("input", "weight", "bias"),
    "conv_input": ("input", "weight", "bias"),
    "conv_weight": ("g_out", "input"),
    "nn.functional.linear": ("input", "weight", "bias"),
}
"""Ops linear in each of two arguments, with a third one that is added."""


Rule = Callable[[Op, tuple[Any, ...], tuple[Any, ...], Tangents], Tangents]
RULES: dict[str, Rule] = {}
"""Ops with a rule of their own, by qualified name."""


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def enter(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return enter


def tangents_of(
    op: Op, args: tuple[Any, ...], results: tuple[Any, ...], tangents: Tangents
) -> Tangents:
    """The tangents of `results`, which are what `op` gave for `args`.

    `tangents` has an entry for each argument; at least one is not None.
    """
    if not any(is_smooth(r) for r in results) or op.qualified in SIDE:
        return (None,) * len(results)
    given = _of_differentiable(op, tangents)
    if given is None:
        return (None,) * len(results)
    own = RULES.get(op.qualified)
    if own is not None:
        found = own(op, args, results, given)
    elif op.kind == op_.VIEW or op.linear:
        found = _mapped_alike(op, args, given)
    elif op.qualified in PRODUCTS:
        found = (_product(op, args, given),)
    elif op.kind == op_.POINTWISE and _by_formula(op, args, results):
        found = (_by_pointwise_formula(op, args, results[0], given),)
    elif _is_real_number(args, results, given):
        found = (_by_gradient(op, args, results, given),)
    else:
        found = transposed(op, args, results, given)
    return tuple(
        _fitted(t, r) if t is not None and is_smooth(r) else None
        for t, r in zip(found, results, strict=True)
    )


def is_smooth(r: Any) -> bool:
    """Whether something can have a tangent: a tensor of floats or complex numbers."""
    return isinstance(r, TensorBase) and r._meta.dtype.category in (dt.FLOAT, dt.COMPLEX)


def _of_differentiable(op: Op, tangents: Tangents) -> Tangents | None:
    """The tangents of arguments the op depends on smoothly; None if there are none of them."""
    if not op.derivatives:
        if op.explicit or op.kind == op_.COMPOSITE:
            return None
        raise NotImplementedError(
            f"Trying to use forward AD with {op.qualified} that does not support it because it has "
            "not been implemented yet. Hint: detach() its inputs, or write a "
            "lucerne.autograd.Function with a jvp."
        )
    kept = tuple(t if n in op.derivatives else None for n, t in zip(op.args, tangents, strict=True))
    live = any(any(x is not None for x in t) if type(t) is tuple else t is not None for t in kept)
    return kept if live else None


def _fitted(t: Any, result: Any) -> Any:
    """A tangent in the shape and dtype of what it is the tangent of."""
    have, want = t._meta, result._meta
    if have.dtype is not want.dtype:
        if have.dtype.category == dt.COMPLEX and want.dtype.category != dt.COMPLEX:
            t = t.real
        t = t.to(want.dtype)
    return t if t._meta.shape == want.shape else t.expand(tuple(want.shape))


def _run(op: Op, args: tuple[Any, ...]) -> Any:
    return dispatch.entry.run(op, args)


# ---- linear ops --------------------------------------------------------------------------------


def _mapped_alike(op: Op, args: tuple[Any, ...], tangents: Tangents) -> Tangents:
    found = _run(op, (tangents[0], *args[1:]))
    return found if isinstance(found, tuple) else (found,)


@_rule("cat")
def _cat(op: Op, args: tuple[Any, ...], results: tuple[Any, ...], tangents: Tangents) -> Tangents:
    parts = zip(args[0], tangents[0], strict=True)
    return (_run(op, (tuple(zeros_of(a._meta) if t is None else t for a, t in parts), args[1])),)


@_rule("padded")
def _padded(
    op: Op, args: tuple[Any, ...], results: tuple[Any, ...], tangents: Tangents
) -> Tangents:
    return (_run(op, (tangents[0], 0, *args[2:])),)


@_rule("copy")
def _copied(
    op: Op, args: tuple[Any, ...], results: tuple[Any, ...], tangents: Tangents
) -> Tangents:
    """What is copied over does not count."""
    return (None if tangents[1] is None else _run(op, (args[0], tangents[1])),)


@_rule("index_put", "scatter")
def _put(op: Op, args: tuple[Any, ...], results: tuple[Any, ...], tangents: Tangents) -> Tangents:
    """`index_put` and `scatter` are linear in both tensors together, unless values are folded."""
    target, source = (0, 2) if op.name == "index_put" else (0, 3)
    if op.name == "scatter" and args[4] not in ("set", "add"):
        return transposed(op, args, results, tangents)
    given = list(args)
    for i in (target, source):
        if isinstance(args[i], TensorBase):
            given[i] = zeros_of(args[i]._meta) if tangents[i] is None else tangents[i]
        else:
            given[i] = 0
    return (_run(op, tuple(given)),)


@_rule("as_strided")
def _strided(
    op: Op, args: tuple[Any, ...], results: tuple[Any, ...], tangents: Tangents
) -> Tangents:
    """Another reading of the memory: the tangent has to lie as its primal does."""
    (x, size, stride, offset), t = args, tangents[0]
    reach = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1
    if t._meta.strides == x._meta.strides and offset >= 0 and reach <= t._meta.span:
        return (_run(op, (t, size, stride, offset)),)
    count = bytes_of(x._storage) // x._meta.dtype.itemsize
    whole = filled((count,), 0, t._meta.dtype, t._meta.device, None)
    _run(op, (whole, tuple(x._meta.shape), x._meta.strides, offset_of(x))).copy_(t)
    return (_run(op, (whole, size, stride, offset_of(x) + offset)),)


def _product(op: Op, args: tuple[Any, ...], tangents: Tangents) -> Any:
    """One term for each factor; what is added to the product counts once."""
    factors = PRODUCTS[op.qualified]
    at = [op.args.index(name) for name in factors]
    bias = at[2] if len(at) == 3 else None
    terms = []
    for i in at[:2]:
        if tangents[i] is not None:
            given = [tangents[i] if k == i else a for k, a in enumerate(args)]
            if bias is not None:
                given[bias], tangents = tangents[bias], _without(tangents, bias)
            terms.append(_run(op, tuple(given)))
    if bias is not None and tangents[bias] is not None:
        shape = (-1,) if op.name == "linear" else (-1, *(1,) * (args[0]._meta.ndim - 2))
        terms.append(tangents[bias].reshape(shape))
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


def _without(tangents: Tangents, i: int) -> Tangents:
    return (*tangents[:i], None, *tangents[i + 1 :])


# ---- pointwise ops -----------------------------------------------------------------------------


def _by_formula(op: Op, args: tuple[Any, ...], results: tuple[Any, ...]) -> bool:
    """Whether the formula of a pointwise op gives the derivative in a direction as well."""
    complexes = any(
        isinstance(x, TensorBase) and x._meta.dtype.category == dt.COMPLEX
        for x in (*args, *results)
    )
    return len(results) == 1 and (not complexes or op.holomorphic)


def _by_pointwise_formula(op: Op, args: tuple[Any, ...], y: Any, tangents: Tangents) -> Any:
    needs = frozenset(n for n, t in zip(op.args, tangents, strict=True) if t is not None)
    conjugated = y._meta.dtype.category == dt.COMPLEX
    total: Any = None
    for name, t in zip(op.args, tangents, strict=True):
        if t is None:
            continue
        g = _fitted(t, y)
        formula, reads = op.derivatives[name]
        found = formula(*_values(op, args, (y,), reads, g.conj() if conjugated else g, needs))
        if found is None:
            continue
        found = found.conj() if conjugated else found
        total = found if total is None else total + found
    return total


def _values(
    op: Op,
    args: tuple[Any, ...],
    results: tuple[Any, ...],
    reads: tuple[str, ...],
    g: Any,
    needs: frozenset[str],
) -> Iterator[Any]:
    """What a gradient formula names, in the order it names it."""
    for name in reads:
        if name == "g":
            yield g
        elif name == "needs":
            yield needs
        elif name == "y":
            yield results[0] if len(results) == 1 else results
        elif name == "y_meta":
            metas = tuple(r._meta for r in results)
            yield metas[0] if len(metas) == 1 else metas
        elif name in op.args:
            yield args[op.args.index(name)]
        elif name in RESULTS:
            yield results[RESULTS.index(name)]
        else:
            yield _metas(args[op.args.index(name.removesuffix("_meta"))])


def _metas(arg: Any) -> Any:
    if isinstance(arg, TensorBase):
        return arg._meta
    if type(arg) is tuple:
        return tuple(x._meta if isinstance(x, TensorBase) else x for x in arg)
    return arg


# ---- results that are one number ---------------------------------------------------------------


def _is_real_number(args: tuple[Any, ...], results: tuple[Any, ...], tangents: Tangents) -> bool:
    """Whether the result is one real number, and so is all it is differentiated by."""
    given = (*results, *(t for t in tangents if t is not None))
    real = all(isinstance(t, TensorBase) and t._meta.dtype.category == dt.FLOAT for t in given)
    return real and len(results) == 1 and results[0]._meta.numel == 1


def _by_gradient(
    op: Op, args: tuple[Any, ...], results: tuple[Any, ...], tangents: Tangents
) -> Any:
    """The derivative of a number in a direction: the direction times the gradient."""
    (y,) = results
    one = filled(tuple(y._meta.shape), 1, y._meta.dtype, y._meta.device, None)
    total: Any = None
    for found, arg, t in _formulas(op, args, results, tangents, one):
        part = (fit(found, arg._meta) * t).sum().reshape(tuple(y._meta.shape))
        total = part if total is None else total + part
    return total


# ---- every other op ----------------------------------------------------------------------------


def transposed(
    op: Op, args: tuple[Any, ...], results: tuple[Any, ...], tangents: Tangents
) -> Tangents:
    """The gradient formulas, transposed.

    A formula gives `A g` for an incoming gradient `g`. It is run on a stand-in for `g` that
    requires grad (which one does not matter: the formula is linear), and the gradient of its result
    with respect to the stand-in, for the tangent as the incoming one, is the transpose of `A` times
    the tangent.
    """
    before = _state.grad_enabled
    create_graph = before and any(map(_is_recorded, (*args, *tangents)))
    _state.grad_enabled = True
    try:
        stand_ins = [r.detach().requires_grad_() if is_smooth(r) else None for r in results]
        live = [i for i, s in enumerate(stand_ins) if s is not None]
        ends = [gradient_edge(stand_ins[i]) for i in live]
        for node, _ in ends:
            node.__dict__["recording"] = STAND_IN
        roots = list(_pulled_back(op, args, results, tangents, stand_ins))
    finally:
        _state.grad_enabled = before
    if not roots:
        return (None,) * len(results)
    found = run_backward(
        [(gradient_edge(part), t) for part, t in roots],
        keep_graph=create_graph,
        create_graph=create_graph,
        wanted=ends,
    )
    by_result = dict(zip(live, found, strict=True))
    return tuple(by_result.get(i) for i in range(len(results)))


def _is_recorded(x: Any) -> bool:
    if type(x) is tuple:
        return any(map(_is_recorded, x))
    return isinstance(x, TensorBase) and x._needs_grad


def _pulled_back(
    op: Op,
    args: tuple[Any, ...],
    results: tuple[Any, ...],
    tangents: Tangents,
    stand_ins: list[Any],
) -> Iterator[tuple[Any, Any]]:
    """What the formula of each argument with a tangent makes of the stand-ins, and the tangent."""
    metas = tuple(r._meta for r in results)
    g = stand_ins[0] if len(results) == 1 else gradients(op, stand_ins, metas)
    for found, arg, t in _formulas(op, args, results, tangents, g):
        pairs = zip(found, t, arg, strict=True) if type(t) is tuple else ((found, t, arg),)
        for part, tangent, of in pairs:
            if tangent is not None and part is not None and requires_grad(part):
                yield fit(part, of._meta), tangent


def _formulas(
    op: Op, args: tuple[Any, ...], results: tuple[Any, ...], tangents: Tangents, g: Any
) -> Iterator[tuple[Any, Any, Any]]:
    """For each argument with a tangent what its formula makes of `g`, unless that is nothing; the
    argument and the tangent."""
    needs = frozenset(n for n, t in zip(op.args, tangents, strict=True) if t is not None)
    for name, arg, t in zip(op.args, args, tangents, strict=True):
        if t is not None:
            formula, reads = op.derivatives[name]
            found = formula(*_values(op, args, results, reads, g, needs))
            if found is not None:
                yield found, arg, t
