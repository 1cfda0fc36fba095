"""Backward, grad, hooks and the switches: what `lucerne.autograd` and Tensor's methods call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base.process import notices
from lucerne._src.base.process.error_notes import entry_failed
from lucerne._src.base.process.profiler_hook import FUNCTION, Watch, watched
from lucerne._src.ir.dispatch import state as dispatch_state
from lucerne._src.tensor.autograd import records
from lucerne._src.tensor.autograd.engine import run_backward
from lucerne._src.tensor.autograd.graph import wants_values_only
from lucerne._src.tensor.autograd.hooks import RemovableHandle
from lucerne._src.tensor.autograd.mapping import batched_gradients, check_batched
from lucerne._src.tensor.autograd.node import (
    AccumulateGrad,
    Edge,
    GradientNode,
    accumulate,
    gradient_edge,
)
from lucerne._src.tensor.autograd.state import ADDING, LeafHooks, ViewState, requires_grad, state_of
from lucerne._src.tensor.autograd.towards import gradients_towards
from lucerne._src.tensor.base import TensorBase, make_tensor
from lucerne._src.tensor.eager.specialize import spoil


def set_requires_grad(t: Any, value: bool) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"requires_grad must be a bool, got {value!r}")
    spoil()
    if t._auto is not None and t._auto.grad_fn is not None:
        if not value:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a "
                "computed variable in a subgraph that doesn't require differentiation use "
                "var_no_grad = var.detach()."
            )
        return
    if value and t._meta.dtype.category not in (dt.FLOAT, dt.COMPLEX):
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    if value and t._storage.inference:
        raise RuntimeError(
            "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed."
        )
    if value or t._auto is not None:
        state_of(t).requires_grad = value


def read_grad(t: Any) -> Any:
    return t._auto.grad


def write_grad(t: Any, value: Any) -> None:
    if value is not None:
        if not isinstance(value, TensorBase):
            raise TypeError(
                "assigned grad expected to be a Tensor or None but got grad of type "
                f"{type(value).__name__}"
            )
        if value is t:
            raise RuntimeError("can't assign Variable as its own grad")
        if value._meta.shape != t._meta.shape:
            raise RuntimeError(
                f"attempting to assign a gradient of size '{list(value._meta.shape)}' to a tensor "
                f"of size '{list(t._meta.shape)}'. Please ensure that the gradient and the tensor "
                "are the same size"
            )
        if value._meta.dtype is not t._meta.dtype:
            raise RuntimeError("assigned grad has data of a different type")
    elif t._auto is None:
        return
    state_of(t).grad = value


def retain_grad(t: Any) -> None:
    """Keep the gradient of a tensor that is no leaf in its `.grad`."""
    if not requires_grad(t):
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    state = state_of(t)
    if state.grad_fn is None or state.retains_grad:
        return
    state.retains_grad = True

    def keep(g: Any) -> None:
        with ADDING:
            state.grad = g.detach() if state.grad is None else state.grad + g.detach()

    keep.keeps_grad = True  # type: ignore[attr-defined]
    handle = _add_tensor_hook(t, keep)
    handle.run_last()


def register_hook(t: Any, hook: Any) -> RemovableHandle:
    """Call `hook(grad)` when the gradient of `t` is known; its result replaces the gradient."""
    if not requires_grad(t):
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    return _add_tensor_hook(t, hook)


def _add_tensor_hook(t: Any, hook: Any) -> RemovableHandle:
    node, index = gradient_edge(t)
    inside = node.hooks_inside(index)
    if inside is not None:
        return RemovableHandle.add(inside, hook)
    state = state_of(t)
    if state.grad_fn is None:
        if state.hooks is None:
            state.hooks = {}
        hooks = state.hooks
        node.tensor_hooks = {0: hooks}
    else:
        if node.tensor_hooks is None:
            node.tensor_hooks = {}
        hooks = node.tensor_hooks.setdefault(index, {})
    return RemovableHandle.add(hooks, hook)


def register_post_accumulate_grad_hook(t: Any, hook: Any) -> RemovableHandle:
    """Call `hook(leaf)` after a gradient was added to the leaf's `.grad`."""
    if not requires_grad(t):
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    state = state_of(t)
    if state.grad_fn is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    if state.post_hooks is None:
        state.post_hooks = LeafHooks()
    return RemovableHandle.add(state.post_hooks, hook)


def detached_view(t: Any) -> ViewState:
    """A detached tensor is a view of nothing that requires grad, but still a view."""
    view: ViewState = t._view
    base = make_tensor(view.base._storage, view.base._offset, view.base._meta)
    return ViewState(base, view.steps, view.version, several=False, no_grad=False)


