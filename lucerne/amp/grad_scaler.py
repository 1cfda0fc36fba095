"""GradScaler: losses are scaled up so that small gradients survive float16."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.ir.dispatch import recording, unseen
from lucerne._src.tensor import api as lu

_NOT_SCALED = (
    "Attempted {} but _scale is None.  This may indicate your script did not use "
    "scaler.scale(loss or outputs) earlier in the iteration."
)


class OptState(Enum):
    """How far an optimizer has come in this iteration."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _fresh() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """Scales losses, takes the scale back from gradients, and skips steps whose gradients are not
    finite. The scale grows after `growth_interval` good steps and shrinks after a bad one.

    >>> import lucerne
    >>> w = lucerne.ones(1, requires_grad=True)
    >>> optimizer = lucerne.optim.SGD([w], lr=0.5)
    >>> scaler = lucerne.amp.GradScaler("cpu")
    >>> scaler.scale((w * 1).sum()).backward()
    >>> w.grad
    tensor([65536.])
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> w
    tensor([0.5000], requires_grad=True)
    """

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        self._device = device
        self._enabled = enabled
        if enabled and device == "cuda":
            notices.warn(
                "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling."
            )
            self._enabled = False
        if not self._enabled:
            return
        if not growth_factor > 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if not backoff_factor < 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._init_scale = init_scale
        self._scale: Any = None
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._init_growth_tracker = 0
        self._growth_tracker: Any = None
        self._per_optimizer_states: defaultdict[int, dict[str, Any]] = defaultdict(_fresh)

    # -- scaling ---------------------------------------------------------------------------------

    def _begun(self, what: str) -> tuple[Any, Any]:
        if self._scale is None:
            raise AssertionError(_NOT_SCALED.format(what))
        return self._scale, self._growth_tracker

    def scale(self, outputs: Any) -> Any:
        """A tensor, or tensors in lists, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, lu.Tensor):
            if self._scale is None:
                with unseen():  # they exist even if this call is only being captured
                    self._begin(outputs.device)
            return outputs * self._scale.to(outputs.device)
        if not isinstance(outputs, Iterable) or isinstance(outputs, (str, bytes)):
            raise ValueError("outputs must be a Tensor or an iterable of Tensors")
        scaled = [self.scale(x) for x in outputs]
        return tuple(scaled) if isinstance(outputs, tuple) else scaled

    def _begin(self, device: Any) -> None:
        self._scale = lu.full((), self._init_scale, dtype=lu.float32, device=device)
        self._growth_tracker = lu.full((), self._init_growth_tracker, dtype=lu.int32, device=device)

    def unscale_(self, optimizer: Any) -> None:
        """Take the scale back from the gradients before `step` does, to clip them for example."""
        if not self._enabled:
            return
        self._begun("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        factor = 1.0 / (self._scale.double() if recording() else float(self._scale))
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, factor, False)
        state["stage"] = OptState.UNSCALED

    @lu.no_grad()
    def _unscale_grads_(self, optimizer: Any, factor: Any, allow_fp16: bool) -> dict[Any, Any]:
        """Multiply all gradients; by device, one if some were not finite, else zero."""
        looked = not recording()  # a call that is captured can't look at the gradients
        found: dict[Any, Any] = {}
        for group in optimizer.param_groups:
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                if not allow_fp16 and grad.dtype is lu.float16:
                    raise ValueError("Attempting to unscale FP16 gradients.")
                values = grad._values() if grad.is_sparse else grad
                if grad.device not in found:
                    found[grad.device] = lu.zeros((), dtype=lu.float32, device=grad.device)
                finite = values.isfinite().all()
                if not looked:
                    found[grad.device] = lu.where(finite, found[grad.device], 1.0)
                elif not bool(finite):
                    found[grad.device].fill_(1.0)
                if lu.is_tensor(factor) or factor != 1.0:
                    values.mul_(factor)
        return found

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(...)`, unless a gradient is inf or nan; gradients are unscaled first."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._begun("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False) and not recording():
            return self._step_inside(optimizer, state, args, kwargs)
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        if not state["found_inf_per_device"]:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = self._maybe_opt_step(optimizer, state, *args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def _maybe_opt_step(
        self, optimizer: Any, state: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        if recording():
            return self._step_or_not(optimizer, state, args, kwargs)
        if any(float(x) for x in state["found_inf_per_device"].values()):
            return None
        return optimizer.step(*args, **kwargs)

    @lu.no_grad()
    def _step_or_not(
        self, optimizer: Any, state: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A step that is captured: always made, and taken back where a gradient was not finite."""
        optimizer._prepare_states()
        tensors = _tensors_of(optimizer)
        before = [t.detach().clone() for t in tensors]
        result = optimizer.step(*args, **kwargs)
        bad = sum(state["found_inf_per_device"].values()) > 0
        for t, old in zip(tensors, before, strict=True):
            t.copy_(lu.where(bad, old, t))
        return result

    def _step_inside(
        self, optimizer: Any, state: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A step of an optimizer that takes the scale and the flag itself (`fused=True`)."""
        scale = None
        if state["stage"] is OptState.READY:
            self._check_inf_per_device(optimizer)
            scale = self._scale
        total = sum(float(x) for x in state["found_inf_per_device"].values())
        optimizer.grad_scale = scale
        optimizer.found_inf = lu.tensor(min(1.0, total))
        try:
            result = optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale
            del optimizer.found_inf
        state["stage"] = OptState.STEPPED
        return result

    def update(self, new_scale: Any = None) -> None:
        """Change the scale after the steps of an iteration: grown, shrunk, or `new_scale`."""
        if not self._enabled:
            return
        scale, tracker = self._begun("update")
        if new_scale is not None:
            _set_scale(scale, new_scale)
        else:
            found = [
                x
                for state in self._per_optimizer_states.values()
                for x in state["found_inf_per_device"].values()
            ]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            if recording():
                self._move_recorded(scale, tracker, sum(found) > 0)
            else:
                self._move(scale, tracker, any(float(x) for x in found))
        self._per_optimizer_states = defaultdict(_fresh)

    def _move(self, scale: Any, tracker: Any, failed: bool) -> None:
        if failed:
            scale.mul_(self._backoff_factor)
            tracker.zero_()
            return
        good = int(tracker) + 1
        if good == self._growth_interval:
            grown = float(scale * self._growth_factor)
            if math.isfinite(grown):
                scale.fill_(grown)
            good = 0
        tracker.fill_(good)

    @lu.no_grad()
    def _move_recorded(self, scale: Any, tracker: Any, failed: Any) -> None:
        """`_move` with choices between tensors."""
        good = tracker + 1
        due = good == self._growth_interval
        grown = scale * self._growth_factor
        kept = lu.where(lu.logical_and(due, grown.isfinite()), grown, scale)
        tracker.copy_(lu.where(lu.logical_or(failed, due), 0, good))
        scale.copy_(lu.where(failed, scale * self._backoff_factor, kept))

    # -- what others look at ---------------------------------------------------------------------

    def _found_inf_per_device(self, optimizer: Any) -> dict[Any, Any]:
        found: dict[Any, Any] = self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        return found

    def _check_inf_per_device(self, optimizer: Any) -> dict[Any, Any]:
        self._begun("_check_inf_per_device")
        found = self._unscale_grads_(optimizer, 1.0, True)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = found
        return found

    def _get_scale_async(self) -> Any:
        return self._scale

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        tracker = self._growth_tracker
        return self._init_growth_tracker if tracker is None else int(tracker)

    def get_scale(self) -> float:
        """The current scale; 1 when disabled."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale)

    def get_growth_factor(self) -> float:
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        return self._enabled

    # -- state -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Scale, factors and counter; empty when disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave, here or in PyTorch."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled "
                "instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._scale is not None:
            self._scale.fill_(self._init_scale)
            self._growth_tracker.fill_(self._init_growth_tracker)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError(
                    "A GradScaler instance may only be pickled at the beginning of an iteration, "
                    "or at the end after scaler.update()."
                )
            state["_init_scale"] = self.get_scale()
            state["_init_growth_tracker"] = self._get_growth_tracker()
            state["_scale"] = state["_growth_tracker"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _tensors_of(optimizer: Any) -> list[Any]:
    """What a step may change: parameters that have a gradient, and their states."""
    params = [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
    states = [x for p in params if p in optimizer.state for x in optimizer.state[p].values()]
    return [*params, *(x for x in states if isinstance(x, lu.Tensor))]


def _set_scale(scale: Any, new: Any) -> None:
    if isinstance(new, float):
        scale.fill_(new)
        return
    if not isinstance(new, lu.Tensor) or new.numel() != 1 or new.requires_grad:
        raise AssertionError(
            "new_scale should be a float or a 1-element torch.cuda.FloatTensor or "
            "torch.FloatTensor with requires_grad=False."
        )
    scale.copy_(new.reshape(()))
