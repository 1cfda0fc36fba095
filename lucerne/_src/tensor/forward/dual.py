"""`autograd.forward_ad`: dual tensors by hand, one level at a time."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from lucerne._src.base.process import tables
from lucerne._src.tensor.autograd.modes import Switch
from lucerne._src.tensor.forward.level import ForwardLevel, check_tangent, fresh_alias, switch


class _Entered(threading.local):
    """The levels that were entered in this thread; there is never more than one."""

    def __init__(self) -> None:
        self.levels: list[ForwardLevel] = []


_entered = _Entered()
tables.stacks.append((_entered, "levels"))


class UnpackedDualTensor(NamedTuple):
    """The value and the tangent of a dual tensor; the tangent is None where there is none.

    >>> import lucerne as torch
    >>> import lucerne.autograd.forward_ad as fwAD
    >>> with fwAD.dual_level():
    ...     fwAD.unpack_dual(fwAD.make_dual(torch.zeros(1), torch.ones(1)).sin())
    UnpackedDualTensor(primal=tensor([0.]), tangent=tensor([1.]))
    """

    primal: Any
    tangent: Any


def current_level() -> int:
    """The number of the level that is entered, or -1."""
    return len(_entered.levels) - 1


def enter_dual_level() -> int:
    """Begin to carry tangents along; `exit_dual_level` ends it."""
    if _entered.levels:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    level = ForwardLevel()
    level.__enter__()
    _entered.levels.append(level)
    return current_level()


def exit_dual_level(*, level: int | None = None) -> None:
    """Forget the tangents of the level."""
    if not _entered.levels:
        raise RuntimeError("Dual level must be a positive number.")
    if level is not None and level != current_level():
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is "
            "not supported."
        )
    _entered.levels.pop().__exit__()


class dual_level(Switch):
    """Inside, tensors may have tangents.

    >>> import lucerne as torch
    >>> import lucerne.autograd.forward_ad as fwAD
    >>> with fwAD.dual_level():
    ...     x = fwAD.make_dual(torch.tensor(2.0), torch.tensor(1.0))
    ...     (x**3).sum()
    tensor(8., tangent=12.0)
    """

    def __enter__(self) -> int:  # type: ignore[override]
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()


def make_dual(tensor: Any, tangent: Any, *, level: int | None = None) -> Any:
    """A view of `tensor` that has a tangent."""
    found = _level(level)
    if found is None:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    tangent = check_tangent(tensor, tangent)
    if found.tangent(tensor) is not None:
        raise RuntimeError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the "
            f"same level {current_level()} is not supported."
        )
    return found.dual(tensor, tangent)


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """The value of a tensor, without its tangent, and the tangent."""
    found = _level(level)
    tangent = None if found is None else found.tangent(tensor)
    if found is None or tangent is None:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(fresh_alias(tensor, found), tangent)


def _level(number: int | None) -> ForwardLevel | None:
    at = current_level() if number is None else number
    return _entered.levels[at] if 0 <= at < len(_entered.levels) else None


class set_fwd_grad_enabled(Switch):
    """Switch the carrying along of tangents on or off, for a `with` block."""

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        self._before = switch.on
        switch.on = self.mode

    def __enter__(self) -> None:
        switch.on = self.mode

    def __exit__(self, *exc: object) -> None:
        switch.on = self._before

    def __call__(self, fn: Any) -> Any:
        switch.on = self._before
        return super().__call__(fn)

    def clone(self) -> Switch:
        return set_fwd_grad_enabled(self.mode)


def is_fwd_grad_enabled() -> bool:
    return switch.on
