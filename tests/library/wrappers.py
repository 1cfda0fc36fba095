"""Classes of tensors that answer ops themselves, for tests of compiling."""

from typing import Any

import lucerne
from lucerne.utils._python_dispatch import return_and_correct_aliasing

aten = lucerne.ops.aten


class Quantised(lucerne.Tensor):
    """Weights in eight bits, floats where they are computed with."""

    @staticmethod
    def __new__(cls, ints: Any, scale: float) -> Any:
        return lucerne.Tensor._make_wrapper_subclass(cls, ints.shape, dtype=lucerne.float32)

    def __init__(self, ints: Any, scale: float) -> None:
        self.ints, self.scale = ints, scale

    __torch_function__ = lucerne._C._disabled_torch_function_impl

    def __tensor_flatten__(self) -> Any:
        return ["ints"], self.scale

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, scale: Any, size: Any, strides: Any) -> Any:
        return cls(inner["ints"], scale)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.detach.default:
            return cls(args[0].ints, args[0].scale)
        plain = [a.ints.float() * a.scale if isinstance(a, cls) else a for a in args]
        return func(*plain, **(kwargs or {}))


class Two(lucerne.Tensor):
    """A pair of tensors, computed with side by side."""

    @staticmethod
    def __new__(cls, a: Any, b: Any, requires_grad: bool = False) -> Any:
        make = lucerne.Tensor._make_wrapper_subclass
        return make(cls, a.shape, dtype=a.dtype, requires_grad=requires_grad)

    def __init__(self, a: Any, b: Any, requires_grad: bool = False) -> None:
        self.a, self.b = a, b

    __torch_function__ = lucerne._C._disabled_torch_function_impl

    def __tensor_flatten__(self) -> Any:
        return ["a", "b"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, strides: Any) -> Any:
        return cls(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        first = func(*[x.a if isinstance(x, cls) else x for x in args], **named)
        second = func(*[x.b if isinstance(x, cls) else x for x in args], **named)
        return return_and_correct_aliasing(func, args, named, cls(first, second))


class Held(lucerne.Tensor):
    """Wraps a weight that is trained; ops on it give plain tensors."""

    @staticmethod
    def __new__(cls, inner: Any, requires_grad: bool = False) -> Any:
        make = lucerne.Tensor._make_wrapper_subclass
        return make(cls, inner.shape, dtype=inner.dtype, requires_grad=requires_grad)

    def __init__(self, inner: Any, requires_grad: bool = False) -> None:
        self.inner = inner

    __torch_function__ = lucerne._C._disabled_torch_function_impl

    def __tensor_flatten__(self) -> Any:
        return ["inner"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, strides: Any) -> Any:
        return cls(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.detach.default:
            return cls(args[0].inner)
        result = func(*[x.inner if isinstance(x, cls) else x for x in args], **(kwargs or {}))
        return return_and_correct_aliasing(func, args, kwargs or {}, result)


class Counting(Two):
    """Counts what is asked of it, which no program can."""

    calls = 0

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls += 1
        return super().__torch_dispatch__(func, types, args, kwargs)


class Closed(lucerne.Tensor):
    """A wrapper that does not say what it is made of."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        return lucerne.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    __torch_function__ = lucerne._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*[x.inner if isinstance(x, cls) else x for x in args], **(kwargs or {}))


FACTOR = [3.0]
"""Read by `Scaled`, to be changed by tests."""


class Scaled(Held):
    """Its answer depends on something outside."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_dispatch__(func, types, args, kwargs) * FACTOR[0]


class Image(lucerne.Tensor):
    """Only retypes results."""


class Labelled(lucerne.Tensor):
    """Carries a label from its arguments to its results (`__torch_function__`)."""

    label = ""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(found, cls):
            found.label = next((x.label for x in args if isinstance(x, cls)), "")
        return found


def labelled(t: Any, label: str) -> Any:
    made = t.as_subclass(Labelled)
    made.label = label
    return made


def two(grad: bool = False, count: int = 3) -> Two:
    return Two(lucerne.arange(float(count)), lucerne.arange(float(count)) * 10, grad)
