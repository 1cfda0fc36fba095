"""Small functions of torch that work here as there, and that only libraries call."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucerne._src.tensor import api as lu
from lucerne._src.tensor.interop.transfer import read_target
from lucerne._src.tensor.subclasses.torch_function import current_mode

_UNSAID = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, please "
    "report an enhancement request to PyTorch.)"
)


def _checking(error: type[Exception]) -> Callable[..., None]:
    def check(cond: bool, message: Callable[[], str] | str | None = None) -> None:
        if not isinstance(cond, (bool, np.bool_)):
            raise TypeError(f"cond must be a bool, but got {type(cond)}")
        if cond:
            return
        text = message() if callable(message) else message
        raise error(_UNSAID if text is None else str(text))

    return check


_check = _checking(RuntimeError)
_check_index = _checking(IndexError)
_check_value = _checking(ValueError)
_check_type = _checking(TypeError)
_check_not_implemented = _checking(NotImplementedError)


def _check_with(
    error_type: type[Exception], cond: bool, message: Callable[[], str] | str | None
) -> None:
    """Raise an error of this type unless the condition holds."""
    _checking(error_type)(cond, message)


def _check_tensor_all(cond: Any, message: Callable[[], str] | str | None = None) -> None:
    """Raise `RuntimeError` unless all elements are true."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _check_tensor_all_with(
    error_type: type[Exception], cond: Any, message: Callable[[], str] | str | None = None
) -> None:
    """Raise an error of this type unless all elements are true."""
    if not isinstance(cond, lu.Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype is not lu.bool:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, bool(cond.all()), message)


def _shape_as_tensor(x: Any) -> Any:
    """The sizes of a tensor as a tensor."""
    return lu.tensor(tuple(x.shape), dtype=lu.int64)


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """What the arguments of `Module.to` say: device, dtype, non_blocking, memory format."""
    flags = [x for x in args if isinstance(x, bool)]
    non_blocking = bool(kwargs.get("non_blocking", flags[0] if flags else False))
    dtype, device, _, memory_format = read_target(args, dict(kwargs))
    return device, dtype, non_blocking, memory_format


class _Lists:
    """`BroadcastingList2[int]`: an annotation of TorchScript's, for which any list will do."""

    def __getitem__(self, kind: Any) -> Any:
        return list[kind]


BroadcastingList = _Lists()


def generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four words of seed for a worker's NumPy generator: NumPy's own recipe for both numbers."""
    found = np.random.SeedSequence((worker_id, base_seed)).generate_state(4)
    return [int(word) for word in found]


def swap_tensor(module: Any, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """Put a tensor into a module under a name; what was there comes back."""
    home = next((d for d in (module._parameters, module._buffers) if name in d), module.__dict__)
    if name not in home and not allow_missing:
        raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
    before = home.get(name)
    if tensor is None and home is module.__dict__:
        home.pop(name, None)
    else:
        home[name] = tensor
    return before


@contextlib.contextmanager
def nothing(*args: Any, **kwargs: Any) -> Any:
    """A context in which all is as outside."""
    yield


def is_alias_of(a: Any, b: Any) -> bool:
    """Whether two tensors have one memory."""
    return a._storage is b._storage


def function_mode_enabled() -> bool:
    """Whether a `TorchFunctionMode` is entered."""
    return current_mode() is not None


class ConfigPatch(contextlib.ContextDecorator):
    """`config.patch(name=value)` or `config.patch({name: value})`: settings of torch's compiler,
    which have no effect here, for a while."""

    home = ""

    def __init__(self, changes: Any = None, value: Any = None, /, **named: Any) -> None:
        given = {changes: value} if isinstance(changes, str) else dict(changes or {})
        self.changes = {**given, **named}

    def __enter__(self) -> None:
        module = sys.modules[self.home]
        self.before = {name: getattr(module, name, None) for name in self.changes}
        vars(module).update(self.changes)

    def __exit__(self, *exc: object) -> None:
        vars(sys.modules[self.home]).update(self.before)


class DynamoPatch(ConfigPatch):
    home = "torch._dynamo.config"


class InductorPatch(ConfigPatch):
    home = "torch._inductor.config"


NUMPY_TEXT = re.compile(r"[SaUO]")
"""Kinds of NumPy arrays that no tensor can hold."""


def default_to_fused_or_foreach(
    params: Sequence[Any], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Which way an optimizer takes by itself: neither; on the host torch takes the plain one."""
    return False, False


def graph_settings_apply_shuffle(datapipe: Any, shuffle: bool | None = None) -> Any:
    """The pipe as it is when nothing is asked of its shufflers."""
    if shuffle is not None:
        raise NotImplementedError(
            "apply_shuffle_settings: datapipes are not shuffled from outside here; shuffle the "
            "dataset"
        )
    return datapipe
