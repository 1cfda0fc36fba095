"""Hooks of modules: the global ones, and how backward hooks get between a module and its graph."""

from __future__ import annotations

import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from lucerne._src.base.process import notices, tables
from lucerne._src.ir.dispatch import call_back
from lucerne._src.ops.checks import zeros_of
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.autograd.function import Function
from lucerne._src.tensor.autograd.hooks import RemovableHandle
from lucerne.nn.modules.members import HookTable

Hooks = OrderedDict[int, Callable[..., Any]]

_global_buffer_registration_hooks: Hooks = HookTable()
_global_module_registration_hooks: Hooks = HookTable()
_global_parameter_registration_hooks: Hooks = HookTable()
_global_backward_pre_hooks: Hooks = HookTable()
_global_backward_hooks: Hooks = HookTable()
_global_forward_pre_hooks: Hooks = HookTable()
_global_forward_hooks: Hooks = HookTable()
_global_forward_hooks_always_called: OrderedDict[int, bool] = HookTable()
_global_forward_hooks_with_kwargs: OrderedDict[int, bool] = HookTable()


class GlobalKind:
    """Whether global backward hooks are full ones; None until the first is registered."""

    full: bool | None = None


tables.add_switches(GlobalKind, "full")
tables.tables += [
    _global_buffer_registration_hooks, _global_module_registration_hooks,
    _global_parameter_registration_hooks, _global_backward_pre_hooks, _global_backward_hooks,
    _global_forward_pre_hooks, _global_forward_hooks, _global_forward_hooks_always_called,
    _global_forward_hooks_with_kwargs,
]  # fmt: skip


def _has_any_global_hook() -> Any:
    return (
        _global_backward_pre_hooks
        or _global_backward_hooks
        or _global_forward_pre_hooks
        or _global_forward_hooks
        or _global_forward_hooks_always_called
        or _global_forward_hooks_with_kwargs
    )


def add(hooks: Any, hook: Callable[..., Any], *extra: Any, prepend: bool = False) -> Any:
    """Register a hook; `extra` are dictionaries its number is taken from on removal as well."""
    handle = RemovableHandle(hooks, extra_dict=extra)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`hook(module, name, buffer)` before any module registers a buffer; may replace it."""
    made: RemovableHandle = add(_global_buffer_registration_hooks, hook)
    return made


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`hook(module, name, submodule)` before any module gets a child; may replace it."""
    made: RemovableHandle = add(_global_module_registration_hooks, hook)
    return made


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`hook(module, name, parameter)` before any module registers one; may replace it."""
    made: RemovableHandle = add(_global_parameter_registration_hooks, hook)
    return made


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`hook(module, args)` before every forward of every module."""
    made: RemovableHandle = add(_global_forward_pre_hooks, hook)
    return made


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """`hook(module, args, output)` after every forward of every module."""
    called, named = _global_forward_hooks_always_called, _global_forward_hooks_with_kwargs
    handle: RemovableHandle = add(_global_forward_hooks, hook, called, named)
    if with_kwargs:
        named[handle.id] = True
    if always_call:
        called[handle.id] = True
    return handle


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """The old form of `register_module_full_backward_hook`: sees the last node of a forward."""
    if GlobalKind.full is True:
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a global Module "
            "hook. Please use only one of them."
        )
    GlobalKind.full = False
    made: RemovableHandle = add(_global_backward_hooks, hook)
    return made


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`hook(module, grad_output)` before the backward of every module."""
    made: RemovableHandle = add(_global_backward_pre_hooks, hook)
    return made


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`hook(module, grad_input, grad_output)` when gradients of a module's inputs are known."""
    if GlobalKind.full is False:
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a global Module "
            "hook. Please use only one of them."
        )
    GlobalKind.full = True
    made: RemovableHandle = add(_global_backward_hooks, hook)
    return made


