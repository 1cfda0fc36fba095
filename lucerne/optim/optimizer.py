"""Optimizer: parameter groups, per-parameter state, hooks and state dicts, in PyTorch's layout."""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any, TypeAlias, TypeVar

from lucerne._src import backends
from lucerne._src.base.process import notices, tables
from lucerne._src.base.process.error_notes import entry_failed
from lucerne._src.base.process.profiler_hook import ANNOTATION, Watch, watched
from lucerne._src.ir.dispatch import call_back, recording
from lucerne._src.ir.dispatch import state as running
from lucerne._src.optim.options import given_numbers
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.autograd.hooks import RemovableHandle
from lucerne._src.tensor.optimizers import clear_grads

Hook: TypeAlias = Callable[..., Any]
ParamsT: TypeAlias = Iterable[Any]
State: TypeAlias = dict[str, Any]
_F = TypeVar("_F", bound=Callable[..., Any])

_global_optimizer_pre_hooks: dict[int, Hook] = OrderedDict()
_global_optimizer_post_hooks: dict[int, Hook] = OrderedDict()
tables.tables += [_global_optimizer_pre_hooks, _global_optimizer_post_hooks]


class _RequiredParameter:
    """Stands for the default of an option that every group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()

_LATER_OPTIONS = {
    "amsgrad", "capturable", "centered", "decoupled_weight_decay", "differentiable", "foreach",
    "fused", "maximize", "momentum", "nesterov",
}  # fmt: skip
"""Options that old state dicts may lack: they get their defaults when one is loaded."""


def register_optimizer_step_pre_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before each step of any optimizer."""
    return _add_hook(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after each step of any optimizer."""
    return _add_hook(_global_optimizer_post_hooks, hook)


def _add_hook(hooks: dict[int, Hook], hook: Hook, prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)  # type: ignore[attr-defined]
    return handle


def _use_grad_for_differentiable(step: _F) -> _F:
    """A step is recorded by autograd only if the optimizer was made `differentiable`."""

    @functools.wraps(step)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorded = self.defaults.get("differentiable", False)
        if not recorded and not lu.is_grad_enabled():
            return step(self, *args, **kwargs)
        with lu.set_grad_enabled(recorded):
            return step(self, *args, **kwargs)

    return wrapped  # type: ignore[return-value]


class Optimizer:
    """Base of all optimizers. A subclass gives the defaults of its options and a `step`.

    `params` are tensors, dicts with "params" and options of their own, or (name, tensor) pairs.

    >>> import lucerne
    >>> w = lucerne.ones(2, requires_grad=True)
    >>> optimizer = lucerne.optim.SGD([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.8000, 0.8000], requires_grad=True)
    """

    _given: tuple[str, ...] = ()
    """Options that a captured step reads anew at each call (see `lucerne._src.optim.options`)."""
    _hooks_of_all = (_global_optimizer_pre_hooks, _global_optimizer_post_hooks)
    _optimizer_step_pre_hooks: dict[int, Hook]
    _optimizer_step_post_hooks: dict[int, Hook]
    _optimizer_state_dict_pre_hooks: dict[int, Hook]
    _optimizer_state_dict_post_hooks: dict[int, Hook]
    _optimizer_load_state_dict_pre_hooks: dict[int, Hook]
    _optimizer_load_state_dict_post_hooks: dict[int, Hook]

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._make_hooks()
        self._patch_step_function()
        try:
            self._take_groups(params)
        except Exception as error:
            entry_failed(error)
            raise

    def _take_groups(self, params: ParamsT) -> None:
        if isinstance(params, lu.Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or "
                f"dicts, but got {lu.typename(params)}"
            )
        self.state: defaultdict[Any, State] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        if hasattr(type(params), "named_modules"):
            raise TypeError(
                f"'{type(params).__name__}' object is not iterable. Hint: pass its parameters()"
            )
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _make_hooks(self) -> None:
        for when in ("step", "state_dict", "load_state_dict"):
            for order in ("pre", "post"):
                name = f"_optimizer_{when}_{order}_hooks"
                if name not in self.__dict__:
                    self.__dict__[name] = OrderedDict()

    # -- copies ----------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return {
            "defaults": self.defaults,
            "state": self.state,
            "param_groups": self.param_groups,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_hooks()
        self._patch_step_function()
        for group in self.param_groups:
            for name in _LATER_OPTIONS & self.defaults.keys():
                group.setdefault(name, self.defaults[name])

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            for key in sorted(group):
                if key != "params":
                    text += f"    {key}: {group[key]}\n"
        return text + ")"

    # -- steps -----------------------------------------------------------------------------------

    @staticmethod
    def profile_hook_step(step: Callable[..., Any]) -> Callable[..., Any]:
        """`step` with the hooks around it."""

        @functools.wraps(step)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self = args[0]
            run = _recorded_step if recording() else step
            if self._optimizer_step_pre_hooks or _global_optimizer_pre_hooks:
                args, kwargs = _before_step(step, self, args, kwargs)
            if Watch.current is None:
                out = run(*args, **kwargs)
            else:
                name = f"Optimizer.step#{type(self).__name__}.step"
                out = watched(name, ANNOTATION, functools.partial(run, *args, **kwargs))
            if self._optimizer_step_post_hooks or _global_optimizer_post_hooks:
                hooks = (self._optimizer_step_post_hooks, _global_optimizer_post_hooks)
                for hook in chain(*(list(h.values()) for h in hooks)):
                    call_back(hook, self, args, kwargs)
            if run is _recorded_step:
                running.kernel_level[-1].step_done()
            return out

        def _recorded_step(*args: Any, **kwargs: Any) -> Any:
            with given_numbers(args[0]):
                return step(*args, **kwargs)

        return wrapper

    def _patch_step_function(self) -> None:
        """Put the hooks around the class's `step`, whoever wrote it."""
        self._zero_grad_profile_name = f"Optimizer.zero_grad#{type(self).__name__}.zero_grad"
        cls = type(self)
        if getattr(cls.step, "hooked", None) is None:
            cls.step = self.profile_hook_step(cls.step)  # type: ignore[method-assign]
            cls.step.hooked = True  # type: ignore[attr-defined]

    def _prepare_states(self) -> None:
        """Make the states a step would make; a base class knows of none."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters once. `closure` computes the loss anew and returns it."""
        raise NotImplementedError

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or with `set_to_none=False` fill them with zeros."""
        if Watch.current is None:
            self._zero_grad(set_to_none)
        else:
            forget = functools.partial(self._zero_grad, set_to_none)
            watched(self._zero_grad_profile_name, ANNOTATION, forget)

    def _zero_grad(self, set_to_none: bool) -> None:
        for group in self.param_groups:
            if set_to_none:
                clear_grads(group["params"])
                continue
            for p in group["params"]:
                if p.grad is not None:
                    if p.grad.grad_fn is not None:
                        p.grad.detach_()
                    else:
                        p.grad.requires_grad_(False)
                    p.grad.zero_()

    # -- groups ----------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a dict with "params" and those options that differ from the defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        _list_params(param_group)
        _split_names(param_group)
        for p in param_group["params"]:
            self._check_param(p)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    "parameter group didn't specify a value of required optimization parameter "
                    f"{name}"
                )
            param_group.setdefault(name, default)
        self._check_unique(param_group)
        self.param_groups.append(param_group)

    def _check_param(self, p: Any) -> None:
        if not isinstance(p, lu.Tensor):
            raise TypeError(
                f"optimizer can only optimize Tensors, but one of the params is {lu.typename(p)}"
            )
        if not self.defaults.get("differentiable") and not (p.is_leaf or p.retains_grad):
            raise ValueError("can't optimize a non-leaf Tensor")

    def _check_unique(self, param_group: dict[str, Any]) -> None:
        params = param_group["params"]
        if len(params) != len(set(params)):
            notices.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this "
                "will cause an error; see github.com/pytorch/pytorch/issues/40967 for more "
                "information"
            )
        known: set[Any] = set()
        for group in self.param_groups:
            known.update(group["params"])
            if ("param_names" in param_group) != ("param_names" in group):
                kind = "with" if "param_names" in param_group else "without"
                raise ValueError(
                    "all optimizer param groups should be with/without names. "
                    f"cannot add param group {kind} names to the optimizer"
                )
        if not known.isdisjoint(params):
            raise ValueError("some parameters appear in more than one parameter group")

    # -- state dicts -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State and options with parameters numbered, in the layout PyTorch uses."""
        for hook in list(self._optimizer_state_dict_pre_hooks.values()):
            call_back(hook, self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            packed = {k: v for k, v in group.items() if k != "params"}
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {
            (numbers[id(k)] if isinstance(k, lu.Tensor) else k): v for k, v in self.state.items()
        }
        found = {"state": state, "param_groups": groups}
        for hook in list(self._optimizer_state_dict_post_hooks.values()):
            found = _or(call_back(hook, self, found), found)
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave, here or in PyTorch; tensors are cast to the
        parameters' dtype and device."""
        state_dict = state_dict.copy()
        for hook in list(self._optimizer_load_state_dict_pre_hooks.values()):
            state_dict = _or(call_back(hook, self, state_dict), state_dict)
        groups = self.param_groups
        saved = deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(groups, saved, strict=True)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of "
                "optimizer's group"
            )
        params = _by_number(saved, groups)
        state: defaultdict[Any, State] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in params:
                p = params[key]
                state[p] = _cast(p, value, key, None, state_dict["param_groups"])
            else:
                state[key] = value
        for new, old in zip(saved, groups, strict=True):
            new["params"] = old["params"]
            if "param_names" in old and "param_names" not in new:
                new["param_names"] = old["param_names"]
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in list(self._optimizer_load_state_dict_post_hooks.values()):
            call_back(hook, self)

    # -- hooks -----------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Hook) -> RemovableHandle:
        """`hook(optimizer, args, kwargs)` before each step; may return other (args, kwargs)."""
        return _add_hook(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Hook) -> RemovableHandle:
        """`hook(optimizer, args, kwargs)` after each step."""
        return _add_hook(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer)` before `state_dict`."""
        return _add_hook(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer, state_dict)` after `state_dict`; may return another one."""
        return _add_hook(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Hook, prepend: bool = False
    ) -> RemovableHandle:
        """`hook(optimizer, state_dict)` before loading; may return another one."""
        return _add_hook(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Hook, prepend: bool = False
    ) -> RemovableHandle:
        """`hook(optimizer)` after loading."""
        return _add_hook(self._optimizer_load_state_dict_post_hooks, hook, prepend)


# ---- parts of the above -----------------------------------------------------------------------


def _or(found: Any, default: Any) -> Any:
    return default if found is None else found


def _before_step(
    step: Any, self: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    hooks = (_global_optimizer_pre_hooks, self._optimizer_step_pre_hooks)
    for hook in chain(*(list(h.values()) for h in hooks)):
        result = call_back(hook, self, args, kwargs)
        if result is None:
            continue
        if not isinstance(result, tuple) or len(result) != 2:
            raise RuntimeError(
                f"{step} must return None or a tuple of (new_args, new_kwargs), but got {result}."
            )
        args, kwargs = result
    return args, kwargs


def _list_params(group: dict[str, Any]) -> None:
    params = group["params"]
    if isinstance(params, lu.Tensor):
        group["params"] = [params]
    elif isinstance(params, set):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but the ordering "
            "of tensors in sets will change between runs. Please use a list instead."
        )
    else:
        group["params"] = list(params)


def _split_names(group: dict[str, Any]) -> None:
    """(name, tensor) pairs become "params" and "param_names"."""
    params = group["params"]
    named = [isinstance(p, tuple) for p in params]
    if not any(named):
        return
    if not all(named):
        raise ValueError(
            "all optimizer params should be with/without names. Some param names are missing"
        )
    rest = {k: v for k, v in group.items() if k != "params"}
    group.clear()
    group["params"] = [p for _, p in params]
    group["param_names"] = [name for name, _ in params]
    group.update(rest)


def _by_number(saved: Sequence[State], groups: Sequence[State]) -> dict[Any, Any]:
    """The parameter of each number in a state dict."""
    numbers = chain.from_iterable(g["params"] for g in saved)
    params = chain.from_iterable(g["params"] for g in groups)
    return dict(zip(numbers, params, strict=True))


def _cast(param: Any, value: Any, number: Any, key: Any, groups: Sequence[State]) -> Any:
    """A copy of a loaded value, its tensors as the parameter is."""
    if isinstance(value, lu.Tensor):
        return _cast_tensor(param, value, number, key, groups)
    if isinstance(value, dict):
        return {k: _cast(param, v, number, k, groups) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(param, v, number, key, groups) for v in value)
    return value


def _cast_tensor(param: Any, value: Any, number: Any, key: Any, groups: Sequence[State]) -> Any:
    if key == "step":
        options: State = next((g for g in groups if number in g["params"]), {})
        there = backends.takes_graphs(param.device.type)
        if options.get("capturable") or options.get("fused") or there:
            return value.to(dtype=lu.float32, device=param.device)
        return value
    if param.is_floating_point():
        return value.to(dtype=param.dtype, device=param.device)
    return value.to(device=param.device)
