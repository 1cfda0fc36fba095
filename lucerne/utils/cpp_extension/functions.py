"""Compiled functions as Python calls them."""

from __future__ import annotations

import types
from typing import Any

from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.interop import exchange
from lucerne._src.tensor.interop.outside import from_dlpack
from lucerne._src.tensor.storage import FAST
from lucerne.utils.cpp_extension.ffi import ffi

_AS_THEY_ARE = frozenset((type(None), bool, int, float, str, bytes))


def received(x: Any) -> Any:
    """What a compiled function returned, in Python's and our types."""
    if type(x) in _AS_THEY_ARE or isinstance(x, TensorBase):
        return x
    tvm = ffi()
    if isinstance(x, tvm.Tensor):
        return from_dlpack(x)
    if isinstance(x, (tvm.Array, tvm.List, tuple, list)):
        made = [received(y) for y in x]
        return tuple(made) if isinstance(x, (tvm.Array, tuple)) else made
    if isinstance(x, (tvm.Map, tvm.Dict)):
        return {received(k): received(v) for k, v in x.items()}
    return x


def given(x: Any) -> Any:
    """An argument as TVM-FFI takes it where our tensors have no C functions."""
    if isinstance(x, TensorBase):
        return exchange.lend(x).detach()
    if isinstance(x, (list, tuple)):
        return [given(y) for y in x]
    return x


class CppFunction:
    """A compiled function without a schema: it is called as it is, on tensors, numbers, text, lists
    of them. Neither autograd nor `compile` looks inside or knows what it does."""

    def __init__(self, module: str, name: str, function: Any, doc: str | None) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = module
        self.__doc__ = doc
        self._function = function

    def __repr__(self) -> str:
        return f"<C++ function {self.__module__}.{self.__name__}>"

    def __call__(self, *args: Any) -> Any:
        if FAST is None:
            args = tuple([given(a) for a in args])
        found = self._function(*args)
        return found if type(found) in _AS_THEY_ARE else received(found)


class CppModule(types.ModuleType):
    """What `load` and `load_inline` give: the functions of a library as attributes."""

    def __init__(self, name: str, library: Any) -> None:
        super().__init__(name, "Compiled functions.")
        self._library = library

    def __getattr__(self, name: str) -> Any:
        """A function that the sources export themselves."""
        if name.startswith("__"):
            raise AttributeError(name)
        function = function_of(self._library, self.__name__, name)
        made = CppFunction(self.__name__, name, function, name)
        setattr(self, name, made)
        return made


def function_of(library: Any, module: str, name: str) -> Any:
    """A function of a loaded library."""
    try:
        return library.get_function(name)
    except AttributeError:
        raise AttributeError(f"extension {module!r} exports no function {name!r}") from None
