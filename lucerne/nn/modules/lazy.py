"""Modules that learn the shapes of their parameters from the first input."""

from __future__ import annotations

from typing import Any

from lucerne.nn.parameter import is_lazy


class LazyModuleMixin:
    """Before Module in the bases of a lazy layer.

    The first call runs `initialize_parameters` on its arguments, which materialises the
    uninitialised parameters; then the module becomes an instance of `cls_to_become`.
    """

    cls_to_become: Any = None

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(
            self._infer_parameters, with_kwargs=True
        )

    def _save_to_state_dict(self: Any, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Uninitialised tensors go into the state dict as they are."""
        for name, p in self._parameters.items():
            if p is not None:
                bare = is_lazy(p) or keep_vars
                destination[prefix + name] = p if bare else p.detach()
        for name, b in self._buffers.items():
            if b is not None and name not in self._non_persistent_buffers_set:
                bare = is_lazy(b) or keep_vars
                destination[prefix + name] = b if bare else b.detach()

    def _lazy_load_hook(
        self: Any,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take shapes from a state dict: an initialised tensor materialises ours."""
        for name, p in (*self._parameters.items(), *self._buffers.items()):
            given = state_dict.get(prefix + name)
            if given is not None and p is not None and is_lazy(p) and not is_lazy(given):
                with_shape = given.shape
                p.materialize(with_shape)

    def initialize_parameters(self: Any, *args: Any, **kwargs: Any) -> None:
        """Materialise the parameters for these arguments of forward; lazy layers write it."""
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    def has_uninitialized_params(self: Any) -> bool:
        """Whether a parameter or buffer still waits for its shape."""
        held = (*self._parameters.values(), *self._buffers.values())
        return any(is_lazy(p) for p in held)

    def _infer_parameters(self: Any, module: Any, args: Any, kwargs: Any = None) -> None:
        """The pre-hook of the first call."""
        kwargs = kwargs or {}
        module.initialize_parameters(*args, **kwargs)
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook
        del module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _replicate_for_data_parallel(self: Any) -> Any:
        raise RuntimeError(
            "Modules with uninitialized parameters can't be used with `DataParallel`. Run a dummy "
            "forward pass to correctly initialize the modules"
        )