def _tuple(x: Any) -> tuple[Any, ...]:
    return (x,) if isinstance(x, TensorBase) or x is None else tuple(x)


def _root_gradients(tensors: Sequence[Any], grads: Sequence[Any]) -> list[tuple[Edge, Any]]:
    roots: list[tuple[Edge, Any]] = []
    for t, g in zip(tensors, grads, strict=True):
        if not requires_grad(t):
            raise RuntimeError(
                f"element {len(roots)} of tensors does not require grad and does not have a grad_fn"
            )
        roots.append((gradient_edge(t), root_gradient(t, g)))
    return roots


def root_gradient(t: Any, g: Any) -> Any:
    if g is None:
        if t._meta.numel != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        if t._meta.dtype.category == dt.COMPLEX:
            raise RuntimeError(
                "grad can be implicitly created only for real scalar outputs but got "
                + repr(t._meta.dtype)
            )
        if Watch.current is None and not dispatch_state.seen:
            return records.one(t._meta).clone()  # hooks may write to it
        if Watch.current is None and wants_values_only() and _is_only_read(gradient_edge(t)[0]):
            return records.one(t._meta)
        return watched("aten::ones_like", FUNCTION, partial(records.one.__wrapped__, t._meta))
    if not isinstance(g, TensorBase):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
    if g._meta.shape != t._meta.shape:
        raise RuntimeError(
            f"Mismatch in shape: grad_output[0] has a shape of {g._meta.shape} and output[0] has a "
            f"shape of {t._meta.shape}."
        )
    if (g._meta.dtype.category == dt.COMPLEX) != (t._meta.dtype.category == dt.COMPLEX):
        raise RuntimeError(
            "For complex Tensors, both grad_output and output are required to have the same dtype. "
            f"Mismatch in dtype: grad_output[0] has a dtype of {g._meta.dtype} and output[0] has a "
            f"dtype of {t._meta.dtype}."
        )
    return g


def _is_only_read(node: GradientNode) -> bool:
    """Whether what arrives at a node goes to a program that looks at its gradients itself, and to
    nobody else: it may be a tensor that others are given too, and no op has to make it, which
    somebody who looks at values would be shown."""
    hooks = node.tensor_hooks or node.pre_hooks or node.post_hooks
    return node.is_watched and not hooks and type(node) is not AccumulateGrad


