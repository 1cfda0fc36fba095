"""Module: a function with parameters, and the tree such functions make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.base.process.error_notes import module_failed
from lucerne._src.base.process.late_bindings import LateBindings
from lucerne._src.base.process.source_location import is_capturing
from lucerne._src.base.process.structure_version import StructureVersion, note_change
from lucerne._src.ir.dispatch import call_back
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.autograd.hooks import RemovableHandle as RemovableHandle
from lucerne._src.tensor.eager import native_bridge
from lucerne.nn.modules.conversion import Convert
from lucerne.nn.modules.hooks import (
    BackwardHook,
    GlobalKind,
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_buffer_registration_hooks,
    _global_forward_hooks,
    _global_forward_hooks_always_called,
    _global_forward_hooks_with_kwargs,
    _global_forward_pre_hooks,
    _global_module_registration_hooks,
    _global_parameter_registration_hooks,
    _WrappedHook,
    add,
    maybe_warn_non_full,
)
from lucerne.nn.modules.hooks import _has_any_global_hook as _has_any_global_hook
from lucerne.nn.modules.hooks import register_module_backward_hook as register_module_backward_hook
from lucerne.nn.modules.hooks import (
    register_module_buffer_registration_hook as register_module_buffer_registration_hook,
)
from lucerne.nn.modules.hooks import register_module_forward_hook as register_module_forward_hook
from lucerne.nn.modules.hooks import (
    register_module_forward_pre_hook as register_module_forward_pre_hook,
)
from lucerne.nn.modules.hooks import (
    register_module_full_backward_hook as register_module_full_backward_hook,
)
from lucerne.nn.modules.hooks import (
    register_module_full_backward_pre_hook as register_module_full_backward_pre_hook,
)
from lucerne.nn.modules.hooks import (
    register_module_module_registration_hook as register_module_module_registration_hook,
)
from lucerne.nn.modules.hooks import (
    register_module_parameter_registration_hook as register_module_parameter_registration_hook,
)
from lucerne.nn.modules.members import HookTable, Members
from lucerne.nn.modules.state import EXTRA_STATE_KEY_SUFFIX as _EXTRA_STATE_KEY_SUFFIX  # noqa: F401
from lucerne.nn.modules.state import State
from lucerne.nn.modules.state import _IncompatibleKeys as _IncompatibleKeys
from lucerne.nn.modules.tree import Tree
from lucerne.nn.parameter import Buffer, Parameter

Tensor = lu.Tensor
_ORDINARY = frozenset((int, bool, float, str, tuple, list, type(None), dict))
"""Types of attributes that cannot be parameters, buffers or modules."""


def _forward_unimplemented(self: Any, *input: Any) -> None:
    raise NotImplementedError(
        f'Module [{type(self).__name__}] is missing the required "forward" function'
    )


def _addindent(s_: str, numSpaces: int) -> str:
    """All lines but the first, moved to the right."""
    return s_.replace("\n", "\n" + numSpaces * " ")


class Module(Convert, State, Tree):
    """Base class of all layers: subclass it, make parameters in `__init__`, write `forward`.

    >>> import lucerne as torch
    >>> class Scale(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = torch.nn.Parameter(torch.tensor(2.0))
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> Scale()(torch.tensor([1.0, 3.0]))
    tensor([2., 6.], grad_fn=<MulBackward0>)
    >>> [name for name, _ in Scale().named_parameters()]
    ['factor']
    """

    dump_patches = False
    training: bool
    call_super_init = False
    _is_full_backward_hook: bool | None
    _compiled_call_impl: Callable[..., Any] | None = None
    forward: Callable[..., Any] = _forward_unimplemented
    T_destination = Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init:
            if kwargs:
                raise TypeError(
                    f"{type(self).__name__}.__init__() got an unexpected keyword argument "
                    f"'{next(iter(kwargs))}'"
                )
            if args:
                raise TypeError(
                    f"{type(self).__name__}.__init__() takes 1 positional argument but "
                    f"{len(args) + 1} were given"
                )
        self.__dict__.update(
            training=True,
            _parameters=Members(),
            _buffers=Members(),
            _non_persistent_buffers_set=set(),
            _backward_pre_hooks=HookTable(),
            _backward_hooks=HookTable(),
            _is_full_backward_hook=None,
            _forward_hooks=HookTable(),
            _forward_hooks_with_kwargs=HookTable(),
            _forward_hooks_always_called=HookTable(),
            _forward_pre_hooks=HookTable(),
            _forward_pre_hooks_with_kwargs=HookTable(),
            _state_dict_hooks=HookTable(),
            _state_dict_pre_hooks=HookTable(),
            _load_state_dict_pre_hooks=HookTable(),
            _load_state_dict_post_hooks=HookTable(),
            _modules=Members(),
        )
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # -- calling ---------------------------------------------------------------------------------

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward`, with hooks when there are any."""
        try:
            if (
                self._forward_hooks
                or self._forward_pre_hooks
                or self._backward_hooks
                or self._backward_pre_hooks
                or _global_forward_hooks
                or _global_forward_pre_hooks
                or _global_backward_hooks
                or _global_backward_pre_hooks
            ):
                return _call_with_hooks(self, args, kwargs)
            return self.forward(*args, **kwargs)
        except Exception as error:
            if not is_capturing():  # (a capture follows these lines, but not what is called)
                module_failed(error, self, args, kwargs)
            raise

    __call__: Callable[..., Any] = _call_impl
    _wrapped_call_impl = _call_impl

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A class that overrides `_call_impl` is called through it."""
        super().__init_subclass__(**kwargs)
        own = cls.__dict__
        if "__call__" not in own and ("_call_impl" in own or "_wrapped_call_impl" in own):
            found = own.get("_wrapped_call_impl") or own["_call_impl"]
            cls.__call__ = found  # type: ignore[method-assign]
        if _Slots.patch is not None:
            _Slots.patch(cls)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile `forward` in place, with the options of `lucerne.compile`.

        >>> import lucerne as torch
        >>> layer = torch.nn.Linear(2, 2)
        >>> layer.compile()
        >>> layer(torch.ones(1, 2)).shape
        torch.Size([1, 2])
        """
        self.__dict__.pop("forward", None)
        self.__dict__["forward"] = LateBindings.compile(self.forward, *args, **kwargs)

    # -- what a module has -----------------------------------------------------------------------

    def _check_name(self, kind: str, name: Any, store: str) -> None:
        if store not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {lu.typename(name)}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain "."')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in self.__dict__[store]:
            raise KeyError(f"attribute '{name}' already exists")

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Add a tensor that is state but no parameter; saved unless `persistent` is False."""
        self._check_name("buffer", name, "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{lu.typename(tensor)}' object to buffer '{name}' (torch Tensor or "
                "None required)"
            )
        for hook in _global_buffer_registration_hooks.values():
            output = hook(self, name, tensor)
            if output is not None:
                tensor = output
        note_change()
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Any) -> None:
        """Add a parameter; None keeps the name for one that this module does not have."""
        self._check_name("parameter", name, "_parameters")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{lu.typename(param)}' object to parameter '{name}' "
                "(torch.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                f"created explicitly. To express '{name}' as a function of another Tensor, compute "
                "the value in the forward() method."
            )
        if param is not None:
            for hook in _global_parameter_registration_hooks.values():
                output = hook(self, name, param)
                if output is not None:
                    param = output
        note_change()
        self._parameters[name] = param

    def add_module(self, name: str, module: Any) -> None:
        """Add a child module."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{lu.typename(module)} is not a Module subclass")
        if not isinstance(name, str):
            raise TypeError(f"module name should be a string. Got {lu.typename(name)}")
        if hasattr(self, name) and name not in self._modules:
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            raise KeyError(f'module name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError('module name can\'t be empty string ""')
        note_change()
        self._modules[name] = _registered(self, name, module)

    def register_module(self, name: str, module: Any) -> None:
        """Another name of `add_module`."""
        self.add_module(name, module)

    def apply(self, fn: Callable[[Any], Any]) -> Any:
        """Call `fn` on every module below and on this one, children first."""
        for module in self.children():
            module.apply(fn)
        call_back(fn, self)
        return self

    def train(self, mode: bool = True) -> Any:
        """Switch this module and all below to training (dropout drops) or evaluation."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Any:
        """Switch to evaluation: `train(False)`."""
        return self.train(False)

    # -- attributes ------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__
        for store in ("_parameters", "_buffers", "_modules"):
            members = found.get(store)
            if members is not None and name in members:
                return members[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        StructureVersion.count += 1
        own = self.__dict__
        params = own.get("_parameters")
        if type(value) in _ORDINARY and (
            params is None
            or not (name in params or name in own["_modules"] or name in own["_buffers"])
        ):
            object.__setattr__(self, name, value)
        elif isinstance(value, Parameter):
            if params is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            _remove(self, name, own, own["_buffers"], own["_modules"])
            self.register_parameter(name, value)
        elif params is not None and name in params:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{lu.typename(value)}' as parameter '{name}' "
                    "(torch.nn.Parameter or None expected)"
                )
            self.register_parameter(name, value)
        else:
            _set_other(self, name, value, own)

    def __delattr__(self, name: str) -> None:
        note_change()
        if name in self._parameters:
            del self._parameters[name]
        elif name in self._buffers:
            del self._buffers[name]
            self._non_persistent_buffers_set.discard(name)
        elif name in self._modules:
            del self._modules[name]
        else:
            object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__, *self._parameters, *self._modules}
        return sorted(n for n in (*names, *self._buffers) if not n[:1].isdigit())

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in ("_parameters", "_buffers", "_modules"):
            if type(state.get(name)) is dict:
                self.__dict__[name] = Members(state[name])
        for name in (
            "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs",
            "_forward_hooks_always_called", "_state_dict_hooks", "_state_dict_pre_hooks",
            "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "_backward_pre_hooks",
            "_forward_hooks", "_backward_hooks",
        ):  # fmt: skip
            if type(self.__dict__.get(name)) is not HookTable:  # (a shallow copy shares them)
                self.__dict__[name] = HookTable(self.__dict__.get(name, ()))
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        self.__dict__.setdefault("_is_full_backward_hook", None)

    # -- hooks -----------------------------------------------------------------------------------

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Any:
        """`hook(module, args)` before forward; what it returns replaces the arguments."""
        named = self._forward_pre_hooks_with_kwargs
        handle = add(self._forward_pre_hooks, hook, named, prepend=prepend)
        if with_kwargs:
            named[handle.id] = True
        return handle

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> Any:
        """`hook(module, args, output)` after forward; what it returns replaces the output.

        With `always_call` it runs even if forward or another hook raises.
        """
        named, called = self._forward_hooks_with_kwargs, self._forward_hooks_always_called
        handle = add(self._forward_hooks, hook, named, called, prepend=prepend)
        if with_kwargs:
            named[handle.id] = True
        if always_call:
            called[handle.id] = True
        return handle

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> Any:
        """`hook(module, grad_output)` before the backward; may return other gradients."""
        return add(self._backward_pre_hooks, hook, prepend=prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Any:
        """`hook(module, grad_input, grad_output)` when the inputs' gradients are known."""
        if self._is_full_backward_hook is False:
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single "
                "Module. Please use only one of them."
            )
        self._is_full_backward_hook = True
        return add(self._backward_hooks, hook, prepend=prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> Any:
        """The old form: sees the last node of forward only. Use `register_full_backward_hook`."""
        if self._is_full_backward_hook is True:
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single "
                "Module. Please use only one of them."
            )
        self._is_full_backward_hook = False
        return add(self._backward_hooks, hook)

    def _get_backward_hooks(self) -> tuple[list[Any], list[Any]]:
        """Full backward hooks and those of the old kind, global ones first."""
        full: list[Any] = []
        non_full: list[Any] = []
        if GlobalKind.full is True:
            full += _global_backward_hooks.values()
        if self._is_full_backward_hook is True:
            full += self._backward_hooks.values()
        if GlobalKind.full is False:
            non_full += _global_backward_hooks.values()
        if self._is_full_backward_hook is False:
            non_full += self._backward_hooks.values()
        return full, non_full

    _has_any_global_hook = staticmethod(_has_any_global_hook)

    def _get_backward_pre_hooks(self) -> list[Any]:
        return [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]

    def _maybe_warn_non_full_backward_hook(self, inputs: Any, result: Any, grad_fn: Any) -> None:
        maybe_warn_non_full(inputs, result, grad_fn)

    # -- text ------------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What stands between the parentheses of the repr."""
        return ""

    def __repr__(self) -> str:
        text = self.extra_repr()
        extra = text.split("\n") if text else []
        children = [
            f"({name}): {_addindent(repr(module), 2)}" for name, module in self._modules.items()
        ]
        if len(extra) == 1 and not children:
            return f"{self._get_name()}({extra[0]})"
        lines = extra + children
        inside = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
        return f"{self._get_name()}({inside})"

    def _replicate_for_data_parallel(self) -> Any:
        """A shallow copy whose dictionaries are its own."""
        replica = self.__new__(type(self))
        replica.__dict__.update(self.__dict__)
        replica.__dict__["_parameters"] = Members()
        replica.__dict__["_buffers"] = self._buffers.copy()
        replica.__dict__["_modules"] = self._modules.copy()
        replica.__dict__["_is_replica"] = True
        return replica


