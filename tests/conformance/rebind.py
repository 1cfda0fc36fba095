"""Find another framework's version of a torch function.

Most entries of op_db are plainly `torch.<name>`. The rest are Python functions of torch's test
code: they are copied with the name `torch` (and torch's helpers) bound to the other framework.
"""

import functools
import types
from typing import Any

import torch

SEED = 42  # what torch's own wrapper_set_seed uses
METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)
OVERLOADS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)

Function = Any  # a callable; torch's builtins and overloads have no common static type


class MissingError(LookupError):
    """The other framework has no such name."""


def lookup(module: Any, path: str) -> Any:
    """`module.a.b.c`, or `MissingError`."""
    found = module
    for part in path.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise MissingError(f"{module.__name__}.{path}")
    return found


def resolve(module: Any, name: str, function: Any) -> Function:
    """The other framework's callable for the op_db entry `name`, which torch runs as `function`."""
    if isinstance(function, OVERLOADS):
        return _overload(module, str(function))
    if isinstance(function, functools.partial):
        inner = resolve(module, name, function.func)
        return functools.partial(inner, *function.args, **function.keywords)
    if isinstance(function, METHODS) or name.startswith("__"):
        return lookup(module.Tensor, function.__name__)
    if _is_test_code(function):
        return rebind(function, module)
    return lookup(module, _public_path(name, function))


def rebind(function: Function, module: Any) -> Function:
    """A copy of a function of torch's test code in which `torch` means `module`."""
    return _Rebinder(module).function(function)


def _overload(module: Any, path: str) -> Function:
    try:
        return lookup(module, f"ops.{path}")
    except MissingError:
        packet = ".".join(path.split(".")[:2])
        return lookup(module, f"ops.{packet}")


def _public_path(name: str, function: Any) -> str:
    """Where torch itself keeps the function."""
    try:
        if lookup(torch, name) is function:
            return name
    except MissingError:
        pass
    if function.__module__ == "torch._C._nn":
        return f"nn.functional.{function.__name__}"
    path = f"{function.__module__}.{function.__name__}"
    return path.removeprefix("torch.").removeprefix("functional.")


def _is_test_code(function: Any) -> bool:
    if not isinstance(function, types.FunctionType):
        return False
    return function.__module__.startswith("torch.testing.")


class _Rebinder:
    """Copies functions and what they refer to, each once."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.done: dict[int, Function] = {}

    def function(self, function: Any) -> Function:
        if not isinstance(function, types.FunctionType):
            return function
        if function.__name__ == "wrapper_set_seed":
            return self._seeded
        if id(function) not in self.done:
            self._copy(function)
        return self.done[id(function)]

    def _copy(self, function: types.FunctionType) -> None:
        scope: dict[str, Any] = {"__builtins__": function.__globals__["__builtins__"]}
        cells = function.__closure__ or ()
        closure = tuple(types.CellType(self._value(cell.cell_contents)) for cell in cells) or None
        copy = types.FunctionType(
            function.__code__, scope, function.__name__, function.__defaults__, closure
        )
        copy.__kwdefaults__ = function.__kwdefaults__
        self.done[id(function)] = copy
        for name in _global_names(function.__code__):
            if name in function.__globals__:
                scope[name] = self._value(function.__globals__[name])

    def _value(self, value: Any) -> Any:
        if isinstance(value, types.ModuleType):
            return self._module(value)
        return self.function(value) if _is_test_code(value) else value

    def _module(self, value: types.ModuleType) -> Any:
        if value.__name__ == "torch":
            return self.module
        is_test = value.__name__.startswith("torch.testing")
        if not value.__name__.startswith("torch.") or is_test:
            return value
        return lookup(self.module, value.__name__.removeprefix("torch."))

    def _seeded(self, op: Function, *args: Any, **kwargs: Any) -> Any:
        self.module.manual_seed(SEED)
        return op(*args, **kwargs)


def _global_names(code: types.CodeType) -> set[str]:
    """Names that a function and the functions inside it may read from their module."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names
