"""`autograd.graph`: looking at the recorded graph and at what it keeps alive."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lucerne._src.ir.dispatch import call_back, state, unseen
from lucerne._src.tensor.autograd.hooks import RemovableHandle
from lucerne._src.tensor.autograd.node import GradientNode as GradientNode
from lucerne._src.tensor.autograd.node import anomaly, gradient_edge
from lucerne._src.tensor.autograd.saved import has_users_hooks, hooks
from lucerne._src.tensor.autograd.state import requires_grad
from lucerne._src.tensor.base import TensorBase

GradientEdge = collections.namedtuple("GradientEdge", ["node", "output_nr"])


def get_gradient_edge(tensor: Any) -> Any:
    """Node and output number that the gradient of `tensor` flows to."""
    if not requires_grad(tensor):
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require "
            "gradients"
        )
    return GradientEdge(*gradient_edge(tensor))


def increment_version(tensor: Any) -> None:
    """Tell autograd that the memory was written to by other means."""
    for t in (tensor,) if isinstance(tensor, TensorBase) else tensor:
        t._storage.version += 1


class saved_tensors_hooks:
    """Inside, tensors saved for backward go through `pack`, and come back through `unpack`."""

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        if hooks.disabled is not None:
            raise RuntimeError(hooks.disabled)
        hooks.stack.append((self.pack_hook, self.unpack_hook))
        state.add_special(1)

    def __exit__(self, *exc: object) -> None:
        hooks.stack.pop()
        state.add_special(-1)


class save_on_cpu(saved_tensors_hooks):
    """Keep saved tensors in host memory until backward needs them."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cpu") -> None:
        super().__init__(lambda t: (t.device, t.cpu()), lambda packed: packed[1].to(packed[0]))


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Make entering `saved_tensors_hooks` an error with this message."""
    before, hooks.disabled = hooks.disabled, error_message
    try:
        yield
    finally:
        hooks.disabled = before


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[None]:
    """Inside, tensors saved for backward are copies, so the originals may be written to."""
    with saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
        yield


def sees_each_op() -> bool:
    """Whether somebody looks at the nodes of single ops: anomaly mode, a user's hooks for what they
    save. A program that stands for many ops has none."""
    return anomaly.enabled or has_users_hooks()


def wants_values_only() -> bool:
    """Whether those who want to see ops want to know of values that are not finite, and nothing
    else: then programs may run as they are, if they look at what they give."""
    if not anomaly.enabled or (anomaly.looks is None and not anomaly.check_nan):
        return False
    if state.kernel_level or hooks.stack:
        return False
    return all(x.wants_values for x in state.call_level)


@contextmanager
def unwatched() -> Iterator[None]:
    """Inside, anomaly mode is off and no interpreter sees anything: for captures."""
    if not anomaly.enabled:
        with unseen():
            yield
        return
    before = anomaly.check_nan, anomaly.looks
    _switch_anomaly(False, before[0])
    anomaly.looks, anomaly.paused = None, True
    try:
        with unseen():
            yield
    finally:
        _switch_anomaly(True, before[0])
        anomaly.looks, anomaly.paused = before[1], False


def register_multi_grad_hook(
    tensors: Sequence[Any], fn: Callable[..., Any], *, mode: str = "all"
) -> RemovableHandle:
    """Call `fn` when the gradients of all (or of any) of `tensors` are known."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    if mode == "any":
        return _any_hook(tensors, fn)
    found: dict[int, Any] = {}
    handles = []

    def arrived(i: int) -> Callable[[Any], None]:
        def hook(g: Any) -> None:
            found[i] = g
            if len(found) == len(tensors):
                grads = [found[k] for k in range(len(tensors))]
                found.clear()
                call_back(fn, grads)

        return hook

    for i, t in enumerate(tensors):
        handles.append(t.register_hook(arrived(i)))
    return _Several(handles)


def _any_hook(tensors: Sequence[Any], fn: Callable[..., Any]) -> RemovableHandle:
    ran = [False]

    def hook(g: Any) -> None:
        if not ran[0]:
            ran[0] = True
            call_back(fn, g)

    return _Several([t.register_hook(hook) for t in tensors])


class _Several(RemovableHandle):
    def __init__(self, handles: list[Any]) -> None:
        super().__init__({})
        self._handles = handles

    def remove(self) -> None:
        for h in self._handles:
            h.remove()


def _switch_anomaly(enabled: bool, check_nan: bool) -> None:
    state.add_special(int(enabled) - int(anomaly.enabled))
    anomaly.enabled, anomaly.check_nan = enabled, check_nan


class set_detect_anomaly:
    """Anomaly mode: errors in backward show the forward line, nan gradients raise."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = (anomaly.enabled, anomaly.check_nan)
        _switch_anomaly(bool(mode), bool(check_nan))

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        try:
            if anomaly.ends is not None:
                anomaly.ends(exc[:1] in ((), (None,)))
        finally:
            _switch_anomaly(*self._before)


class detect_anomaly(set_detect_anomaly):
    """`with detect_anomaly():` find the op that made a nan gradient."""

    def __init__(self, check_nan: bool = True) -> None:
        self._check = check_nan

    def __enter__(self) -> None:
        super().__init__(True, self._check)


def is_anomaly_enabled() -> bool:
    return anomaly.enabled or anomaly.paused


def is_anomaly_check_nan_enabled() -> bool:
    return anomaly.check_nan
