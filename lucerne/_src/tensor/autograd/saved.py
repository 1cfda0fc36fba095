"""Tensors kept for the backward pass, and the check that nobody wrote to them meanwhile."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from lucerne._src.base.process.source_location import describe, is_users
from lucerne._src.ir.dispatch import call_back
from lucerne._src.tensor.autograd.state import AutogradState
from lucerne._src.tensor.base import make_tensor


class _Hooks(threading.local):
    def __init__(self) -> None:
        self.stack: list[tuple[Callable[..., Any], Callable[..., Any]]] = []
        self.disabled: str | None = None


hooks = _Hooks()


def has_users_hooks() -> bool:
    """Whether tensors that are saved now go through functions of the user's."""
    if not hooks.stack:
        return False
    pack = hooks.stack[-1][0]
    code = getattr(getattr(pack, "__func__", pack), "__code__", None)
    return code is None or is_users(code)


USED_UP = (
    "Trying to backward through the graph a second time (or directly access saved "
    "tensors after they have already been freed). Saved intermediate values of the "
    "graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if "
    "you need to access saved tensors after calling backward."
)
"""What a second backward pass over one graph hears."""


class SavedTensor:
    """An input of an op, with the version its storage had."""

    __slots__ = ("hooked", "node", "output_nr", "packed", "tensor", "unpack_hook", "version")

    def __init__(self, tensor: Any, node: Any) -> None:
        storage = tensor._storage
        if storage.inference:
            raise RuntimeError(
                "Inference tensors cannot be saved for backward. Please do not use Tensors created "
                "in inference mode in computation tracked by autograd. To work around this, you "
                "can make a clone to get a normal tensor and use it in autograd, or use "
                "`torch.no_grad()` instead of `torch.inference_mode()`."
            )
        self.version = storage.version
        storage.saved = True
        self.node = node
        self.hooked = bool(hooks.stack)
        if self.hooked:
            pack, self.unpack_hook = hooks.stack[-1]
            self.packed = call_back(pack, tensor)
            self.tensor = None
        else:
            self.tensor = tensor

    @classmethod
    def at_version(cls, tensor: Any, node: Any, version: int) -> SavedTensor:
        """A tensor that was saved earlier (no hooks were on), when its storage had `version`."""
        made = cls.__new__(cls)
        made.version, made.node, made.hooked, made.tensor = version, node, False, tensor
        return made

    def unpack(self) -> Any:
        if self.hooked:
            return call_back(self.unpack_hook, self.packed)
        t: Any = self.tensor
        if t._storage.version != self.version:
            raise RuntimeError(stale_message(t, self.version, self.node))
        return t


class SavedOutput(SavedTensor):
    """A result of an op. Kept without its history, which is the node itself: no cycle."""

    __slots__ = ()

    def __init__(self, tensor: Any, node: Any, output_nr: int) -> None:
        bare = make_tensor(tensor._storage, tensor._offset, tensor._meta)
        super().__init__(bare, None)
        self.node = _weak(node)
        self.output_nr = output_nr

    @classmethod
    def at_start(cls, bare: Any, node: Any, output_nr: int = 0) -> SavedOutput:
        """A fresh result, saved when nothing had written to it yet."""
        made = cls.__new__(cls)
        made.version, made.node, made.hooked, made.tensor = 0, _weak(node), False, bare
        made.output_nr = output_nr
        return made

    def unpack(self) -> Any:
        node = self.node()
        bare: Any
        if self.hooked:
            bare = call_back(self.unpack_hook, self.packed)
        else:
            bare = self.tensor
            if bare._storage.version != self.version:
                raise RuntimeError(stale_message(bare, self.version, node))
        t = make_tensor(bare._storage, bare._offset, bare._meta)
        t._auto = AutogradState(node, self.output_nr, requires_grad=node is not None)
        return t


def _weak(node: Any) -> Any:
    return weakref.ref(node)


def stale_message(t: Any, version: int, node: Any) -> str:
    """Both lines: the one that needed the tensor, the one that wrote it."""
    meta = t._meta
    name = node.name() if node is not None else "an op"
    return (
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: [{t.type()} {list(meta.shape)}], which was saved by {name}, is at version "
        f"{t._storage.version}; expected version {version} instead.\n"
        f"  saved at:    {describe(getattr(node, 'place', None))}\n"
        f"  modified at: {describe(t._storage.writer)}\n"
        "Hint: make a copy before the in-place write (x = x.clone()), or write the result to a new "
        "tensor (x = x + 1 instead of x += 1)."
    )
