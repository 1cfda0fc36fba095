"""Parameters that are computed from others: `register_parametrization(layer, "weight", f)`.

The layer's `weight` becomes a property that gives `f(original)`. The original is a parameter of
`layer.parametrizations.weight`, and what optimisers and state dicts see.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import ContextDecorator
from typing import Any, ClassVar

from lucerne._src.base.process import tables
from lucerne._src.ir.dispatch import call_back
from lucerne._src.tensor import api as lu
from lucerne.nn.modules.container import ModuleDict, ModuleList
from lucerne.nn.parameter import Parameter

Tensor = lu.Tensor


class _Cache:
    depth = 0
    values: ClassVar[dict[tuple[int, str], Any]] = {}


tables.add_switches(_Cache, "depth")
tables.tables.append(_Cache.values)


class cached(ContextDecorator):
    """Inside, each parametrised tensor is computed once.

    (No generator: one that a trace has entered and let go would leave when it is collected.)
    """

    def __enter__(self) -> None:
        _Cache.depth += 1

    def __exit__(self, *error: object) -> None:
        _Cache.depth -= 1
        if not _Cache.depth:
            _Cache.values.clear()


def _register_parameter_or_buffer(module: Any, name: str, tensor: Any) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _set_data(target: Any, source: Any) -> None:
    """Make a tensor read other values without becoming another object."""
    if target is not source:
        target.data = source.detach()


def _check_tensor(found: Any) -> None:
    if not isinstance(found, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(found).__name__}.")


class ParametrizationList(ModuleList):
    """The original tensor (or tensors) of a parametrised one, and the functions applied to it."""

    original: Any
    unsafe: bool

    def __init__(self, modules: Sequence[Any], original: Any, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        with lu.no_grad():
            new = original
            for module in reversed(modules):
                if hasattr(module, "right_inverse"):
                    try:
                        new = module.right_inverse(new)
                    except NotImplementedError:
                        continue
        if not isinstance(new, Tensor) and not isinstance(new, Sequence):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            self._keep_one(original, new)
        else:
            self._keep_several(original, new)
        if not self.unsafe:
            self._check(shape, dtype)

    def _keep_one(self, original: Any, new: Any) -> None:
        if original.dtype != new.dtype:
            raise ValueError(
                "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                f"original.dtype: {original.dtype}\nright_inverse(original).dtype: {new.dtype}"
            )
        if original.device != new.device:
            raise ValueError(
                "When `right_inverse` outputs one tensor, it may not change the device.\n"
                f"original.device: {original.device}\n"
                f"right_inverse(original).device: {new.device}"
            )
        _set_data(original, new)
        _register_parameter_or_buffer(self, "original", original)

    def _keep_several(self, original: Any, new: Any) -> None:
        for i, one in enumerate(new):
            if not isinstance(one, Tensor):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, "
                    f"tuple...). Got element {i} of the sequence with type {type(one).__name__}."
                )
            if isinstance(original, Parameter):
                one = Parameter(one, original.requires_grad)
            one.requires_grad_(original.requires_grad)
            _register_parameter_or_buffer(self, f"original{i}", one)

    def _check(self, shape: Any, dtype: Any) -> None:
        found = self()
        _check_tensor(found)
        for what, old, new in (("dtype", dtype, found.dtype), ("shape", shape, found.shape)):
            if old != new:
                raise ValueError(
                    f"Registering a parametrization may not change the {what} of the tensor, "
                    f"unless `unsafe` flag is enabled.\nunparametrized {what}: {old}\n"
                    f"parametrized {what}: {new}"
                )

    def right_inverse(self, value: Any) -> None:
        """Assign: find originals whose parametrised value is `value`, and keep them."""
        with lu.no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
                value = module.right_inverse(value)
            if self.is_tensor:
                self._assign_one(value)
            else:
                self._assign_several(value)

    def _assign_one(self, value: Any) -> None:
        if not isinstance(value, Tensor):
            raise ValueError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
        if value.dtype != self.original.dtype:
            raise ValueError(
                f"The tensor returned by `right_inverse` has dtype {value.dtype} while `original` "
                f"has dtype {self.original.dtype}"
            )
        _set_data(self.original, value)

    def _assign_several(self, values: Any) -> None:
        if not isinstance(values, Sequence):
            raise ValueError(
                f"'right_inverse' must return a sequence of tensors. Got {type(values).__name__}."
            )
        if len(values) != self.ntensors:
            raise ValueError(
                f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got "
                f"a sequence of length {len(values)}."
            )
        for i, value in enumerate(values):
            original = getattr(self, f"original{i}")
            if not isinstance(value, Tensor):
                raise ValueError(
                    "`right_inverse` must return a sequence of tensors. Got element "
                    f"{i} of type {type(value).__name__}"
                )
            if original.dtype != value.dtype:
                raise ValueError(
                    f"Tensor {i} returned by `right_inverse` has dtype {value.dtype} while "
                    f"`original{i}` has dtype {original.dtype}"
                )
            _set_data(original, value)

    def forward(self) -> Any:
        """The parametrised value."""
        first, *rest = self
        if self.is_tensor:
            value = call_back(first, self.original)
        else:
            parts = [getattr(self, f"original{i}") for i in range(self.ntensors)]
            value = call_back(first, *parts)
        for module in rest:
            value = call_back(module, value)
        return value


# ---- the class a parametrised module gets -------------------------------------------------------


def _no_pickle(self: Any) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(). See:\n"
        "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
        "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
    )


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    if id(self) in memo:
        return memo[id(self)]
    made = self.__new__(type(self))
    memo[id(self)] = made
    made.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return made


def _inject_new_class(module: Any) -> None:
    """Give the module a class of its own, for properties of its own."""
    cls = type(module)
    members: dict[str, Any] = {"__getstate__": _no_pickle}
    if not hasattr(cls, "__deepcopy__"):
        members["__deepcopy__"] = _deepcopy
    members["__module__"] = __name__
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)


def _inject_property(module: Any, tensor_name: str) -> None:
    def get(self: Any) -> Any:
        parametrization = self.parametrizations[tensor_name]
        if not _Cache.depth:
            return parametrization()
        key = (id(self), tensor_name)
        found = _Cache.values.get(key)
        if found is None:
            found = _Cache.values[key] = parametrization()
        return found

    def put(self: Any, value: Any) -> None:
        self.parametrizations[tensor_name].right_inverse(value)

    setattr(type(module), tensor_name, property(get, put))


# ---- registering and removing -------------------------------------------------------------------


def register_parametrization(
    module: Any, tensor_name: str, parametrization: Any, *, unsafe: bool = False
) -> Any:
    """Make `module.tensor_name` the value of `parametrization` on what it is now.

    A parametrisation with a `right_inverse` method can be assigned to. `unsafe` allows it to change
    shape or dtype.

    >>> import lucerne as torch
    >>> from lucerne.nn.utils import parametrize
    >>> class Positive(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x.exp()
    >>> m = torch.nn.Module()
    >>> m.scale = torch.nn.Parameter(torch.zeros(2))
    >>> _ = parametrize.register_parametrization(m, "scale", Positive())
    >>> m.scale
    tensor([1., 1.], grad_fn=<ExpBackward0>)
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_chained(module, tensor_name, parametrization)
        module.parametrizations[tensor_name].append(parametrization)
        module.parametrizations[tensor_name].unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        made = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_new_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = made
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    return module


def _check_chained(module: Any, name: str, parametrization: Any) -> None:
    """Another parametrisation on top: it must keep dtype and shape, and so must its inverse."""
    old = getattr(module, name)
    new = parametrization(old)
    _check_tensor(new)
    for what in ("dtype", "shape"):
        a, b = getattr(old, what), getattr(new, what)
        if a != b:
            raise ValueError(
                f"Registering a parametrization may not change the {what} of the tensor, unless "
                f"the `unsafe` flag is enabled.\nmodule.{name}.{what}: {a}\n"
                f"parametrization(module.{name}).{what}: {b}"
            )
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(new)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        raise ValueError(
            f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}"
        )
    for what in ("dtype", "shape"):
        a, b = getattr(old, what), getattr(back, what)
        if a != b:
            raise ValueError(
                f"The tensor returned by parametrization.right_inverse must have the same {what} "
                f"as module.{name}, unless the `unsafe` flag is enabled.\n"
                f"module.{name}.{what}: {a}\nreturned {what}: {b}"
            )


def is_parametrized(module: Any, tensor_name: str | None = None) -> bool:
    """Whether the module has a parametrised tensor (of this name)."""
    found = getattr(module, "parametrizations", None)
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Make the tensor a plain one again: with its parametrised value, or with the original."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    held = module.parametrizations[tensor_name]
    if held.is_tensor:
        original = held.original
        if leave_parametrized:
            with lu.no_grad():
                _set_data(original, getattr(module, tensor_name))
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register_parameter_or_buffer(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Any) -> type:
    """The class a module had before it was parametrised."""
    cls = type(module)
    return cls.__bases__[0] if is_parametrized(module) else cls


def transfer_parametrizations_and_params(
    from_module: Any, to_module: Any, tensor_name: str | None = None
) -> Any:
    """Give one module the parametrisations and originals of another."""
    if not is_parametrized(from_module):
        return to_module
    names = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
    for name in names:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name)))
        source = from_module.parametrizations[name]
        for parametrization in source:
            register_parametrization(to_module, name, parametrization)
        target = to_module.parametrizations[name]
        if source.is_tensor:
            target.original = source.original
        else:
            for i in range(source.ntensors):
                setattr(target, f"original{i}", getattr(source, f"original{i}"))
    return to_module
