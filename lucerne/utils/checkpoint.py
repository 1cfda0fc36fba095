"""Activation checkpointing: forget intermediates in forward, compute them again in backward."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from lucerne._src.base.process import tables
from lucerne._src.ir import dispatch
from lucerne._src.ir.dispatch import Interpreter
from lucerne._src.ir.op import Op
from lucerne._src.tensor.autograd.api import backward
from lucerne._src.tensor.autograd.function import Function
from lucerne._src.tensor.autograd.graph import saved_tensors_hooks
from lucerne._src.tensor.autograd.modes import enable_grad, no_grad
from lucerne._src.tensor.eager import autocast
from lucerne._src.tensor.random.generator import default_generator
from lucerne._src.tensor.tensor import Tensor
from lucerne.utils.selective import SAC_IGNORED_OPS as SAC_IGNORED_OPS
from lucerne.utils.selective import CheckpointPolicy as CheckpointPolicy
from lucerne.utils.selective import SelectiveCheckpointContext as SelectiveCheckpointContext
from lucerne.utils.selective import (
    create_selective_checkpoint_contexts as create_selective_checkpoint_contexts,
)

Fn = Callable[..., Any]
Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


class CheckpointError(RuntimeError):
    """The recomputed forward pass is not the one that was recorded."""


class _StopRecomputation(BaseException):
    """Raised inside the recomputation once everything backward needs is there. Nobody's `except
    Exception` on the way is meant by it."""


class _EarlyStop:
    enabled = True


class _Debug:
    enabled: bool | None = None


tables.add_switches(_EarlyStop, "enabled")
tables.add_switches(_Debug, "enabled")


@contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Whether errors list the ops of both passes, whatever `debug=` says (None: as it says)."""
    before, _Debug.enabled = _Debug.enabled, enabled
    try:
        yield
    finally:
        _Debug.enabled = before


class DefaultDeviceType:
    """The kind of accelerator whose generators a checkpoint looks after; here, the CPU."""

    _default_device_type = "cpu"

    @staticmethod
    def set_device_type(device: str = "cpu") -> None:
        """Use another kind."""
        DefaultDeviceType._default_device_type = device

    @staticmethod
    def get_device_type() -> str:
        """The kind in use."""
        return DefaultDeviceType._default_device_type


def get_device_states(*args: Any) -> tuple[list[int], list[Any]]:
    """The generator states of the accelerators that hold `args`; the CPU is not among them."""
    devices = sorted(
        {t.device.index or 0 for t in args if isinstance(t, Tensor) and t.device.type == "cuda"}
    )
    set_device_states(devices, [])
    return devices, []


def set_device_states(devices: Any, states: Any, *, device_type: str | None = None) -> None:
    """Put back what `get_device_states` found."""
    if devices:
        kind = device_type or DefaultDeviceType.get_device_type()
        raise RuntimeError(f"there is no generator of {kind} devices {list(devices)} to set")


class GraphExecGroup:
    """Several backward passes over one checkpoint that share what was computed again.

    >>> with GraphExecGroup():
    ...     print(GraphExecGroup._get_current_group() is not None)
    True
    """

    _current: GraphExecGroup | None = None

    def __enter__(self) -> GraphExecGroup:
        if GraphExecGroup._current is not None:
            raise RuntimeError("GraphExecGroup contexts can't be nested.")
        GraphExecGroup._current = self
        return self

    def __exit__(self, *exc_info: object) -> None:
        GraphExecGroup._current = None

    @classmethod
    def _get_current_group(cls) -> GraphExecGroup | None:
        return cls._current


class _Names(Interpreter):
    """Writes down which ops run."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        self.seen.append(op.name)
        return proceed(op, args, out)


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Whether recomputation stops as soon as the last needed tensor is there (default: yes)."""
    before, _EarlyStop.enabled = _EarlyStop.enabled, enable
    try:
        yield
    finally:
        _EarlyStop.enabled = before


def noop_context_fn() -> Contexts:
    return nullcontext(), nullcontext()


def checkpoint(
    function: Fn,
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Run `function(*args)` keeping only its inputs; its inside is computed again for backward.

    >>> import lucerne as torch
    >>> from lucerne.utils.checkpoint import checkpoint
    >>> x = torch.tensor([2.0], requires_grad=True)
    >>> checkpoint(lambda t: t * t, x, use_reentrant=False).backward()
    >>> x.grad
    tensor([4.])
    """
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug:
            raise ValueError(
                "Passing `context_fn` or `debug` is only supported when use_reentrant=False."
            )
        return CheckpointFunction.apply(function, preserve_rng_state, *args)
    return _without_reentry(
        function,
        args,
        kwargs,
        context_fn,
        determinism_check,
        early_stop,
        preserve_rng_state,
        debug if _Debug.enabled is None else _Debug.enabled,
    )


class _Found(list[Any]):
    """What a recomputation has saved."""

    __slots__ = ("__weakref__",)


class _Frame:
    """One checkpointed call: what is needed to run it again, and what running it again gave."""

    def __init__(
        self, rerun: Callable[[], Any], check: bool, early_stop: bool, debug: bool = False
    ) -> None:
        self.rerun = rerun
        self.names = [_Names(), _Names()] if debug else []
        self.check = check
        self.early_stop = early_stop
        self.metas: list[Any] = []
        self.recomputed: dict[int, Any] = {}

    def pack(self, t: Any) -> int:
        self.metas.append((tuple(t.shape), t.dtype, t.device))
        return len(self.metas) - 1

    def unpack(self, index: int) -> Any:
        if index not in self.recomputed:
            self.recompute()
        if GraphExecGroup._current is not None:
            return self.recomputed[index]
        return self.recomputed.pop(index)

    def watch(self, which: int) -> AbstractContextManager[Any]:
        """Write down the ops of one of the two passes, if asked to."""
        return self.names[which] if self.names else nullcontext()

    def _seen(self) -> str:
        if not self.names:
            return ""
        first, again = (" ".join(n.seen) for n in self.names)
        return f"\nops of the forward pass: {first}\nops of the recomputation: {again}"

    def recompute(self) -> None:
        found = _Found()
        # (what is computed has a history, which holds these hooks: they must not hold the tensors)
        seen = weakref.ref(found)

        def keep(t: Any) -> int:
            found = seen()
            assert found is not None
            found.append(t.detach())
            if self.early_stop and _EarlyStop.enabled and len(found) == len(self.metas):
                raise _StopRecomputation
            return len(found) - 1

        def give(index: int) -> Any:
            found = seen()
            assert found is not None
            return found[index]

        with enable_grad(), saved_tensors_hooks(keep, give), self.watch(1):
            try:
                self.rerun()
            except _StopRecomputation:
                del found[len(self.metas) :]
        self._compare(found)
        self.recomputed = dict(enumerate(found))

    def _compare(self, found: list[Any]) -> None:
        if len(found) != len(self.metas):
            raise CheckpointError(
                "A different number of tensors was saved during the original forward and "
                f"recomputation.\nNumber of tensors saved during forward: {len(self.metas)}\n"
                f"Number of tensors saved during recomputation: {len(found)}. Hint: the function "
                "must do the same thing each time it is called with the same inputs." + self._seen()
            )
        if not self.check:
            return
        for i, (meta, t) in enumerate(zip(self.metas, found, strict=True)):
            have = (tuple(t.shape), t.dtype, t.device)
            if have != meta:
                raise CheckpointError(
                    "Recomputed values for the following tensors have different metadata than "
                    f"during the forward pass.\ntensor at position {i}:\nsaved metadata: {meta}\n"
                    f"recomputed metadata: {have}" + self._seen()
                )


def _without_reentry(
    function: Fn,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    context_fn: Callable[[], Contexts],
    determinism_check: str,
    early_stop: bool,
    preserve_rng_state: bool,
    debug: bool,
) -> Any:
    if determinism_check not in ("default", "none"):
        raise ValueError(
            f"determinism_check should be one of ['default', 'none'] but got {determinism_check}"
        )
    forward_context, recompute_context = context_fn()
    rng = _rng_now() if preserve_rng_state else None
    precision = autocast.snapshot()

    def rerun() -> Any:
        with _rng_as(rng), autocast.restored(precision), recompute_context:
            return function(*args, **kwargs)

    frame = _Frame(rerun, determinism_check == "default", early_stop, debug)
    with saved_tensors_hooks(frame.pack, frame.unpack), frame.watch(0), forward_context:
        return dispatch.call_inside(function, *args, **kwargs)


def _rng_now() -> Any:
    """Where the default generator stands; a function that is captured only knows what it drew."""
    position = dispatch.state.kernel_level[-1].drawn() if dispatch.recording() else None
    return default_generator.state_bytes() if position is None else position


@contextmanager
def _rng_as(state: Any) -> Iterator[None]:
    """The default generator as it was in forward, put back afterwards."""
    if state is None:
        yield
        return
    if isinstance(state, int):
        with dispatch.state.kernel_level[-1].drawing_again(state):
            yield
        return
    now = default_generator.state_bytes()
    default_generator.load_state_bytes(state)
    try:
        yield
    finally:
        default_generator.load_state_bytes(now)


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tensors cut off from the graph, each a leaf that requires grad if the original did."""
    return tuple(
        t.detach().requires_grad_(t.requires_grad) if isinstance(t, Tensor) else t for t in inputs
    )


def check_backward_validity(inputs: Sequence[Any]) -> None:
    """Refuse a reentrant checkpoint where nothing requires grad: its backward would do nothing."""
    if not any(isinstance(t, Tensor) and t.requires_grad for t in inputs):
        raise RuntimeError("None of the inputs have requires_grad=True. Gradients will be None")


class CheckpointFunction(Function):
    """The reentrant form: backward runs a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, run_function: Fn, preserve_rng_state: bool, *args: Any) -> Any:
        ctx.run_function = run_function
        ctx.rng = _rng_now() if preserve_rng_state else None
        ctx.precision = autocast.snapshot()
        ctx.plain = [None if isinstance(a, Tensor) else a for a in args]
        ctx.tensor_at = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*[args[i] for i in ctx.tensor_at])
        with no_grad():
            return dispatch.call_inside(run_function, *args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        inputs = list(ctx.plain)
        for i, t in zip(ctx.tensor_at, ctx.saved_tensors, strict=True):
            inputs[i] = t
        detached = detach_variable(tuple(inputs))
        with enable_grad(), _rng_as(ctx.rng), autocast.restored(ctx.precision):
            outputs = ctx.run_function(*detached)
        outs = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
        pairs = [
            (o, g)
            for o, g in zip(outs, grads, strict=True)
            if isinstance(o, Tensor) and o.requires_grad
        ]
        if not pairs:
            raise RuntimeError(
                "none of output has requires_grad=True, this checkpoint() is not necessary"
            )
        backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *(t.grad if isinstance(t, Tensor) else None for t in detached))


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Checkpoint a chain of functions in `segments` pieces; the last piece is kept whole."""
    steps = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = len(steps) // segments

    def run(start: int, end: int) -> Fn:
        def piece(x: Any) -> Any:
            for step in steps[start:end]:
                x = step(x)
            return x

        return piece

    end = 0
    for k in range(segments - 1):
        start, end = k * size, (k + 1) * size
        input = checkpoint(run(start, end), input, use_reentrant=use_reentrant, **kwargs)
    return run(end, len(steps))(input)
