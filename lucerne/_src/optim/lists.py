"""What optimizers over lists of tensors share: gathering, first states, checks of options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src import backends
from lucerne._src.base.defaults import get_default_dtype
from lucerne._src.base.unspecialized import watching
from lucerne._src.ir.dispatch import call_back, recording, unseen
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.optimizers import count_steps
from lucerne.optim.optimizer import Optimizer, State, _use_grad_for_differentiable

Tensors = Sequence[Any]

FUSED_DEVICES = ["mps", "cuda", "xpu", "hpu", "cpu", "mtia", "privateuseone"]
CAPTURABLE_DEVICES = ["cuda", "xpu", "hpu", "privateuseone", "xla"]


def gathered(group: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """The parameters of a group that have a gradient, and the gradients."""
    params, grads = [], []
    for p in group["params"]:
        g = p.grad
        if g is not None:
            params.append(p)
            grads.append(g)
    return params, grads


class ListOptimizer(Optimizer):
    """A step updates, group by group, all parameters that have a gradient.

    Subclasses give the first state of a parameter (`_begin`) and the update of lists (`_update`).
    """

    _given: tuple[str, ...] = ("lr",)
    _sparse = ""
    """What is said of sparse gradients; empty: they are taken."""

    def _begin(self, p: Any, group: dict[str, Any]) -> State:
        raise NotImplementedError

    def _update(
        self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[State]
    ) -> None:
        raise NotImplementedError

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for values in self.state.values():
            if "step" in values and not isinstance(values["step"], lu.Tensor):
                values["step"] = lu.tensor(float(values["step"]), dtype=step_dtype())

    @_use_grad_for_differentiable
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters once; returns what `closure` returns."""
        return self._step(closure)

    def _step(self, closure: Callable[[], Any] | None) -> Any:
        loss = loss_of(closure)
        for group in self.param_groups:
            self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        params, grads = gathered(group)
        if self._sparse and any(g.is_sparse for g in grads):
            raise RuntimeError(self._sparse)
        if params:
            self._update(group, params, grads, self._states(params, group))

    def _prepare_states(self) -> None:
        for group in self.param_groups:
            self._states(gathered(group)[0], group)

    def _states(self, params: Sequence[Any], group: dict[str, Any]) -> list[State]:
        found = []
        for p in params:
            state = self.state[p]
            if not state and recording():
                with unseen(), watching():  # a captured step works on a state that exists
                    state.update(self._begin(p, group))
            elif not state:
                state.update(self._begin(p, group))
            found.append(state)
        return found


def loss_of(closure: Callable[[], Any] | None) -> Any:
    if closure is None:
        return None
    with lu.enable_grad():
        return call_back(closure)


def column(states: Sequence[State], name: str) -> list[Any]:
    return [s[name] for s in states]


def options(group: dict[str, Any], names: str) -> dict[str, Any]:
    """Options of a group by name, as keyword arguments of its update."""
    return {name: group[name] for name in names.split()}


def zeros(p: Any) -> Any:
    return lu.zeros_like(p, memory_format=lu.preserve_format)


def step_dtype(fused: bool | None = False) -> Any:
    wide = get_default_dtype() is lu.float64 and not fused
    return lu.float64 if wide else lu.float32


def first_step(p: Any, group: dict[str, Any]) -> Any:
    """The counter of a parameter: on its device only where a step may be captured, or where a
    captured step is one program (a counter of the host would go there and back each time)."""
    there = backends.takes_graphs(p.device.type)
    if group.get("capturable") or group.get("fused") or there:
        return lu.zeros((), dtype=step_dtype(group.get("fused")), device=p.device)
    return lu.tensor(0.0, dtype=step_dtype(), device="cpu")


# ---- options ----------------------------------------------------------------------------------


def check_lr(lr: Any, text: str = "Invalid learning rate: {}") -> None:
    if isinstance(lr, lu.Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not lr >= 0.0:
        raise ValueError(text.format(lr))


def check_at_least_zero(**options: Any) -> None:
    names = {"eps": "epsilon"}
    for name, value in options.items():
        if not value >= 0.0:
            raise ValueError(f"Invalid {names.get(name, name)} value: {value}")


def check_betas(betas: Sequence[Any]) -> None:
    for i in (0, 1):
        if not 0.0 <= betas[i] < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {betas[i]}")


def check_fused(optimizer: Optimizer, *, foreach: bool | None, differentiable: bool) -> None:
    """With `fused=True`; marks the optimizer as one that unscales gradients itself."""
    if differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]


def check_fused_param(p: Any) -> None:
    if not p.is_floating_point():
        raise RuntimeError(
            "`fused=True` requires all the params to be floating point Tensors of supported "
            f"devices: {FUSED_DEVICES} but {p.dtype} and {p.device.type}"
        )


def check_kind(
    foreach: bool | None,
    differentiable: bool,
    capturable: bool = False,
    params: Tensors = (),
    what: str = "params and state_steps",
    devices: Sequence[str] | None = None,
) -> None:
    """Refuse what PyTorch refuses: recorded foreach steps, captured steps on the CPU."""
    if foreach and differentiable:
        raise AssertionError("_foreach ops don't support autograd")
    if capturable and any(p.device.type in ("cpu", "meta") for p in params):
        listed = devices or (CAPTURABLE_DEVICES[:4] if foreach else CAPTURABLE_DEVICES)
        raise AssertionError(f"If capturable=True, {what} must be on supported devices: {listed}.")


# ---- inside an update -------------------------------------------------------------------------
# Numbers that change from step to step are factors of operators (`p.sub_(d * lr)`): a call of a
# method is remembered with its numbers (`p.add_(d, alpha=-lr)`) and would be new each time.


def number(x: Any, differentiable: bool = False) -> Any:
    """A step or a rate as a Python number; a copy where autograd must see it, since the next step
    writes into the original. A step that is captured can't look at it: a float64 tensor then."""
    if not isinstance(x, lu.Tensor):
        return x
    if recording() and not differentiable:
        return x.double()
    return x.clone() if differentiable else x.item()


def read(x: Any, differentiable: bool) -> Any:
    """A state as autograd may keep it: a copy, if the next step writes over it."""
    return x.clone() if differentiable else x


def count(steps: Tensors) -> None:
    if recording():
        count_steps(steps)
        return
    for step in steps:
        step += 1


def real(*tensors: Any) -> tuple[Any, ...]:
    """Complex tensors as pairs of reals that share their memory: the two parts are optimized as
    if they were two parameters. Tensors without dimensions are rows of one in a captured step,
    whose numbers (`number`) are tensors of float64 without dimensions and would decide the type."""
    if not tensors[0].is_complex():
        if recording() and not tensors[0].dim():
            return tuple([t.view(1) for t in tensors])
        return tensors
    return tuple(lu.view_as_real(t) if t.is_complex() else t for t in tensors)


def slope(p: Any, grad: Any, maximize: bool, weight_decay: Any) -> Any:
    """The direction uphill, with the weight decay in it."""
    grad = -grad if maximize else grad
    return grad.add(p, alpha=weight_decay) if weight_decay else grad