def _is_real_number(t: Any) -> bool:
    return t._meta.numel == 1 and t._meta.dtype.category != dt.COMPLEX


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Accumulate gradients of `tensors` into the leaves they came from (or only into `inputs`)."""
    if grad_variables is not None:
        grad_tensors = _renamed(grad_tensors, grad_variables)
    try:
        _backward(tensors, grad_tensors, retain_graph, create_graph, inputs)
    except Exception as error:
        entry_failed(error)
        raise


def _backward(
    tensors: Any, grad_tensors: Any, retain_graph: bool | None, create_graph: bool, inputs: Any
) -> None:
    keep = create_graph if retain_graph is None else retain_graph
    plain = isinstance(tensors, TensorBase) and grad_tensors is None and inputs is None
    if plain and not create_graph and _is_real_number(tensors) and records.backward(tensors, keep):
        return
    roots = _tuple(tensors)
    grads = _tuple(grad_tensors) if grad_tensors is not None else (None,) * len(roots)
    starts = _root_gradients(roots, grads)
    if inputs is None:
        run_backward(starts, keep_graph=keep, create_graph=create_graph)
        return
    wanted = _tuple(inputs)
    if not wanted:
        raise RuntimeError("'inputs' argument to 'backward' cannot be empty.")
    from_engine = _gradients_of(wanted, starts, keep, create_graph)
    for t, g in zip(wanted, from_engine, strict=True):
        if g is not None:
            accumulate(t, g)


def _renamed(grad_tensors: Any, grad_variables: Any) -> Any:
    """Gradients that were given by the old name of the argument."""
    notices.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning)
    if grad_tensors is not None:
        raise RuntimeError(
            "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to "
            "`backward()`. Please only use `grad_tensors`."
        )
    return grad_variables


def _gradients_of(
    wanted: Sequence[Any], starts: list[tuple[Edge, Any]], keep: bool, create_graph: bool
) -> list[Any]:
    """`run_backward` to tensors. A gradient that is complete only inside of a node is caught there,
    so such a node has to run: what is behind it is wanted, too."""
    edges = [gradient_edge(t) for t in wanted]
    inside = {e: hooks for e in edges if (hooks := e[0].hooks_inside(e[1])) is not None}
    caught: dict[Edge, Any] = {}
    handles = []
    for edge, hooks in inside.items():
        handles.append(RemovableHandle.add(hooks, partial(caught.__setitem__, edge)))
        handles[-1].run_last()
    behind = [e for node, _ in inside for e in node.next_edges if e is not None]
    try:
        found = run_backward(
            starts, keep_graph=keep, create_graph=create_graph, wanted=[*edges, *behind]
        )
    finally:
        for handle in handles:
            handle.remove()
    return [caught.get(e, g) for e, g in zip(edges, found[: len(edges)], strict=True)]


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Gradients of `outputs` with respect to `inputs`, as new tensors; `.grad` is not touched.

    >>> import lucerne as torch
    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> torch.autograd.grad(x * x, x)
    (tensor(6.),)
    """
    if not only_inputs:
        notices.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To "
            "accumulate gradient for other parts of the graph, please use torch.autograd.backward.",
            FutureWarning,
        )
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            "allow_unused=False."
        )
    if is_grads_batched:
        options = {
            "retain_graph": retain_graph, "create_graph": create_graph,
            "allow_unused": allow_unused or materialize_grads,
        }  # fmt: skip
        many = _batched_grad(outputs, inputs, grad_outputs, options)
        return _filled(many, _tuple(inputs)) if materialize_grads else many
    roots, wanted = _tuple(outputs), _tuple(inputs)
    grads = _tuple(grad_outputs) if grad_outputs is not None else (None,) * len(roots)
    if any(getattr(t, "is_nested", False) for t in (*roots, *wanted)):
        rest = (retain_graph, create_graph, True, allow_unused, False, materialize_grads)
        return _nested_grad(roots, wanted, grads, rest)
    keep = create_graph if retain_graph is None else retain_graph
    for t in wanted:
        if not requires_grad(t):
            raise RuntimeError("One of the differentiated Tensors does not require grad")
    found = None
    if not create_graph and all(requires_grad(t) for t in roots):
        given = [root_gradient(t, g) for t, g in zip(roots, grads, strict=True)]
        found = gradients_towards(roots, given, wanted, keep)
    if found is None:
        found = _gradients_of(wanted, _root_gradients(roots, grads), keep, create_graph)
    unused = next((i for i, g in enumerate(found) if g is None), None)
    if unused is not None and not (allow_unused or materialize_grads):
        raise RuntimeError(
            f"The differentiated Tensor at index {unused} appears to not have been used in the "
            "graph. Set allow_unused=True if this is the desired behavior."
        )
    return _filled(found, wanted) if materialize_grads else tuple(found)


def _filled(found: Sequence[Any], wanted: Sequence[Any]) -> tuple[Any, ...]:
    """Gradients with zeros in place of None."""
    pairs = zip(wanted, found, strict=True)
    return tuple(t.new_zeros(t.shape) if g is None else g for t, g in pairs)


def _nested_grad(
    roots: tuple[Any, ...],
    wanted: tuple[Any, ...],
    grads: tuple[Any, ...],
    options: tuple[Any, ...],
) -> tuple[Any, ...]:
    """`grad` of nested tensors: that of the dense ones inside, put together again."""

    def inside(t: Any) -> list[Any]:
        return list(t.dense_parts()) if getattr(t, "is_nested", False) else [t]

    outs: list[Any] = []
    cotangents: list[Any] = []
    for root, g in zip(roots, grads, strict=True):
        outs += inside(root)
        cotangents += [None] * len(inside(root)) if g is None else inside(g)
    parts = [inside(t) for t in wanted]
    found = list(
        grad(tuple(outs), tuple(p for ps in parts for p in ps), tuple(cotangents), *options)
    )
    made = []
    for t, dense in zip(wanted, parts, strict=True):
        some, found = found[: len(dense)], found[len(dense) :]
        nested = getattr(t, "is_nested", False)
        lost = all(g is None for g in some)
        made.append(None if lost else t.like(some) if nested else some[0])
    return tuple(made)


def _batched_grad(
    outputs: Any, inputs: Any, grad_outputs: Any, options: dict[str, Any]
) -> tuple[Any, ...]:
    """One gradient per entry along the first dimension of `grad_outputs`, stacked: one pass under
    vmap."""
    roots = _tuple(outputs)
    given = _tuple(grad_outputs) if grad_outputs is not None else (None,) * len(roots)
    check_batched(roots, given)
    starts = [root_gradient(t, g) if g is None else g for t, g in zip(roots, given, strict=True)]
    return batched_gradients(
        lambda rows: grad(outputs, inputs, rows, **options), starts, options["create_graph"]
    )
