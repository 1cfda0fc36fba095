"""Changing the tensors of a module: `to`, `half`, `to_empty` and the switches of `__future__`."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.base.process.error_notes import entry_failed
from lucerne._src.base.process.structure_version import note_change
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.interop import transfer
from lucerne.nn.parameter import Parameter


class Switches:
    """What `lucerne.__future__` sets."""

    overwrite = False
    """Conversions make new parameters instead of changing the old ones' data."""
    swap = False
    """Conversions and loading swap tensors, so that every reference sees the new one."""


def swaps() -> bool:
    return Switches.swap


def swap_tensors(t1: Any, t2: Any) -> None:
    """Exchange everything two tensors are, types and attributes included.

    Whoever holds one of them then sees the other. Tensors with weak references to them cannot be
    swapped.
    """
    for name, t in (("t1", t1), ("t2", t2)):
        if weakref.getweakrefs(t):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    if type(t1) is not type(t2):
        t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    for field in ("_storage", "_offset", "_meta", "_auto", "_view", "_array", "__dict__"):
        a, b = getattr(t1, field), getattr(t2, field)
        setattr(t1, field, b)
        setattr(t2, field, a)


def _keeps_identity(old: Any, new: Any) -> bool:
    """Whether `old.data = new` may stand for the conversion: not to or from meta."""
    return bool(old.is_meta == new.is_meta)


def _converted(module: Any, name: str, p: Any, fn: Callable[[Any], Any]) -> Any:
    """A parameter after conversion: itself with other data, or another one in its place."""
    with lu.no_grad():
        applied = fn(p)
    if Switches.swap:
        if applied is not p:
            grad, p.grad = p.grad, None
            replacement = Parameter(applied, p.requires_grad)
            swap_tensors(p, replacement)
            _convert_grad(p, grad, fn)
        return p
    if not Switches.overwrite and _keeps_identity(p, applied):
        p.data = applied
        return p
    note_change()
    made = module._parameters[name] = Parameter(applied, p.requires_grad)
    return made


def _convert_grad(p: Any, grad: Any, fn: Callable[[Any], Any]) -> None:
    if grad is None:
        return
    with lu.no_grad():
        applied = fn(grad)
    if not Switches.overwrite and not Switches.swap and _keeps_identity(grad, applied):
        grad.data = applied
        p.grad = grad
    else:
        p.grad = applied.requires_grad_(grad.requires_grad)


class Convert:
    """The part of Module that changes dtypes, devices and memory formats."""

    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
        """Replace every parameter, gradient and buffer by `fn` of it."""
        try:
            return self._replaced(fn, recurse)
        except Exception as error:
            entry_failed(error)
            raise

    def _replaced(self, fn: Callable[[Any], Any], recurse: bool) -> Any:
        if recurse:
            for module in self._modules.values():
                if module is not None:
                    module._apply(fn)
        for name, p in list(self._parameters.items()):
            if p is not None:
                grad = p.grad
                converted = _converted(self, name, p, fn)
                if not Switches.swap:
                    _convert_grad(converted, grad, fn)
        for name, b in self._buffers.items():
            if b is not None:
                self._buffers[name] = fn(b)
        return self

    def type(self, dst_type: Any) -> Any:
        """Cast parameters and buffers to a type."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self) -> Any:
        """Cast floating point parameters and buffers to float32."""
        return self._apply(lambda t: t.float() if t.is_floating_point() else t)

    def double(self) -> Any:
        """Cast floating point parameters and buffers to float64."""
        return self._apply(lambda t: t.double() if t.is_floating_point() else t)

    def half(self) -> Any:
        """Cast floating point parameters and buffers to float16."""
        return self._apply(lambda t: t.half() if t.is_floating_point() else t)

    def bfloat16(self) -> Any:
        """Cast floating point parameters and buffers to bfloat16."""
        return self._apply(lambda t: t.bfloat16() if t.is_floating_point() else t)

    def cpu(self) -> Any:
        """Move everything to host memory."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device: Any = None) -> Any:
        """Move everything to an NVIDIA GPU; this build says that it has none."""
        return self._apply(lambda t: t.cuda(device))

    def xpu(self, device: Any = None) -> Any:
        """Move everything to an Intel GPU; this build says that it has none."""
        return self._apply(lambda t: t.xpu(device))

    def ipu(self, device: Any = None) -> Any:
        """Move everything to an IPU; this build says that it has none."""
        return self._apply(lambda t: t.ipu(device))

    def mtia(self, device: Any = None) -> Any:
        """Move everything to an MTIA device; this build says that it has none."""
        return self._apply(lambda t: t.mtia(device))

    def to_empty(self, *, device: Any, recurse: bool = True) -> Any:
        """Move to a device without copying: values are undefined afterwards."""
        return self._apply(lambda t: lu.empty_like(t, device=device), recurse=recurse)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Move and cast in place: `to(device)`, `to(dtype)`, `to(tensor)`, `to(memory_format=)`.

        A dtype is for floating point and complex tensors only; integer ones keep theirs.
        """
        dtype, device, _, memory_format = transfer.read_target(args, kwargs)
        if dtype is not None:
            if not (dtype.is_floating_point or dtype.is_complex):
                raise TypeError(
                    "nn.Module.to only accepts floating point or complex dtypes, but got desired "
                    f"dtype={dtype}"
                )
            if dtype.is_complex:
                notices.warn(
                    "Complex modules are a new feature under active development whose design may "
                    "change, and some modules might not work as expected when using complex "
                    "tensors as parameters or buffers. Please file an issue at "
                    "https://github.com/pytorch/pytorch/issues/new?template=bug-report.yml "
                    "if a complex module does not work as expected."
                )

        def convert(t: Any) -> Any:
            wanted = dtype if t.is_floating_point() or t.is_complex() else None
            try:
                if memory_format is not None and t.dim() in (4, 5):
                    return t.to(device=device, dtype=wanted, memory_format=memory_format)
                return t.to(device=device, dtype=wanted)
            except NotImplementedError as error:
                if str(error) != "Cannot copy out of meta tensor; no data!":
                    raise
                raise NotImplementedError(
                    f"{error} Please use torch.nn.Module.to_empty() instead of "
                    "torch.nn.Module.to() when moving module from meta to a different device."
                ) from None

        return self._apply(convert)
