"""Schedules in torch's spelling. One process drives all stages, so a schedule is given all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.base.refusals import only
from lucerne._src.distributed.pipelining.orders import (
    FORWARD,
    Orders,
    fill_and_drain,
    in_time,
    one_forward_one_backward,
)
from lucerne._src.distributed.pipelining.stage import PipelineStage
from lucerne._src.tensor import api as lu

Tensor = lu.Tensor
_FIRST = "micro-batches are cut and joined along the first dimension"


class PipelineSchedule:
    """Micro-batches through stages. `order` is what each rank does, checked when it is made."""

    def __init__(
        self,
        stages: PipelineStage | Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        name = type(self).__name__
        only(name, "args_chunk_spec", args_chunk_spec, None, _FIRST)
        only(name, "kwargs_chunk_spec", kwargs_chunk_spec, None, _FIRST)
        only(name, "output_merge_spec", output_merge_spec, None, _FIRST)
        given = [stages] if isinstance(stages, PipelineStage) else list(stages)
        self.stages = sorted(given, key=lambda stage: stage.stage_index)
        count = self.stages[0].num_stages if given else 0
        if [s.stage_index for s in self.stages] != list(range(count)) or not given:
            raise ValueError(
                f"{name}: one process drives all stages, so all {count} are given, each once: got "
                f"{[s.stage_index for s in given]}"
            )
        self.n_microbatches, self.loss_fn = n_microbatches, loss_fn
        self.share = 1 / n_microbatches if scale_grads else 1.0
        self.order = self._order()
        self._actions = in_time(self.order, count)
        self._forward_only = in_time(fill_and_drain(count, count, n_microbatches, False), count)

    def _order(self) -> Orders:
        raise NotImplementedError(f"{type(self).__name__} has no order: take one of its subclasses")

    def step(
        self,
        *args: Any,
        target: Any = None,
        losses: list[Any] | None = None,
        return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """The whole batch, cut into micro-batches: forward, and backward if there is a loss. Gives
        what the last stage gives; `losses` gets the loss of each micro-batch."""
        if self.loss_fn is not None and not lu.is_grad_enabled():
            raise RuntimeError(
                "step() requires gradients to be enabled for backward computation; it should not "
                "be used under torch.no_grad() context. Please call eval() instead."
            )
        actions = self._forward_only if self.loss_fn is None else self._actions
        kept = self.loss_fn is not None
        return self._run(actions, kept, args, kwargs, target, losses, return_outputs, loss_kwargs)

    def eval(
        self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any
    ) -> Any:
        """Forward alone."""
        with lu.no_grad():
            return self._run(self._forward_only, False, args, kwargs, target, losses, True, None)

    def _run(
        self,
        actions: Any,
        kept: bool,
        args: Any,
        kwargs: Any,
        target: Any,
        losses: Any,
        return_outputs: bool,
        loss_kwargs: Any,
    ) -> Any:
        count, last = self.n_microbatches, self.stages[-1]
        parts, named = _pieces(args, count), _pieces(kwargs, count)
        targets = None if target is None else _pieces([target], count)
        given: dict[tuple[int, int], Any] = {(0, k): parts[k] for k in range(count)}
        grads: dict[tuple[int, int], Any] = {}
        found: dict[int, Any] = {}
        results: dict[int, Any] = {}
        try:
            for s, kind, k in actions:
                stage = self.stages[s]
                if kind != FORWARD:
                    loss = found[k] if stage is last else None
                    of = grads.pop((s, k), ())
                    grads[s - 1, k] = stage.backward_one(k, loss, of, self.share)
                    continue
                made = stage.forward_one(k, given.pop((s, k)), named[k] if not s else {}, kept)
                given[s + 1, k] = made
                if stage is last:
                    results[k] = given.pop((s + 1, k))
                    if self.loss_fn is not None and targets is not None:
                        wanted = last.moved(targets[k][0])
                        result = made[0] if len(made) == 1 else made
                        found[k] = self.loss_fn(result, wanted, **(loss_kwargs or {}))
                    elif kept:
                        raise RuntimeError("step: a schedule with a loss needs a `target`")
        finally:
            for stage in self.stages:
                stage.forget()
        if losses is not None:
            losses[:] = [found[k].detach() for k in sorted(found)]
        return _joined([results[k] for k in range(count)]) if return_outputs else None


def _pieces(values: Any, count: int) -> list[Any]:
    """Arguments of each micro-batch: tensors in pieces, all else as it is."""
    pairs = list(values.items()) if isinstance(values, dict) else list(enumerate(values))
    cut = [
        (name, list(x.tensor_split(count)) if isinstance(x, Tensor) else [x] * count)
        for name, x in pairs
    ]
    if isinstance(values, dict):
        return [{name: pieces[k] for name, pieces in cut} for k in range(count)]
    return [[pieces[k] for _, pieces in cut] for k in range(count)]


def _joined(results: list[tuple[Any, ...]]) -> Any:
    with lu.no_grad():
        found = [lu.cat(list(each)) for each in zip(*results, strict=True)]
    return found[0] if len(found) == 1 else tuple(found)


class ScheduleGPipe(PipelineSchedule):
    """All micro-batches forward, then all backward: a stage holds all of them at once."""

    def _order(self) -> Orders:
        return fill_and_drain(len(self.stages), len(self.stages), self.n_microbatches)


class Schedule1F1B(PipelineSchedule):
    """One forward, one backward: a stage holds as many micro-batches as stages come after it, and
    one."""

    def _order(self) -> Orders:
        count = len(self.stages)
        if self.n_microbatches < count:
            raise ValueError(
                f"Number of microbatches ({self.n_microbatches}) must be greater than or equal to "
                f"the number of stages ({count})."
            )
        return one_forward_one_backward(count, count, self.n_microbatches)


class _Looped(PipelineSchedule):
    """Several stages on each part of the mesh: stage `k` on that of stage `k % ranks`."""

    def _ranks(self) -> int:
        meshes = [stage.mesh() for stage in self.stages]
        count = len(dict.fromkeys(meshes))
        if len(meshes) % count or any(m != meshes[k % count] for k, m in enumerate(meshes)):
            raise ValueError(
                f"{type(self).__name__}: stage k lies where stage k % ranks does; the stages "
                f"lie on {[meshes.index(m) for m in meshes]}"
            )
        return count


class ScheduleLoopedBFS(_Looped):
    """GPipe with several stages on each part of the mesh."""

    def _order(self) -> Orders:
        return fill_and_drain(self._ranks(), len(self.stages), self.n_microbatches)


class ScheduleInterleaved1F1B(_Looped):
    """One forward, one backward with several stages on each part of the mesh: a shorter wait at
    both ends of a step."""

    def _order(self) -> Orders:
        return one_forward_one_backward(self._ranks(), len(self.stages), self.n_microbatches)
