"""Many gradients at once: backward passes under `vmap`, which stands above this layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lucerne._src.ir.dispatch import state
from lucerne._src.tensor.base import TensorBase


class Mapping:
    """Where `vmap` is found: `lucerne.autograd` says so, and loads it when it is needed."""

    load: Callable[[], Any] | None = None


def mapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """`vmap` of a function of tensors."""
    assert Mapping.load is not None, "import lucerne.autograd first"
    found: Callable[..., Any] = Mapping.load().vmap(function)
    return found


def check_batched(outputs: Sequence[Any], given: Sequence[Any]) -> None:
    """Refuse cotangents that do not fit, with torch's words."""
    for i, (o, g) in enumerate(zip(outputs, given, strict=False)):
        if isinstance(g, TensorBase) and g._meta.ndim and g._meta.shape[1:] != o._meta.shape:
            raise RuntimeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output "
                "as the batch dimension. The sizes of the remaining dimensions are expected to "
                "match the shape of corresponding output, but a mismatch was detected: "
                f"grad_output[{i}] has a shape of {g._meta.shape} and output[{i}] has a shape of "
                f"{o._meta.shape}. If you only want some tensors in `grad_output` to be considered "
                "batched, consider using vmap."
            )


@contextmanager
def _recorded_below(create_graph: bool) -> Iterator[None]:
    """What runs below the level is recorded only if the gradients are to be differentiated."""
    before = state.asked_grad
    if not any(i.is_transform for i in state.kernel_level):
        state.asked_grad = create_graph
    try:
        yield
    finally:
        state.asked_grad = before


def batched_gradients(
    gradients: Callable[[Sequence[Any]], Sequence[Any]], given: Sequence[Any], create_graph: bool
) -> tuple[Any, ...]:
    """`gradients` of every row of the cotangents `given`, all in one pass. A gradient that is None
    is None for all."""
    known: list[bool] = []

    def vjp(*rows: Any) -> Any:
        found = gradients(rows)
        known[:] = [g is not None for g in found]
        return tuple(g for g in found if g is not None)

    with _recorded_below(create_graph):
        made = iter(mapped(vjp)(*given))
    return tuple(next(made) if k else None for k in known)