class _WrappedHook:
    """A hook that also gets its module, held weakly."""

    def __init__(self, hook: Callable[..., Any], module: Any = None) -> None:
        self.hook: Callable[..., Any] = hook
        functools.update_wrapper(self, hook)
        self.with_module = module is not None
        self.module: Any = None if module is None else weakref.ref(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.with_module:
            return call_back(self.hook, *args, **kwargs)
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return call_back(self.hook, module, *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {"hook": self.hook, "with_module": self.with_module}
        if self.with_module:
            state["module"] = self.module()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.hook, self.with_module = state["hook"], state["with_module"]
        self.module = None
        if self.with_module:
            if state["module"] is None:
                raise RuntimeError("You are trying to revive the hook of a dead Module!")
            self.module = weakref.ref(state["module"])


# ---- full backward hooks ----------------------------------------------------------------------


class BackwardHookFunction(Function):
    """The identity: its node is where the hooks of a module stand in the graph."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        ctx.mark_non_differentiable(*[a for a in args if not a.requires_grad])
        return args

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads


def _spread(indices: list[int], values: Any, size: int) -> tuple[Any, ...]:
    """`values` at their places in a tuple of `size`, None elsewhere."""
    found: list[Any] = [None] * size
    for i, value in zip(indices, values, strict=True):
        found[i] = value
    return tuple(found)


def _replaced(old: tuple[Any, ...], new: Any, what: str) -> tuple[Any, ...]:
    """What a hook returned in place of gradients, checked for their number."""
    if len(new) != len(old):
        raise RuntimeError(
            f"Backward {what} returned an invalid number of "
            f"{'grad_input' if what == 'hook' else 'grad_output'}, got {len(new)}, "
            f"but expected {len(old)}"
        )
    return tuple(new)


class BackwardHook:
    """One call of a module: identities around it whose nodes call the module's backward hooks."""

    def __init__(self, module: Any, user_hooks: list[Any], user_pre_hooks: list[Any]) -> None:
        self.module = module
        self.user_hooks = user_hooks
        self.user_pre_hooks = user_pre_hooks
        self.grad_outputs: Any = None
        self.n_inputs = -1
        self.inputs: list[int] | None = None
        """Places of the tensors among the inputs; None: none of them has a gradient."""
        self.constant: dict[int, Any] = {}
        """Metas of those without a gradient: hooks see zeros for them."""

    def _apply_identity(self, attach: Callable[[Any], None], values: tuple[Any, ...]) -> Any:
        """`values` with tensors passed through the identity, and the places of those tensors."""
        places = [i for i, v in enumerate(values) if isinstance(v, lu.Tensor)]
        tensors = [values[i] for i in places]
        if not (lu.is_grad_enabled() and any(t.requires_grad for t in tensors)):
            return values, None
        passed = BackwardHookFunction.apply(*tensors)
        nodes = [t.grad_fn for t in passed if t.grad_fn is not None]
        attach(nodes[0])
        found = list(values)
        for i, t in zip(places, passed, strict=True):
            found[i] = t
        same: Any = type(values)
        return (same(*found) if hasattr(values, "_fields") else same(found)), places

    def setup_input_hook(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        def attach(node: Any) -> None:
            node.register_hook(self._on_inputs)

        found: tuple[Any, ...]
        found, self.inputs = self._apply_identity(attach, args)
        for i in self.inputs or ():
            if not args[i].requires_grad:
                self.constant[i] = args[i]._meta
        self.n_inputs = len(args)
        return found

    def _on_inputs(self, grad_input: Any, _: Any) -> Any:
        if self.grad_outputs is None:
            return None  # a gradient that came around the outputs: none of the hooks' business
        assert self.inputs is not None
        given = list(grad_input)
        for at, i in enumerate(self.inputs):
            if i in self.constant:
                given[at] = zeros_of(self.constant[i])
        grads = _spread(self.inputs, given, self.n_inputs)
        for hook in self.user_hooks:
            answer = call_back(hook, self.module, grads, self.grad_outputs)
            if answer is not None:
                grads = _replaced(grads, answer, "hook")
        self.grad_outputs = None
        return tuple(grads[i] for i in self.inputs)

    def setup_output_hook(self, result: Any) -> Any:
        single = not isinstance(result, tuple)
        outputs = (result,) if single else result
        places: list[int] = []

        def attach(node: Any) -> None:
            node.register_prehook(functools.partial(self._on_outputs, places, len(outputs)))

        passed, found = self._apply_identity(attach, outputs)
        places.extend(found or ())
        return passed[0] if single else passed

    def _on_outputs(self, places: list[int], size: int, grad_output: Any) -> Any:
        grads = self.grad_outputs = _spread(places, grad_output, size)
        for pre in self.user_pre_hooks:
            answer = call_back(pre, self.module, grads)
            if answer is not None:
                grads = self.grad_outputs = _replaced(grads, answer, "pre hook")
        if self.inputs is None and self.user_hooks:
            notices.warn(
                "Full backward hook is firing when gradients are computed with respect to module "
                "outputs since no inputs require gradients. See "
                "https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html"
                "#torch.nn.Module.register_full_backward_hook for more details."
            )
            nothing = (None,) * self.n_inputs
            for hook in self.user_hooks:
                answer = call_back(hook, self.module, nothing, grads)
                given = answer if isinstance(answer, tuple) else (answer,)
                if any(g is not None for g in given):
                    raise RuntimeError(
                        "Backward hook for Modules where no input requires gradient should always "
                        "return None or None for all gradients."
                    )
            self.grad_outputs = None
        return tuple(grads[i] for i in places)


def maybe_warn_non_full(inputs: Any, result: Any, grad_fn: Any) -> None:
    """Say when a hook of the old kind will not see what its user expects."""
    results, given = _all_tensors(result), _all_tensors(inputs)
    on_module = "Using non-full backward hooks on a Module that does not "
    when = "Using a non-full backward hook when "
    if results is None:
        what, lost = (
            on_module + "return a single Tensor or a tuple of Tensors",
            "of the grad_output",
        )
    elif given is None:
        what = on_module + "take as input a single Tensor or a tuple of Tensors"
        lost = "of the grad_input"
    elif len({r.grad_fn for r in results if r.grad_fn is not None}) > 1:
        what, lost = when + "outputs are generated by different autograd Nodes", "grad_output"
    elif {n[0] for n in grad_fn.next_functions} != {i.grad_fn for i in given} - {None}:
        what, lost = when + "the forward contains multiple autograd Nodes", "grad_input"
    else:
        return
    notices.warn(
        f"{what} is deprecated and will be removed in future versions. This hook will be missing "
        f"some {lost}. Please use register_full_backward_hook to get the documented behavior.",
        FutureWarning,
    )


def _all_tensors(x: Any) -> tuple[Any, ...] | None:
    """One tensor or a tuple of tensors as a tuple; None for anything else."""
    found = x if isinstance(x, tuple) else (x,)
    return found if all(isinstance(t, lu.Tensor) for t in found) else None