def _failed(
    error: BaseException, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None
) -> None:
    """What `_call_impl` does with an error, for calls in machine code (which have no frame)."""
    if isinstance(error, Exception) and not is_capturing():
        module_failed(error, module, args, kwargs or {}, framed=False)


class _Slots:
    """Attribute lookup and calls in machine code, where the host's engine has them."""

    patch: Callable[[type], None] | None = None


_Slots.patch = native_bridge.quicken(
    Module,
    [
        _global_forward_hooks,
        _global_forward_pre_hooks,
        _global_backward_hooks,
        _global_backward_pre_hooks,
    ],
    [Members, HookTable],
    _failed,
)
if _Slots.patch is not None:
    _Slots.patch(Module)


def _registered(module: Module, name: str, child: Any) -> Any:
    """The child after the global registration hooks have seen it."""
    for hook in _global_module_registration_hooks.values():
        output = hook(module, name, child)
        if output is not None:
            child = output
    return child


def _remove(module: Module, name: str, *stores: Any) -> None:
    for store in stores:
        store.pop(name, None)
    module._non_persistent_buffers_set.discard(name)


def _set_other(module: Module, name: str, value: Any, own: dict[str, Any]) -> None:
    """Set an attribute that is no parameter: a child, a buffer or anything."""
    modules, buffers = own.get("_modules"), own.get("_buffers")
    if isinstance(value, Module):
        if modules is None:
            raise AttributeError("cannot assign module before Module.__init__() call")
        _remove(module, name, own, own["_parameters"], buffers)
        modules[name] = _registered(module, name, value)
    elif modules is not None and name in modules:
        if value is not None:
            raise TypeError(
                f"cannot assign '{lu.typename(value)}' as child module '{name}' (torch.nn.Module "
                "or None expected)"
            )
        modules[name] = _registered(module, name, value)
    elif isinstance(value, Buffer) or (buffers is not None and name in buffers):
        if buffers is None:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(
                f"cannot assign '{lu.typename(value)}' as buffer '{name}' (torch.nn.Buffer, "
                "torch.Tensor or None expected)"
            )
        persistent = name not in module._non_persistent_buffers_set
        if isinstance(value, Buffer):
            _remove(module, name, own, own["_parameters"], modules)
            persistent = value.persistent
        module.register_buffer(name, value, persistent)
    else:
        object.__setattr__(module, name, value)


