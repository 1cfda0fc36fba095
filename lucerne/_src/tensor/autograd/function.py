"""`autograd.Function`: a user's own forward with its own backward."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.ir.dispatch import call_back
from lucerne._src.ir.dispatch import state as dispatch_state
from lucerne._src.ops.checks import zeros_of
from lucerne._src.tensor.autograd import record
from lucerne._src.tensor.autograd.modes import no_grad
from lucerne._src.tensor.autograd.node import Edge, GradientNode, fit, gradient_edge
from lucerne._src.tensor.autograd.saved import USED_UP, SavedOutput, SavedTensor
from lucerne._src.tensor.autograd.state import AutogradState, requires_grad, state_of
from lucerne._src.tensor.base import TensorBase, make_tensor


class FunctionNode(GradientNode):
    """The node of one call of a Function; inside forward and backward it is `ctx`."""

    function: type[Function]

    def __init__(self, inputs: tuple[Any, ...]) -> None:
        edges: list[Edge | None] = [
            gradient_edge(a) if isinstance(a, TensorBase) and requires_grad(a) else None
            for a in inputs
        ]
        super().__init__(edges, ())
        self.needs_input_grad = tuple(e is not None for e in edges)
        self._input_metas = [a._meta if isinstance(a, TensorBase) else None for a in inputs]
        self._to_save: tuple[Any, ...] = ()
        self._saved: list[Any] | None = None
        self._dirty: tuple[Any, ...] = ()
        self._non_differentiable: tuple[Any, ...] = ()
        self._written: int | None = None
        self._materialize = True
        self._released = False
        self._saved_for_forward: tuple[Any, ...] | None = None
        self._inside_jvp = False
        self._is_tensor: tuple[bool, ...] = ()
        """For each result of forward: backward gets None for those that are no tensors."""

    def name(self) -> str:
        return f"{self.function.__name__}Backward"

    # -- what forward may call -------------------------------------------------------------------

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for backward; stale ones are caught there."""
        for t in tensors:
            if t is not None and not isinstance(t, TensorBase):
                raise TypeError(
                    f"save_for_backward can only save variables, but got {type(t).__name__}"
                )
        self._to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep tensors for jvp, which sees them as `saved_tensors`."""
        self._saved_for_forward = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """Say which inputs forward wrote over."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Say which outputs have no gradient."""
        self._non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """With False, backward gets None for outputs nobody used, instead of zeros."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        if self._inside_jvp and self._saved_for_forward is not None:
            return self._saved_for_forward
        if self._released:
            raise RuntimeError(USED_UP)
        if self._saved is None:
            return self._to_save
        return tuple(None if x is None else x.unpack() for x in self._saved)

    # -- the engine's side -----------------------------------------------------------------------

    def seal(self, outputs: tuple[Any, ...]) -> None:
        """After forward: wrap what was saved, outputs without a reference cycle."""
        saved: list[Any] = []
        for t in self._to_save:
            at = next((i for i, o in enumerate(outputs) if o is t), None)
            if t is None:
                saved.append(None)
            elif at is not None:
                saved.append(SavedOutput(t, self, at))
            else:
                saved.append(SavedTensor(t, self))
        self._saved, self._to_save = saved, ()
        self._dirty = self._non_differentiable = ()

    def apply(self, grads: Sequence[Any]) -> list[Any]:
        if self._materialize:
            grads = [
                zeros_of(m) if g is None else g for g, m in zip(grads, self.out_metas, strict=True)
            ]
        if not all(self._is_tensor):
            given = iter(grads)
            grads = [next(given) if is_tensor else None for is_tensor in self._is_tensor]
        found = call_back(self.function.backward, self, *grads)
        results = list(found) if isinstance(found, (tuple, list)) else [found]
        want = len(self.next_edges)
        if len(results) > want and all(r is None for r in results[want:]):
            results = results[:want]
        if len(results) != want:
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected "
                f"{want}, got {len(results)})"
            )
        return [self._checked(i, g) for i, g in enumerate(results)]

    def _checked(self, i: int, g: Any) -> Any:
        meta = self._input_metas[i]
        if g is None or self.next_edges[i] is None:
            return None
        if not isinstance(g, TensorBase):
            raise TypeError(f"expected Variable or None (got {type(g).__name__})")
        assert meta is not None
        try:
            return fit(g, meta)
        except RuntimeError:
            raise RuntimeError(
                f"Function {self.name()} returned an invalid gradient at index {i} - got "
                f"{list(g._meta.shape)} but expected shape compatible with {list(meta.shape)}"
            ) from None

    def written_slot(self) -> int | None:
        return self._written

    def release(self) -> None:
        self._saved, self._released = None, True


FunctionCtx = FunctionNode


class _FunctionType(type):
    """Makes a node class per Function, so that `grad_fn` is named after it."""

    _node: type[FunctionNode]

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> None:
        super().__init__(name, bases, body)
        cls._node = type(f"{name}Backward", (FunctionNode,), {"function": cls})


class Function(metaclass=_FunctionType):
    """Subclass it with static `forward(ctx, ...)` and `backward(ctx, *grads)`, call `.apply(...)`.

    >>> import lucerne as torch
    >>> class Double(torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         return g * 2
    >>> x = torch.ones(2, requires_grad=True)
    >>> Double.apply(x).sum().backward()
    >>> x.grad
    tensor([2., 2.])
    """

    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            f"{type(self).__name__} should not be instantiated. Methods on autograd functions are "
            "all static, so you should invoke them on the class itself: use .apply(...)."
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or "
            "set generate_vmap_rule=True."
        )

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with "
            "forward mode AD."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward now, and record backward."""
        if dispatch_state.forward:
            result = dispatch_state.forward[-1].apply_function(cls, args, kwargs)
            if result is not NotImplemented:
                return result
        return cls.call(args, kwargs)[1]

    @classmethod
    def call(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[FunctionNode, Any]:
        """`apply`, with the node of the call."""
        bound = args
        recorded = dispatch_state.grad_enabled and any(
            isinstance(a, TensorBase) and requires_grad(a) for a in bound
        )
        ctx = cls._node(bound if recorded else tuple(None for _ in bound))
        if not recorded:
            ctx.needs_input_grad = tuple(False for _ in bound)
        asked = dispatch_state.asked_grad
        with no_grad():
            if cls.setup_context is not Function.setup_context:
                result = _forward(cls, asked, args, kwargs)
                call_back(cls.setup_context, ctx, bound, result)
            else:
                result = _forward(cls, asked, args, kwargs, ctx, recorded=recorded)
        return ctx, _finish(ctx, bound, result, recorded)


def _forward(
    cls: Any,
    asked: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *ctx: Any,
    recorded: bool = False,
) -> Any:
    """The forward of a Function; a transform may have its own way to run it. `asked`: whether the
    user wants to have recorded what is below the transform; `recorded`: the forward must run here,
    since it keeps what backward needs."""
    stack = dispatch_state.kernel_level
    if stack:
        before = dispatch_state.asked_grad
        dispatch_state.asked_grad = asked
        try:
            result = stack[-1].function(cls, args, kwargs, recorded)
        finally:
            dispatch_state.asked_grad = before
        if result is not NotImplemented:
            return result
    return call_back(cls.forward, *ctx, *args, **kwargs)


def _finish(ctx: FunctionNode, inputs: tuple[Any, ...], result: Any, recorded: bool) -> Any:
    several = isinstance(result, (tuple, list))
    outs = list(result) if several else [result]
    if not recorded:
        return result
    for t in ctx._dirty:
        record.check_in_place(t)
    fresh = [_output(ctx, o, inputs) for o in outs]
    ctx._is_tensor = tuple(isinstance(o, TensorBase) for o in fresh)
    ctx.out_metas = tuple(o._meta for o in fresh if isinstance(o, TensorBase))
    dirty = ctx._dirty
    at = 0
    for o, original in zip(fresh, outs, strict=True):
        if isinstance(o, TensorBase):
            if any(original is d for d in dirty):
                ctx._written = next(i for i, a in enumerate(inputs) if a is original)
                record.rebase(o, ctx)
                state_of(o).output_nr = at
            elif _differentiable(ctx, original):
                o._auto = AutogradState(ctx, at, requires_grad=True)
            at += 1
    ctx.seal(tuple(outs) if fresh is outs else tuple(fresh))
    return tuple(fresh) if several else fresh[0]


def _output(ctx: FunctionNode, o: Any, inputs: tuple[Any, ...]) -> Any:
    """An output that is an input is another tensor over the same memory, unless marked dirty."""
    if not isinstance(o, TensorBase) or any(o is d for d in ctx._dirty):
        return o
    if any(o is i for i in inputs) or o._auto is not None:
        made = make_tensor(o._storage, o._offset, o._meta)
        ctx._to_save = tuple(
            made if t is o and not any(t is i for i in inputs) else t for t in ctx._to_save
        )
        return made
    return o


def _differentiable(ctx: FunctionNode, o: Any) -> bool:
    if any(o is n for n in ctx._non_differentiable):
        return False
    return bool(o._meta.dtype.category >= 2)


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward that is not itself differentiable: a second derivative raises."""

    @functools.wraps(fn)
    def backward(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            found = call_back(fn, ctx, *grads)
        if not dispatch_state.grad_enabled or not any(
            isinstance(g, TensorBase) and requires_grad(g) for g in grads
        ):
            return found
        several = isinstance(found, (tuple, list))
        outs = [
            _OnceOnly.apply(o, *[g for g in grads if isinstance(g, TensorBase)])
            if isinstance(o, TensorBase)
            else o
            for o in (found if several else (found,))
        ]
        return tuple(outs) if several else outs[0]

    return backward


class _OnceOnly(Function):
    """Passes a value on and refuses to be differentiated."""

    @staticmethod
    def forward(ctx: Any, value: Any, *grads: Any) -> Any:
        return make_tensor(value._storage, value._offset, value._meta)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )
