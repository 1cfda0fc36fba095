"""Optimizers whose step is one kernel over all parameters, kept ready between steps.

The first step of a group gathers its tensors and asks the engine for a kernel. The next ones only
see that nothing was exchanged (parameters, states, options) and hand the tensors over, which is all
Python does for them. Whatever the kernel does not take goes the plain way, tensor by tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any

from lucerne._src.ir.dispatch import recording
from lucerne._src.optim.lists import ListOptimizer, Tensors, gathered, loss_of
from lucerne._src.tensor import api as lu
from lucerne.optim.optimizer import State

Lists = Sequence[tuple[Any, ...] | None]


@dataclass
class StepPart:
    """Parameters of one dtype with their states; `step` is None when no kernel takes them."""

    params: tuple[Any, ...]
    states: list[State]
    step: Any


@dataclass
class Ready:
    """How a group was stepped the last time."""

    group: dict[str, Any]
    params: tuple[Any, ...]
    missing: list[Any]
    """Those without a gradient."""
    flags: tuple[bool, ...]
    parts: list[StepPart] = field(default_factory=list)

    def fits(self, group: dict[str, Any], flags: tuple[bool, ...]) -> bool:
        params = group["params"]
        return (
            self.group is group
            and self.flags == flags
            and len(params) == len(self.params)
            and all(map(is_, params, self.params))
            and all(p.grad is None for p in self.missing)
        )


class ReadyOptimizer(ListOptimizer):
    """Subclasses say what the kernel reads: `_flags`, `_numbers`, `_lists`, and `_ready_step`."""

    grad_scale: Any = None
    found_inf: Any = None
    """Set by a GradScaler for the time of a step."""
    _ready: dict[int, Ready]
    _known_states: list[State]

    def _flags(self, group: dict[str, Any]) -> tuple[bool, ...]:
        raise NotImplementedError

    def _numbers(self, group: dict[str, Any]) -> tuple[float, ...]:
        raise NotImplementedError

    def _lists(self, part: StepPart, grads: tuple[Any, ...] | None) -> Lists:
        raise NotImplementedError

    def _ready_step(self, lists: Lists, flags: tuple[bool, ...]) -> Any:
        raise NotImplementedError

    def _record(self, lists: Lists, flags: tuple[bool, ...], numbers: tuple[float, ...]) -> bool:
        """Write the step into a graph as one node; False: it is no case for that."""
        raise NotImplementedError

    def _plain(self, group: dict[str, Any], part: StepPart, grads: list[Any]) -> None:
        raise NotImplementedError

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.pop("_ready", None)

    def _step(self, closure: Callable[[], Any] | None) -> Any:
        loss = loss_of(closure)
        if recording():
            for group in self.param_groups:
                self._record_group(group)
            return loss
        if self.found_inf is not None and self.found_inf.item():
            return loss
        ready = self.__dict__.setdefault("_ready", {})
        known = self.__dict__.setdefault("_known_states", [])
        states = self.state.values()
        same = len(known) == len(states) and all(map(is_, states, known))
        for group in self.param_groups:
            kept = ready.get(id(group))
            usual = self.grad_scale is None and not group["differentiable"]
            if usual and same and kept is not None and kept.fits(group, self._flags(group)):
                self._step_again(group, kept)
            else:
                same = False
                self._step_anew(group, ready if usual else {})
        if not same:
            self._known_states = list(self.state.values())
        return loss

    def _record_group(self, group: dict[str, Any]) -> None:
        """A step that is captured: one node for all parameters of a kind, and no pointers."""
        params, grads = gathered(group)
        if self._sparse and any(g.is_sparse for g in grads):
            raise RuntimeError(self._sparse)
        flags = self._flags(group)
        for some_params, some_grads in split(params, grads):
            part = StepPart(tuple(some_params), self._states(some_params, group), None)
            whole = not (
                group["differentiable"]
                or some_params[0].is_complex()
                or any(g.is_sparse for g in some_grads)
                or any(isinstance(x, lu.Tensor) for x in _flat(group))
            )
            if whole:
                lists = self._lists(part, tuple(map(laid_out_alike, some_params, some_grads)))
                whole = self._record(lists, flags, self._numbers(group))
            if not whole:
                self._plain(group, part, some_grads)

    def _step_again(self, group: dict[str, Any], kept: Ready) -> None:
        numbers = self._numbers(group)
        for i, part in enumerate(kept.parts):
            if part.step is not None and part.step.run(self._lists(part, None), numbers):
                continue
            params, grads = gathered({"params": part.params})
            again = self._step_part(group, params, grads, kept.flags)
            if len(params) == len(part.params):
                kept.parts[i] = again
            else:
                self._ready.pop(id(group))  # some gradients are gone: gather anew next time

    def _step_anew(self, group: dict[str, Any], ready: dict[int, Ready]) -> None:
        params, grads = gathered(group)
        if self._sparse and any(g.is_sparse for g in grads):
            raise RuntimeError(self._sparse)
        if self.grad_scale is not None:
            for g in grads:
                g.div_(self.grad_scale)
        flags = self._flags(group)
        missing = [p for p in group["params"] if p.grad is None]
        kept = Ready(group, tuple(group["params"]), missing, flags)
        for some_params, some_grads in split(params, grads):
            part = self._step_part(group, some_params, some_grads, flags)
            kept.parts.append(part)
        ready[id(group)] = kept

    def _step_part(
        self, group: dict[str, Any], params: list[Any], grads: list[Any], flags: tuple[bool, ...]
    ) -> StepPart:
        part = StepPart(tuple(params), self._states(params, group), None)
        if not params:
            return part
        if not group["differentiable"] and not any(g.is_sparse for g in grads):
            lists = self._lists(part, tuple(map(laid_out_alike, params, grads)))
            part.step = self._ready_step(lists, flags)
            if part.step is not None and part.step.run(lists, self._numbers(group)):
                return part
        part.step = None
        self._plain(group, part, grads)
        return part


def _flat(group: dict[str, Any]) -> list[Any]:
    """All options, those in tuples as well."""
    options = [v for k, v in group.items() if k not in ("params", "param_names")]
    return [x for v in options for x in (v if isinstance(v, tuple) else (v,))]


def split(params: Tensors, grads: Tensors) -> list[tuple[list[Any], list[Any]]]:
    """Parameters and gradients by dtype and device."""
    found: dict[Any, tuple[list[Any], list[Any]]] = {}
    for p, g in zip(params, grads, strict=True):
        some = found.setdefault((p.dtype, g.dtype, p.device, g.layout), ([], []))
        some[0].append(p)
        some[1].append(g)
    return list(found.values())


def laid_out_alike(p: Any, g: Any) -> Any:
    """The gradient with the strides of the parameter: a kernel walks both in one order."""
    if g.stride() == p.stride() or g.shape != p.shape:
        return g
    return lu.empty_like(p).copy_(g)
