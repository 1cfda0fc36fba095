"""State dicts: what a module writes into one and how it reads one back."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.tensor import api as lu
from lucerne.nn.modules import conversion
from lucerne.nn.modules.hooks import _WrappedHook, add
from lucerne.nn.parameter import Parameter, is_lazy

EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(
    namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"]),
):
    """What `load_state_dict` could not match."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


def _listed(keys: list[str]) -> str:
    return ", ".join(f'"{k}"' for k in keys)


class State:
    """The part of Module that saves and loads."""

    _version = 1
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: OrderedDict[int, Any]
    _state_dict_pre_hooks: OrderedDict[int, Any]
    _load_state_dict_pre_hooks: OrderedDict[int, Any]
    _load_state_dict_post_hooks: OrderedDict[int, Any]

    # -- extra state -----------------------------------------------------------------------------

    def get_extra_state(self) -> Any:
        """What else to save with the tensors; override together with `set_extra_state`."""
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called. Please "
            "override get_extra_state() to save extra state."
        )

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` gave."""
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called. Please "
            "override set_extra_state() to load extra state."
        )

    def _has_own(self, name: str) -> bool:
        return getattr(type(self), name, None) is not getattr(State, name)

    # -- saving ----------------------------------------------------------------------------------

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> Any:
        """`hook(module, state_dict, prefix, local_metadata)` after saving; may replace the dict."""
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was previously "
                "registered via register_state_dict_post_hook"
            )
        return add(self._state_dict_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> Any:
        """`hook(module, state_dict, prefix, local_metadata)` after saving; changes it in place."""
        hook._from_public_api = True  # type: ignore[attr-defined]
        return add(self._state_dict_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Any:
        """`hook(module, prefix, keep_vars)` before saving."""
        return add(self._state_dict_pre_hooks, hook)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Write this module's own tensors; children are written by `state_dict`."""
        for name, p in self._parameters.items():
            if p is not None:
                destination[prefix + name] = p if keep_vars else p.detach()
        for name, b in self._buffers.items():
            if b is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = b if keep_vars else b.detach()
        if self._has_own("get_extra_state"):
            destination[prefix + EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        """Parameters and persistent buffers by path, in order of registration."""
        if args:
            notices.warn(
                "Positional args are being deprecated, use kwargs instead. Refer to "
                "https://pytorch.org/docs/main/generated/torch.nn.Module.html"
                "#torch.nn.Module.state_dict for details.",
                FutureWarning,
            )
            given = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False))
            destination = given.get("destination") if destination is None else destination
            prefix = given.get("prefix", "") if prefix == "" else prefix
            keep_vars = given.get("keep_vars", False) if keep_vars is False else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for pre in self._state_dict_pre_hooks.values():
            pre(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
                )
        for hook in self._state_dict_hooks.values():
            result = hook(self, destination, prefix, local_metadata)
            if result is None:
                continue
            if getattr(hook, "_from_public_api", False):
                raise RuntimeError("state_dict post-hook must return None")
            destination = result
        return destination

    # -- loading ---------------------------------------------------------------------------------

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> Any:
        """`hook(state_dict, prefix, local_metadata, strict, missing, unexpected, errors)`."""
        return add(
            self._load_state_dict_pre_hooks, _WrappedHook(hook, self if with_module else None)
        )

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Any:
        """`hook(module, state_dict, prefix, local_metadata, strict, missing, unexpected, errors)`
        before this module reads its tensors."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> Any:
        """`hook(module, incompatible_keys)` after loading; may change the lists of keys."""
        return add(self._load_state_dict_post_hooks, hook)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Read this module's own tensors; children are read by `load_state_dict`."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(
                state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                error_msgs,
            )  # fmt: skip
        persistent = {
            k: b for k, b in self._buffers.items() if k not in self._non_persistent_buffers_set
        }
        own = {k: v for k, v in (*self._parameters.items(), *persistent.items()) if v is not None}
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, held in own.items():
            key = prefix + name
            if key in state_dict:
                _load_one(self, name, held, key, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)
        extra = prefix + EXTRA_STATE_KEY_SUFFIX
        if self._has_own("set_extra_state"):
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            self._note_unexpected(state_dict, prefix, own, unexpected_keys)

    def _note_unexpected(
        self, state_dict: Any, prefix: str, own: Any, unexpected_keys: list[str]
    ) -> None:
        for key in state_dict:
            if not key.startswith(prefix) or key == prefix + EXTRA_STATE_KEY_SUFFIX:
                continue
            name, dot, _ = key[len(prefix) :].partition(".")
            if name not in (self._modules if dot else own):
                unexpected_keys.append(key)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copy tensors from a state dict into this module (or take them over with `assign`).

        With `strict`, keys must match exactly. Returns the keys that were missing or unexpected.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        found: Any = OrderedDict(state_dict)
        if metadata is not None:
            found._metadata = metadata

        def load(module: Any, local: Any, prefix: str = "") -> None:
            local_metadata = {} if metadata is None else metadata.get(prefix[:-1], {})
            if assign:
                local_metadata["assign_to_params_buffers"] = assign
            module._load_from_state_dict(
                local, prefix, local_metadata, True, missing, unexpected, errors
            )
            for name, child in module._modules.items():
                if child is not None:
                    below = f"{prefix}{name}."
                    part = {k: v for k, v in local.items() if k.startswith(below)}
                    load(child, part, below)
            _run_post_hooks(module, missing, unexpected)

        load(self, found)
        if strict:
            if unexpected:
                errors.insert(0, f"Unexpected key(s) in state_dict: {_listed(unexpected)}. ")
            if missing:
                errors.insert(0, f"Missing key(s) in state_dict: {_listed(missing)}. ")
        if errors:
            lines = "\n\t".join(errors)
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{lines}"
            )
        return _IncompatibleKeys(missing, unexpected)


def _run_post_hooks(module: Any, missing: list[str], unexpected: list[str]) -> None:
    keys = _IncompatibleKeys(missing, unexpected)
    for hook in module._load_state_dict_post_hooks.values():
        if hook(module, keys) is not None:
            raise AssertionError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to "
                "return new values, if incompatible_keys need to be modified, it should be done "
                "inplace."
            )


def _load_one(
    module: Any, name: str, held: Any, key: str, given: Any, assign: bool, errors: list[str]
) -> None:
    """Copy one tensor, or note why that is impossible."""
    if not hasattr(given, "__torch_function__"):
        errors.append(
            f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like '
            f"object from checkpoint but received {type(given)}"
        )
        return
    lazy = is_lazy(held)
    if not lazy and held.dim() == 0 and tuple(given.shape) == (1,):
        given = given[0]  # scalars used to be saved with one dimension
    if not lazy and given.shape != held.shape:
        errors.append(
            f"size mismatch for {key}: copying a param with shape {given.shape} from checkpoint, "
            f"the shape in current model is {held.shape}."
        )
        return
    if held.is_meta and not given.is_meta and not assign:
        notices.warn(
            f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter "
            "in the current model, which is a no-op. (Did you mean to pass `assign=True` to assign "
            "items in the state dictionary to their corresponding key in the module instead of "
            "copying them in place?)"
        )
    try:
        with lu.no_grad():
            _take(module, name, held, given, assign)
    except Exception as error:
        swapped = "swapping" if conversion.swaps() else "copying"
        errors.append(
            f'While {swapped} the parameter named "{key}", whose dimensions in the model are '
            f"{held.size()} and whose dimensions in the checkpoint are {given.size()}, an "
            f"exception occurred : {error.args}."
        )


def _take(module: Any, name: str, held: Any, given: Any, assign: bool) -> None:
    if conversion.swaps():
        made = held.module_load(given, assign=assign)
        if id(made) == id(given) or id(made) == id(held):
            raise RuntimeError(
                "module_load returned one of self or other, please .detach() the result if "
                "returning one of the inputs in module_load"
            )
        if isinstance(held, Parameter):
            made = _as_parameter(made, held)
        conversion.swap_tensors(held, made)
    elif assign:
        setattr(module, name, _as_parameter(given, held) if isinstance(held, Parameter) else given)
    else:
        held.copy_(given)


def _as_parameter(given: Any, like: Any) -> Any:
    if isinstance(given, Parameter):
        return given.requires_grad_(like.requires_grad)
    return Parameter(given, requires_grad=like.requires_grad)