# ---- a call with hooks --------------------------------------------------------------------------


def _call_with_hooks(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    run = _Run(module)
    try:
        return run(args, kwargs)
    except Exception:
        run.finish_always_called(args, kwargs)
        raise


class _Run:
    """One call of a module that has hooks."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.result: Any = None
        self.called: set[int] = set()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module = self.module
        full, non_full = module._get_backward_hooks()
        before = module._get_backward_pre_hooks()
        args, kwargs = self._pre_hooks(args, kwargs)
        around = None
        if full or before:
            around = BackwardHook(module, full, before)
            args = around.setup_input_hook(args)
        self.result = module.forward(*args, **kwargs)
        self._forward_hooks(args, kwargs)
        if around is not None:
            if not isinstance(self.result, (Tensor, tuple)):
                notices.warn(
                    "For backward hooks to be called, module output should be a Tensor or a tuple "
                    f"of Tensors but received {type(self.result)}"
                )
            self.result = around.setup_output_hook(self.result)
        if non_full:
            self._attach_non_full(non_full, args)
        return self.result

    def _pre_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module = self.module
        for number, hook in (
            *_global_forward_pre_hooks.items(),
            *module._forward_pre_hooks.items(),
        ):
            if number in module._forward_pre_hooks_with_kwargs:
                answer = hook(module, args, kwargs)
                if answer is None:
                    continue
                if not isinstance(answer, tuple) or len(answer) != 2:
                    raise RuntimeError(
                        "forward pre-hook must return None or a tuple of (new_args, new_kwargs), "
                        f"but got {answer}."
                    )
                args, kwargs = answer
            else:
                answer = hook(module, args)
                if answer is not None:
                    args = answer if isinstance(answer, tuple) else (answer,)
        return args, kwargs

    def _all_forward_hooks(self) -> list[tuple[int, Any, bool, bool]]:
        """Number, hook, whether it takes keyword arguments, whether it is always called."""
        module = self.module
        both = _global_forward_hooks_with_kwargs, _global_forward_hooks_always_called
        found = [(n, h, n in both[0], n in both[1]) for n, h in _global_forward_hooks.items()]
        named, always = module._forward_hooks_with_kwargs, module._forward_hooks_always_called
        return found + [(n, h, n in named, n in always) for n, h in module._forward_hooks.items()]

    def _forward_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for number, hook, named, always in self._all_forward_hooks():
            if always:
                self.called.add(number)
            self._run_hook(hook, named, args, kwargs)

    def _run_hook(self, hook: Any, named: bool, args: Any, kwargs: Any) -> None:
        given = (args, kwargs) if named else (args,)
        answer = hook(self.module, *given, self.result)
        if answer is not None:
            self.result = answer

    def finish_always_called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """After an error: run the hooks that are to run in any case and have not."""
        for number, hook, named, always in self._all_forward_hooks():
            if always and number not in self.called:
                try:
                    self._run_hook(hook, named, args, kwargs)
                except Exception as error:
                    notices.warn(
                        f"{'global module' if number in _global_forward_hooks else 'module'} "
                        "forward hook with ``always_call=True`` raised an exception that was "
                        f"silenced as another error was raised in forward: {error!s}"
                    )

    def _attach_non_full(self, non_full: list[Any], args: tuple[Any, ...]) -> None:
        found = self.result
        while not isinstance(found, Tensor):
            if isinstance(found, dict):
                found = next(v for v in found.values() if isinstance(v, Tensor))
            else:
                found = found[0]
        node = found.grad_fn
        if node is not None:
            for hook in non_full:
                node.register_hook(_WrappedHook(hook, self.module))
            self.module._maybe_warn_non_full_backward_hook(args, self.result, node)
